//! The fields of a Messages request beside its items.

use serde_json::Value;
use smallvec::SmallVec;

use crate::{
    conversation::{Author, BlockKind, Conversation, edit::Edits},
    format::values::{take_text, walk_if_object},
    json::scan::{JsonKind, JsonScanner, Span},
};

const CAP: &str = "max_tokens";

/// A request without tools is auxiliary if its answer cap is at most this, in tokens.
const AUXILIARY_MAX_TOKENS: u64 = 64;

/// Edits of `context_management` by which the provider keeps the conversation inside the window.
const FITTING_EDITS: [&str; 2] = ["compact_20260112", "clear_tool_uses_20250919"];

/// Requests whose history is the provider's, or is to be summarised by it.
const HELD_BY_PROVIDER: [&str; 2] = ["thread", "compaction"];

/// A cap of 0 only fills the provider's cache.
pub(in crate::format) fn is_auxiliary(conversation: &Conversation) -> bool {
    let cap = max_answer_tokens(conversation);
    cap.is_some_and(|tokens| {
        tokens == 0 || tokens <= AUXILIARY_MAX_TOKENS && !names_tools(conversation)
    })
}

pub(in crate::format) fn max_answer_tokens(conversation: &Conversation) -> Option<u64> {
    conversation.number_value(CAP)
}

pub(in crate::format) fn lower_answer_caps(
    conversation: &Conversation,
    tokens: u32,
    edits: &mut Edits,
) {
    if let Some(field) = conversation.find_field(CAP)
        && max_answer_tokens(conversation).is_some_and(|cap| cap > tokens.into())
    {
        edits.replace(field.value, tokens.to_string());
    }
}

pub(in crate::format) fn thinking_budget(conversation: &Conversation) -> Option<u64> {
    let budget = parse_field(conversation, "thinking")["budget_tokens"].as_f64();
    budget
        .filter(|tokens| *tokens >= 0.0)
        .map(|tokens| tokens as u64)
}

/// The value of a small top-level member; null where it is missing.
pub(super) fn parse_field(conversation: &Conversation, name: &str) -> Value {
    let field = conversation.find_field(name);
    let value =
        field.and_then(|field| serde_json::from_slice(conversation.span_bytes(field.value)).ok());
    value.unwrap_or_default()
}

pub(in crate::format) fn managed_by_provider(conversation: &Conversation) -> Option<&'static str> {
    let management = parse_field(conversation, "context_management");
    let mut edits = management["edits"].as_array().into_iter().flatten();
    if edits.any(|edit| FITTING_EDITS.iter().any(|kind| edit["type"] == *kind)) {
        return Some("context_management");
    }
    let mut held = HELD_BY_PROVIDER.into_iter();
    if let Some(name) = held.find(|name| conversation.asks_for(name)) {
        return Some(name);
    }
    let mut answers = conversation.items.iter();
    let compacted = answers.any(|item| {
        let mut blocks = conversation.blocks_of(item).iter();
        item.author == Author::Model
            && blocks.any(|block| {
                block.kind == BlockKind::Opaque && is_compaction(conversation, block.span)
            })
    });
    compacted.then_some("compaction")
}

/// Whether a block stands for all before it, which the provider leaves out.
fn is_compaction(conversation: &Conversation, block: Span) -> bool {
    let mut scan = JsonScanner::new(&conversation.body, block.start as usize);
    let mut kind = None;
    let walked = walk_if_object(&mut scan, |scan, key| {
        if conversation.raw_bytes(key) == b"type" {
            kind = take_text(scan)?;
            return Ok(());
        }
        scan.take_value().map(|_| ())
    });
    walked.is_ok() && kind.is_some_and(|kind| conversation.raw_bytes(kind) == b"compaction")
}

pub(in crate::format) fn beside_items(conversation: &Conversation) -> SmallVec<[Span; 3]> {
    let tools = conversation.find_field("tools").map(|field| field.value);
    tools
        .into_iter()
        .chain(find_answer_format(conversation))
        .collect()
}

/// The structure that the answer must have.
pub(super) fn find_answer_format(conversation: &Conversation) -> Option<Span> {
    let config = conversation.find_field("output_config")?;
    let mut found = None;
    let mut scan = JsonScanner::new(&conversation.body, config.value.start as usize);
    let walked = walk_if_object(&mut scan, |scan, key| {
        let (value, kind) = scan.take_value()?;
        if conversation.raw_bytes(key) == b"format" && kind != JsonKind::Null {
            found = Some(value);
        }
        Ok(())
    });
    walked.ok().and(found)
}

pub(in crate::format) fn names_tools(conversation: &Conversation) -> bool {
    ["tools", "mcp_servers"]
        .iter()
        .any(|name| conversation.asks_for(name))
}

pub(in crate::format) fn lists_tools(conversation: &Conversation) -> bool {
    conversation.find_field("tools").is_some_and(|field| {
        let inside = conversation.span_bytes(field.value).strip_prefix(b"[");
        let inside = inside.and_then(|inside| inside.strip_suffix(b"]"));
        field.kind != JsonKind::Null && inside.is_none_or(|inside| !inside.trim_ascii().is_empty())
    })
}

pub(in crate::format) fn may_call_tools(conversation: &Conversation) -> bool {
    let choice = conversation.find_field("tool_choice");
    let is_set = choice.is_some_and(|field| field.kind != JsonKind::Null);
    // A named tool leaves the proxy's tools out.
    let choice = parse_field(conversation, "tool_choice");
    !is_set || choice["type"] == "auto" || choice["type"] == "any"
}

pub(in crate::format) fn begins_answer(conversation: &Conversation) -> bool {
    let newest = conversation.items.last();
    newest.is_some_and(|item| item.author == Author::Model)
}

pub(in crate::format) fn takes_plain_text(conversation: &Conversation) -> bool {
    !conversation.asks_for("stop_sequences")
        && find_answer_format(conversation).is_none()
        && !begins_answer(conversation)
}
