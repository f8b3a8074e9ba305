//! Reads a notice as a model would: by its words, anywhere in the newest messages.

use serde_json::Value;

use super::PROXY_TOOLS;

/// What a notice asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The whole text that contains it.
    pub(crate) text: String,
    /// It names `add_reminder`.
    pub(crate) notes: bool,
    /// It asks for a `<continuation_package>`.
    pub(crate) block: bool,
    /// It names `clear_mind`, and this many generations remain.
    pub(crate) left: Option<u32>,
}

/// The notice since the last assistant message, if any.
pub(crate) fn find_notice(body: &Value) -> Option<Notice> {
    let messages = body["messages"].as_array()?;
    let last = messages.iter().rposition(|it| it["role"] == "assistant");
    let start = last.map_or(0, |at| at + 1);
    let own = proxy_call_ids(messages, last);
    let newest = messages[start..].iter().rev();
    let said = newest.filter(|it| match it["role"].as_str() {
        Some("user") => true,
        Some("tool") => !own.contains(&&it["tool_call_id"]),
        Some("function") => !it["name"]
            .as_str()
            .is_some_and(|name| PROXY_TOOLS.contains(&name)),
        _ => false,
    });
    said.map(message_text).find_map(parse_notice)
}

fn parse_notice(text: String) -> Option<Notice> {
    let (notes, block) = (
        text.contains("add_reminder"),
        text.contains("<continuation_package>"),
    );
    let left = countdown_left(&text);
    (notes || block).then_some(Notice {
        text,
        notes,
        block,
        left,
    })
}

fn proxy_call_ids(messages: &[Value], at: Option<usize>) -> Vec<&Value> {
    let calls = at.and_then(|at| messages[at]["tool_calls"].as_array());
    let own = calls.into_iter().flatten().filter(|call| {
        let name = call["function"]["name"].as_str();
        name.is_some_and(|name| PROXY_TOOLS.contains(&name))
    });
    own.map(|call| &call["id"]).collect()
}

/// Whether the last message answers a call of one of the proxy's tools.
pub(crate) fn answers_proxy_call(messages: &[Value]) -> bool {
    let last = messages.iter().rposition(|it| it["role"] == "assistant");
    let own = proxy_call_ids(messages, last);
    messages.last().is_some_and(|it| {
        let legacy = it["name"]
            .as_str()
            .is_some_and(|name| PROXY_TOOLS.contains(&name));
        it["role"] == "tool" && own.contains(&&it["tool_call_id"])
            || it["role"] == "function" && legacy
    })
}

pub(crate) fn message_text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The key that a request for a summary asks for; `None` for any other request.
pub(crate) fn summary_key(body: &Value) -> Option<String> {
    let last = message_text(body["messages"].as_array()?.last()?);
    let block = last.rfind("<summary key=\"")?;
    let key = last[block..].split('"').nth(1)?;
    last.contains("<next_steps>").then(|| key.to_owned())
}

/// The countdown: the least number in the sentences about what is left.
fn countdown_left(text: &str) -> Option<u32> {
    let words = ["remain", "left", "generation", "剩", "还有", "之后"];
    let mut least = None;
    for sentence in text.split(['.', '。', '!', '?', ';', '；', '\n']) {
        if !words.iter().any(|word| sentence.contains(word)) {
            continue;
        }
        let numbers = sentence.split(|it: char| !it.is_ascii_alphanumeric());
        let numbers = numbers.filter_map(|it| match it {
            "one" | "last" => Some(1),
            _ => it.parse().ok().filter(|number| *number <= 20),
        });
        least = numbers.chain(least).min();
    }
    least
}
