//! The server's own edits of Messages (`context_management`), as Anthropic documents them: their shape, and what clearing
//! results by the number of calls takes out of a prompt before the model reads it. Shares no code with the proxy.

use serde_json::{Value, json};

const CLEARING: &str = "clear_tool_uses_20250919";
const THINKING: &str = "clear_thinking_20251015";
/// What stands in place of a cleared result.
const CLEARED: &str = "[tool result cleared]";

/// Why the API refuses the edits.
pub(crate) fn find_bad_edit(body: &Value) -> Option<String> {
    let edits = body["context_management"]["edits"].as_array();
    for (at, edit) in edits.into_iter().flatten().enumerate() {
        let kind = edit["type"].as_str().unwrap_or_default();
        if kind == THINKING && at > 0 {
            return Some(format!("context_management.edits.{at}: must be the first"));
        }
        let takes = |member: &str, kinds: &[&str]| {
            let member = &edit[member];
            let kind = member["type"].as_str().unwrap_or_default();
            member.is_null() || kinds.contains(&kind) && member["value"].is_u64()
        };
        let is_taken = kind != CLEARING
            || takes("trigger", &["input_tokens", "tool_uses"])
                && takes("keep", &["tool_uses"])
                && takes("clear_at_least", &["input_tokens"]);
        if !is_taken {
            return Some(format!(
                "context_management.edits.{at}: Input should be a valid edit"
            ));
        }
    }
    None
}

/// Clears the oldest results where the calls reach the trigger. Returns what the answer says of it (`applied_edits`).
/// `count_tokens` counts bytes.
pub(crate) fn clear_by_calls(
    body: &mut Value,
    count_tokens: impl Fn(usize) -> usize,
) -> Vec<Value> {
    let edits = body["context_management"]["edits"].as_array();
    let edits: Vec<Value> = edits.cloned().unwrap_or_default();
    let mut applied = Vec::new();
    for edit in edits {
        let (trigger, keep) = (&edit["trigger"], edit["keep"]["value"].as_u64());
        if edit["type"] != CLEARING || trigger["type"] != "tool_uses" {
            continue;
        }
        let entries = body["messages"].as_array_mut().into_iter().flatten();
        let blocks = entries.filter_map(|entry| entry["content"].as_array_mut());
        let results = blocks.flatten().filter(|it| it["type"] == "tool_result");
        let mut results: Vec<&mut Value> = results.collect();
        let is_due = results.len() as u64 > trigger["value"].as_u64().unwrap_or(u64::MAX);
        let kept = keep.unwrap_or(3) as usize;
        let mut freed = 0;
        let mut cleared = 0;
        let old = results.len().saturating_sub(kept);
        for result in results.iter_mut().take(if is_due { old } else { 0 }) {
            freed += result["content"]
                .to_string()
                .len()
                .saturating_sub(CLEARED.len());
            result["content"] = CLEARED.into();
            cleared += 1;
        }
        if cleared > 0 {
            applied.push(json!({"type": CLEARING, "cleared_tool_uses": cleared,
                "cleared_input_tokens": count_tokens(freed)}));
        }
    }
    applied
}
