//! Seeded conversations in Anthropic's Messages format: every kind of block, tool results beside the user's own text,
//! system entries in the midst, tools of the server over several answers, cache markers, and any order of members. Every
//! body is valid.

mod deferred;
mod served;

use self::{deferred::Deferred, served::Served};
use super::generate::{Random, Session, notes};
use proptest::prelude::*;
use serde_json::json;
use std::fmt;

/// Words of texts; some need escapes.
const WORDS: [&str; 18] = [
    "the",
    "file",
    "has",
    "a",
    "test",
    "that",
    "fails",
    "in",
    "src/guard/fold.rs",
    "line",
    "error:",
    "expected",
    "\"value\"",
    "\n",
    "文件",
    "😀",
    "fn main() {",
    "C:\\temp",
];
const TOOLS: [&str; 3] = ["read", "bash", "edit"];

/// A conversation, and the seed that it was made of.
#[derive(Clone)]
pub(crate) struct MessagesCase {
    seed: u64,
    turns: usize,
    pub(crate) body: Vec<u8>,
}

impl MessagesCase {
    fn new(seed: u64, turns: usize) -> Self {
        let body = Writer::new(seed).write_request(turns).into_bytes();
        Self { seed, turns, body }
    }

    /// The same with an answer cap that no plan lowers.
    pub(crate) fn with_short_answers(&self) -> Self {
        let mut writer = Writer::new(self.seed);
        writer.longest_answer = 16;
        Self {
            body: writer.write_request(self.turns).into_bytes(),
            ..*self
        }
    }

    /// One of the same seed whose client sets no cache markers.
    pub(crate) fn without_markers(&self) -> Self {
        let mut writer = Writer::new(self.seed);
        (writer.marks_system, writer.markers_left) = (false, 0);
        Self {
            body: writer.write_request(self.turns).into_bytes(),
            ..*self
        }
    }

    /// The session that led to the body.
    pub(crate) fn session(&self) -> Session {
        Session::from_recorded(&self.body).expect("a session")
    }
}

impl fmt::Debug for MessagesCase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = String::from_utf8_lossy(&self.body[..self.body.len().min(6_000)]);
        out.debug_struct("MessagesCase")
            .field("seed", &self.seed)
            .field("turns", &self.turns)
            .field("body", &format_args!("{shown}"))
            .finish()
    }
}

pub(crate) fn any_messages(turns: usize) -> impl Strategy<Value = MessagesCase> {
    (any::<u64>().no_shrink(), 1..=turns).prop_map(|(seed, turns)| MessagesCase::new(seed, turns))
}

/// Writes JSON in a spelling of its own.
pub(crate) struct Writer {
    pub(crate) random: Random,
    comma: &'static str,
    colon: &'static str,
    /// Characters beyond ASCII are escaped.
    ascii: bool,
    thinks: bool,
    /// There are system entries in the midst.
    observes: bool,
    /// The length of texts, in hundredths of the usual one.
    scale: usize,
    marks_system: bool,
    markers_left: usize,
    calls: usize,
    longest_answer: usize,
    served: Served,
    deferred: Deferred,
    /// What the other entries of a seed do not depend on.
    pub(crate) notes: Random,
    pub(crate) writes_notes: bool,
    /// Which summary of the API's own begins the list; mostly none.
    summary: usize,
}

impl Writer {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::for_part(seed, 1);
        let spaced = random.chance(50);
        Self {
            comma: if spaced { ", " } else { "," },
            colon: if spaced { ": " } else { ":" },
            ascii: random.chance(30),
            thinks: random.chance(60),
            observes: random.chance(50),
            scale: random.between(5, 100),
            marks_system: true,
            markers_left: 3,
            calls: 0,
            longest_answer: usize::MAX,
            served: Served::new(seed),
            deferred: Deferred::new(seed),
            writes_notes: Random::for_part(seed, 18).chance(50),
            notes: Random::for_part(seed, 19),
            summary: Random::for_part(seed, 20).below(16),
            random,
        }
    }

    fn write_request(mut self, turns: usize) -> String {
        let mut entries = Vec::new();
        self.add_summary(&mut entries);
        for _ in 0..turns {
            self.add_turn(&mut entries);
        }
        self.add_user(&mut entries);
        if self.random.chance(50) {
            self.add_last_step(&mut entries);
        }
        let list = entries.join(self.comma);
        let answer = self.random.between(100, 20_000).min(self.longest_answer);
        let mut members = vec![
            ("model", json!("claude").to_string()),
            ("messages", format!("[{list}]")),
            ("max_tokens", answer.to_string()),
            ("tools", self.tools()),
            ("stream", "true".into()),
            ("unknown", r#"{"b": 1.50, "a":[ ]}"#.into()),
        ];
        match self.random.below(4) {
            0 => {}
            1 => members.push(("system", self.text(60))),
            _ => {
                let marker = r#"{"type":"ephemeral","ttl":"1h"}"#.to_owned();
                let first = self.text_block(20);
                let text = self.text(90);
                let mut last = vec![("type", r#""text""#.into()), ("text", text)];
                last.extend(self.marks_system.then_some(("cache_control", marker)));
                let last = self.object(last);
                members.push(("system", format!("[{first}{}{last}]", self.comma)));
            }
        }
        self.object(members)
    }

    fn tools(&mut self) -> String {
        let tools = TOOLS.map(|name| {
            json!({"name": name, "description": "d", "input_schema": {"type": "object"}})
                .to_string()
        });
        let tools = [&tools[..], &self.deferred.tools()].concat();
        format!("[{}]", tools.join(self.comma))
    }

    /// A summary on demand, with nothing, a text or a step behind it.
    fn add_summary(&mut self, entries: &mut Vec<String>) {
        let signed = r#"{"type":"compaction","content":"So far, much is done.","encrypted_content":"c28=","signature":"c2ln","tool_changes":[]}"#;
        let signed = signed.to_owned();
        let (role, blocks) = match self.summary {
            0 | 1 => ("assistant", vec![signed]),
            2 => ("assistant", vec![signed, self.text_block(20)]),
            3 => ("user", vec![signed, self.text_block(20)]),
            _ => return,
        };
        let content = self.list(&blocks);
        entries.push(self.entry(role, content));
        if self.summary == 1 {
            self.add_step(entries);
        }
    }

    fn add_turn(&mut self, entries: &mut Vec<String>) {
        self.add_user(entries);
        if self.random.chance(15) {
            self.add_user(entries);
        }
        self.observe(entries);
        for _ in 0..self.random.below(7) {
            self.add_step(entries);
            self.observe(entries);
            self.run_server_tools(entries);
        }
        let content = match self.random.below(3) {
            0 => self.text(40),
            _ => {
                let mut blocks = self.thinking();
                if self.random.chance(20) {
                    self.serve(&mut blocks);
                }
                let mut text = self.text_block(40);
                if self.calls % 3 == 1 {
                    let source = r#","citations":[{"type":"char_location","cited_text":"c"}]}"#;
                    text.truncate(text.rfind('}').unwrap());
                    text += source;
                }
                blocks.push(text);
                self.list(&blocks)
            }
        };
        entries.push(self.entry("assistant", content));
    }

    /// A system entry, which may stand behind a user entry only.
    fn observe(&mut self, entries: &mut Vec<String>) {
        while self.observes && self.random.chance(15) {
            let content = if self.random.chance(50) {
                self.text(10)
            } else {
                let block = self.text_block(10);
                format!("[{block}]")
            };
            entries.push(self.entry("system", content));
        }
    }

    fn add_user(&mut self, entries: &mut Vec<String>) {
        let content = match self.random.below(3) {
            0 => self.text(30),
            _ => {
                let blocks = self.user_blocks();
                self.list(&blocks)
            }
        };
        entries.push(self.entry("user", content));
    }

    fn user_blocks(&mut self) -> Vec<String> {
        let mut blocks = vec![self.text_block(30)];
        for _ in 0..self.random.below(3) {
            let block = match self.random.below(6) {
                0 => self.source("image", json!({"type": "url", "url": "https://x/y.png"})),
                1 => {
                    let data = "aGVsbG8gd29ybGQh".repeat(40);
                    self.source("image", json!({"type": "base64", "media_type": "image/png", "data": data}))
                }
                2 => self.source("document", json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"})),
                3 => self.source("document", json!({"type": "text", "media_type": "text/plain", "data": "plain words"})),
                4 => json!({"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "found"}]}).to_string(),
                _ => self.text_block(10),
            };
            blocks.push(block);
        }
        blocks
    }

    fn add_step(&mut self, entries: &mut Vec<String>) {
        let mut blocks = self.thinking();
        if self.random.chance(60) {
            blocks.push(self.text_block(20));
        }
        self.serve_search(&mut blocks);
        let count = self.random.weighted(&[(70, 1), (20, 2), (10, 3)]);
        let mut results = Vec::new();
        for _ in 0..count {
            self.calls += 1;
            let id = json!(format!("toolu_{}", self.calls)).to_string();
            let path = json!(format!("src/part_{}.rs", self.calls)).to_string();
            let body = self.text(self.calls % 9 * 8);
            let input = self.object(vec![("path", path), ("new_text", body)]);
            let (found, deferred) = (self.deferred.search(), self.deferred.choose_tool());
            let name = match &found {
                Some(_) => "search_tools",
                None => deferred.unwrap_or(self.random.pick(&TOOLS)),
            };
            let name = json!(name).to_string();
            blocks.push(self.object(vec![
                ("type", r#""tool_use""#.into()),
                ("id", id.clone()),
                ("name", name),
                ("input", input),
            ]));
            results.push(match found {
                Some(content) => self.object(vec![
                    ("type", r#""tool_result""#.into()),
                    ("tool_use_id", id),
                    ("content", content),
                ]),
                None => self.result(id),
            });
        }
        self.deferred.end_step();
        let content = self.list(&blocks);
        entries.push(self.entry("assistant", content));
        self.random.shuffle(&mut results);
        if self.random.chance(25) {
            results.extend(self.user_blocks());
        } else {
            results.extend(self.note());
        }
        let content = self.list(&results);
        entries.push(self.entry("user", content));
        if let Some(note) = self.note() {
            let content = self.list(&[note]);
            entries.push(self.entry("user", content));
        }
    }

    /// A block with a text of the client's own, at times.
    fn note(&mut self) -> Option<String> {
        let is_due = self.notes.chance(30) && self.writes_notes;
        is_due.then(|| {
            let text = json!(notes::write_note(&mut self.notes)).to_string();
            let text = self.spell(text);
            format!(r#"{{"type":"text","text":{text}}}"#)
        })
    }

    fn spell(&self, text: String) -> String {
        if self.ascii {
            text.chars().map(escape_beyond_ascii).collect()
        } else {
            text
        }
    }

    fn result(&mut self, id: String) -> String {
        let words = self
            .random
            .weighted(&[(50, 20), (35, 200), (10, 1_500), (5, 6_000)]);
        let content = match self.random.below(8) {
            0 => None,
            1 | 2 => {
                let mut blocks = vec![self.text_block(words)];
                if self.random.chance(30) {
                    blocks.push(
                        self.source("image", json!({"type": "url", "url": "https://x/z.png"})),
                    );
                    blocks.push(self.text_block(words / 2));
                }
                Some(format!("[{}]", blocks.join(self.comma)))
            }
            _ => Some(self.text(words)),
        };
        let mut members = vec![("type", r#""tool_result""#.into()), ("tool_use_id", id)];
        members.extend(content.map(|content| ("content", content)));
        if self.random.chance(15) {
            members.push(("is_error", "true".into()));
        }
        if self.markers_left > 0 && self.random.chance(5) {
            self.markers_left -= 1;
            members.push(("cache_control", r#"{"type":"ephemeral"}"#.into()));
        }
        self.object(members)
    }

    fn thinking(&mut self) -> Vec<String> {
        let mut blocks = Vec::new();
        if self.thinks {
            let thinking = self.text(30);
            let signature = json!("c2lnbmF0dXJl".repeat(12)).to_string();
            blocks.push(self.object(vec![
                ("type", r#""thinking""#.into()),
                ("thinking", thinking),
                ("signature", signature),
            ]));
            if self.random.chance(10) {
                blocks.push(json!({"type": "redacted_thinking", "data": "ZGF0YQ"}).to_string());
            }
        }
        blocks
    }

    /// A tool that the server ran.
    fn serve(&mut self, blocks: &mut Vec<String>) {
        self.calls += 1;
        let id = format!("srvtoolu_{}", self.calls);
        blocks.push(json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "q"}}).to_string());
        blocks.push(json!({"type": "web_search_tool_result", "tool_use_id": id, "content": [
            {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "ZW5j".repeat(50)}]}).to_string());
    }

    fn source(&mut self, kind: &str, source: serde_json::Value) -> String {
        self.object(vec![
            ("type", json!(kind).to_string()),
            ("source", source.to_string()),
        ])
    }

    fn text_block(&mut self, words: usize) -> String {
        let text = self.text(words);
        let mut members = vec![("type", r#""text""#.into()), ("text", text)];
        if self.markers_left > 0 && self.random.chance(3) {
            self.markers_left -= 1;
            members.push(("cache_control", r#"{"type":"ephemeral"}"#.into()));
        }
        self.object(members)
    }

    /// A string of about so many words, never empty.
    pub(crate) fn text(&mut self, words: usize) -> String {
        let words = (words * self.scale / 100).max(1);
        let mut text = format!("w{}", self.random.below(10_000));
        for _ in 0..words {
            text.push(' ');
            text.push_str(self.random.pick(&WORDS));
            if self.random.chance(10) {
                text.push_str(&self.random.below(100_000).to_string());
            }
        }
        self.spell(json!(text).to_string())
    }

    fn entry(&mut self, role: &str, content: String) -> String {
        self.object(vec![
            ("role", json!(role).to_string()),
            ("content", content),
        ])
    }

    pub(crate) fn list(&self, elements: &[String]) -> String {
        format!("[{}]", elements.join(self.comma))
    }

    pub(crate) fn object(&mut self, mut members: Vec<(&str, String)>) -> String {
        if self.random.chance(30) {
            self.random.shuffle(&mut members);
        }
        let members: Vec<_> = members
            .iter()
            .map(|(key, value)| format!("\"{key}\"{}{value}", self.colon))
            .collect();
        format!("{{{}}}", members.join(self.comma))
    }
}

pub(crate) fn escape_beyond_ascii(character: char) -> String {
    if character.is_ascii() {
        return character.to_string();
    }
    let mut units = [0; 2];
    let units = character.encode_utf16(&mut units).iter();
    units.map(|unit| format!("\\u{unit:04x}")).collect()
}
