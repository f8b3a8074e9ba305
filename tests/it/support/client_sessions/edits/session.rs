//! A session whose client edits its own history before each request.

use serde_json::{Value, json};

use super::{
    super::{
        super::{agent::words, client::TestClient, generate::Random},
        client::{ListClient, ReadAnswer},
        judge::ListChange,
        transcript::{ToolReturn, Turn, Wire, write_tool, write_turns},
    },
    DrawnEdits,
};

/// What a client does to its old results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clears {
    Never,
    /// All but so many are placeholders: one more with each step.
    OneByOne(usize),
    /// The same, now and then.
    Jumps(usize),
}

/// Where a reminder of the client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reminds {
    Never,
    /// At the newest question only.
    NewestQuestion,
    /// At the newest entry only.
    NewestEntry,
    /// Beside some results, others with each request.
    ComesAndGoes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    None,
    InFirstMessage,
    InSystem,
}

/// Which arguments are written with other spaces than the model wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Respells {
    None,
    /// Those of all answers but the newest two.
    Old,
    /// All, from the fifth request on.
    All,
}

/// How the client of a session edits.
#[derive(Clone, Copy, Debug)]
pub(super) struct EditHabits {
    pub(super) clears: Clears,
    pub(super) reminds: Reminds,
    pub(super) clock: Clock,
    pub(super) respells: Respells,
    /// Percent of the requests before which an old message is emptied.
    pub(super) empties: u32,
    /// The same for one that is shortened.
    pub(super) shortens: u32,
    pub(super) requests: usize,
}

struct KeptTurn {
    turn: Turn,
    cleared: bool,
    emptied: bool,
    shortened: bool,
}

/// How a request differs from the last one of its session.
pub(super) struct PreparedRequest {
    pub(super) change: ListChange,
    /// It holds the last two answers as they were received, and most entries of the last request.
    pub(super) must_continue: bool,
}

pub(super) struct EditedSession {
    wire: Wire,
    word: String,
    habits: EditHabits,
    random: Random,
    kept: Vec<KeptTurn>,
    sent: usize,
    turns: usize,
    newest: String,
    /// A beginning that other sessions of the tenant have too.
    template: String,
    result: usize,
    repeats_ids: bool,
    last: Vec<Value>,
    /// The last answers, newest last, in entries.
    answers: Vec<Vec<Value>>,
    pub(super) client: ListClient,
}

impl EditedSession {
    pub(super) fn new(
        case: &DrawnEdits,
        place: usize,
        word: &str,
        habits: EditHabits,
        client: TestClient,
    ) -> Self {
        let wire = case.wire;
        let mut client = ListClient::new(wire, client, place);
        let fields = client.fields();
        fields["tools"] = json!([write_tool(wire, "read_file"), write_tool(wire, "bash")]);
        if case.streams {
            fields["stream"] = true.into();
            if wire == Wire::Chat {
                fields["stream_options"] = json!({"include_usage": true});
            }
        }
        let mut this = Self {
            wire,
            word: word.to_owned(),
            habits,
            random: Random::for_part(case.seed, 60 + place as u64),
            kept: Vec::new(),
            sent: 0,
            turns: 0,
            newest: String::new(),
            template: words(case.window as usize / 16, case.seed as usize % 3),
            result: case.window as usize / 28,
            repeats_ids: case.repeats_ids,
            last: Vec::new(),
            answers: Vec::new(),
            client,
        };
        this.say();
        this
    }

    pub(super) fn is_over(&self) -> bool {
        self.sent >= self.habits.requests
    }

    pub(super) fn newest(&self) -> &str {
        &self.newest
    }

    fn say(&mut self) {
        self.turns += 1;
        let (nth, word) = (self.turns, &self.word);
        self.newest = match nth {
            1 => format!("Find every leak of {word} and mend it."),
            _ => format!("Well done. Now mend part {nth} of {word}."),
        };
        self.keep(Turn::User(vec![self.newest.clone()]));
    }

    fn keep(&mut self, turn: Turn) {
        self.kept.push(KeptTurn {
            turn,
            cleared: false,
            emptied: false,
            shortened: false,
        });
    }

    /// Edits what is kept, and writes the next request.
    pub(super) fn prepare(&mut self) -> PreparedRequest {
        self.sent += 1;
        self.edit();
        let turns = self.write();
        let mut entries = write_turns(self.wire, &turns);
        let system = match self.habits.clock {
            Clock::InSystem => format!("You mend ships. Request {}.", self.sent),
            _ => "You mend ships.".to_owned(),
        };
        match self.wire {
            Wire::Chat => entries.insert(0, json!({"role": "system", "content": system})),
            Wire::Messages => self.client.fields()["system"] = system.into(),
            Wire::Responses => self.client.fields()["instructions"] = system.into(),
        }
        let prepared = self.compare(&entries);
        self.last.clone_from(&entries);
        self.client.set_entries(entries);
        prepared
    }

    fn compare(&self, entries: &[Value]) -> PreparedRequest {
        let same = entries.iter().zip(&self.last).take_while(|(a, b)| a == b);
        let change = match self.last.len() - same.count() {
            0 => ListChange::Appended,
            changed if changed <= 4 => ListChange::Tail(changed),
            _ => ListChange::Anywhere,
        };
        // The first message is a template in part, and a system message counts for nothing.
        let own = self.last.iter().skip(2);
        let (all, there) = (own.len(), own.filter(|it| entries.contains(it)).count());
        let answers = self.answers.iter().rev().take(2);
        let whole = answers.filter(|answer| answer.iter().all(|it| entries.contains(it)));
        PreparedRequest {
            change,
            must_continue: whole.count() == 2
                && all > 0
                && there * 4 >= all * 3
                && !self.repeats_ids,
        }
    }

    fn edit(&mut self) {
        let old = self.kept.len().saturating_sub(3);
        let is_results = |kept: &KeptTurn| matches!(kept.turn, Turn::Results { .. });
        let spared = match self.habits.clears {
            Clears::Never => usize::MAX,
            Clears::OneByOne(spared) => spared,
            Clears::Jumps(spared) if self.random.chance(12) => spared,
            Clears::Jumps(_) => usize::MAX,
        };
        let results = self.kept.iter_mut().rev().filter(|it| is_results(it));
        results.skip(spared).for_each(|it| it.cleared = true);
        if old < 2 {
            return;
        }
        // Neither the first question nor the newest turns.
        if self.random.chance(self.habits.empties) {
            let at = self.random.between(1, old - 1);
            if !self.is_newest_question(at) {
                self.kept[at].emptied = true;
            }
        }
        if self.random.chance(self.habits.shortens) {
            let at = self.random.between(1, old - 1);
            if !self.is_newest_question(at) {
                self.kept[at].shortened = true;
            }
        }
    }

    fn is_newest_question(&self, at: usize) -> bool {
        let is_question = |kept: &KeptTurn| match &kept.turn {
            Turn::User(_) => true,
            Turn::Results { beside, .. } => !beside.is_empty(),
            _ => false,
        };
        self.kept.iter().rposition(is_question) == Some(at)
    }

    fn write(&mut self) -> Vec<Turn> {
        let (newest, answers) = (self.kept.len() - 1, self.count_answers());
        let (mut turns, mut seen) = (Vec::new(), 0);
        for at in 0..self.kept.len() {
            let mut turn = self.kept[at].turn.clone();
            if matches!(turn, Turn::Answer(_)) {
                seen += 1;
            }
            let respells = match self.habits.respells {
                Respells::None => false,
                Respells::Old => seen + 2 <= answers,
                Respells::All => self.sent >= 5,
            };
            self.kept[at].edit(self.wire, respells, &mut turn);
            let reminds = match self.habits.reminds {
                Reminds::Never => false,
                Reminds::NewestQuestion => self.is_newest_question(at),
                Reminds::NewestEntry => at == newest,
                Reminds::ComesAndGoes => {
                    matches!(turn, Turn::Results { .. }) && self.random.chance(30)
                }
            };
            let clock = self.sent;
            match &mut turn {
                Turn::User(texts) => {
                    if at == 0 {
                        texts.insert(0, self.template.clone());
                        if self.habits.clock == Clock::InFirstMessage {
                            texts[1] = format!("It is 9 o'clock and {clock} s.\n{}", texts[1]);
                        }
                    }
                    if reminds {
                        texts.push(self.remind());
                    }
                }
                Turn::Results { beside, .. } if reminds => beside.push(self.remind()),
                _ => {}
            }
            turns.push(turn);
        }
        turns
    }

    fn remind(&self) -> String {
        let name = match self.habits.requests % 2 {
            0 => "system-reminder",
            _ => "environment_details",
        };
        format!("<{name}>\nThe list of tasks is empty.\n</{name}>")
    }

    fn count_answers(&self) -> usize {
        let answers = self.kept.iter();
        answers
            .filter(|it| matches!(it.turn, Turn::Answer(_)))
            .count()
    }

    /// Keeps an answer; then its tools run, or the user says something.
    pub(super) fn go_on(&mut self, answer: ReadAnswer) {
        self.answers.push(answer.entries.clone());
        self.keep(Turn::Answer(answer.entries));
        if answer.calls.is_empty() {
            return self.say();
        }
        let turn = self.kept.len();
        let results = answer.calls.into_iter().map(|id| {
            let tokens = self.result * self.random.between(20, 200) / 100;
            let text = format!("{} {}", self.word, words(tokens.max(4), turn));
            ToolReturn { id, text }
        });
        let results = results.collect();
        let mut beside = Vec::new();
        if self.random.chance(5) {
            self.turns += 1;
            self.newest = format!("Wait, look at bulkhead {} of {}.", self.turns, self.word);
            beside.push(self.newest.clone());
        }
        self.keep(Turn::Results { results, beside });
    }
}

impl KeptTurn {
    /// The turn as the client shows it now.
    fn edit(&self, wire: Wire, respells: bool, turn: &mut Turn) {
        match turn {
            Turn::User(texts) => texts.iter_mut().for_each(|it| self.edit_text(wire, it)),
            Turn::Results { results, .. } => {
                for result in results {
                    self.edit_text(wire, &mut result.text);
                    if self.cleared {
                        result.text = "[Old result cleared]".to_owned();
                    }
                }
            }
            Turn::Answer(entries) => {
                for entry in entries {
                    edit_answer(entry, |text| self.edit_text(wire, text));
                    if respells {
                        respell_arguments(entry);
                    }
                }
            }
            Turn::Developer(_) => {}
        }
    }

    fn edit_text(&self, wire: Wire, text: &mut String) {
        if self.shortened && text.len() > 20 {
            text.truncate(16);
            text.push_str(" (shortened)");
        }
        if self.emptied && !text.is_empty() {
            // Chat completions alone takes an empty text.
            *text = if wire == Wire::Chat { "" } else { "-" }.to_owned();
        }
    }
}

/// The texts of an answer that has no calls.
fn edit_answer(entry: &mut Value, edit: impl Fn(&mut String)) {
    let has_calls = entry["tool_calls"].is_array() || entry.to_string().contains("tool_use");
    if has_calls {
        return;
    }
    match entry.get_mut("content") {
        Some(Value::String(text)) => edit(text),
        Some(Value::Array(blocks)) => {
            for block in blocks {
                if let Some(Value::String(text)) = block.get_mut("text") {
                    edit(text);
                }
            }
        }
        _ => {}
    }
}

/// The same arguments with other spaces.
fn respell_arguments(entry: &mut Value) {
    let respell = |arguments: &mut Value| {
        if let Some(text) = arguments.as_str() {
            *arguments = text.replace("\":\"", "\" : \"").into();
        }
    };
    for call in entry["tool_calls"].as_array_mut().into_iter().flatten() {
        respell(&mut call["function"]["arguments"]);
    }
    if let Some(arguments) = entry.get_mut("arguments") {
        respell(arguments);
    }
}
