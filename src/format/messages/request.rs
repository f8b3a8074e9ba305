//! The fields of a Messages request other than its items.

use crate::{
    conversation::{Conversation, ItemPlace},
    format::values::{find_member, parse_field},
    json::scan::{JsonKind, JsonScanner, Span},
};

pub(in crate::format) const CAPS: &[&str] = &["max_tokens"];

pub(in crate::format) const TOOL_LISTS: &[&str] = &["tools"];

/// The member that lists servers whose tools the provider calls.
pub(in crate::format) const TOOL_SERVERS: &str = "mcp_servers";

/// The member by which the provider holds the history for some minutes (beta `message-threads-2026-08-12`).
pub(in crate::format) const THREAD: &str = "thread";

/// Whether the next request will have the whole history. In a thread, it will have the new messages only.
pub(in crate::format) fn sends_history(conversation: &Conversation) -> bool {
    !conversation.asks_for(THREAD)
}

/// Returns the id of the answer from which the request continues its thread.
pub(in crate::format) fn find_previous_answer(conversation: &Conversation) -> Option<String> {
    let thread = parse_field(conversation, THREAD);
    let continues = thread["type"] == "continue";
    let id = thread["previous_message_id"].as_str();
    id.filter(|_| continues).map(str::to_owned)
}

pub(in crate::format) fn thinking_budget(conversation: &Conversation) -> Option<u64> {
    let budget = parse_field(conversation, "thinking")["budget_tokens"].as_f64();
    budget
        .filter(|tokens| *tokens >= 0.0)
        .map(|tokens| tokens as u64)
}

/// Whether turns must begin with thinking. The model may leave out adaptive thinking, so the API does not demand it.
pub(in crate::format) fn begins_turns_with_thinking(conversation: &Conversation) -> bool {
    parse_field(conversation, "thinking")["type"] == "enabled"
}

pub(in crate::format) fn managed_by_provider(conversation: &Conversation) -> Option<&'static str> {
    let management = parse_field(conversation, "context_management");
    let mut edits = management["edits"].as_array().into_iter().flatten();
    if edits.any(fits_window) {
        return Some("context_management");
    }
    if conversation.asks_for(THREAD) {
        // The provider holds the history.
        return Some(THREAD);
    }
    // A summary behind other messages replaces them: the provider leaves these messages out.
    let listed = conversation.items.iter();
    let listed = listed.filter(|item| item.place != ItemPlace::Outside);
    let is_appended = listed.skip(1).any(|item| item.is_history_summary);
    is_appended.then_some("compaction")
}

impl Conversation {
    /// The item that is the entry of `messages` at `nth`, where that is one item.
    pub(crate) fn find_entry(&self, nth: usize) -> Option<usize> {
        let list = self.find_field("messages")?.value;
        let mut scan = JsonScanner::new(&self.body, list.start as usize);
        let mut starts = Vec::new();
        let walked =
            scan.walk_array(|scan| scan.take_value().map(|(span, _)| starts.push(span.start)));
        walked.ok()?;
        let start = *starts.get(nth)?;
        self.items.iter().position(|item| item.span.start == start)
    }
}

/// Whether an edit of `context_management` keeps the conversation inside the window. An edit that clears results by the
/// number of calls does not: Claude Code asks for it in each request once a session continues after a long pause.
fn fits_window(edit: &serde_json::Value) -> bool {
    match edit["type"].as_str() {
        Some("clear_tool_uses_20250919") => edit["trigger"]["type"] != "tool_uses",
        kind => kind == Some("compact_20260112"),
    }
}

/// The structure that the answer must have.
pub(in crate::format) fn find_answer_format(conversation: &Conversation) -> Option<Span> {
    let config = conversation.find_field("output_config")?;
    let format = find_member(&conversation.body, config.value.start, b"format");
    format
        .filter(|(_, kind)| *kind != JsonKind::Null)
        .map(|(value, _)| value)
}

pub(in crate::format) fn may_call_tools(conversation: &Conversation) -> bool {
    let choice = conversation.find_field("tool_choice");
    let is_set = choice.is_some_and(|field| field.kind != JsonKind::Null);
    // A named tool leaves the proxy's tools out.
    let choice = parse_field(conversation, "tool_choice");
    !is_set || choice["type"] == "auto" || choice["type"] == "any"
}

pub(in crate::format) fn takes_plain_text(conversation: &Conversation) -> bool {
    !conversation.asks_for("stop_sequences") && find_answer_format(conversation).is_none()
}
