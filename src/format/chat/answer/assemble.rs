//! Assembles a message from its deltas, as clients' libraries do it.
//!
//! Deltas are kept as they come and merged on demand. Strings are concatenated, except identifying
//! ones ([`IDENTIFYING`]); objects are merged; list elements with an `index` are merged by it,
//! others appended; of any other value the last one counts.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::ChatAnswer;
use crate::{
    format::{
        answer::MAX_MESSAGE_BYTES,
        answer_rewriter::{AssembledCall, BlockAssembler, TrackedBlock},
    },
    json::{scan::JsonKind, text},
};

/// Elements of a list that are searched for an index. This limit bounds the time to assemble a message.
const MAX_SEARCHED: usize = 256;

/// Identifying strings: a repeated one is not appended.
const IDENTIFYING: [&str; 5] = ["role", "id", "type", "format", "name"];

/// Members that only answers have.
const ANSWERS_ONLY: [&str; 2] = ["annotations", "audio"];

/// The concatenated deltas of one answer.
#[derive(Default)]
pub struct Deltas {
    json: Vec<u8>,
    /// The key of the last delta, if its only member is a string, to which more text can be appended.
    text_key: Vec<u8>,
    /// For each element of all `tool_calls`, the index of its call in the tracker.
    slots: Vec<Option<usize>>,
    overlong: bool,
}

/// An assembled message.
#[derive(Default)]
struct AssembledMessage {
    members: Map<String, Value>,
    /// Elements of `tool_calls`, by the index of the call in the tracker.
    calls: BTreeMap<usize, Value>,
}

impl BlockAssembler<ChatAnswer> for Deltas {
    fn assemble(&self, calls: &[&TrackedBlock]) -> (String, Vec<AssembledCall>) {
        let assembled = self.assemble_message();
        let calls = calls.iter().map(|call| assembled.build_call(call));
        (assembled.to_message_json(), calls.collect())
    }
}

impl Deltas {
    /// Adds the delta of an event. `slots` are those of its calls.
    pub(super) fn push(&mut self, json: &[u8], answer: &ChatAnswer, slots: &[Option<usize>]) {
        let Some(message) = answer.first.as_ref().filter(|_| !self.overlong) else {
            return;
        };
        let calls = answer.iter_calls().zip(slots);
        let calls = calls.filter(|(call, _)| !call.legacy);
        self.slots.extend(calls.map(|(_, slot)| *slot));
        match message.members[..] {
            [] => return,
            [member] if member.kind == JsonKind::String => {
                let key = &json[member.key.span.range()];
                let text = &json[member.value.range()];
                if key == self.text_key && !key.is_empty() {
                    self.json.truncate(self.json.len() - b"\"}".len());
                    self.json.extend_from_slice(&text[1..]);
                } else {
                    self.text_key.clear();
                    if !IDENTIFYING.iter().any(|name| name.as_bytes() == key) {
                        self.text_key.extend_from_slice(key);
                    }
                    self.json.extend([b"{\"", key, b"\":", text].concat());
                }
                self.json.push(b'}');
            }
            _ => {
                self.text_key.clear();
                self.json.extend_from_slice(&json[message.span.range()]);
            }
        }
        if self.json.len() > MAX_MESSAGE_BYTES {
            *self = Self {
                overlong: true,
                ..Self::default()
            };
        }
    }

    /// Merges the deltas; empty if they were too long or are not JSON.
    fn assemble_message(&self) -> AssembledMessage {
        let parse = |json: &[u8]| {
            let deltas = serde_json::Deserializer::from_slice(json).into_iter();
            deltas.collect::<Result<Vec<Map<_, _>>, _>>()
        };
        let deltas =
            parse(&self.json).or_else(|_| parse(&text::replace_lone_surrogates(&self.json)));
        let mut assembled = AssembledMessage::default();
        let mut slots = self.slots.iter().copied();
        for (key, value) in deltas.unwrap_or_default().into_iter().flatten() {
            match value {
                Value::Array(elements) if key == "tool_calls" => {
                    let elements = elements.into_iter().filter(Value::is_object);
                    for (element, slot) in elements.zip(&mut slots) {
                        if let Some(slot) = slot {
                            let call = assembled.calls.entry(slot).or_default();
                            merge_value(call, element, "");
                        }
                    }
                }
                value => merge_member(&mut assembled.members, key, value),
            }
        }
        assembled
    }
}

impl AssembledMessage {
    /// The message as a request would carry it.
    fn to_message_json(&self) -> String {
        if self.members.is_empty() && self.calls.is_empty() {
            return String::new();
        }
        let mut message = self.members.clone();
        message.retain(|key, value| !is_empty_value(value) && !ANSWERS_ONLY.contains(&&**key));
        message.insert("role".into(), "assistant".into());
        if !self.calls.is_empty() {
            let calls = self.calls.values().map(remove_index).collect();
            message.insert("tool_calls".into(), calls);
        }
        Value::Object(message).to_string()
    }

    fn build_call(&self, call: &TrackedBlock) -> AssembledCall {
        let (element, pointer) = if call.legacy {
            (self.members.get("function_call"), "/arguments")
        } else {
            (self.calls.get(&call.slot), "/function/arguments")
        };
        let arguments = |element: &Value| match element.pointer(pointer) {
            Some(Value::String(text)) => text.clone(),
            // Some providers give the object itself.
            Some(object @ (Value::Object(_) | Value::Array(_))) => object.to_string(),
            _ => String::new(),
        };
        AssembledCall {
            arguments: element.map(arguments),
            json: element.map(|element| remove_index(element).to_string()),
        }
    }
}

/// The call without its index, which only streams have.
fn remove_index(call: &Value) -> Value {
    let mut call = call.clone();
    if let Value::Object(members) = &mut call {
        members.remove("index");
    }
    call
}

fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

fn merge_member(members: &mut Map<String, Value>, key: String, value: Value) {
    match members.get_mut(&key) {
        Some(merged) => merge_value(merged, value, &key),
        None => drop(members.insert(key, value)),
    }
}

fn merge_value(merged: &mut Value, more: Value, key: &str) {
    match (merged, more) {
        (_, Value::Null) => {}
        (Value::String(text), Value::String(more)) => {
            let is_known = IDENTIFYING.contains(&key) && !text.is_empty();
            // A name may come in fragments, or whole in every delta.
            if !is_known || (key == "name" && *text != more) {
                text.push_str(&more);
            }
        }
        (Value::Object(members), Value::Object(more)) => {
            more.into_iter()
                .for_each(|(key, value)| merge_member(members, key, value));
        }
        (Value::Array(list), Value::Array(more)) => {
            more.into_iter()
                .for_each(|element| merge_element(list, element));
        }
        (Value::Array(list), Value::String(more)) => append_text(list, more),
        (merged @ Value::String(_), Value::Array(more)) => {
            let mut list = Vec::new();
            append_text(&mut list, merged.as_str().unwrap_or_default().to_owned());
            list.extend(more);
            *merged = Value::Array(list);
        }
        (merged, more) => *merged = more,
    }
}

/// Merges an element into the one with its index, or appends it.
fn merge_element(list: &mut Vec<Value>, element: Value) {
    let is_same = |other: &&mut Value| {
        let types = [other.get("type"), element.get("type")];
        let may_merge = types.contains(&None) || types[0] == types[1];
        may_merge && other.get("index").is_some() && other.get("index") == element.get("index")
    };
    match list.iter_mut().rev().take(MAX_SEARCHED).find(is_same) {
        Some(merged) => merge_value(merged, element, ""),
        None => list.push(element),
    }
}

/// Appends text to a list of parts: to the last part if that is text.
fn append_text(list: &mut Vec<Value>, text: String) {
    match list.last_mut() {
        _ if text.is_empty() => {}
        Some(Value::Object(part)) if part.get("type").is_some_and(|kind| kind == "text") => {
            merge_member(part, "text".into(), text.into());
        }
        _ => list.push(json!({"type": "text", "text": text})),
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockAssembler, Deltas, MAX_MESSAGE_BYTES};
    use crate::format::{answer_rewriter::BlockTracker, chat::answer};

    fn message<'a>(deltas: impl IntoIterator<Item = &'a str>) -> String {
        let (mut kept, mut calls) = (Deltas::default(), BlockTracker::new(&[]));
        for delta in deltas {
            let json = format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#);
            let answer = answer::read_answer(json.as_bytes()).unwrap();
            let slots = calls.take_fragments(json.as_bytes(), answer.iter_calls(), false);
            kept.push(json.as_bytes(), &answer, &slots);
        }
        kept.assemble(&[]).0
    }

    #[test]
    fn deltas_become_the_whole_message() {
        let whole = message([
            r#"{"role":"assistant","content":"","refusal":null,"audio":{"a":1}}"#,
            r#"{"reasoning_content":"t\ud83d"}"#,
            r#"{"reasoning_content":"\ude00"}"#,
            r#"{"n":1.50}"#,
            r#"{"reasoning_details":[{"index":0,"type":"reasoning.text","text":"a","format":"f"}]}"#,
            r#"{"reasoning_details":[{"index":0,"type":"reasoning.text","text":"b","format":"f"}]}"#,
            r#"{"reasoning_details":[{"index":0,"type":"reasoning.text","signature":"s"}]}"#,
            r#"{"content":"é"}"#,
            r#"{"tool_calls":[{"index":0,"id":"x","type":"function","function":{"name":"f","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"}"},"extra_content":{"google":{"thought_signature":"g"}}},{"index":0,"id":"y"}]}"#,
        ]);
        assert_eq!(
            whole,
            r#"{"content":"é","n":1.5,"reasoning_content":"t😀","reasoning_details":[{"format":"f","index":0,"signature":"s","text":"ab","type":"reasoning.text"}],"role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":"g"}},"function":{"arguments":"{}","name":"f"},"id":"x","type":"function"},{"id":"y"}]}"#
        );
    }

    #[test]
    fn parts_and_text_are_one_content() {
        let whole = message([
            r#"{"content":""}"#,
            r#"{"content":[{"type":"thinking","thinking":"t"}]}"#,
            r#"{"content":"a"}"#,
            r#"{"content":"b"}"#,
        ]);
        assert_eq!(
            whole,
            r#"{"content":[{"thinking":"t","type":"thinking"},{"text":"ab","type":"text"}],"role":"assistant"}"#
        );
    }

    #[test]
    fn half_a_surrogate_pair_costs_one_character() {
        let whole = message([r#"{"content":"a\ud83d"}"#, r#"{"content":"b","n":1}"#]);
        assert_eq!(
            whole,
            r#"{"content":"a\ufffdb","n":1,"role":"assistant"}"#.replace(r"\ufffd", "\u{fffd}")
        );
    }

    #[test]
    fn a_message_beyond_the_bound_is_empty() {
        let long = format!(r#"{{"content":"{}"}}"#, "x".repeat(MAX_MESSAGE_BYTES));
        assert_eq!(message([&*long, r#"{"content":"y"}"#]), "");
    }
}
