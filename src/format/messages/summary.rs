//! Turns the request of a conversation into one for a text that only the proxy reads, or into one for a summary of the API's
//! own (`compaction`), and reads that.

use super::request;
use crate::{
    conversation::{Conversation, edit::Edits},
    format::{
        text_request::{AnswerLimit, TextMembers},
        values::{find_member, has_type, insert_first_member, remove_members},
    },
    json::scan::{JsonScanner, Span},
};

/// What an answer to one reader cannot have, what the API refuses beside [`SUMMARIZE`], and what holds for the client's own
/// request alone.
const NOT_BESIDE: [&[u8]; 4] = [
    b"stream",
    b"stop_sequences",
    b"context_management",
    b"fallback_credit_token",
];

const SUMMARIZE: &str = r#""compaction":{"type":"summarize"}"#;

/// Asks for a summary of all messages. Whatever thinking is bound to stays as it is.
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

/// The block of an answer that is a summary and nothing else, as it came.
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

/// The text of a block that the API signed; `None` of one that failed.
pub(in crate::format) fn read_summary_text(block: &str) -> Option<String> {
    let block: serde_json::Value = serde_json::from_str(block).ok()?;
    let text = block["content"].as_str()?;
    let is_whole = !text.trim().is_empty() && block["signature"].is_string();
    is_whole.then(|| text.to_owned())
}

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
