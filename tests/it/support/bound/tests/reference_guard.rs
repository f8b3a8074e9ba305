//! A guard of a few lines that lives with the check: the rule that the proxy's guard is measured against.

use serde_json::{Value, json};

use super::Talk;
use crate::support::bound::prefix::is_thinking;

const WINDOW: usize = 32_000;

fn count_tokens(body: &Value) -> usize {
    body.to_string().len() / 4
}

/// Whole steps go, oldest first, from 90 % of the window to 50 %; thinking made before the newest cut is left out.
#[derive(Default)]
struct ReferenceGuard {
    /// Entries left out behind the task.
    cut: usize,
    /// The first entry made since.
    epoch: usize,
}

impl ReferenceGuard {
    fn plan(&mut self, body: &Value) -> Value {
        let planned = self.apply(body);
        if count_tokens(&planned) <= WINDOW * 9 / 10 {
            return planned;
        }
        self.epoch = body["messages"].as_array().unwrap().len();
        loop {
            self.cut += 2;
            let planned = self.apply(body);
            if count_tokens(&planned) <= WINDOW / 2 {
                return planned;
            }
        }
    }

    fn apply(&self, body: &Value) -> Value {
        let mut body = body.clone();
        let messages = body["messages"].as_array_mut().unwrap();
        for message in &mut messages[..self.epoch] {
            if let Some(blocks) = message["content"].as_array_mut() {
                blocks.retain(|block| !is_thinking(block));
            }
        }
        messages.drain(1..1 + self.cut);
        body
    }
}

#[test]
fn a_guard_that_leaves_stale_thinking_out_is_never_refused() {
    for name in ["claude-opus-5-5", "claude-opus-5"] {
        let mut client = Talk::new(name);
        let (mut guard, mut cuts) = (ReferenceGuard::default(), 0);
        for step in 0..300 {
            let before = guard.epoch;
            let mut sent = client.clone();
            sent.body = guard.plan(&client.body);
            cuts += usize::from(guard.epoch != before);
            sent.assert_valid();
            assert!(count_tokens(&sent.body) <= WINDOW);
            sent.calls = step;
            let known = sent.messages().len();
            sent.step();
            let id = sent.messages()[known]["content"][3]["id"].clone();
            let result =
                json!({"type": "tool_result", "tool_use_id": id, "content": "line ".repeat(400)});
            let answer = sent.messages()[known].clone();
            client.messages().push(answer);
            client
                .messages()
                .push(json!({"role": "user", "content": [result]}));
        }
        assert!(cuts > 5, "{cuts}");
    }
}

#[test]
fn one_that_keeps_stale_thinking_is_refused_at_its_first_cut() {
    let mut client = Talk::of_steps("claude-opus-5-5");
    client.body = ReferenceGuard { cut: 2, epoch: 0 }.apply(&client.body);
    assert!(client.judge().refusal.is_some());
}
