//! What a client keeps of a conversation, in no format, and how it is written in each.

use serde_json::{Value, json};

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Chat,
    Messages,
    Responses,
}

impl Wire {
    pub(crate) const ALL: [Self; 3] = [Self::Chat, Self::Messages, Self::Responses];

    /// The member of a body that holds its conversation.
    pub(crate) const fn list(self) -> &'static str {
        match self {
            Self::Responses => "input",
            _ => "messages",
        }
    }

    /// The profile of the provider that speaks it.
    pub(crate) const fn profile(self) -> &'static str {
        match self {
            Self::Messages => "anthropic",
            _ => "openai",
        }
    }
}

/// The result of a call.
#[derive(Clone, Debug)]
pub(crate) struct ToolReturn {
    pub(crate) id: Value,
    pub(crate) text: String,
}

/// One turn of the talk, as a client shows it in a request.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// The texts of a user message.
    User(Vec<String>),
    Developer(String),
    /// As the client received it, in entries of the format.
    Answer(Vec<Value>),
    /// The results of an answer, and texts beside them.
    Results {
        results: Vec<ToolReturn>,
        beside: Vec<String>,
    },
}

/// The entries of these turns. In Messages, adjacent user entries are one.
pub(crate) fn write_turns(wire: Wire, turns: &[Turn]) -> Vec<Value> {
    let mut entries = Vec::new();
    for turn in turns {
        match turn {
            Turn::User(texts) => push_texts(wire, texts, &mut entries),
            Turn::Developer(text) => entries.push(write_developer(wire, text)),
            Turn::Answer(answer) => entries.extend(answer.iter().cloned()),
            Turn::Results { results, beside } => {
                let written: Vec<Value> = results.iter().map(|it| write_result(wire, it)).collect();
                match wire {
                    Wire::Messages => push_blocks(written, &mut entries),
                    _ => entries.extend(written),
                }
                push_texts(wire, beside, &mut entries);
            }
        }
    }
    entries
}

fn write_result(wire: Wire, result: &ToolReturn) -> Value {
    let (id, text) = (&result.id, &result.text);
    match wire {
        Wire::Chat => json!({"role": "tool", "tool_call_id": id, "content": text}),
        Wire::Messages => json!({"type": "tool_result", "tool_use_id": id, "content": text}),
        Wire::Responses => json!({"type": "function_call_output", "call_id": id, "output": text}),
    }
}

fn write_developer(wire: Wire, text: &str) -> Value {
    match wire {
        Wire::Responses => json!({"type": "message", "role": "developer",
            "content": [{"type": "input_text", "text": text}]}),
        Wire::Messages => json!({"role": "system", "content": text}),
        Wire::Chat => json!({"role": "developer", "content": text}),
    }
}

fn push_texts(wire: Wire, texts: &[String], entries: &mut Vec<Value>) {
    if texts.is_empty() {
        return;
    }
    let kind = match wire {
        Wire::Responses => "input_text",
        _ => "text",
    };
    let blocks = texts.iter().map(|text| json!({"type": kind, "text": text}));
    let blocks: Vec<Value> = blocks.collect();
    match wire {
        Wire::Messages => push_blocks(blocks, entries),
        Wire::Chat if texts.len() == 1 => {
            entries.push(json!({"role": "user", "content": texts[0]}));
        }
        Wire::Chat => entries.push(json!({"role": "user", "content": blocks})),
        Wire::Responses => {
            entries.push(json!({"type": "message", "role": "user", "content": blocks}));
        }
    }
}

fn push_blocks(blocks: Vec<Value>, entries: &mut Vec<Value>) {
    match entries.last_mut().filter(|it| it["role"] == "user") {
        Some(last) => last["content"].as_array_mut().unwrap().extend(blocks),
        None => entries.push(json!({"role": "user", "content": blocks})),
    }
}

/// A tool of the client with the parameter `path`.
pub(crate) fn write_tool(wire: Wire, name: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}},
        "required": ["path"]});
    let what = "Works on a file";
    match wire {
        Wire::Chat => json!({"type": "function",
            "function": {"name": name, "description": what, "parameters": schema}}),
        Wire::Messages => json!({"name": name, "description": what, "input_schema": schema}),
        Wire::Responses => json!({"type": "function", "name": name, "description": what,
            "parameters": schema, "strict": false}),
    }
}
