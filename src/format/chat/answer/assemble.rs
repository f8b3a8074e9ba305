//! A message put together from its deltas, as clients' libraries do it.
//!
//! Deltas are kept as they come, and put together when the message is asked for. Strings are appended to,
//! but for those that name what they stand in; objects are merged; elements of lists that carry an
//! `index` are merged by it, others appended; of anything else the last counts.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    ChatAnswer,
    calls::{CallExecutor, CallTracker, TrackedCall},
};
use crate::{
    format::ProxyToolCall,
    json::{scan::JsonKind, text},
};

/// Bytes of deltas that one message may have.
const MAX_BYTES: usize = 1 << 20;

/// Bytes of arguments kept of one call.
const MAX_ARGUMENTS: usize = 64 << 10;

/// Elements of a list that are looked through for an index, so that no message takes long to put together.
const MAX_LOOKED_AT: usize = 256;

/// Strings that name what they stand in: said again, they are not appended.
const NAMING: [&str; 5] = ["role", "id", "type", "format", "name"];

/// Members that only answers have.
const ANSWERS_ONLY: [&str; 2] = ["annotations", "audio"];

/// The deltas of one answer, one behind the other.
#[derive(Default)]
pub(super) struct Deltas {
    json: Vec<u8>,
    /// The key of the last delta, where that is one string to which more of it can be appended.
    text_key: Vec<u8>,
    /// The calls that the elements of all `tool_calls` belong to.
    slots: Vec<Option<usize>>,
    overlong: bool,
}

/// A message that was put together.
#[derive(Default)]
pub(super) struct AssembledMessage {
    members: Map<String, Value>,
    /// Elements of `tool_calls`, by the number of the call.
    calls: BTreeMap<usize, Value>,
}

impl Deltas {
    /// Takes the delta of a piece, whose calls have these slots.
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
                    if !NAMING.iter().any(|name| name.as_bytes() == key) {
                        self.text_key.extend_from_slice(key);
                    }
                    for part in [b"{\"", key, b"\":", text] {
                        self.json.extend_from_slice(part);
                    }
                }
                self.json.push(b'}');
            }
            _ => {
                self.text_key.clear();
                self.json.extend_from_slice(&json[message.span.range()]);
            }
        }
        if self.json.len() > MAX_BYTES {
            *self = Self {
                overlong: true,
                ..Self::default()
            };
        }
    }

    /// The message; empty where it was too long, or is no JSON.
    pub(super) fn assemble_message(&self) -> AssembledMessage {
        let read = |json: &[u8]| {
            let deltas = serde_json::Deserializer::from_slice(json).into_iter();
            deltas.collect::<Result<Vec<Map<_, _>>, _>>()
        };
        let deltas = read(&self.json).or_else(|_| read(&replace_lone_surrogates(&self.json)));
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

/// JSON without halves of surrogate pairs, which a text that was cut between the two has.
fn replace_lone_surrogates(json: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(json.len());
    for character in text::TextWalk::new(json) {
        let spelt = json.get(character.at..character.at + character.len);
        whole.extend_from_slice(match character.code {
            0xD800..=0xDFFF => br"\ufffd",
            _ => spelt.unwrap_or_default(),
        });
    }
    whole
}

impl AssembledMessage {
    /// The message as a request would carry it.
    pub(super) fn to_message_json(&self) -> String {
        if self.members.is_empty() && self.calls.is_empty() {
            return String::new();
        }
        let members = self.members.iter();
        let kept = members.filter(|(key, value)| {
            let says = !matches!(value, Value::Null) && !is_empty_value(value);
            says && !ANSWERS_ONLY.contains(&&***key)
        });
        let mut message: Map<_, _> = kept
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        message.insert("role".into(), "assistant".into());
        if !self.calls.is_empty() {
            let calls = self.calls.values().map(remove_index).collect();
            message.insert("tool_calls".into(), calls);
        }
        Value::Object(message).to_string()
    }

    /// The calls of proxy-executed tools.
    pub(super) fn build_proxy_calls(&self, calls: &CallTracker) -> Vec<ProxyToolCall> {
        let mut own = Vec::new();
        for (slot, call) in calls.iter().enumerate() {
            if call.executor == CallExecutor::Proxy {
                own.push(self.build_proxy_call(slot, call, (slot - own.len()) as u32));
            }
        }
        own
    }

    fn build_proxy_call(&self, slot: usize, call: &TrackedCall, before: u32) -> ProxyToolCall {
        let element = match call.legacy {
            true => self.members.get("function_call"),
            false => self.calls.get(&slot),
        };
        let function = element.map(|it| if call.legacy { it } else { &it["function"] });
        let arguments = match function.map(|function| &function["arguments"]) {
            Some(Value::String(text)) => text.clone(),
            // Some providers give the object itself.
            Some(object @ (Value::Object(_) | Value::Array(_))) => object.to_string(),
            _ => String::new(),
        };
        let overlong = element.is_none() || arguments.len() > MAX_ARGUMENTS;
        let decode = |raw: &[u8]| text::decode_text(raw).unwrap_or_default().into();
        ProxyToolCall {
            id: decode(&call.id),
            name: decode(&call.name),
            arguments: if overlong {
                "".into()
            } else {
                arguments.into()
            },
            overlong,
            before,
            json: element
                .map_or_else(String::new, |it| remove_index(it).to_string())
                .into(),
            legacy: call.legacy,
        }
    }
}

/// A call without the index that only streams have.
fn remove_index(call: &Value) -> Value {
    let mut call = call.clone();
    if let Value::Object(members) = &mut call {
        members.remove("index");
    }
    call
}

fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

fn merge_member(members: &mut Map<String, Value>, key: String, value: Value) {
    match members.get_mut(&key) {
        Some(known) => merge_value(known, value, &key),
        None => drop(members.insert(key, value)),
    }
}

fn merge_value(known: &mut Value, more: Value, key: &str) {
    match (known, more) {
        (_, Value::Null) => {}
        (Value::String(text), Value::String(more)) => {
            let named = NAMING.contains(&key) && !text.is_empty();
            // Names may come in pieces, and whole in every piece.
            if !named || (key == "name" && *text != more) {
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
        (known @ Value::String(_), Value::Array(more)) => {
            let mut list = Vec::new();
            append_text(&mut list, known.as_str().unwrap_or_default().to_owned());
            list.extend(more);
            *known = Value::Array(list);
        }
        (known, more) => *known = more,
    }
}

/// An element into the one with its index, or to the end.
fn merge_element(list: &mut Vec<Value>, element: Value) {
    let same = |known: &&mut Value| {
        let kinds = [known.get("type"), element.get("type")];
        let alike = kinds.contains(&None) || kinds[0] == kinds[1];
        alike && known.get("index").is_some() && known.get("index") == element.get("index")
    };
    match list.iter_mut().rev().take(MAX_LOOKED_AT).find(same) {
        Some(known) => merge_value(known, element, ""),
        None => list.push(element),
    }
}

/// Text where parts came before: into the last part if that is text.
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
    use super::{CallTracker, Deltas, MAX_BYTES};
    use crate::format::chat::answer;

    fn message<'a>(deltas: impl IntoIterator<Item = &'a str>) -> String {
        let (mut kept, mut calls) = (Deltas::default(), CallTracker::new(&[]));
        for delta in deltas {
            let json = format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#);
            let answer = answer::read_answer(json.as_bytes()).unwrap();
            let slots = calls.take_fragments(json.as_bytes(), answer.iter_calls());
            kept.push(json.as_bytes(), &answer, &slots);
        }
        kept.assemble_message().to_message_json()
    }

    #[test]
    fn deltas_become_the_message_that_was_said() {
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
    fn too_much_is_nothing() {
        let long = format!(r#"{{"content":"{}"}}"#, "x".repeat(MAX_BYTES));
        assert_eq!(message([&*long, r#"{"content":"y"}"#]), "");
    }
}
