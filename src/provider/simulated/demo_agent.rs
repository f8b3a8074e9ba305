//! The client of the demo: an agent that calls tools and keeps its whole history.
//!
//! Tasks and results are fixed texts, cycled by counters, so that every run is the same. Each task has the number of a
//! ticket, and each result the path of a file: by these names one sees what the model still knows.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    SimulatedApi,
    prompt::{self, SimulatedPrompt},
};

/// The last request of a session. The model answers with the names that stand in its prompt.
pub(super) const QUESTION: &str = "Name every ticket and every file of this session.";

/// Of that answer, in tokens.
const QUESTION_CAP: u32 = 2_500;

/// The tokens that the agent leaves for an answer, where it drops its oldest messages itself.
const ANSWER_ROOM: u32 = 1_000;

const SYSTEM: &str = "You are a careful programmer working in the repository `harbour`, a service \
    for tide tables. Read before you write, keep changes small, run the tests after each of them, \
    and say in a few sentences what you have done.";

const TASKS: &[&str] = &[
    "The tide table service answers 500 for stations without a gauge. Find out why and mend it.",
    "The nightly import is slow since last week. Where does the time go?",
    "Two users saw times in the wrong zone. Check how we parse the offset of a station.",
];

const TOOLS: &[(&str, &str, &str)] = &[
    ("read_file", "Read a file of the repository", "path"),
    ("run", "Run a command and return what it prints", "command"),
];

/// Characters of tool results, with the median and the long tail of recorded coding sessions.
const SIZES: &[usize] = &[
    170, 60, 900, 12, 2_700, 120, 400, 40, 1_500, 170, 80, 14_000, 250, 30, 700, 170, 3_500, 100,
    600, 24_000,
];

const CODE: &str = "pub fn level_at(&self, time: Instant) -> Option<Level> {
    let gauge = self.gauges.get(&station.id)?;
    // A station without a gauge borrows its neighbour's.
    if reading.quality < Quality::Good { continue; }
    let offset = parse_offset(&row.offset).unwrap_or(Offset::UTC);
    self.cache.insert(station.id, forecast.clone());
}
";

#[derive(Clone, Debug)]
pub struct DemoAgent {
    model: String,
    /// Its name in the system prompt. Agents with different names share nothing in the provider's cache.
    name: &'static str,
    messages: Vec<Value>,
    pub turn: usize,
    results: usize,
}

impl DemoAgent {
    pub fn new(model: String, name: &'static str) -> Self {
        let mut agent = Self {
            model,
            name,
            messages: Vec::new(),
            turn: 0,
            results: 0,
        };
        agent.start_over();
        agent
    }

    /// The next request's body.
    pub fn write_request(&self) -> Vec<u8> {
        self.make_request().to_string().into_bytes()
    }

    /// The body of a request that asks for all names.
    pub fn write_question(&self) -> Vec<u8> {
        let mut request = self.make_request();
        request["tool_choice"] = "none".into();
        request["max_tokens"] = QUESTION_CAP.into();
        if let Some(messages) = request["messages"].as_array_mut() {
            messages.push(json!({"role": "user", "content": QUESTION}));
        }
        request.to_string().into_bytes()
    }

    /// The share of all names of the session that an answer has.
    pub fn count_known(&self, answer: &Value) -> (usize, usize) {
        let text = answer["choices"][0]["message"]["content"].as_str();
        let known: BTreeSet<&str> = find_names(text.unwrap_or_default()).collect();
        (known.len(), self.turn + self.results)
    }

    /// Drops the oldest messages behind the system prompt until the next request fits a window, in tokens, as clients do
    /// that keep to a window by themselves. `asks`: the next request is the question.
    pub fn drop_oldest(&mut self, window: u32, asks: bool) {
        let room = if asks { QUESTION_CAP } else { 0 } + ANSWER_ROOM;
        loop {
            let request = self.make_request();
            let messages = prompt::list_messages(SimulatedApi::Chat, &request);
            let prompt = SimulatedPrompt::count_prompt(0, &request, &messages);
            // The newest message stays, and a result never stands without its call.
            let is_orphan = self
                .messages
                .get(1)
                .is_some_and(|first| first["role"] == "tool");
            let fits = prompt.tokens.saturating_add(room) <= window;
            if !is_orphan && (fits || self.messages.len() <= 2) {
                return;
            }
            self.messages.remove(1);
        }
    }

    fn make_request(&self) -> Value {
        let tools = TOOLS.iter().map(|(name, description, argument)| {
            json!({"type": "function", "function": {"name": name, "description": description,
                "parameters": {"type": "object", "properties": {*argument: {"type": "string"}},
                    "required": [argument]}}})
        });
        let tools: Vec<Value> = tools.collect();
        json!({"model": self.model, "messages": self.messages, "tools": tools})
    }

    /// Begins a new session, as an agent does after a refusal.
    pub fn start_over(&mut self) {
        let system = format!("You are {}. {SYSTEM}", self.name);
        self.messages = vec![json!({"role": "system", "content": system})];
        self.add_task();
    }

    /// Appends the answer's message and the results of its calls, else the next task.
    pub fn take_answer(&mut self, answer: &Value) {
        let message = &answer["choices"][0]["message"];
        self.messages.push(message.clone());
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        for call in calls.clone() {
            let size = SIZES[self.results % SIZES.len()];
            self.results += 1;
            let code: String = CODE.chars().cycle().take(size).collect();
            let result = format!("src/stations/station_{}.rs\n{code}", self.results);
            self.messages
                .push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
        }
        if calls.count() == 0 {
            self.add_task();
        }
    }

    fn add_task(&mut self) {
        let task = TASKS[self.turn % TASKS.len()];
        self.turn += 1;
        let task = format!("TIDE-{}: {task}", self.turn);
        self.messages.push(json!({"role": "user", "content": task}));
    }
}

/// The names of tickets and files in a text.
pub(super) fn find_names(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-/.".contains(c);
    let words = text.split(move |c| !is_part(c));
    let is_name =
        |word: &&str| word.starts_with("TIDE-") || word.starts_with("src/stations/station_");
    words.map(|word| word.trim_end_matches('.')).filter(is_name)
}
