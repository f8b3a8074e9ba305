//! Seeded conversations in OpenAI's Responses format: every kind of entry, with and without ids, answers of several
//! entries, calls and outputs in turns after one reasoning, outputs apart from their calls, programs, and any order of
//! members. Every body is valid.

mod apart;

use self::apart::Apart;
use super::{
    generate::{Random, Session, notes},
    generate_messages::Writer,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fmt;

/// A conversation, and the seed that it was made of.
#[derive(Clone)]
pub(crate) struct ResponsesCase {
    seed: u64,
    turns: usize,
    pub(crate) body: Vec<u8>,
}

impl ResponsesCase {
    /// The same with an answer cap that no plan lowers.
    pub(crate) fn with_short_answers(&self) -> Self {
        let mut writer = EntryWriter::new(self.seed);
        writer.longest_answer = 16;
        Self {
            body: writer.write_request(self.turns).into_bytes(),
            ..*self
        }
    }

    /// The session that led to the body.
    pub(crate) fn session(&self) -> Session {
        Session::from_responses(&self.body).expect("a session")
    }
}

impl fmt::Debug for ResponsesCase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = String::from_utf8_lossy(&self.body[..self.body.len().min(6_000)]);
        out.debug_struct("ResponsesCase")
            .field("seed", &self.seed)
            .field("turns", &self.turns)
            .field("body", &format_args!("{shown}"))
            .finish()
    }
}

pub(crate) fn any_responses(turns: usize) -> impl Strategy<Value = ResponsesCase> {
    (any::<u64>().no_shrink(), 1..=turns).prop_map(|(seed, turns)| {
        let body = EntryWriter::new(seed).write_request(turns).into_bytes();
        ResponsesCase { seed, turns, body }
    })
}

/// The members of an entry, with their JSON.
type Members<'a> = Vec<(&'a str, String)>;

struct EntryWriter {
    json: Writer,
    entries: Vec<String>,
    names_ids: bool,
    reasons: bool,
    /// Calls that follow outputs may rest on the reasoning before these.
    shares_reasoning: bool,
    /// There are developer entries in the midst.
    observes: bool,
    /// User and model alternate; else they do not from the first message on, as in the other generators.
    alternates: bool,
    count: usize,
    longest_answer: usize,
    apart: Apart,
}

impl EntryWriter {
    fn new(seed: u64) -> Self {
        let mut random = Random::for_part(seed, 2);
        Self {
            json: Writer::new(seed),
            entries: Vec::new(),
            names_ids: random.chance(50),
            reasons: random.chance(70),
            shares_reasoning: random.chance(40),
            observes: random.chance(30),
            alternates: random.chance(40),
            count: 0,
            longest_answer: usize::MAX,
            apart: Apart::new(seed),
        }
    }

    fn write_request(mut self, turns: usize) -> String {
        if self.chance(20) {
            let tools =
                json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}]);
            let entry = json!({"type": "additional_tools", "role": "developer", "tools": tools});
            self.entries.push(entry.to_string());
        }
        if self.chance(15) {
            self.add_user();
            let entry = json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "ZW5j".repeat(40)});
            self.entries.push(entry.to_string());
        }
        if !self.alternates {
            self.add_user();
        }
        for _ in 0..turns {
            self.add_turn();
        }
        self.add_user();
        if self.chance(50) {
            self.add_last_step();
        }
        let list = self.json.list(&self.entries);
        let answer = self.json.random.between(100, 20_000);
        let answer = answer.min(self.longest_answer);
        let mut tools = ["read", "exec", "shell", "fetch"].map(
            |name| json!({"type": "function", "name": name, "parameters": {"type": "object"}}),
        );
        tools[3]["async"] = true.into();
        let mut members = vec![
            ("model", json!("gpt-5.5").to_string()),
            ("input", list),
            ("max_output_tokens", answer.to_string()),
            ("tools", json!(tools).to_string()),
            ("stream", "true".into()),
            ("store", "false".into()),
            ("unknown", r#"{"b": 1.50, "a":[ ]}"#.into()),
        ];
        if self.chance(80) {
            members.push(("instructions", self.json.text(90)));
        }
        self.json.object(members)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.json.random.chance(percent)
    }

    fn push(&mut self, kind: &str, mut members: Members<'_>) {
        members.insert(0, ("type", json!(kind).to_string()));
        let entry = self.json.object(members);
        self.entries.push(entry);
    }

    /// An id of the server's, where the client sends these back.
    fn id(&mut self, prefix: &str) -> Option<(&'static str, String)> {
        self.count += 1;
        let id = format!("{prefix}_{}", self.count);
        self.names_ids.then(|| ("id", json!(id).to_string()))
    }

    fn add_turn(&mut self) {
        self.update_configuration();
        self.add_user();
        if !self.alternates && self.chance(15) {
            self.add_user();
        }
        self.deliver();
        self.observe();
        for _ in 0..self.json.random.below(6) {
            self.add_step(true);
            if self.shares_reasoning && self.reasons && self.names_ids && self.chance(30) {
                self.add_step(false);
            }
            self.observe();
            self.run_program();
        }
        self.reason();
        if self.chance(15) {
            let mut members: Members<'_> = self.id("ws").into_iter().collect();
            members.push((
                "action",
                json!({"type": "search", "query": "q"}).to_string(),
            ));
            members.push(("status", json!("completed").to_string()));
            self.push("web_search_call", members);
        }
        self.add_answer(40);
    }

    fn observe(&mut self) {
        if self.observes && self.chance(15) {
            let text = self.json.text(10);
            let members = vec![("role", json!("developer").to_string()), ("content", text)];
            let entry = self.json.object(members);
            self.entries.push(entry);
        }
    }

    fn add_user(&mut self) {
        let role = ("role", json!("user").to_string());
        if self.chance(30) {
            let content = self.json.text(30);
            let entry = self.json.object(vec![role, ("content", content)]);
            return self.entries.push(entry);
        }
        let mut parts = vec![self.part("input_text", 30)];
        for _ in 0..self.json.random.below(3) {
            let part = match self.json.random.below(4) {
                0 => json!({"type": "input_image", "image_url": "https://x/y.png"}).to_string(),
                1 => {
                    let url = format!("data:image/png;base64,{}", "aGVsbG8gd29ybGQh".repeat(40));
                    json!({"type": "input_image", "image_url": url, "detail": "auto"}).to_string()
                }
                2 => {
                    json!({"type": "input_file", "filename": "a.pdf", "file_data": "JVBERi0xLjQK"})
                        .to_string()
                }
                _ => self.part("input_text", 10),
            };
            parts.push(part);
        }
        let content = self.json.list(&parts);
        self.push("message", vec![role, ("content", content)]);
    }

    fn part(&mut self, kind: &str, words: usize) -> String {
        let text = self.json.text(words);
        let mut members = vec![("type", json!(kind).to_string()), ("text", text)];
        if kind == "input_text" && self.chance(3) {
            members.push(("prompt_cache_breakpoint", r#"{"mode":"explicit"}"#.into()));
        }
        self.json.object(members)
    }

    fn reason(&mut self) {
        if !self.reasons {
            return;
        }
        let mut members: Members<'_> = self.id("rs").into_iter().collect();
        let text = self.json.text(30);
        members.push((
            "summary",
            format!(r#"[{{"type":"summary_text","text":{text}}}]"#),
        ));
        if self.chance(60) {
            let encrypted = json!("Z0FBQUFB".repeat(60 + self.count % 90));
            members.push(("encrypted_content", encrypted.to_string()));
        }
        self.push("reasoning", members);
    }

    fn add_answer(&mut self, words: usize) {
        let mut members: Members<'_> = self.id("msg").into_iter().collect();
        members.push(("role", json!("assistant").to_string()));
        if self.chance(40) {
            members.push(("phase", json!("commentary").to_string()));
        }
        let count = self.json.random.weighted(&[(90, 1), (10, 2)]);
        let parts: Vec<_> = (0..count)
            .map(|_| self.part("output_text", words))
            .collect();
        members.push(("content", self.json.list(&parts)));
        self.push("message", members);
    }

    fn add_step(&mut self, may_reason: bool) {
        if may_reason {
            if self.reasons && self.apart.notes_first() {
                self.add_answer(20);
            }
            self.reason();
            if self.chance(40) {
                self.add_answer(20);
                // Notes between several thoughts of one answer.
                while self.reasons && self.chance(30) {
                    self.reason();
                    if self.chance(60) {
                        self.add_answer(60);
                    }
                }
            }
        }
        let count = self.json.random.weighted(&[(70, 1), (20, 2), (10, 3)]);
        let mut outputs = Vec::new();
        for _ in 0..count {
            self.add_call(&mut outputs);
        }
        self.json.random.shuffle(&mut outputs);
        self.interrupt(!outputs.is_empty());
        self.entries.extend(outputs);
        if !self.alternates && self.json.writes_notes && self.json.notes.chance(30) {
            let note = json!(notes::write_note(&mut self.json.notes));
            let entry = json!({"type": "message", "role": "user", "content": note});
            self.entries.push(entry.to_string());
        }
        self.deliver();
    }

    /// Adds a call, and its output to `outputs`.
    fn add_call(&mut self, outputs: &mut Vec<String>) {
        let mut call: Members<'_> = self.id("fc").into_iter().collect();
        let id = ("call_id", json!(format!("call_{}", self.count)).to_string());
        call.push(id.clone());
        let length = [(50, 20), (35, 200), (10, 1_500), (5, 6_000)];
        let words = self.json.random.weighted(&length);
        let written = self.json.text(self.count % 9 * 8);
        let (kind, output) = match self.json.random.below(12) {
            0 | 1 => {
                call.push(("name", json!("apply_patch").to_string()));
                call.push(("input", written));
                ("custom_tool_call", self.json.text(words))
            }
            2 => {
                call.push((
                    "action",
                    json!({"type": "exec", "command": ["ls", "-l"], "env": {}}).to_string(),
                ));
                ("local_shell_call", self.json.text(words))
            }
            3 => {
                call.push(("action", json!({"commands": ["ls"]}).to_string()));
                let (stdout, stderr) = (self.json.text(words), self.json.text(5));
                let outcome = json!({"type": "exit", "exit_code": 0});
                (
                    "shell_call",
                    format!(r#"[{{"stdout":{stdout},"stderr":{stderr},"outcome":{outcome}}}]"#),
                )
            }
            4 => {
                call.push(("actions", json!([{"type": "screenshot"}]).to_string()));
                let screenshot =
                    json!({"type": "computer_screenshot", "image_url": "https://x/s.png"});
                ("computer_call", screenshot.to_string())
            }
            5 => {
                call.push((
                    "operation",
                    json!({"type": "delete_file", "path": "a"}).to_string(),
                ));
                ("apply_patch_call", self.json.text(words))
            }
            6 if !self.alternates && self.chance(40) => {
                call.push(("arguments", json!({"query": "q"}).to_string()));
                call.push(("execution", json!("client").to_string()));
                ("tool_search_call", String::new())
            }
            shape => {
                let path = format!("src/part_{}.rs", self.count);
                let text: Value = serde_json::from_str(&written).expect("a text");
                let arguments = json!({"path": path, "new_text": text}).to_string();
                call.push(("name", json!(self.apart.name_tool()).to_string()));
                call.push(("arguments", json!(arguments).to_string()));
                let output = match shape {
                    7 => {
                        let image = json!({"type": "input_image", "image_url": "https://x/z.png"});
                        let parts = [
                            self.part("input_text", words),
                            image.to_string(),
                            self.part("input_text", words / 2),
                        ];
                        self.json.list(&parts)
                    }
                    _ => self.json.text(words),
                };
                ("function_call", output)
            }
        };
        let waits = self.apart.waits(kind, &mut call);
        self.push(kind, call);
        let (kind, output) = match kind {
            "tool_search_call" => {
                let tools = vec![
                    ("tools", "[]".into()),
                    ("execution", json!("client").to_string()),
                ];
                ("tool_search_output".to_owned(), tools)
            }
            kind => (format!("{kind}_output"), vec![("output", output)]),
        };
        let mut members = vec![("type", json!(kind).to_string()), id];
        members.extend(output);
        let output = self.json.object(members);
        if waits {
            self.apart.late.push(output)
        } else {
            outputs.push(output)
        }
    }
}
