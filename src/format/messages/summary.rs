//! Turns the request of a conversation into one for a text that only the proxy reads.

use super::request;
use crate::{
    conversation::{Conversation, edit::Edits},
    format::text_request::{AnswerLimit, TextMembers},
};

/// Changes the members that shape the answer, and no other: tools stay, since the calls in the conversation need them,
/// and with them the provider's cache.
pub(in crate::format) fn ask_for_text(
    part: &Conversation,
    model: &str,
    limit: AnswerLimit,
    edits: &mut Edits,
) {
    // Providers refuse a budget that the answer cap does not exceed.
    let budget = request::thinking_budget(part);
    let stops_thinking = budget.is_some_and(|budget| budget >= limit.tokens.into());
    let is_dropped = |name: &str| match name {
        "stop_sequences" => true,
        "output_config" => request::find_answer_format(part).is_some(),
        // Its edit of thinking is refused without thinking, and it has no other here.
        "thinking" | "context_management" => stops_thinking,
        _ => false,
    };
    let members = TextMembers {
        model,
        cap: (request::CAPS[0], limit.tokens),
        call_choices: &[("tool_choice", r#"{"type":"none"}"#)],
        defaults: &[],
    };
    members.write(part, is_dropped, edits);
}
