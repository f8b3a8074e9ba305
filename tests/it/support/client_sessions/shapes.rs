//! Sessions in the shape in which known clients write them: what they add beside the user's words and the results, what
//! they take away again, and how they name themselves. Words are of our own.
//!
//! | client | formats | what it adds and changes |
//! | --- | --- | --- |
//! | Claude Code | Messages | `<system-reminder>` before the first question, beside results, and one at the newest entry and the newest question only; cache markers that move; the session in `metadata.user_id` |
//! | opencode | all | texts of a read file in the user's message; a reminder at the newest question only; old results become a placeholder in jumps; a leading developer message in Responses |
//! | Cline | chat, Messages | no tools: calls and results are texts; `<task>`, `<feedback>`, and `<environment_details>` behind every result |
//! | pi | chat, Responses | nothing; a header with its session |
//! | Codex | Responses | developer messages, `<environment_context>` before questions and behind results |

use serde_json::{Value, json};

use super::{
    super::{agent::words, client::TestClient, generate::Random},
    client::{ListClient, ReadAnswer},
    judge::ListChange,
    transcript::{ToolReturn, Turn, Wire, write_tool, write_turns},
};

/// A client, by the shape of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientShape {
    ClaudeCode,
    Opencode,
    Cline,
    Pi,
    Codex,
}

/// Characters of results that opencode keeps, newest first, when a turn ends.
const KEPT_RESULTS: usize = 24_000;
/// It clears none for less than so many.
const LEAST_CLEARED: usize = 12_000;
const PLACEHOLDER: &str = "[Old tool result content cleared]";

impl ClientShape {
    pub(crate) const fn wires(self) -> &'static [Wire] {
        match self {
            Self::ClaudeCode => &[Wire::Messages],
            Self::Opencode => &[Wire::Chat, Wire::Messages, Wire::Responses],
            Self::Cline => &[Wire::Chat, Wire::Messages],
            Self::Pi => &[Wire::Chat, Wire::Responses],
            Self::Codex => &[Wire::Responses],
        }
    }

    /// Whether calls and results are texts.
    pub(crate) fn writes_calls(self) -> bool {
        self == Self::Cline
    }
}

/// What happened, in the client's own store.
enum Kept {
    Question(String),
    Answer(Vec<Value>),
    Results {
        results: Vec<ToolReturn>,
        /// What the user typed while the tools ran.
        typed: Option<String>,
    },
}

/// A client with its session.
pub(crate) struct ShapedSession {
    shape: ClientShape,
    wire: Wire,
    word: String,
    random: Random,
    kept: Vec<Kept>,
    results: usize,
    questions: usize,
    /// Results before this number are cleared.
    cleared: usize,
    was_cleared: usize,
    /// Entries of the last request.
    last: Vec<Value>,
    pub(crate) client: ListClient,
}

impl ShapedSession {
    pub(crate) fn new(
        shape: ClientShape,
        wire: Wire,
        word: &str,
        client: TestClient,
        place: usize,
    ) -> Self {
        let client = ListClient::new(wire, client, place);
        let mut this = Self {
            client: name_session(shape, wire, place, client),
            shape,
            wire,
            word: word.to_owned(),
            random: Random::for_part(place as u64, 40),
            kept: Vec::new(),
            results: 0,
            questions: 0,
            cleared: 0,
            was_cleared: 0,
            last: Vec::new(),
        };
        let writes_calls = shape.writes_calls();
        let streams = place % 2 == 1;
        let fields = this.client.fields();
        fields["stream"] = streams.into();
        if wire == Wire::Chat && streams {
            fields["stream_options"] = json!({"include_usage": true});
        }
        if writes_calls {
            drop(fields.as_object_mut().unwrap().remove("tools"))
        } else {
            let names = ["read_file", "bash", "edit_file"];
            fields["tools"] = names.iter().map(|name| write_tool(wire, name)).collect();
        }
        let system = format!("You mend ships. {}", words(900, 3));
        let marked = json!({"type": "ephemeral"});
        match (wire, shape) {
            (Wire::Messages, ClientShape::ClaudeCode) => {
                fields["system"] = json!([
                    {"type": "text", "text": "client: 2.1; entry: cli; c3a1"},
                    {"type": "text", "text": "You are a shipwright.", "cache_control": marked},
                    {"type": "text", "text": system, "cache_control": marked}]);
            }
            (Wire::Messages, _) => {
                fields["system"] =
                    json!([{"type": "text", "text": system, "cache_control": marked}]);
            }
            (Wire::Responses, ClientShape::Codex) => fields["instructions"] = system.into(),
            (Wire::Responses, _) => {
                // The system prompt leads the list.
                fields.as_object_mut().unwrap().remove("instructions");
            }
            (Wire::Chat, _) => {}
        }
        this.say();
        this
    }

    /// The user's newest words.
    pub(crate) fn newest(&self) -> String {
        let said = self.kept.iter().rev().find_map(|kept| match kept {
            Kept::Question(text) => Some(text.clone()),
            Kept::Results { typed, .. } => typed.clone(),
            Kept::Answer(_) => None,
        });
        said.unwrap()
    }

    /// Writes the next request; tells how it differs from the last one.
    pub(crate) fn prepare(&mut self) -> ListChange {
        let mut entries = write_turns(self.wire, &self.turns());
        if self.wire == Wire::Messages {
            mark_newest(&mut entries);
        }
        if self.wire != Wire::Messages && self.shape != ClientShape::Codex {
            let system = format!("You mend ships. {}", words(900, 3));
            let role = if self.wire == Wire::Chat {
                "system"
            } else {
                "developer"
            };
            entries.insert(0, json!({"role": role, "content": system}));
        }
        let bare: Vec<Value> = entries.iter().map(without_markers).collect();
        let same = bare.iter().zip(&self.last).take_while(|(a, b)| a == b);
        let changed = self.last.len() - same.count();
        let change = match changed {
            0 => ListChange::Appended,
            _ if self.was_cleared != self.cleared => ListChange::Anywhere,
            _ => ListChange::Tail(changed),
        };
        self.was_cleared = self.cleared;
        self.last = bare;
        self.client.set_entries(entries);
        change
    }

    /// Keeps an answer; then its tools run, or the user asks the next question.
    pub(crate) fn go_on(&mut self, answer: ReadAnswer) {
        let calls = match self.shape.writes_calls() {
            true if answer.text.contains("<read_file>") => vec![Value::Null],
            true => Vec::new(),
            false => answer.calls,
        };
        self.kept.push(Kept::Answer(answer.entries));
        if calls.is_empty() {
            return self.say();
        }
        let results = calls.into_iter().map(|id| {
            self.results += 1;
            let tokens = self.random.weighted(&[(50, 150), (35, 500), (15, 1_400)]);
            let text = format!("{} {}", self.word, words(tokens, self.results));
            ToolReturn { id, text }
        });
        let results = results.collect();
        let typed = self.random.chance(4).then(|| {
            self.questions += 1;
            format!(
                "Wait, look at bulkhead {} of {} too.",
                self.questions, self.word
            )
        });
        self.kept.push(Kept::Results { results, typed });
    }

    fn say(&mut self) {
        self.questions += 1;
        let (nth, word) = (self.questions, &self.word);
        let text = match nth {
            1 => format!("Find every leak of {word} and mend it; begin at the keel."),
            _ => format!("Well done. Now mend part {nth} of {word}, and tell me why it leaked."),
        };
        self.kept.push(Kept::Question(text));
        if self.shape == ClientShape::Opencode {
            self.clear_results();
        }
    }

    /// Old results become a placeholder, all beyond the newest at once, where that frees enough.
    fn clear_results(&mut self) {
        let results = self.kept.iter().filter_map(|kept| match kept {
            Kept::Results { results, .. } => Some(results),
            _ => None,
        });
        let sizes: Vec<usize> = results.flatten().map(|it| it.text.len()).collect();
        let (mut seen, mut first) = (0, sizes.len());
        while first > 0 && seen < KEPT_RESULTS {
            first -= 1;
            seen += sizes[first];
        }
        let freed: usize = sizes
            .get(self.cleared..first)
            .unwrap_or_default()
            .iter()
            .sum();
        if freed >= LEAST_CLEARED {
            self.cleared = first;
        }
    }

    fn turns(&self) -> Vec<Turn> {
        let newest = self.kept.len() - 1;
        let is_question = |kept: &Kept| matches!(kept, Kept::Question(_));
        let question = self.kept.iter().rposition(is_question).unwrap();
        let mut turns = Vec::new();
        let mut results_before = 0;
        for (at, kept) in self.kept.iter().enumerate() {
            match kept {
                Kept::Answer(entries) => turns.push(Turn::Answer(entries.clone())),
                Kept::Question(text) => self.push_question(text, at, at == question, &mut turns),
                Kept::Results { results, typed } => {
                    let first = results_before;
                    results_before += results.len();
                    let results = results.iter().enumerate().map(|(nth, it)| ToolReturn {
                        id: it.id.clone(),
                        text: if first + nth < self.cleared {
                            PLACEHOLDER.to_owned()
                        } else {
                            it.text.clone()
                        },
                    });
                    self.push_results(results.collect(), typed, first, at == newest, &mut turns);
                }
            }
        }
        turns
    }

    fn push_question(&self, text: &str, at: usize, is_newest: bool, turns: &mut Vec<Turn>) {
        let text = text.to_owned();
        match self.shape {
            ClientShape::ClaudeCode => {
                let mut texts = vec![text];
                if at == 0 {
                    let word = &self.word;
                    let notes = format!("Notes of the yard for {word}: oak only.\nToday: 28 Nov");
                    texts.insert(0, remind(&notes));
                }
                if is_newest && at > 0 {
                    texts.push(remind(&format!("Tasks: none since entry {at}.")));
                }
                turns.push(Turn::User(texts));
            }
            ClientShape::Opencode => {
                let mut texts = vec![text];
                if at.is_multiple_of(3) {
                    texts.push(r#"The Read tool ran with {"filePath":"/ship/log.md"}"#.into());
                    let log = words(200, at);
                    texts.push(format!("<file>\n00001| {log}\n(End of file)\n</file>"));
                }
                if is_newest {
                    texts.push(remind("Plan mode: look only, change nothing."));
                }
                turns.push(Turn::User(texts));
            }
            ClientShape::Cline => {
                let texts = match at {
                    0 => vec![format!("<task>\n{text}\n</task>")],
                    _ => vec![
                        "[attempt_completion] Result:".to_owned(),
                        format!("The user answered:\n<feedback>\n{text}\n</feedback>"),
                    ],
                };
                let details = vec![self.describe_environment(at)];
                turns.push(Turn::User([texts, details].concat()));
            }
            ClientShape::Pi => turns.push(Turn::User(vec![text])),
            ClientShape::Codex => {
                if at == 0 {
                    let rules = "<permissions instructions>\nAsk before you write.\n</permissions instructions>";
                    turns.push(Turn::Developer(rules.into()));
                    let word = &self.word;
                    let notes = format!(
                        "# AGENTS.md for /ship/{word}\n\n<INSTRUCTIONS>\nOak only.\n</INSTRUCTIONS>"
                    );
                    turns.push(Turn::User(vec![notes]));
                }
                if at == 0 || at % 4 == 3 {
                    turns.push(Turn::User(vec![self.describe_context(at)]));
                }
                if at % 5 == 4 {
                    let mode = "<collaboration_mode>\nWork alone.\n</collaboration_mode>";
                    turns.push(Turn::Developer(mode.into()));
                }
                turns.push(Turn::User(vec![text]));
            }
        }
    }

    fn push_results(
        &self,
        results: Vec<ToolReturn>,
        typed: &Option<String>,
        nth: usize,
        is_newest: bool,
        turns: &mut Vec<Turn>,
    ) {
        let mut beside: Vec<String> = typed.iter().cloned().collect();
        match self.shape {
            ClientShape::ClaudeCode => {
                if nth % 3 == 1 {
                    beside.push(remind(&format!("src/deck_{nth}.rs was changed outside.")));
                }
                if is_newest {
                    beside.push(remind(&format!("Tasks: {} done, {nth} open.", nth % 7)));
                }
            }
            ClientShape::Cline => {
                // Some versions write the name and the content as one text.
                let mut texts = Vec::new();
                for result in results {
                    let name = format!("[read_file for 'deck_{nth}.rs'] Result:");
                    match nth % 2 {
                        0 => texts.extend([name, result.text]),
                        _ => texts.push(format!("{name}\n{}", result.text)),
                    }
                }
                if let Some(typed) = typed {
                    texts.push(format!("<feedback>\n{typed}\n</feedback>"));
                }
                texts.push(self.describe_environment(nth));
                return turns.push(Turn::User(texts));
            }
            ClientShape::Codex if nth % 4 == 1 => beside.insert(0, self.describe_context(nth)),
            _ => {}
        }
        // Codex sends each text as a message of its own.
        if self.shape == ClientShape::Codex {
            let none = Vec::new();
            turns.push(Turn::Results {
                results,
                beside: none,
            });
            return turns.extend(beside.into_iter().map(|text| Turn::User(vec![text])));
        }
        turns.push(Turn::Results { results, beside });
    }

    fn describe_environment(&self, nth: usize) -> String {
        let (word, clock) = (&self.word, nth % 60);
        format!(
            "<environment_details>\n# Open files\nsrc/{word}/deck_{nth}.rs\n\n# Time\n28 Nov, 09:{clock:02}\n\n\
             # Mode\nACT\n</environment_details>"
        )
    }

    fn describe_context(&self, nth: usize) -> String {
        let word = &self.word;
        format!(
            "<environment_context>\n  <cwd>/ship/{word}</cwd>\n  <shell>bash</shell>\n  \
             <current_date>2026-11-{:02}</current_date>\n</environment_context>",
            1 + nth % 28
        )
    }
}

fn remind(text: &str) -> String {
    format!("<system-reminder>\n{text}\n</system-reminder>")
}

/// The headers and members by which a client names its session.
fn name_session(shape: ClientShape, wire: Wire, place: usize, client: ListClient) -> ListClient {
    let id = format!("0a7e5bd{place}-11aa-4f00-8f00-5e5510000000");
    match shape {
        ClientShape::ClaudeCode => {
            let mut client = client
                .with("user-agent", "claude-cli/2.1.300 (external, cli)")
                .with("x-app", "cli");
            // Older versions tell it in the body only.
            if place.is_multiple_of(2) {
                client = client.with("x-claude-code-session-id", &id);
            }
            let user = json!({"device_id": "d", "account_uuid": "", "session_id": id});
            client.fields()["metadata"] = json!({"user_id": user.to_string()});
            client
        }
        // By their settings, no header names the session.
        ClientShape::Opencode | ClientShape::Pi if place % 2 == 1 => client,
        ClientShape::Opencode => client
            .with("user-agent", "opencode/2.3.2")
            .with("x-session-affinity", &id)
            .with("x-session-id", &id),
        ClientShape::Cline => client.with("user-agent", "Cline/3.40"),
        ClientShape::Pi => {
            let mut client = client
                .with("session-id", &id)
                .with("x-client-request-id", &id)
                .with("x-session-affinity", &id);
            if wire == Wire::Responses {
                client.fields()["prompt_cache_key"] = id.into();
            }
            client
        }
        ClientShape::Codex => {
            let mut client = client
                .with("user-agent", "codex_cli_rs/0.171.0")
                .with("session-id", &id)
                .with("thread-id", &id);
            client.fields()["prompt_cache_key"] = id.into();
            client
        }
    }
}

/// Marks the last blocks of the two newest user entries.
fn mark_newest(entries: &mut [Value]) {
    let users = entries.iter_mut().rev().filter(|it| it["role"] == "user");
    for entry in users.take(2) {
        if let Some(block) = entry["content"].as_array_mut().and_then(|it| it.last_mut()) {
            block["cache_control"] = json!({"type": "ephemeral"});
        }
    }
}

fn without_markers(entry: &Value) -> Value {
    let mut entry = entry.clone();
    for block in entry["content"].as_array_mut().into_iter().flatten() {
        block.as_object_mut().unwrap().remove("cache_control");
    }
    entry
}
