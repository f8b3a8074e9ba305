//! Deferred tools: the model calls one only behind the search that loads it, of the client's or of the server's.

use super::Writer;
use crate::support::generate::Random;
use serde_json::{Value, json};

/// Tools that the client defers.
const DEFERRED: [&str; 4] = ["deploy", "query_db", "send_mail", "translate"];

pub(super) struct Deferred {
    random: Random,
    /// The client defers tools.
    is_on: bool,
    loaded: Vec<&'static str>,
    /// Loaded by the step that is being written.
    fresh: Vec<&'static str>,
}

impl Deferred {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::for_part(seed, 7);
        Self {
            is_on: random.chance(40),
            random,
            loaded: Vec::new(),
            fresh: Vec::new(),
        }
    }

    /// The client's search, and the tools that it defers.
    pub(super) fn tools(&self) -> Vec<String> {
        let all = DEFERRED.map(|name| {
            json!({"name": name, "description": "d", "input_schema": {"type": "object"}, "defer_loading": true})
        });
        let search = json!({"name": "search_tools", "input_schema": {"type": "object"}});
        let all = all.into_iter().chain([search]).filter(|_| self.is_on);
        all.map(|tool| tool.to_string()).collect()
    }

    /// A loaded tool to be called, if there is one.
    pub(super) fn choose_tool(&mut self) -> Option<&'static str> {
        let calls = !self.loaded.is_empty() && self.random.chance(50);
        calls.then(|| self.random.pick(&self.loaded))
    }

    /// The content of a result of the client's search, if a call is one.
    pub(super) fn search(&mut self) -> Option<String> {
        (self.is_on && self.random.chance(25)).then(|| {
            let text = json!({"type": "text", "text": "found ".repeat(80)});
            let text = Some(text).filter(|_| self.random.chance(20));
            let found = self.find_references();
            Value::from_iter(text.into_iter().chain(found)).to_string()
        })
    }

    fn find_references(&mut self) -> Vec<Value> {
        let count = self.random.between(1, 2);
        let found = (0..count).map(|_| self.random.pick(&DEFERRED));
        let found: Vec<&'static str> = found.collect();
        self.fresh.extend(&found);
        let found = found.into_iter();
        found
            .map(|name| json!({"type": "tool_reference", "tool_name": name}))
            .collect()
    }

    /// What the step loaded may be called from now on.
    pub(super) fn end_step(&mut self) {
        self.loaded.append(&mut self.fresh);
    }
}

impl Writer {
    /// A search that the server ran, at the beginning of an answer.
    pub(super) fn serve_search(&mut self, blocks: &mut Vec<String>) {
        if !(self.deferred.is_on && self.deferred.random.chance(10)) {
            return;
        }
        self.calls += 1;
        let id = format!("srvtoolu_{}", self.calls);
        blocks.push(json!({"type": "server_tool_use", "id": id, "name": "tool_search_tool_regex", "input": {"query": "q"}}).to_string());
        let references = self.deferred.find_references();
        let content = self.object(vec![
            ("type", r#""tool_search_tool_search_result""#.into()),
            ("tool_references", Value::from(references).to_string()),
        ]);
        let result = self.object(vec![
            ("type", r#""tool_search_tool_result""#.into()),
            ("tool_use_id", json!(id).to_string()),
            ("content", content),
        ]);
        blocks.push(result);
        self.deferred.end_step();
    }
}
