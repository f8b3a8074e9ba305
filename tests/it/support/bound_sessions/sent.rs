//! What a provider knows of a session beside the checks of each request: what of the reasoning it read before is there
//! again. It shares no code with the proxy: bodies are compared as trees.

use std::{
    collections::{HashMap, HashSet},
    hash::{Hash, Hasher},
};

use serde_json::Value;
use xxhash_rust::xxh3::Xxh3Default;

use super::super::bound::{BoundApi, to_history};

/// Members that are no part of what a model reads.
const BESIDE: [&str; 5] = ["cache_control", "id", "status", "annotations", "logprobs"];
/// Members of a chat message that are reasoning.
const REASONING: [&str; 4] = [
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking_blocks",
];

/// A request without its reasoning, and its reasoning.
#[derive(Debug, Default)]
pub(super) struct SentRequest {
    head: u64,
    entries: Vec<u64>,
    /// By their signatures.
    reasoning: HashSet<String>,
}

/// The requests of a session that were answered, in order.
#[derive(Debug, Default)]
pub(super) struct SentSession {
    last: Option<SentRequest>,
    answers: usize,
    /// Reasoning, and the number of answers before its own.
    made: HashMap<String, usize>,
    /// Reasoning that a request left out, and the number of answers before that of this request.
    gone: HashMap<String, usize>,
}

/// What differs from the request before.
#[derive(Debug, Default)]
pub(super) struct SentChange {
    /// Of reasoning that was there before, or made since, so much is missing.
    pub(super) missing: usize,
    /// Reasoning that was left out before, and is there again before some that was made meanwhile.
    pub(super) put_back: usize,
    /// Whether it begins with the request before, reasoning apart.
    pub(super) continues: bool,
}

impl SentRequest {
    pub(super) fn read(api: BoundApi, body: &Value) -> Self {
        let mut this = Self {
            head: digest(&[&body["system"], &body["tools"], &body["instructions"]]),
            ..Self::default()
        };
        let list = if api == BoundApi::Responses {
            "input"
        } else {
            "messages"
        };
        this.add(body[list].as_array().into_iter().flatten());
        this
    }

    fn add<'a>(&mut self, entries: impl Iterator<Item = &'a Value>) {
        for entry in entries {
            if let Some(sealed) = entry["encrypted_content"].as_str() {
                self.reasoning.insert(sealed.to_owned());
                continue;
            }
            let mut hasher = Xxh3Default::new();
            self.read_entry(entry, &mut hasher);
            self.entries.push(hasher.finish());
        }
    }

    fn read_entry(&mut self, entry: &Value, hasher: &mut Xxh3Default) {
        for (key, value) in entry.as_object().into_iter().flatten() {
            match (key.as_str(), value) {
                (key, _) if REASONING.contains(&key) => {
                    let blocks = value.as_array().into_iter().flatten();
                    self.reasoning.extend(blocks.filter_map(read_signature));
                }
                ("content", Value::String(text)) => hash_text(text, hasher),
                ("content", Value::Array(blocks)) => {
                    for block in blocks {
                        match read_signature(block) {
                            Some(signature) => drop(self.reasoning.insert(signature)),
                            None if is_text(block) => {
                                hash_text(block["text"].as_str().unwrap_or_default(), hasher)
                            }
                            None => hash_value(block, hasher),
                        }
                    }
                }
                _ if BESIDE.contains(&key.as_str()) => {}
                _ => {
                    key.hash(hasher);
                    hash_value(value, hasher);
                }
            }
        }
    }
}

impl SentSession {
    /// Compares a request with the one before.
    pub(super) fn compare(&self, now: &SentRequest) -> SentChange {
        let made = now.reasoning.iter().filter_map(|it| self.made.get(it));
        let newest = made.max();
        let left_out = now.reasoning.iter().filter_map(|it| self.gone.get(it));
        let put_back = left_out.filter(|gone| newest >= Some(gone)).count();
        let Some(last) = &self.last else {
            return SentChange {
                put_back,
                ..SentChange::default()
            };
        };
        SentChange {
            missing: last.reasoning.difference(&now.reasoning).count(),
            put_back,
            continues: last.head == now.head && now.entries.starts_with(&last.entries),
        }
    }

    /// Keeps an answered request and its answer.
    pub(super) fn keep(&mut self, api: BoundApi, mut sent: SentRequest, answer: &Value) {
        self.gone.retain(|it, _| !sent.reasoning.contains(it));
        if let Some(last) = &self.last {
            let left_out = last.reasoning.difference(&sent.reasoning);
            let left_out = left_out.map(|it| (it.clone(), self.answers));
            self.gone.extend(left_out);
        }
        let mut now = SentRequest::default();
        now.add(to_history(api, answer).iter());
        let made = now.reasoning.iter().map(|it| (it.clone(), self.answers));
        self.made.extend(made);
        self.answers += 1;
        sent.reasoning.extend(now.reasoning);
        sent.entries.extend(now.entries);
        self.last = Some(sent);
    }
}

fn read_signature(block: &Value) -> Option<String> {
    let kind = block["type"].as_str()?;
    let is_reasoning = kind.ends_with("thinking") || kind.starts_with("reasoning.");
    let key = if block["signature"].is_string() {
        "signature"
    } else {
        "data"
    };
    let signature = is_reasoning.then(|| block[key].as_str())?;
    Some(signature.unwrap_or_default().to_owned())
}

fn is_text(block: &Value) -> bool {
    matches!(
        block["type"].as_str(),
        Some("text" | "input_text" | "output_text")
    )
}

fn hash_text(text: &str, hasher: &mut Xxh3Default) {
    ("text", text).hash(hasher);
}

fn digest(values: &[&Value]) -> u64 {
    let mut hasher = Xxh3Default::new();
    values.iter().for_each(|it| hash_value(it, &mut hasher));
    hasher.finish()
}

fn hash_value(value: &Value, hasher: &mut Xxh3Default) {
    match value {
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|it| hash_value(it, hasher));
        }
        Value::Object(members) => {
            let members = members
                .iter()
                .filter(|(key, _)| *key != "cache_control" && *key != "status");
            for (key, value) in members {
                key.hash(hasher);
                hash_value(value, hasher);
            }
        }
        Value::String(text) => text.hash(hasher),
        _ => value.to_string().hash(hasher),
    }
}
