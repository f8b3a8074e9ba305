//! `recall` over real sockets: the model looks up what was cut, and the client sees only its own answers.

mod hostile;
mod lookups;
mod stable;
mod tools_gone;

use serde_json::{Value, json};

use crate::support::{ClientAnswer, ModelCall, ModelReply, ModelRequest, ModelSetup, RunningModel};

/// A model that looks up what the first placeholder names, once, by these arguments beside the id; then it repeats
/// what it was given.
pub(super) async fn start_model(window: u32, arguments: Value) -> RunningModel {
    let setup = ModelSetup {
        fragment: 4_000,
        ..ModelSetup::new(window)
    };
    setup
        .start(move |heard| recall_once(heard, &arguments))
        .await
}

pub(super) fn recall_once(heard: &ModelRequest<'_>, arguments: &Value) -> ModelReply {
    if let Some(recalled) = recalled_text(heard.body) {
        return ModelReply::text(&format!("It says: {recalled}"));
    }
    match named_ids(heard.body).first() {
        Some(id) if heard.offers_tool("recall") => {
            let mut arguments = arguments.clone();
            if arguments.get("id").is_none() {
                arguments["id"] = id.as_str().into();
            }
            ModelReply::calls([ModelCall::new("rc_1", "recall", &arguments)])
        }
        _ => ModelReply::text("It is not in sight."),
    }
}

/// The result of a call of `recall` at the end of a request.
pub(super) fn recalled_text(body: &Value) -> Option<&str> {
    let last = body["messages"].as_array()?.last()?;
    let is_ours = last["tool_call_id"].as_str()?.starts_with("rc_");
    last["content"].as_str().filter(|_| is_ours)
}

/// The ids that placeholders name, in their order.
pub(super) fn named_ids(body: &Value) -> Vec<String> {
    let text = body["messages"].to_string();
    let ids = text.split("recall id ").skip(1);
    ids.map(|rest| {
        rest.chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect()
    })
    .collect()
}

pub(super) fn message_by(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// A step that reads a file.
pub(super) fn step(id: &str, content: &str) -> [Value; 2] {
    let function = json!({"name": "read_file", "arguments": "{\"path\":\"deck.rs\"}"});
    let call = json!({"id": id, "type": "function", "function": function});
    [
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": id, "content": content}),
    ]
}

pub(super) fn request_of(messages: &[Value], stream: bool) -> Value {
    let function = json!({"name": "read_file", "parameters": {"type": "object"}});
    json!({
        "model": "up/m", "stream": stream, "messages": messages,
        "tools": [{"type": "function", "function": function}],
    })
}

/// Numbered lines with a value each.
pub(super) fn numbered_lines(count: usize) -> String {
    let lines = (1..=count).map(|line| format!("plank {line} is \"sound\" \\ value-{}", line * 7));
    lines.collect::<Vec<_>>().join("\n")
}

/// The text that a client reads in an answer, streamed or not.
pub(super) fn spoken_text(answer: &ClientAnswer) -> String {
    assert!(answer.whole && answer.status == 200, "{}", answer.text());
    let text = answer.text();
    if !text.starts_with("data:") {
        let message = &answer.json()["choices"][0]["message"];
        assert!(message.get("tool_calls").is_none(), "{message}");
        return message["content"].as_str().unwrap().to_owned();
    }
    let events = text.split("data: ").filter(|it| it.starts_with('{'));
    let events = events.map(|event| serde_json::from_str::<Value>(event).unwrap());
    let deltas = events.map(|event| event["choices"][0]["delta"].clone());
    deltas
        .inspect(|delta| assert!(delta.get("tool_calls").is_none(), "{delta}"))
        .filter_map(|delta| delta["content"].as_str().map(str::to_owned))
        .collect()
}
