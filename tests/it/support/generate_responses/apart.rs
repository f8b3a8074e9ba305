//! Outputs that stand apart from their calls, and programs.

use super::{EntryWriter, Members, Random, json};

/// What the other entries of a seed do not depend on.
pub(super) struct Apart {
    random: Random,
    /// There is any of it.
    is_on: bool,
    /// Outputs that came late so far.
    pub(super) late: Vec<String>,
    /// The call that is written is of a tool that is async.
    is_of_async_tool: bool,
    programs: usize,
}

impl Apart {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::for_part(seed, 7);
        Self {
            is_on: random.chance(60),
            random,
            late: Vec::new(),
            is_of_async_tool: false,
            programs: 0,
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.is_on && self.random.chance(percent)
    }

    /// Whether an answer begins with a text before its reasoning.
    pub(super) fn notes_first(&mut self) -> bool {
        self.chance(15)
    }

    pub(super) fn name_tool(&mut self) -> &'static str {
        self.is_of_async_tool = self.chance(10);
        if self.is_of_async_tool {
            "fetch"
        } else {
            "read"
        }
    }

    /// Whether the output of a call comes later.
    pub(super) fn waits(&mut self, kind: &str, call: &mut Members<'_>) -> bool {
        if std::mem::take(&mut self.is_of_async_tool) {
            return true;
        }
        let waits = matches!(kind, "function_call" | "custom_tool_call") && self.chance(15);
        call.extend(waits.then(|| ("async", "true".to_owned())));
        waits
    }
}

impl EntryWriter {
    /// Adds some of the outputs that came late.
    pub(super) fn deliver(&mut self) {
        let late = std::mem::take(&mut self.apart.late);
        for output in late {
            if self.apart.random.chance(40) {
                self.entries.push(output)
            } else {
                self.apart.late.push(output)
            }
        }
    }

    pub(super) fn update_configuration(&mut self) {
        if !self.alternates && self.apart.chance(15) {
            let update = json!({"type": "configuration_update", "reasoning": {"effort": "high"}});
            self.entries.push(update.to_string());
        }
    }

    /// Between calls and their outputs, the user speaks, or the developer.
    pub(super) fn interrupt(&mut self, has_outputs: bool) {
        if has_outputs && self.apart.chance(10) {
            if self.alternates || self.apart.random.chance(50) {
                self.entries
                    .push(json!({"role": "developer", "content": "It is late."}).to_string())
            } else {
                self.add_user()
            }
            // What follows rests on no reasoning before it.
            self.shares_reasoning = false;
        }
    }

    /// The last step of a request has an output.
    pub(super) fn add_last_step(&mut self) {
        if self.apart.chance(40) {
            return self.add_program(false);
        }
        let before = self.entries.len();
        self.add_step(true);
        let last = self.entries.last().filter(|_| self.entries.len() > before);
        if last.is_none_or(|last| !last.contains("_output")) {
            self.add_user();
        }
    }

    pub(super) fn run_program(&mut self) {
        if self.apart.chance(10) {
            self.add_program(true);
        }
    }

    /// A program with its calls; unless it `ends`, it is at work.
    fn add_program(&mut self, ends: bool) {
        self.reason();
        self.apart.programs += 1;
        let program = json!(format!("prog_{}", self.apart.programs)).to_string();
        let mut members: Members<'_> = self.id("cm").into_iter().collect();
        members.push(("call_id", program.clone()));
        members.push(("code", self.json.text(60)));
        members.push(("fingerprint", json!("ZmluZ2Vy".repeat(9)).to_string()));
        self.push("program", members);
        for _ in 0..self.apart.random.between(1, 5) {
            let mut outputs = Vec::new();
            for _ in 0..self.apart.random.between(1, 2) {
                let caller = (
                    "caller",
                    format!(r#"{{"type":"program","caller_id":{program}}}"#),
                );
                let mut call: Members<'_> = self.id("fc").into_iter().collect();
                let id = ("call_id", json!(format!("call_{}", self.count)).to_string());
                let arguments = json!({"path": self.count}).to_string();
                call.extend([
                    id.clone(),
                    caller.clone(),
                    ("name", json!("exec").to_string()),
                ]);
                call.push(("arguments", json!(arguments).to_string()));
                self.push("function_call", call);
                let words = self
                    .apart
                    .random
                    .weighted(&[(50, 20), (40, 300), (10, 4_000)]);
                let output = self.json.text(words);
                let kind = ("type", json!("function_call_output").to_string());
                outputs.push(self.json.object(vec![kind, id, caller, ("output", output)]));
            }
            self.entries.extend(outputs);
        }
        if ends {
            let result = self.json.text(10);
            let status = json!("completed").to_string();
            let members = vec![("call_id", program), ("result", result), ("status", status)];
            self.push("program_output", members);
        }
    }
}
