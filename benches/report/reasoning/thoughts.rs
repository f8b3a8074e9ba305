//! The thinking of a session's answers.

use serde_json::{Value, json};

use super::ANSWER_CAP;
use crate::support::generate::{
    Random,
    prose::{self, Tongue},
};

/// The signature of thinking that nobody signed, and of all thinking where tokens are counted: no model reads it.
pub(super) const UNSIGNED: &str = "s";

/// The thinking before an answer, which begins with its number.
pub(super) fn thought(nth: usize) -> String {
    let mut random = Random::for_part(nth as u64, 77);
    let chars = 300 + random.below(1_000) + random.below(1_000);
    format!("{nth} {}", prose::text(&mut random, Tongue::Prose, chars))
}

/// The same request, with thinking before each answer; in Messages with these signatures.
pub(super) fn add_thinking(mut body: Value, signatures: &[String]) -> Value {
    let mut nth = 0;
    let is_messages = body["messages"].is_array();
    let cap = if is_messages {
        "max_tokens"
    } else {
        "max_output_tokens"
    };
    body[cap] = ANSWER_CAP.into();
    if is_messages {
        let mut is_answer = false;
        for entry in body["messages"].as_array_mut().into_iter().flatten() {
            let continues = std::mem::replace(&mut is_answer, entry["role"] == "assistant");
            if is_answer && !continues {
                let signature = signatures.get(nth).map_or(UNSIGNED, String::as_str);
                let block =
                    json!({"type": "thinking", "thinking": thought(nth), "signature": signature});
                if let Some(blocks) = entry["content"].as_array_mut() {
                    blocks.insert(0, block);
                }
                nth += 1;
            }
        }
        return body;
    }
    let mut entries: Vec<Value> = Vec::new();
    let mut is_answer = false;
    for entry in body["input"].as_array().into_iter().flatten() {
        let begins = entry["role"] == "assistant" || entry["type"] == "function_call";
        if begins && !is_answer {
            entries.push(json!({"type": "reasoning", "id": format!("rs_{nth}"),
                "summary": [{"type": "summary_text", "text": thought(nth)}]}));
            nth += 1;
        }
        is_answer = begins;
        entries.push(entry.clone());
    }
    body["input"] = entries.into();
    body
}
