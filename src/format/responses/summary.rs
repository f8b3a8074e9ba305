//! Turns the request of a conversation into one for a text that only the proxy reads.

use super::request;
use crate::{
    conversation::{Conversation, edit::Edits},
    format::text_request::{AnswerLimit, TextMembers},
};

/// Members that shape the answer or say where it goes. `metadata` is of use only with a stored answer.
const DROPPED: [&str; 9] = [
    "stream_options",
    "include",
    "background",
    "metadata",
    "top_logprobs",
    "max_tool_calls",
    "parallel_tool_calls",
    "moderation",
    "modalities",
];

/// Changes the members that shape the answer, and no other: tools stay, since the calls in the conversation need them,
/// and with them the provider's cache.
pub(in crate::format) fn ask_for_text(
    part: &Conversation,
    model: &str,
    limit: AnswerLimit,
    edits: &mut Edits,
) {
    let is_dropped = |name: &str| {
        DROPPED.contains(&name) || name == "text" && request::find_answer_format(part).is_some()
    };
    let members = TextMembers {
        model,
        cap: (request::CAPS[0], limit.tokens),
        // The model would make a call that is demanded.
        call_choices: &[("tool_choice", "\"none\"")],
        // Where the client stores its answers, its entries may be known by their ids only there.
        defaults: &[("store", "false")],
    };
    members.write(part, is_dropped, edits);
}
