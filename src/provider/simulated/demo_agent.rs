//! The client of the demo: an agent that calls tools and keeps its whole history.
//!
//! Tasks and results are fixed texts, cycled by counters, so that every run is the same.

use serde_json::{Value, json};

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
    messages: Vec<Value>,
    pub turn: usize,
    results: usize,
}

impl DemoAgent {
    pub fn new(model: String) -> Self {
        let mut agent = Self {
            model,
            messages: Vec::new(),
            turn: 0,
            results: 0,
        };
        agent.start_over();
        agent
    }

    /// The next request's body.
    pub fn write_request(&self) -> Vec<u8> {
        let tools = TOOLS.iter().map(|(name, description, argument)| {
            json!({"type": "function", "function": {"name": name, "description": description,
                "parameters": {"type": "object", "properties": {*argument: {"type": "string"}},
                    "required": [argument]}}})
        });
        let tools: Vec<Value> = tools.collect();
        let body = json!({"model": self.model, "messages": self.messages, "tools": tools});
        body.to_string().into_bytes()
    }

    /// Begins a new session, as an agent does after a refusal.
    pub fn start_over(&mut self) {
        self.messages = vec![json!({"role": "system", "content": SYSTEM})];
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
            let result: String = CODE.chars().cycle().take(size).collect();
            self.messages
                .push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
        }
        if calls.count() == 0 {
            self.add_task();
        }
    }

    fn add_task(&mut self) {
        let task = TASKS[self.turn % TASKS.len()];
        self.messages.push(json!({"role": "user", "content": task}));
        self.turn += 1;
    }
}
