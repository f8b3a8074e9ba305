//! The provider's check of thinking, as the tests have it: it signs each answer's thinking, and judges what comes back.

use serde_json::{Value, json};

use super::thoughts::{UNSIGNED, add_thinking, thought};
use crate::support::bound::{BoundApi, BoundModel};

/// A model whose thinking is bound to what stood before it.
const MODEL: &str = "claude-sonnet-5-5";

pub(super) struct Judge {
    model: BoundModel,
    /// Of each answer's thinking.
    signatures: Vec<String>,
}

/// What was wrong with a request.
pub(super) struct Judgement {
    pub(super) is_refused: bool,
    /// Blocks of stale thinking.
    pub(super) stale: usize,
}

impl Judge {
    /// `body` is the first request of a session, whose answers were made as they stand there.
    pub(super) fn new(account: BoundModel, body: &Value) -> Self {
        let mut judge = Self {
            model: account,
            signatures: Vec::new(),
        };
        loop {
            let mut past = judge.sign(body.clone());
            let entries = past["messages"].as_array_mut().expect("a list");
            let is_next = |entry: &Value| entry["content"][0]["signature"] == UNSIGNED;
            let Some(at) = entries.iter().position(is_next) else {
                return judge;
            };
            entries.truncate(at);
            judge.check(&past, judge.signatures.len());
        }
    }

    /// The request with thinking before each answer, signed where that answer was made.
    pub(super) fn sign(&self, mut body: Value) -> Value {
        body["model"] = MODEL.into();
        add_thinking(body, &self.signatures)
    }

    /// Judges a request behind so many answers, and signs the thinking of the next.
    pub(super) fn check(&mut self, sent: &Value, answers: usize) -> Judgement {
        let body = sent.to_string();
        let verdict = self.model.judge(BoundApi::Messages, body.as_bytes(), "");
        let block = json!({"type": "thinking", "thinking": thought(answers)});
        let answer = self.model.answer(BoundApi::Messages, &verdict, &[block]);
        let signature = answer["content"][0]["signature"].as_str();
        self.signatures.truncate(answers);
        self.signatures
            .push(signature.expect("thinking is signed").to_owned());
        Judgement {
            is_refused: verdict.refusal.is_some(),
            stale: verdict.failing.len(),
        }
    }
}
