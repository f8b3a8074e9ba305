//! What the server runs over several answers: code that calls the client's tools, tools beside those of the client, and
//! paused turns.

use super::{Random, Writer, json};

/// What the other entries of a seed do not depend on.
pub(super) struct Served {
    random: Random,
    /// There is any of it.
    is_on: bool,
    runs: usize,
}

impl Served {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::for_part(seed, 7);
        Self {
            is_on: random.chance(60),
            random,
            runs: 0,
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.is_on && self.random.chance(percent)
    }
}

impl Writer {
    pub(super) fn run_server_tools(&mut self, entries: &mut Vec<String>) {
        if self.served.chance(8) {
            self.run_code(entries, true);
        }
        if self.served.chance(8) {
            self.search(entries);
        }
    }

    /// A step, or code that is at work.
    pub(super) fn add_last_step(&mut self, entries: &mut Vec<String>) {
        if self.served.chance(40) {
            self.run_code(entries, false)
        } else {
            self.add_step(entries)
        }
    }

    /// Code that calls tools of the client in several answers; unless it `ends`, it is at work. The model may call some
    /// beside it, or what this crate does not know.
    fn run_code(&mut self, entries: &mut Vec<String>, ends: bool) {
        self.served.runs += 1;
        let id = format!("srvtoolu_code_{}", self.served.runs);
        let code = json!({"code": "await look()\n".repeat(self.served.random.between(1, 40))});
        let mut blocks = self.thinking();
        blocks.push(
            json!({"type": "server_tool_use", "id": id, "name": "code_execution", "input": code})
                .to_string(),
        );
        for _ in 0..self.served.random.between(1, 5) {
            let mut results = Vec::new();
            for _ in 0..self.served.random.between(1, 2) {
                self.calls += 1;
                let call = format!("toolu_{}", self.calls);
                let caller = match self.served.random.below(20) {
                    0..3 => json!({"type": "direct"}),
                    3 => json!({"type": "crew", "crew_id": "c"}),
                    _ => json!({"type": "code_execution_20260120", "tool_id": id}),
                };
                blocks.push(json!({"type": "tool_use", "id": call, "name": "read", "input": {"path": call}, "caller": caller}).to_string());
                let words = self
                    .served
                    .random
                    .weighted(&[(50, 20), (40, 300), (10, 4_000)]);
                let text = self.text(words);
                results.push(self.object(vec![
                    ("type", r#""tool_result""#.into()),
                    ("tool_use_id", json!(call).to_string()),
                    ("content", text),
                ]));
            }
            self.push_round(entries, &mut blocks, &results);
        }
        if ends {
            let content = json!({"type": "code_execution_result", "stdout": "done", "stderr": "", "return_code": 0});
            blocks.push(json!({"type": "code_execution_tool_result", "tool_use_id": id, "content": content}).to_string());
            self.end_round(entries, blocks);
        }
    }

    /// A search beside a call of a tool of the client, or in a turn that pauses.
    fn search(&mut self, entries: &mut Vec<String>) {
        self.served.runs += 1;
        let id = format!("srvtoolu_search_{}", self.served.runs);
        let mut blocks = self.thinking();
        blocks.push(json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "q"}}).to_string());
        if self.served.random.chance(50) {
            self.calls += 1;
            let call = json!(format!("toolu_{}", self.calls)).to_string();
            blocks.push(self.object(vec![
                ("type", r#""tool_use""#.into()),
                ("id", call.clone()),
                ("name", r#""bash""#.into()),
                ("input", "{}".into()),
            ]));
            let result = self.result(call);
            self.push_round(entries, &mut blocks, &[result]);
        } else {
            let content = self.list(&blocks);
            entries.push(self.entry("assistant", content));
            blocks.clear();
        }
        let found = json!([{"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "ZW5j".repeat(50)}]);
        blocks.push(
            json!({"type": "web_search_tool_result", "tool_use_id": id, "content": found})
                .to_string(),
        );
        self.end_round(entries, blocks);
    }

    fn push_round(
        &mut self,
        entries: &mut Vec<String>,
        blocks: &mut Vec<String>,
        results: &[String],
    ) {
        let content = self.list(&std::mem::take(blocks));
        entries.push(self.entry("assistant", content));
        let content = self.list(results);
        entries.push(self.entry("user", content));
    }

    /// The answer goes on with a call.
    fn end_round(&mut self, entries: &mut Vec<String>, mut blocks: Vec<String>) {
        self.calls += 1;
        let call = json!(format!("toolu_{}", self.calls)).to_string();
        blocks.push(self.text_block(20));
        blocks.push(self.object(vec![
            ("type", r#""tool_use""#.into()),
            ("id", call.clone()),
            ("name", r#""edit""#.into()),
            ("input", "{}".into()),
        ]));
        let result = self.result(call);
        self.push_round(entries, &mut blocks, &[result]);
    }
}
