//! What the model still finds of what it refers back to, and what that costs.
//!
//! At every answer of a session: its rare words (names, paths, numbers) that stood earlier in the
//! conversation are what the model needed. *Needs* is the share of these that stands in the request
//! that the answer was given to; *old* is the same of words whose newest mention lies more than six
//! messages back. Words are not content: a rise is evidence, not proof.
//!
//! *Cost* a step is the uncached prompt tokens, and the cached ones by each of the [`READ_PRICES`].
//! Requests over the window are refused, and count in neither.

use std::{
    collections::{HashMap, HashSet},
    io::{self, Write},
};

use plimsoll::{
    config::{GuardConfig, Keep},
    guard::profile,
};
use serde_json::Value;

use crate::support::{
    cache::PromptCache,
    count::TokenCounter,
    data,
    drive::{GuardedSession, TokenMeter, make_policy},
    generate::{ConversationSize, Recipe, Session, Shape},
    parse,
};

/// Sessions and windows of the study; a name is the beginning of a file's.
const CASES: &[(&str, u32)] = &[
    ("coding-pi-899-messages", 16_384),
    ("coding-pi-899-messages", 32_768),
    ("coding-pi-899-messages", 65_536),
    ("chat-aider-long-no-tools", 8_192),
    ("chat-aider-long-no-tools", 16_384),
    ("chat-aider-long-no-tools", 32_768),
    ("coding-openhands-ponyc-a", 8_192),
    ("coding-openhands-ponyc-b", 8_192),
    ("coding-swesmith-pydantic", 8_192),
    ("coding-sweagent-pydicom-textonly", 8_192),
];
/// Chinese, whose words are pairs of characters: beside the mean, not in it.
const CHINESE: &[(&str, u32)] = &[("zh-stitched-long", 16_384), ("zh-stitched-long", 32_768)];
/// Sessions whose results are joined to reads of more than [`JOINED_CHARS`]: no recorded one has any.
const READS: &[(&str, u32)] = &[
    ("coding-pi-899-messages", 65_536),
    ("coding-pi-899-messages", 200_000),
    ("coding-pi-899-messages", 1_000_000),
    ("coding-openhands-ponyc-a", 200_000),
    ("coding-openhands-ponyc-a", 1_000_000),
];
const JOINED_CHARS: usize = 60_000;
/// What a token costs that the cache holds, as a part of one that it does not: until summer 2026, and since then at OpenAI
/// (from GPT-6.1 on) and for Opus and Sonnet 5.5, and for Fable 5.1 and later.
const READ_PRICES: [f64; 3] = [0.1, 0.05, 0.025];
/// Messages since the newest mention, from which on a need is an old one.
const OLD: usize = 6;

pub(crate) fn report(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nneeds: each session grown request by request; tokens by o200k; shares of the rare words of \
         each answer that\nstood earlier and stand in its request; cost a step: uncached prompt tokens and \
         the cached ones at {READ_PRICES:?}\n"
    )?;
    let counter = TokenCounter::o200k();
    let mut cases: Vec<Case> = CASES.iter().filter_map(Case::recorded).collect();
    if cases.is_empty() {
        cases = generated();
    }
    section(out, "mean of", &cases, POLICIES, &counter)?;
    let chinese: Vec<Case> = CHINESE.iter().filter_map(Case::recorded).collect();
    section(out, "Chinese, mean of", &chinese, POLICIES, &counter)?;
    report_reads(out, &counter)
}

/// Long reads with the limits by the window, beside a limit of 50,000 characters.
pub(crate) fn report_reads(out: &mut impl Write, counter: &TokenCounter) -> io::Result<()> {
    let reads: Vec<Case> = READS.iter().filter_map(Case::with_long_reads).collect();
    let policies = [
        Cutter::Guard(Keep::Balanced),
        Cutter::Limit(50_000),
        Cutter::Nobody,
    ];
    section(out, "long reads, mean of", &reads, &policies, counter)
}

fn section(
    out: &mut impl Write,
    title: &str,
    cases: &[Case],
    policies: &[Cutter],
    counter: &TokenCounter,
) -> io::Result<()> {
    if cases.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "{:<42} {:>6} {:>6} {:>7} {:>29} {:>8} {:>8}",
        "", "needs", "old", "cached", "cost", "refused", "filled"
    )?;
    let mut totals = vec![Vec::new(); policies.len()];
    for case in cases {
        writeln!(out, "{} at {}", case.name, case.window)?;
        for (policy, rows) in policies.iter().zip(&mut totals) {
            let row = case.measure(*policy, counter).shares(case.window);
            row.write(out, policy.name())?;
            rows.push(row);
        }
    }
    writeln!(out, "{title} {}", cases.len())?;
    for (policy, rows) in policies.iter().zip(&totals) {
        Shares::mean(rows).write(out, policy.name())?;
    }
    writeln!(out)
}

/// Sessions in the place of the recorded ones.
fn generated() -> Vec<Case> {
    let shapes = [Shape::Agent, Shape::OneTurn, Shape::Chat];
    let all = shapes.into_iter().flat_map(|shape| {
        [16_384, 32_768].map(|window| {
            let session = Session::new(21, Recipe::new(shape), ConversationSize::Messages(400));
            Case::new(&format!("generated {shape:?}"), session, window)
        })
    });
    all.collect()
}

/// Who decides what is sent.
#[derive(Clone, Copy)]
enum Cutter {
    Guard(Keep),
    /// The guard with this limit of a result, in characters.
    Limit(usize),
    /// The guard with cuts down to this percentage of the room.
    Depth(u32),
    /// A client that drops its oldest messages, down to the second share of the window where they
    /// are over the first, and knows exact counts.
    Client(f64, f64),
    Nobody,
}

const POLICIES: &[Cutter] = &[
    Cutter::Guard(Keep::Balanced),
    Cutter::Guard(Keep::Saver),
    Cutter::Guard(Keep::Most),
    Cutter::Depth(45),
    Cutter::Depth(60),
    Cutter::Depth(80),
    Cutter::Depth(90),
    Cutter::Client(0.9, 0.5),
    Cutter::Client(0.97, 0.97),
    Cutter::Nobody,
];

impl Cutter {
    const fn name(self) -> &'static str {
        match self {
            Self::Guard(Keep::Balanced) => "  Plimsoll",
            Self::Limit(..) => "  Plimsoll, max_tool_result_chars = 50000",
            Self::Depth(45) => "  Plimsoll, low_water = 0.45",
            Self::Depth(60) => "  Plimsoll, low_water = 0.6",
            Self::Depth(80) => "  Plimsoll, low_water = 0.8",
            Self::Depth(_) => "  Plimsoll, low_water = 0.9",
            Self::Guard(Keep::Saver) => "  Plimsoll, keep = \"saver\"",
            Self::Guard(Keep::Most) => "  Plimsoll, keep = \"most\"",
            Self::Client(high, low) if high > low => "  client, 90 % to 50 % of the window",
            Self::Client(..) => "  client, sliding at 97 %",
            Self::Nobody => "  no window",
        }
    }
}

struct Case {
    name: String,
    window: u32,
    session: Session,
    messages: Vec<Said>,
    /// The message up to which all is pinned.
    task: usize,
}

/// A message by its words.
pub(crate) struct Said {
    pub(crate) role: String,
    pub(crate) words: HashSet<String>,
}

impl Case {
    fn recorded((name, window): &(&str, u32)) -> Option<Self> {
        let session = Session::from_recorded(&data::request(name)?)?;
        Some(Self::new(name, session, *window))
    }

    /// The session with its results moved into earlier ones, until these have more than [`JOINED_CHARS`].
    fn with_long_reads((name, window): &(&str, u32)) -> Option<Self> {
        let mut body = parse::parse_value(&data::request(name)?).ok()?;
        let list = body["messages"].as_array_mut()?;
        let is_text = |it: &Value| it["role"] == "tool" && it["content"].is_string();
        let results: Vec<usize> = (0..list.len()).filter(|&at| is_text(&list[at])).collect();
        let mut run: Option<(usize, String)> = None;
        for at in results {
            let text = list[at]["content"].take();
            list[at]["content"] = "ok".into();
            let (first, read) = run.get_or_insert_with(|| (at, String::new()));
            *read += text.as_str().unwrap_or_default();
            read.push('\n');
            list[*first]["content"] = read.as_str().into();
            run.take_if(|(_, read)| read.len() > JOINED_CHARS);
        }
        let session = Session::from_recorded(body.to_string().as_bytes())?;
        Some(Self::new(name, session, *window))
    }

    fn new(name: &str, session: Session, window: u32) -> Self {
        let messages = list_said(&session);
        Self {
            name: name.to_owned(),
            window,
            session,
            task: find_task(&messages),
            messages,
        }
    }

    fn measure(&self, cutter: Cutter, counter: &TokenCounter) -> Measure {
        let mut measure = Measure::default();
        let mut cache = PromptCache::new(counter);
        let needs = find_needs(&self.messages);
        let mut step = |request: usize, body: &[u8]| {
            let at = self.session.messages_at(request);
            let Some((all, old)) = needs.get(&at) else {
                return;
            };
            measure.steps += 1;
            let limit = match cutter {
                Cutter::Nobody => u64::MAX,
                _ => u64::from(self.window),
            };
            if counter.request(body) > limit {
                measure.refused += 1;
                return;
            }
            let hit = cache.request(body);
            measure.prompt += hit.prompt;
            measure.cached += hit.cached;
            let seen: HashSet<String> = messages(body)
                .iter()
                .flat_map(|it| words(&text(it)))
                .collect();
            measure.all.add(all, &seen);
            measure.old.add(old, &seen);
        };
        match cutter {
            Cutter::Guard(_) | Cutter::Limit(_) | Cutter::Depth(_) => {
                let mut settings = GuardConfig::default();
                match cutter {
                    Cutter::Guard(keep) => settings.keep = keep,
                    Cutter::Limit(chars) => settings.max_tool_result_chars = Some(chars),
                    Cutter::Depth(percent) => settings.low_water = Some(f64::from(percent) / 100.0),
                    _ => {}
                }
                let drive = GuardedSession {
                    policy: make_policy(&profile::PROFILES[0], self.window, &settings),
                    meter: TokenMeter::Foreign(counter),
                    counter,
                    keeps: true,
                };
                drive.each(&self.session, |request, body| step(request, &body));
            }
            Cutter::Client(high, low) => {
                let mut dropped = 0;
                for request in 0..self.session.requests() {
                    let body = self.drop_oldest(request, high, low, &mut dropped, counter);
                    step(request, &body);
                }
            }
            Cutter::Nobody => {
                for (request, body) in self.session.steps().enumerate() {
                    step(request, &body);
                }
            }
        }
        measure
    }

    /// The request without its oldest messages behind the task, where it is over a share of the window.
    fn drop_oldest(
        &self,
        request: usize,
        high: f64,
        low: f64,
        dropped: &mut usize,
        counter: &TokenCounter,
    ) -> Vec<u8> {
        let at = self.session.messages_at(request);
        let first = self.task + 1;
        let window = f64::from(self.window);
        let mut from = (*dropped).max(first);
        let without = |from: usize| self.session.without(first..from.min(at), at);
        let mut body = without(from);
        if counter.request(&body) as f64 > high * window {
            while counter.request(&body) as f64 > low * window {
                // The newest step stays, and a call goes with its results.
                let next = (from + 1..at).find(|&it| self.messages[it].role != "tool");
                let Some(next) = next else { break };
                from = next;
                body = without(from);
            }
        }
        *dropped = from;
        body
    }
}

/// The messages of a whole session by their words.
pub(crate) fn list_said(session: &Session) -> Vec<Said> {
    let whole = session.beginning(session.messages());
    messages(&whole).iter().map(Said::of).collect()
}

/// The message up to which all is pinned.
fn find_task(messages: &[Said]) -> usize {
    let user = messages.iter().position(|it| it.role == "user");
    user.unwrap_or(0)
}

/// What each answer behind the task refers to, and the part of it that was last said long ago, by the answer's message.
pub(crate) fn find_needs(messages: &[Said]) -> HashMap<usize, (HashSet<&str>, HashSet<&str>)> {
    let task = find_task(messages);
    let mut held: HashMap<&str, usize> = HashMap::new();
    for word in messages.iter().flat_map(|it| &it.words) {
        *held.entry(word).or_default() += 1;
    }
    let common = (messages.len() as f64 / 4.0).max(8.0);
    let rare = |word: &str| held[word] as f64 <= common;
    let pinned = messages[..=task].iter();
    let pinned: HashSet<&str> = pinned
        .flat_map(|it| &it.words)
        .map(String::as_str)
        .collect();
    let mut newest: HashMap<&str, usize> = HashMap::new();
    let mut needs = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        let words = message.words.iter().map(String::as_str);
        let words = words.filter(|word| rare(word));
        if message.role == "assistant" && at > task {
            let needed = words.clone();
            let needed = needed.filter(|word| newest.contains_key(word) && !pinned.contains(word));
            let needed: HashSet<&str> = needed.collect();
            let old = needed
                .iter()
                .copied()
                .filter(|word| at - newest[word] > OLD);
            needs.insert(at, (needed.clone(), old.collect()));
        }
        newest.extend(words.map(|word| (word, at)));
    }
    needs
}

impl Said {
    fn of(message: &Value) -> Self {
        Self {
            role: message["role"].as_str().unwrap_or_default().to_owned(),
            words: words(&text(message)),
        }
    }
}

#[derive(Default)]
struct Measure {
    steps: u64,
    refused: u64,
    prompt: u64,
    cached: u64,
    all: Met,
    old: Met,
}

/// Words that were needed, and those of them that were there.
#[derive(Default)]
struct Met {
    needed: u64,
    there: u64,
}

impl Met {
    fn add(&mut self, needed: &HashSet<&str>, seen: &HashSet<String>) {
        self.needed += needed.len() as u64;
        self.there += needed.iter().filter(|&&word| seen.contains(word)).count() as u64;
    }

    fn share(&self) -> f64 {
        self.there as f64 / self.needed.max(1) as f64
    }
}

impl Measure {
    fn shares(&self, window: u32) -> Shares {
        let steps = self.steps.max(1) as f64;
        let sent = (self.steps - self.refused).max(1) as f64;
        Shares {
            needs: self.all.share(),
            old: self.old.share(),
            cached: self.cached as f64 / self.prompt.max(1) as f64,
            costs: READ_PRICES
                .map(|price| (self.prompt as f64 - (1.0 - price) * self.cached as f64) / steps),
            refused: self.refused as f64,
            filled: self.prompt as f64 / sent / f64::from(window),
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Default)]
struct Shares {
    needs: f64,
    old: f64,
    cached: f64,
    /// At each of the [`READ_PRICES`].
    costs: [f64; 3],
    /// Requests; in a mean, of all sessions.
    refused: f64,
    filled: f64,
}

impl Shares {
    fn mean(rows: &[Self]) -> Self {
        let mean =
            |field: fn(&Self) -> f64| rows.iter().map(field).sum::<f64>() / rows.len() as f64;
        Self {
            needs: mean(|row| row.needs),
            old: mean(|row| row.old),
            cached: mean(|row| row.cached),
            costs: [
                mean(|row| row.costs[0]),
                mean(|row| row.costs[1]),
                mean(|row| row.costs[2]),
            ],
            refused: rows.iter().map(|row| row.refused).sum(),
            filled: mean(|row| row.filled),
        }
    }

    fn write(&self, out: &mut impl Write, name: &str) -> io::Result<()> {
        let [tenth, twentieth, fortieth] = self.costs;
        writeln!(
            out,
            "{name:<42} {:>6.3} {:>6.3} {:>7.3} {tenth:>9.0} {twentieth:>9.0} {fortieth:>9.0} {:>8} {:>8.2}",
            self.needs, self.old, self.cached, self.refused, self.filled
        )
    }
}

fn messages(body: &[u8]) -> Vec<Value> {
    match parse::parse_value(body) {
        Ok(mut body) => match body["messages"].take() {
            Value::Array(messages) => messages,
            _ => Vec::new(),
        },
        Err(_) => Vec::new(),
    }
}

/// All that a message says: its texts, names and arguments of calls.
fn text(message: &Value) -> String {
    let mut all = Vec::new();
    match &message["content"] {
        Value::String(text) => all.push(text.as_str()),
        Value::Array(parts) => all.extend(parts.iter().filter_map(|part| part["text"].as_str())),
        _ => {}
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        all.extend(
            ["name", "arguments"]
                .iter()
                .filter_map(|key| function[*key].as_str()),
        );
    }
    all.join("\n")
}

/// Names, paths and numbers: runs of six and more letters, digits and `_ . / -` that begin with a letter,
/// three and more digits, and pairs of Chinese or Japanese characters.
pub(crate) fn words(text: &str) -> HashSet<String> {
    let bytes = text.as_bytes();
    let mut words = HashSet::new();
    let mut at = 0;
    let run =
        |from: usize, of: fn(u8) -> bool| bytes[from..].iter().take_while(|&&it| of(it)).count();
    while at < bytes.len() {
        let length = match bytes[at] {
            it if it.is_ascii_alphabetic() || it == b'_' => {
                let length = run(at, |it| it.is_ascii_alphanumeric() || b"_./-".contains(&it));
                if length >= 6 { length } else { 0 }
            }
            it if it.is_ascii_digit() => {
                let length = run(at, |it| it.is_ascii_digit());
                if length >= 3 { length } else { 0 }
            }
            _ => 0,
        };
        if length > 0 {
            words.insert(text[at..at + length].to_owned());
        }
        at += length.max(1);
    }
    let mut before = None;
    for it in text.chars() {
        let now = matches!(it, '\u{3040}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}').then_some(it);
        if let (Some(before), Some(now)) = (before, now) {
            words.insert(String::from_iter([before, now]));
        }
        before = now;
    }
    words
}
