//! Requests and answers in few words.

use serde_json::Value;

use crate::support::AgentGeneration;

/// Whether a request has a text.
pub(super) fn says(body: &Value, text: &str) -> bool {
    body["messages"].to_string().contains(text)
}

/// The beginnings of a request's thinking, in order.
pub(super) fn list_thoughts(body: &Value) -> Vec<String> {
    let entries = body["messages"].as_array().unwrap().iter();
    let blocks = entries
        .filter_map(|entry| entry["content"].as_array())
        .flatten();
    let thoughts = blocks.filter_map(|block| block["thinking"].as_str());
    thoughts
        .map(|text| text.split(':').next().unwrap_or_default().to_owned())
        .collect()
}

/// Whether the newest answer's calls are answered behind it.
pub(super) fn ends_in_loop(body: &Value) -> bool {
    let entries = body["messages"].as_array().unwrap();
    let newest = entries
        .iter()
        .rposition(|entry| entry["role"] == "assistant")
        .unwrap();
    entries[newest + 1]["content"][0]["type"] == "tool_result"
}

/// What the provider got and gave for one answer of the client.
pub(super) fn tell_exchange(
    name: &str,
    exchanges: &[(Value, Vec<Value>)],
    generation: &AgentGeneration,
) -> String {
    let mut text = String::new();
    for (body, answer) in exchanges {
        let tools = body["tools"].as_array().into_iter().flatten();
        let tools: Vec<&str> = tools.filter_map(|tool| tool["name"].as_str()).collect();
        let tokens = body.to_string().len() / 3;
        text += &format!("[{name}] {tokens} tokens, tools {}\n", tools.join(" "));
        for entry in body["messages"].as_array().unwrap() {
            text += &format!("  {:9} ", entry["role"].as_str().unwrap_or_default());
            text += &describe_content(&entry["content"]);
            text.push('\n');
        }
        text += &if answer.is_empty() {
            "  -> refused\n".to_owned()
        } else {
            format!("  -> {}\n", describe_content(&answer.clone().into()))
        };
    }
    let header = |name| generation.header(name).unwrap_or("-").to_owned();
    let client = describe_content(&generation.message["content"]);
    let (actions, course, health) = (header("actions"), header("course"), header("health"));
    format!("{text}  client: {client}\n  actions: {actions}; course {course}; health {health}\n")
}

fn describe_content(content: &Value) -> String {
    let blocks = content
        .as_array()
        .map_or(std::slice::from_ref(content), Vec::as_slice);
    let blocks: Vec<String> = blocks.iter().map(describe_block).collect();
    blocks.join(" | ")
}

fn describe_block(block: &Value) -> String {
    let words = |text: &Value, most| shorten(text.as_str().unwrap_or_default(), most);
    match block["type"].as_str() {
        Some("thinking") => format!("THINKS {}", words(&block["thinking"], 14)),
        Some("text") => format!("text {}", words(&block["text"], 1_200)),
        Some("tool_use") => format!(
            "call {} {}",
            block["name"].as_str().unwrap_or_default(),
            block["input"]
        ),
        Some("tool_result") => match &block["content"] {
            Value::String(text) => format!("result {}", shorten(text, 30)),
            content => format!("result [{}]", describe_content(content)),
        },
        Some(kind) => kind.to_owned(),
        None => words(block, 1_200),
    }
}

fn shorten(text: &str, most: usize) -> String {
    let line = text.replace('\n', "/");
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}… ({})", &line[..end], text.len()),
        None => line,
    }
}
