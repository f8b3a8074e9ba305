//! A message put together from its deltas, as clients' libraries do it.
//!
//! Deltas are kept as they come, and put together when the message is asked for. Strings are appended to,
//! but for those that name what they stand in; objects are merged; elements of lists that carry an
//! `index` are merged by it, others appended; of anything else the last counts. Strings and numbers
//! keep the provider's spelling.

use super::{
    Events, Message,
    calls::{Call, Calls, Owner},
    read_message,
};
use crate::{
    format::{AnswerEvent, Own},
    json::{
        scan::{Kind, Malformed, Scan},
        text,
    },
};

/// Bytes of deltas that one message may have.
const MAX_BYTES: usize = 1 << 20;

/// Bytes of arguments kept of one call.
const MAX_ARGUMENTS: usize = 64 << 10;

/// Nesting that is followed; what lies deeper is one value.
const MAX_DEPTH: usize = 16;

/// Members kept of an object, and elements that are looked through for an index: so that no
/// message takes long to put together.
const MAX_MEMBERS: usize = 256;

/// Strings that name what they stand in: said again, they are not appended.
const NAMING: [&[u8]; 5] = [b"role", b"id", b"type", b"format", b"name"];

/// Members that only answers have.
const ANSWERS_ONLY: [&[u8]; 2] = [b"annotations", b"audio"];

/// The deltas of one answer, one behind the other.
#[derive(Default)]
pub(super) struct Deltas {
    json: Vec<u8>,
    /// The key of the last delta, where that is one string to which more of it can be appended.
    text_key: Vec<u8>,
    overlong: bool,
}

impl Deltas {
    pub(super) fn push(&mut self, json: &[u8], message: &Message) {
        if self.overlong || message.members.is_empty() {
            return;
        }
        match message.members[..] {
            [member] if member.kind == Kind::String => {
                let key = &json[member.key.span.range()];
                let text = &json[member.value.range()];
                if key == self.text_key && !key.is_empty() && !NAMING.contains(&key) {
                    self.json.truncate(self.json.len() - b"\"}".len());
                    self.json.extend_from_slice(&text[1..]);
                } else {
                    self.text_key.clear();
                    self.text_key.extend_from_slice(key);
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

    /// The message; `tools` are the names of the proxy-executed ones.
    pub(super) fn assemble(&self, tools: &'static [&'static str]) -> Assembled {
        let mut assembled = Assembled::default();
        let mut calls = Calls::new(tools);
        let mut scan = Scan::new(&self.json, 0);
        while scan.peek().is_some() && assembled.add(&self.json, &mut scan, &mut calls).is_ok() {}
        assembled
    }
}

/// A message that was put together.
#[derive(Default)]
pub(super) struct Assembled {
    members: Members,
    /// Elements of `tool_calls`, with the number of the call.
    calls: Vec<(usize, Node)>,
}

type Members = Vec<(Box<[u8]>, Node)>;

#[derive(Debug)]
enum Node {
    /// What stands between the quotes.
    Text(Vec<u8>),
    List(Vec<Node>),
    Object(Members),
    Other(Vec<u8>),
}

impl Assembled {
    /// Takes the next delta.
    fn add(
        &mut self,
        json: &[u8],
        scan: &mut Scan<'_>,
        calls: &mut Calls,
    ) -> Result<(), Malformed> {
        let mut events = Events::new();
        let message = read_message(json, scan, &mut events)?;
        let fragments = events.iter().filter_map(|event| match event {
            AnswerEvent::Call(call) => Some(call),
            _ => None,
        });
        let slots = calls.take(json, fragments.clone());
        for (fragment, slot) in fragments.zip(slots) {
            let node = read(json, &mut Scan::new(json, fragment.span.start as usize), 0);
            let (Some(slot), Ok(node), false) = (slot, node, fragment.legacy) else {
                continue;
            };
            match self.calls.iter_mut().find(|(at, _)| *at == slot) {
                Some((_, call)) => call.merge(node, b""),
                None => self.calls.push((slot, node)),
            }
        }
        for member in &message.members {
            let key = &json[member.key.span.range()];
            if key == b"tool_calls" && member.kind == Kind::Array {
                continue;
            }
            let value = read(json, &mut Scan::new(json, member.value.start as usize), 0);
            if let Ok(value) = value {
                add(&mut self.members, key, value);
            }
        }
        Ok(())
    }

    /// The message as a request would carry it; empty where there was none, or it was too long.
    pub(super) fn message(&self) -> String {
        if self.members.is_empty() && self.calls.is_empty() {
            return String::new();
        }
        let mut out = br#"{"role":"assistant""#.to_vec();
        for (key, value) in &self.members {
            if &key[..] == b"role" || ANSWERS_ONLY.contains(&&key[..]) || value.is_empty() {
                continue;
            }
            out.extend_from_slice(b",\"");
            out.extend_from_slice(key);
            out.extend_from_slice(b"\":");
            value.write(&mut out);
        }
        if !self.calls.is_empty() {
            out.extend_from_slice(b",\"tool_calls\":[");
            for (at, (_, call)) in self.calls.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                call.write_call(&mut out);
            }
            out.push(b']');
        }
        out.push(b'}');
        utf8(out)
    }

    /// The calls of proxy-executed tools.
    pub(super) fn own(&self, calls: &Calls) -> Vec<Own> {
        let mut own = Vec::new();
        for (slot, call) in calls.iter().enumerate() {
            if call.owner == Owner::Proxy {
                own.push(self.own_call(slot, call, (slot - own.len()) as u32));
            }
        }
        own
    }

    fn own_call(&self, slot: usize, call: &Call, before: u32) -> Own {
        let node = match call.legacy {
            true => find(&self.members, b"function_call"),
            false => self
                .calls
                .iter()
                .find(|(at, _)| *at == slot)
                .map(|it| &it.1),
        };
        let function = match call.legacy {
            true => node,
            false => node.and_then(|node| node.member(b"function")),
        };
        let (mut arguments, mut json) = (Vec::new(), Vec::new());
        match function.and_then(|function| function.member(b"arguments")) {
            Some(Node::Text(text)) => arguments.extend_from_slice(text),
            // Some providers give the object itself.
            Some(object @ (Node::Object(_) | Node::List(_))) => {
                object.write(&mut arguments);
                arguments = text::escape(&utf8(arguments)).into();
            }
            _ => {}
        }
        if let Some(node) = node {
            node.write_call(&mut json);
        }
        let overlong = node.is_none() || arguments.len() > MAX_ARGUMENTS;
        if overlong {
            arguments.clear();
        }
        Own {
            id: decode(&call.id),
            name: decode(&call.name),
            arguments: decode(&arguments),
            overlong,
            before,
            json: utf8(json).into(),
            legacy: call.legacy,
        }
    }
}

/// The text of what stands between quotes; what has no decoded form is given as it can be.
fn decode(raw: &[u8]) -> Box<str> {
    let text = text::Walk::new(raw)
        .map(|character| char::from_u32(character.code).unwrap_or(char::REPLACEMENT_CHARACTER));
    text.collect::<String>().into()
}

/// What is no UTF-8 was no JSON either.
fn utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_default()
}

fn read(json: &[u8], scan: &mut Scan<'_>, depth: usize) -> Result<Node, Malformed> {
    match scan.peek() {
        Some(b'"') => Ok(Node::Text(json[scan.string()?.span.range()].to_vec())),
        Some(b'{') if depth < MAX_DEPTH => {
            let mut members = Members::new();
            scan.object(|scan, key| {
                let value = read(json, scan, depth + 1)?;
                members.push((json[key.span.range()].into(), value));
                Ok::<_, Malformed>(())
            })?;
            Ok(Node::Object(members))
        }
        Some(b'[') if depth < MAX_DEPTH => {
            let mut elements = Vec::new();
            scan.array(|scan| {
                elements.push(read(json, scan, depth + 1)?);
                Ok::<_, Malformed>(())
            })?;
            Ok(Node::List(elements))
        }
        _ => Ok(Node::Other(json[scan.value()?.0.range()].to_vec())),
    }
}

fn add(members: &mut Members, key: &[u8], value: Node) {
    match members.iter().position(|(name, _)| &name[..] == key) {
        Some(at) => members[at].1.merge(value, key),
        None if members.len() >= MAX_MEMBERS => {}
        None => members.push((key.into(), value)),
    }
}

fn find<'a>(members: &'a Members, key: &[u8]) -> Option<&'a Node> {
    let found = members.iter().find(|(name, _)| &name[..] == key);
    found.map(|(_, value)| value)
}

impl Node {
    fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Object(members) => members.is_empty(),
            Self::Other(raw) => raw == b"null",
        }
    }

    fn merge(&mut self, more: Self, key: &[u8]) {
        match (self, more) {
            (_, Self::Other(raw)) if raw == b"null" => {}
            (Self::Text(text), Self::Text(more)) => {
                let named = NAMING.contains(&key) && !text.is_empty();
                // Names may come in pieces, and whole in every piece.
                if !named || (key == b"name" && *text != more) {
                    text.extend_from_slice(&more);
                }
            }
            (Self::Object(members), Self::Object(more)) => {
                for (key, value) in more {
                    add(members, &key, value);
                }
            }
            (Self::List(list), Self::List(more)) => {
                more.into_iter().for_each(|element| join(list, element));
            }
            (Self::List(list), Self::Text(more)) => say(list, more),
            (node @ Self::Text(_), Self::List(more)) => {
                let mut list = Vec::new();
                if let Self::Text(text) = std::mem::replace(node, Self::Other(Vec::new())) {
                    say(&mut list, text);
                }
                list.extend(more);
                *node = Self::List(list);
            }
            (node, more) => *node = more,
        }
    }

    fn member(&self, key: &[u8]) -> Option<&Self> {
        let Self::Object(members) = self else {
            return None;
        };
        find(members, key)
    }

    fn same(&self, other: &Self, key: &[u8]) -> Option<bool> {
        match (self.member(key)?, other.member(key)?) {
            (Self::Text(a) | Self::Other(a), Self::Text(b) | Self::Other(b)) => Some(a == b),
            _ => None,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => {
                out.push(b'"');
                out.extend_from_slice(text);
                out.push(b'"');
            }
            Self::Other(raw) => out.extend_from_slice(raw),
            Self::List(list) => {
                out.push(b'[');
                for (at, element) in list.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    element.write(out);
                }
                out.push(b']');
            }
            Self::Object(members) => write_members(members.iter(), out),
        }
    }

    /// A call without the index that only streams have.
    fn write_call(&self, out: &mut Vec<u8>) {
        match self {
            Self::Object(members) => {
                let kept = members.iter().filter(|(key, _)| &key[..] != b"index");
                write_members(kept, out);
            }
            other => other.write(out),
        }
    }
}

fn write_members<'a>(members: impl Iterator<Item = &'a (Box<[u8]>, Node)>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, (key, value)) in members.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(key);
        out.extend_from_slice(b"\":");
        value.write(out);
    }
    out.push(b'}');
}

/// An element into the one with its index, or to the end.
fn join(list: &mut Vec<Node>, element: Node) {
    let same = |known: &&mut Node| {
        known.same(&element, b"index") == Some(true) && known.same(&element, b"type") != Some(false)
    };
    match list.iter_mut().rev().take(MAX_MEMBERS).find(same) {
        Some(known) => known.merge(element, b""),
        None => list.push(element),
    }
}

/// Text where parts came before: into the last part if that is text.
fn say(list: &mut Vec<Node>, text: Vec<u8>) {
    if text.is_empty() {
        return;
    }
    let is_text =
        |part: &Node| matches!(part.member(b"type"), Some(Node::Text(kind)) if kind == b"text");
    if let Some(Node::Object(part)) = list.last_mut().filter(|part| is_text(part)) {
        add(part, b"text", Node::Text(text));
        return;
    }
    list.push(Node::Object(vec![
        (b"type"[..].into(), Node::Text(b"text".to_vec())),
        (b"text"[..].into(), Node::Text(text)),
    ]));
}

#[cfg(test)]
mod tests {
    use super::{Deltas, MAX_BYTES};
    use crate::format::chat::answer;

    fn message<'a>(deltas: impl IntoIterator<Item = &'a str>) -> String {
        let mut kept = Deltas::default();
        for delta in deltas {
            let json = format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#);
            let answer = answer::read(json.as_bytes()).unwrap();
            kept.push(json.as_bytes(), &answer.first.unwrap());
        }
        kept.assemble(&[]).message()
    }

    #[test]
    fn deltas_become_the_message_that_was_said() {
        let whole = message([
            r#"{"role":"assistant","content":"","refusal":null,"audio":{"a":1}}"#,
            r#"{"role":"assistant","reasoning_content":"t\ud83d"}"#,
            r#"{"reasoning_content":"\ude00","n":1.50}"#,
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
            r#"{"role":"assistant","content":"é","reasoning_content":"t\ud83d\ude00","n":1.50,"reasoning_details":[{"index":0,"type":"reasoning.text","text":"ab","format":"f","signature":"s"}],"tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"g"}}},{"id":"y"}]}"#
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
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"ab"}]}"#
        );
    }

    #[test]
    fn too_much_is_nothing() {
        let long = format!(r#"{{"content":"{}"}}"#, "x".repeat(MAX_BYTES));
        assert_eq!(message([&*long, r#"{"content":"y"}"#]), "");
    }
}
