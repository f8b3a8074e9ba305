//! The fields of a Responses request other than its items.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    conversation::{Author, Conversation, Item},
    format::values::{find_member, has_type, parse_field},
    json::scan::{JsonKind, Span},
};

/// The answer cap, reasoning included.
pub(in crate::format) const CAPS: &[&str] = &["max_output_tokens"];

pub(in crate::format) const TOOL_LISTS: &[&str] = &["tools"];

const PREVIOUS: &str = "previous_response_id";

/// The member by which the provider holds the history.
pub(in crate::format) fn held_by_provider(conversation: &Conversation) -> Option<&'static str> {
    let mut held = [PREVIOUS, "conversation"].into_iter();
    held.find(|name| conversation.asks_for(name))
}

/// Returns the id of the stored answer that the request continues.
pub(in crate::format) fn find_previous_answer(conversation: &Conversation) -> Option<String> {
    conversation.text_value(PREVIOUS).map(Cow::into_owned)
}

/// Subtracts reasoning before the user's newest message from the sizes, if the request says that the model reads only
/// reasoning of the running turn (`reasoning.context`, from GPT-5.6 on).
pub(super) fn leave_out_unread_reasoning(conversation: &mut Conversation) {
    if parse_field(conversation, "reasoning")["context"] == "current_turn" {
        conversation.leave_out_earlier_reasoning();
    }
}

/// Whether the request itself says which reasoning the model reads.
pub(in crate::format) fn names_reasoning_context(conversation: &Conversation) -> bool {
    let context = &parse_field(conversation, "reasoning")["context"];
    !context.is_null() && context != "auto"
}

/// Whether the request is not part of a turn: it compacts, or Codex says that it writes down what to remember.
pub(in crate::format) fn is_beside_turns(conversation: &Conversation) -> bool {
    let kind = &parse_turn_metadata(conversation)["request_kind"];
    matches!(kind.as_str(), Some("compaction" | "memory")) || ends_in_trigger(conversation)
}

/// Whether Codex says that the request fills the cache.
pub(in crate::format) fn is_prewarm(conversation: &Conversation) -> bool {
    parse_turn_metadata(conversation)["request_kind"] == "prewarm"
}

/// Whether the client compacts its conversation: it asks the provider to compact, or Codex says that the model compacts.
pub(in crate::format) fn asks_to_compact(conversation: &Conversation) -> bool {
    ends_in_trigger(conversation)
        || parse_turn_metadata(conversation)["request_kind"] == "compaction"
}

/// The thread that Codex names. A fork and a sub-agent have their own; the ids of their parents are not read.
pub(in crate::format) fn find_thread(conversation: &Conversation) -> Option<String> {
    let metadata = parse_turn_metadata(conversation);
    metadata["thread_id"].as_str().map(str::to_owned)
}

/// What Codex says about the turn of a request: JSON in a string. Null where nothing is said.
fn parse_turn_metadata(conversation: &Conversation) -> Value {
    let metadata = parse_field(conversation, "client_metadata");
    let turn = metadata["x-codex-turn-metadata"].as_str();
    let turn = turn.and_then(|turn| serde_json::from_str(turn).ok());
    turn.unwrap_or_default()
}

/// Whether it ends in an entry that asks to compact, and holds all that is to be compacted.
pub(in crate::format) fn can_be_compacted(conversation: &Conversation) -> bool {
    ends_in_trigger(conversation) && has_whole_history(conversation)
}

/// Whether the last entry asks the provider to compact.
pub(in crate::format) fn ends_in_trigger(conversation: &Conversation) -> bool {
    let last = conversation.items.last();
    let last = last.filter(|item| item.author == Author::Unknown);
    last.is_some_and(|item| is_trigger(conversation, item))
}

fn is_trigger(conversation: &Conversation, item: &Item) -> bool {
    has_type(&conversation.body, item.span.start, "compaction_trigger")
}

/// Whether an entry replaces what its client compacted. In an indexed body, only a provider can read such an entry: those
/// of the proxy are messages there.
pub(super) fn is_compaction(conversation: &Conversation, item: &Item) -> bool {
    let mut names = ["compaction", "compaction_summary"].into_iter();
    names.any(|name| has_type(&conversation.body, item.span.start, name))
}

/// Whether the request holds all that the model would read, and providers other than its own can read it.
pub(in crate::format) fn has_whole_history(conversation: &Conversation) -> bool {
    let mut entries = fixed_entries(conversation);
    held_by_provider(conversation).is_none()
        && !has_reference(conversation)
        && !entries.any(|item| is_compaction(conversation, item))
}

fn has_reference(conversation: &Conversation) -> bool {
    fixed_entries(conversation).any(|item| {
        has_type(&conversation.body, item.span.start, "item_reference")
            || is_id_only(conversation, item)
    })
}

/// Returns the member by which the request leaves its context to the provider, or the type of an entry that the provider
/// looks up itself, or that is at a place where the provider refuses it.
pub(in crate::format) fn managed_by_provider(conversation: &Conversation) -> Option<&'static str> {
    if let Some(name) = held_by_provider(conversation) {
        return Some(name);
    }
    if conversation.text_value("truncation").as_deref() == Some("auto") {
        return Some("truncation");
    }
    let management = parse_field(conversation, "context_management");
    let mut edits = management.as_array().into_iter().flatten();
    if edits.any(|edit| edit["type"] == "compaction") {
        return Some("context_management");
    }
    if has_reference(conversation) {
        return Some("item_reference");
    }
    // At another place than the end, the provider is to refuse it.
    let has_trigger = fixed_entries(conversation).any(|item| is_trigger(conversation, item));
    (has_trigger && !ends_in_trigger(conversation)).then_some("compaction_trigger")
}

/// Entries that are never edited.
pub(super) fn fixed_entries(conversation: &Conversation) -> impl Iterator<Item = &Item> {
    let items = conversation.items.iter();
    items.filter(|item| item.author == Author::Unknown)
}

/// Whether an entry refers to a stored entry: it has an id, and neither a type nor a role.
fn is_id_only(conversation: &Conversation, item: &Item) -> bool {
    let member = |name: &[u8]| {
        let member = find_member(&conversation.body, item.span.start, name);
        member.map(|(_, kind)| kind)
    };
    member(b"id") == Some(JsonKind::String)
        && member(b"type") != Some(JsonKind::String)
        && member(b"role").is_none()
}

/// Entries that list tools from their place on.
pub(in crate::format) fn tool_entries(conversation: &Conversation) -> impl Iterator<Item = &Item> {
    let entries = fixed_entries(conversation);
    entries.filter(|item| has_type(&conversation.body, item.span.start, "additional_tools"))
}

/// The list of tools in the first entry that has one.
pub(in crate::format) fn find_entry_tools(conversation: &Conversation) -> Option<Span> {
    let entry = tool_entries(conversation).next()?;
    let tools = find_member(&conversation.body, entry.span.start, b"tools");
    let (list, kind) = tools?;
    (kind == JsonKind::Array).then_some(list)
}

/// The structure that the answer must have: `text.format`, unless it asks for plain text.
pub(in crate::format) fn find_answer_format(conversation: &Conversation) -> Option<Span> {
    let text = conversation.find_field("text")?;
    let (format, kind) = find_member(&conversation.body, text.value.start, b"format")?;
    let is_text = kind == JsonKind::Null || has_type(&conversation.body, format.start, "text");
    (!is_text).then_some(format)
}

/// Whether the client sends the whole history in its next request, so that the results of the proxy's calls can be put
/// into it. A background answer is fetched later. Without `store: false` the provider keeps the history too; then only
/// an answer in the input shows that the client sends it.
pub(in crate::format) fn sends_history(conversation: &Conversation) -> bool {
    let is_unstored = conversation.find_field_of_kind("store", JsonKind::False);
    let mut items = conversation.items.iter();
    !conversation.asks_for("background")
        && (is_unstored.is_some() || items.any(|item| item.author == Author::Model))
}

pub(in crate::format) fn may_call_tools(conversation: &Conversation) -> bool {
    let choice = conversation.find_field("tool_choice");
    // A named tool, or a list of allowed ones, leaves the proxy's tools out.
    choice.is_none_or(|field| {
        let choice = conversation.text_value("tool_choice");
        field.kind == JsonKind::Null || matches!(choice.as_deref(), Some("auto" | "required"))
    })
}

pub(in crate::format) fn takes_plain_text(conversation: &Conversation) -> bool {
    !conversation.asks_for("top_logprobs")
        && !conversation.asks_for("background")
        && find_answer_format(conversation).is_none()
}
