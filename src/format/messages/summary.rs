//! Turns the request of a conversation into a request for a text that only the proxy reads, or into a request for a
//! summary by the API itself (`compaction`), and reads such a summary.

use super::request;
use crate::{
    conversation::{Conversation, edit::Edits},
    format::{
        text_request::{AnswerLimit, TextMembers},
        values::{find_member, has_type, insert_first_member, remove_members},
    },
    json::scan::{JsonScanner, Span},
};

/// Members that are removed: an answer to one reader cannot have them, the API refuses them together with [`SUMMARIZE`],
/// or they are valid for the client's own request only.
const NOT_BESIDE: [&[u8]; 4] = [
    b"stream",
    b"stop_sequences",
    b"context_management",
    b"fallback_credit_token",
];

const SUMMARIZE: &str = r#""compaction":{"type":"summarize"}"#;

/// Asks for a summary of all messages. Everything that thinking is bound to stays as it is.
pub(in crate::format) fn ask_for_summary(
    conversation: &Conversation,
    model: &str,
    edits: &mut Edits,
) {
    remove_members(&conversation.fields, edits, |field| {
        NOT_BESIDE.contains(&conversation.raw_bytes(field.key))
    });
    if let Some(named) = conversation.find_field("model") {
        edits.replace(named.value, serde_json::Value::from(model).to_string());
    }
    insert_first_member(conversation, conversation.span, SUMMARIZE, edits);
}

/// Returns the only block of an answer, as it came, if it is a summary.
pub(in crate::format) fn read_summary_block(answer: &[u8]) -> Option<&str> {
    let (list, _) = find_member(answer, 0, b"content")?;
    let mut blocks: Vec<Span> = Vec::new();
    let mut scan = JsonScanner::new(answer, list.start as usize);
    let walked = scan.walk_array(|scan| scan.take_value().map(|(span, _)| blocks.push(span)));
    walked.ok()?;
    let &[block] = &blocks[..] else { return None };
    let is_summary = has_type(answer, block.start, "compaction");
    let block = std::str::from_utf8(&answer[block.range()]).ok()?;
    is_summary.then_some(block)
}

/// Returns the text of a summary block that the API signed; `None` if the summary failed.
pub(in crate::format) fn read_summary_text(block: &str) -> Option<String> {
    let block: serde_json::Value = serde_json::from_str(block).ok()?;
    let text = block["content"].as_str()?;
    let is_whole = !text.trim().is_empty() && block["signature"].is_string();
    is_whole.then(|| text.to_owned())
}

/// Changes only the members that shape the answer. Tools stay: the calls in the conversation need them, and the
/// provider's cache depends on them.
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
        // Without thinking, the API refuses the edit of thinking in `context_management`, which has no other edit here.
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
