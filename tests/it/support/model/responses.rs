//! A model that speaks OpenAI's Responses: its requests as those of chat completions, so that the same reply rules
//! hold, and its answers.

use serde_json::{Value, json};

use super::{
    ModelCall,
    dialect::{ANSWER_TOKENS, Dialect, ReplyWriter},
    messages::text_of,
    refuse,
    render::split_pieces,
};
use crate::support::{provider::ProviderStep, strict};

pub(crate) const DIALECT: Dialect = Dialect {
    find_violations: strict::responses::find_violations,
    view: view_as_chat,
    refuse: refuse_without_numbers,
    fail: refuse,
    write: |writer, text, calls| {
        let response = writer.write_response(text, calls);
        let events = response_events(&response, writer.fragment);
        (response, events)
    },
};

/// OpenAI's refusal of a prompt.
fn refuse_without_numbers(_window: u32, _tokens: u64) -> Vec<ProviderStep> {
    let message = "Your input exceeds the context window of this model. Please adjust your input and try again.";
    refuse(400, "context_length_exceeded", message)
}

/// All tools of a request, those of its entries too.
fn list_tools(body: &Value) -> Vec<&Value> {
    let entries = body["input"].as_array().into_iter().flatten();
    let entries = entries.filter(|entry| entry["type"] == "additional_tools");
    let lists = std::iter::once(&body["tools"]).chain(entries.map(|entry| &entry["tools"]));
    lists.filter_map(Value::as_array).flatten().collect()
}

/// What a model reads of a request, in the shape of chat completions.
fn view_as_chat(body: &Value) -> Value {
    let tools = list_tools(body).into_iter().map(|tool| {
        json!({"type": "function", "function": {"name": tool["name"],
            "description": tool["description"], "parameters": tool["parameters"]}})
    });
    let tools: Vec<Value> = tools.collect();
    let mut view = json!({"stream": body["stream"]});
    if !tools.is_empty() {
        view["tools"] = tools.into();
    }
    let mut messages = vec![json!({"role": "system", "content": body["instructions"]})];
    if body["input"].is_string() {
        messages.push(json!({"role": "user", "content": body["input"]}));
    }
    let mut in_answer = false;
    for entry in body["input"].as_array().into_iter().flatten() {
        let kind = entry["type"].as_str().unwrap_or("message");
        let is_answer = kind.ends_with("_call") || entry["role"] == "assistant";
        if is_answer && !in_answer {
            messages.push(json!({"role": "assistant", "content": null}));
        }
        match kind {
            "message" if is_answer => {
                let answer = messages.last_mut().unwrap();
                let before = answer["content"].as_str().unwrap_or("");
                answer["content"] = format!("{before}{}", text_of(&entry["content"])).into();
            }
            "message" => {
                messages.push(json!({"role": "user", "content": text_of(&entry["content"])}));
            }
            "function_call" | "custom_tool_call" => {
                let arguments = entry.get("arguments").unwrap_or(&entry["input"]);
                let call = json!({"id": entry["call_id"], "type": "function",
                    "function": {"name": entry["name"], "arguments": arguments}});
                let answer = messages.last_mut().unwrap();
                if answer["tool_calls"].is_null() {
                    answer["tool_calls"] = json!([]);
                }
                answer["tool_calls"].as_array_mut().unwrap().push(call);
            }
            kind if kind.ends_with("_output") => messages.push(json!({"role": "tool",
                "tool_call_id": entry["call_id"], "content": text_of(&entry["output"])})),
            _ => {}
        }
        // Reasoning begins an answer, or stands in its midst.
        in_answer = is_answer || in_answer && kind == "reasoning";
    }
    view["messages"] = messages.into();
    view
}

impl ReplyWriter<'_> {
    /// With encrypted reasoning where the request asks for it.
    fn write_response(&self, text: &str, calls: &[ModelCall]) -> Value {
        let nth = self.nth;
        let mut output = Vec::new();
        if self.body["reasoning"].is_object() {
            output.push(json!({"id": format!("rs_{nth}"), "type": "reasoning",
                "summary": [{"type": "summary_text", "text": format!("thought {nth}")}],
                "encrypted_content": format!("enc-{nth}==")}));
        }
        if !text.is_empty() {
            let part = json!({"type": "output_text", "text": text, "annotations": []});
            output.push(json!({"id": format!("msg_{nth}"), "type": "message",
                "status": "completed", "role": "assistant", "content": [part]}));
        }
        let tools = list_tools(self.body);
        for (at, call) in calls.iter().enumerate() {
            let is_custom = |tool: &&&Value| tool["type"] == "custom" && tool["name"] == *call.name;
            let mut item = json!({"id": format!("fc_{nth}_{at}"), "type": "function_call",
                "status": "completed", "call_id": call.id, "name": call.name});
            match tools.iter().find(is_custom) {
                Some(_) => {
                    item["id"] = format!("ctc_{nth}_{at}").into();
                    item["type"] = "custom_tool_call".into();
                    item["input"] = call.arguments.as_str().into();
                }
                None => item["arguments"] = call.arguments.as_str().into(),
            }
            output.push(item);
        }
        // What is read from a cache counts too.
        let usage = json!({"input_tokens": self.tokens,
            "input_tokens_details": {"cached_tokens": self.tokens / 2},
            "output_tokens": ANSWER_TOKENS, "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": self.tokens + ANSWER_TOKENS});
        json!({"id": format!("resp_{nth}"), "object": "response", "status": "completed",
            "error": null, "incomplete_details": null, "model": "m", "store": self.body["store"],
            "output": output, "usage": usage})
    }
}

/// The events of a whole answer, in fragments of at least so many bytes.
pub(crate) fn response_events(response: &Value, fragment: usize) -> String {
    let mut events = EventWriter::default();
    let mut begun = response.clone();
    begun["status"] = "in_progress".into();
    (begun["output"], begun["usage"]) = (json!([]), Value::Null);
    events.push("response.created", json!({ "response": begun }));
    events.push("response.in_progress", json!({ "response": begun }));
    for (index, item) in response["output"].as_array().unwrap().iter().enumerate() {
        let item_event = |item: &Value| json!({"output_index": index, "item": item});
        let mut begun = item.clone();
        for (key, value) in begun.as_object_mut().unwrap() {
            match key.as_str() {
                "content" | "summary" => *value = json!([]),
                "arguments" | "input" | "encrypted_content" => *value = "".into(),
                "status" => *value = "in_progress".into(),
                _ => {}
            }
        }
        events.push("response.output_item.added", item_event(&begun));
        let place = json!({"item_id": item["id"], "output_index": index});
        if item["type"] != "reasoning" || !item["summary"][0].is_null() {
            push_parts(item, &place, &mut events, fragment);
        }
        events.push("response.output_item.done", item_event(item));
    }
    events.push("response.completed", json!({ "response": response }));
    events.text
}

/// The events between the beginning and the end of an item.
fn push_parts(item: &Value, place: &Value, events: &mut EventWriter, fragment: usize) {
    let (name, key, whole) = match item["type"].as_str().unwrap() {
        "message" => ("output_text", "text", &item["content"][0]["text"]),
        "reasoning" => (
            "reasoning_summary_text",
            "text",
            &item["summary"][0]["text"],
        ),
        "function_call" => ("function_call_arguments", "arguments", &item["arguments"]),
        _ => ("custom_tool_call_input", "input", &item["input"]),
    };
    let mut place = place.clone();
    let part = match name {
        "output_text" => {
            place["content_index"] = 0.into();
            Some(("content_part", &item["content"][0]))
        }
        "reasoning_summary_text" => {
            place["summary_index"] = 0.into();
            Some(("reasoning_summary_part", &item["summary"][0]))
        }
        _ => None,
    };
    let with = |key: &str, value: &Value| {
        let mut data = place.clone();
        data[key] = value.clone();
        data
    };
    if let Some((name, part)) = part {
        let mut begun = part.clone();
        begun["text"] = "".into();
        events.push(&format!("response.{name}.added"), with("part", &begun));
    }
    for piece in split_pieces(whole.as_str().unwrap(), fragment) {
        events.push(
            &format!("response.{name}.delta"),
            with("delta", &piece.into()),
        );
    }
    events.push(&format!("response.{name}.done"), with(key, whole));
    if let Some((name, part)) = part {
        events.push(&format!("response.{name}.done"), with("part", part));
    }
}

/// Events, numbered.
#[derive(Default)]
struct EventWriter {
    text: String,
    count: usize,
}

impl EventWriter {
    fn push(&mut self, kind: &str, mut data: Value) {
        (data["type"], data["sequence_number"]) = (kind.into(), self.count.into());
        self.count += 1;
        self.text
            .push_str(&format!("event: {kind}\ndata: {data}\n\n"));
    }
}
