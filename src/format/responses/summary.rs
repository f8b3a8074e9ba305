//! Turns the request of a conversation into one for a text that only the proxy reads.

use super::request;
use crate::{
    conversation::{Conversation, edit::Edits},
    format::text_request::{AnswerLimit, TextMembers},
};

/// Members that are removed, since they shape the answer or say where it is sent or stored. `metadata` is of use only
/// with a stored answer.
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

/// Changes only the members that shape the answer. Tools stay: the calls in the conversation need them, and the
/// provider's cache depends on them.
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
        // Otherwise the model would make the call that the client demands.
        call_choices: &[("tool_choice", "\"none\"")],
        // If the client stores its answers, then the provider may know its entries by their ids in that store only.
        defaults: &[("store", "false")],
    };
    members.write(part, is_dropped, edits);
}
