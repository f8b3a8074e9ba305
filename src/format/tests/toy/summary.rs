//! Turns the request of a conversation into one for a text that only the proxy reads.

use serde_json::json;

use crate::{
    conversation::{Conversation, edit::Edits},
    format::text_request::AnswerLimit,
};

pub(in crate::format) fn ask_for_text(
    part: &Conversation,
    model: &str,
    limit: AnswerLimit,
    edits: &mut Edits,
) {
    if let Some(field) = part.find_field("engine") {
        edits.replace(field.value, json!(model).to_string());
    }
    part.lower_answer_caps(limit.tokens, edits);
}
