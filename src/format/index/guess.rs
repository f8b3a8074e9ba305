//! Guesses the format of a body that came without its path: a file, or a request to fit.

use std::collections::HashMap;

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::conversation::{Conversation, FORMATS, Format};

/// Top-level members that only Messages have. `thinking` and `top_k` are not among them: some providers of chat
/// completions take these too.
const MESSAGES_MEMBERS: [&str; 5] = [
    "system",
    "stop_sequences",
    "context_management",
    "output_config",
    "anthropic_version",
];

impl Format {
    /// Guesses the format of a body by its shape: chat completions, unless something in the body shows another format.
    pub fn guess_from_body(body: &Bytes) -> Self {
        let mut formats = FORMATS.into_iter();
        let found = formats.find(|format| {
            let found = format.index_body(body.clone());
            found.is_ok_and(|found| format.claims_body(&found))
        });
        found.unwrap_or_default()
    }

    /// Whether a body that can be indexed in this format cannot be of any other format.
    fn claims_body(self, found: &Conversation) -> bool {
        match self {
            // A body that no other format claims is taken for chat completions.
            Self::Chat => false,
            Self::Messages => is_messages(found),
            Self::Responses => found.find_field("messages").is_none(),
            #[cfg(test)]
            Self::Toy => true,
        }
    }
}

/// `found`: a body that is indexed as Messages. Such an index does not have calls of chat completions.
fn is_messages(found: &Conversation) -> bool {
    let mut members = MESSAGES_MEMBERS.iter();
    members.any(|name| found.find_field(name).is_some())
        || !found.calls.is_empty()
        || found.items.iter().any(|item| item.author.is_tool())
        || has_messages_tools(found)
}

fn has_messages_tools(found: &Conversation) -> bool {
    let tools = found.find_field("tools").map(|field| field.value);
    let tools = tools.and_then(|span| serde_json::from_slice(found.span_bytes(span)).ok());
    let tools: Vec<HashMap<String, IgnoredAny>> = tools.unwrap_or_default();
    tools.iter().any(|tool| tool.contains_key("input_schema"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use crate::conversation::Format;

    #[test]
    fn a_format_is_guessed_by_members_blocks_and_tools() {
        let user = json!({"role": "user", "content": "x"});
        let with = |member: &str, value: Value| {
            let mut body = json!({"model": "m", "max_tokens": 9, "messages": [user.clone()]});
            body[member] = value;
            body
        };
        let messages = |list: Value| with("messages", list);
        let result = json!({"type": "tool_result", "tool_use_id": "1", "content": "r"});
        let call = json!({"type": "tool_use", "id": "1", "name": "f", "input": {}});
        let chat_call =
            json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        for (body, expected) in [
            (with("system", "s".into()), Format::Messages),
            (
                with("tools", json!([{"name": "f", "input_schema": {}}])),
                Format::Messages,
            ),
            (
                messages(json!([user, {"role": "assistant", "content": [call]}])),
                Format::Messages,
            ),
            (
                messages(json!([{"role": "user", "content": [result]}])),
                Format::Messages,
            ),
            (
                with(
                    "tools",
                    json!([{"type": "function", "function": {"name": "f"}}]),
                ),
                Format::Chat,
            ),
            (with("thinking", json!({"type": "disabled"})), Format::Chat),
            (
                messages(json!([{"role": "system", "content": "x"}, user])),
                Format::Chat,
            ),
            (
                messages(
                    json!([user, {"role": "assistant", "tool_calls": [chat_call]},
                    {"role": "tool", "tool_call_id": "1", "content": "r"}]),
                ),
                Format::Chat,
            ),
            (json!({"model": "m", "input": "x"}), Format::Responses),
            (
                json!({"model": "m", "input": [user], "tools": [{"type": "function", "name": "f"}]}),
                Format::Responses,
            ),
            (json!({"messages": "x", "input": "x"}), Format::Chat),
            (json!([]), Format::Chat),
        ] {
            let guessed = Format::guess_from_body(&Bytes::from(body.to_string()));
            assert_eq!(guessed, expected, "{body}");
        }
        assert_eq!(
            Format::guess_from_body(&Bytes::from_static(b"{")),
            Format::Chat
        );
    }
}
