//! An agent whose model thinks before each answer, in small windows: how much of its thinking the model still has, and
//! what that costs, beside a guard of a few lines.

mod forty_lines;
mod judge;
mod native_clearing;
mod thoughts;

use std::{
    collections::HashMap,
    io::{self, Write},
};

use bytes::Bytes;
use plimsoll::{
    config::{
        GuardConfig,
        profile::{PastReasoning, Profile},
        tokens::find_token_rule,
    },
    conversation::Format,
    guard::{
        self, Policy, SessionKnowledge,
        profile::find_profile,
        rules::{RULES, Rules},
    },
};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use self::{
    forty_lines::FortyLines,
    judge::Judge,
    native_clearing::NativeClearing,
    thoughts::{UNSIGNED, add_thinking, thought},
};
use crate::{
    cache::steps,
    support::{
        block_cache::{BlockCache, CacheRule},
        bound::BoundModel,
        count::TokenCounter,
        drive::make_policy,
        generate::{Session, Shape},
        translate_chat::translate_chat,
    },
};

const SEEDS: u64 = 3;
/// As clients of small windows set it, so that no guard keeps more free than another.
const ANSWER_CAP: u32 = 2_000;
/// Answers whose thinking is of use.
const RECENT: usize = 10;
/// How much more a model thinks where the thinking of the open round is missing (a probe of Opus 5.5).
const THINKS_AGAIN: u64 = 3;
/// Of an output token, in uncached tokens of the prompt.
const OUTPUT_PRICE: u64 = 5;

/// Who fits the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fitter {
    Plimsoll,
    /// Whole steps go, oldest first, from 90 % of the window to 50 %; thinking made before the newest cut is left out.
    FortyLines,
    /// The provider clears tool results itself, and keeps thinking valid; the forty lines where that frees too little.
    NativeClearing,
}

#[derive(Default)]
struct Tally {
    requests: u64,
    cuts: u64,
    open: u64,
    open_kept: u64,
    recent: u64,
    recent_kept: u64,
    kept_tokens: u64,
    prompt: u64,
    cached: u64,
    output: u64,
    lost: u64,
    /// By the provider's check, where there is one.
    refused: u64,
    stale: usize,
}

/// A model's provider.
#[derive(Clone, Copy)]
struct Setting<'a> {
    format: Format,
    past: PastReasoning,
    /// Whose thinking is judged.
    account: Option<&'a BoundModel>,
    window: u32,
    counter: &'a TokenCounter,
    settings: &'a GuardConfig,
    rules: &'a Rules,
}

pub(crate) fn report(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nthinking: 300 steps of an agent that thinks before each answer, tokens by o200k, state kept. open: requests that return\n\
         results whose calls have their thinking; recent: thinking of the ten newest answers that the model reads, and its\n\
         tokens; between: answers from one change of the prefix to the next; cost: a step, uncached + 0.1 x cached + 5 x output;\n\
         refused: requests that the provider's check refuses (a new account); stale: blocks of thinking that do not fit what is\n\
         sent before them (an old account reads them)\n"
    )?;
    writeln!(
        out,
        "  model                    window  guard            open  recent  tokens  between  cached  output    cost  lost  refused  stale"
    )?;
    let counter = TokenCounter::o200k();
    let settings = GuardConfig::default();
    let (new, old) = (BoundModel::default(), BoundModel::old());
    let bound = (Format::Messages, PastReasoning::Refused);
    let free = (Format::Messages, PastReasoning::Read);
    let dropped = (Format::Responses, PastReasoning::Dropped);
    for (name, (format, past), account) in [
        ("Messages, new account", bound, Some(&new)),
        ("Messages, old account", bound, Some(&old)),
        ("Messages, not bound", free, None),
        ("Responses, gpt-6.2", dropped, None),
    ] {
        for window in [32_768, 131_072] {
            for fitter in [Fitter::Plimsoll, Fitter::FortyLines, Fitter::NativeClearing] {
                if fitter == Fitter::NativeClearing && past != PastReasoning::Refused {
                    continue;
                }
                let setting = Setting {
                    format,
                    past,
                    account,
                    window,
                    counter: &counter,
                    settings: &settings,
                    rules: &RULES,
                };
                let mut tally = Tally::default();
                for seed in 0..SEEDS {
                    for shape in [Shape::OneTurn, Shape::Agent] {
                        setting.run(&steps(seed, shape, 300), fitter, &mut tally);
                    }
                }
                let row = format!("{name:<22} {window:>8}  {:<14}", format!("{fitter:?}"));
                tally.write_row(out, &row, account.is_some())?;
            }
        }
    }
    writeln!(out)
}

/// What a session keeps of a model's bound thinking in a window of 16,384 tokens, and what a step costs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeptThinking {
    /// The share of the ten newest answers' thinking.
    pub(crate) recent: f64,
    /// As [`report`] has it.
    pub(crate) cost: f64,
    pub(crate) refused: u64,
}

/// Runs the sessions of a seed under the guard's default settings and given rules.
pub(crate) fn measure_thinking(seed: u64, rules: &Rules, counter: &TokenCounter) -> KeptThinking {
    let settings = GuardConfig::default();
    let account = BoundModel::default();
    let setting = Setting {
        format: Format::Messages,
        past: PastReasoning::Refused,
        account: Some(&account),
        window: 16_384,
        counter,
        settings: &settings,
        rules,
    };
    let mut tally = Tally::default();
    let session = steps(seed, Shape::Agent, 120);
    setting.run(&session, Fitter::Plimsoll, &mut tally);
    KeptThinking {
        recent: tally.recent_kept as f64 / tally.recent.max(1) as f64,
        cost: tally.cost() / tally.requests.max(1) as f64,
        refused: tally.refused + tally.lost,
    }
}

impl Tally {
    fn cost(&self) -> f64 {
        let uncached = self.prompt - self.cached;
        uncached as f64 + 0.1 * self.cached as f64 + (OUTPUT_PRICE * self.output) as f64
    }

    fn write_row(&self, out: &mut impl Write, row: &str, is_judged: bool) -> io::Result<()> {
        let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let judged = |count: u64| {
            if is_judged {
                count.to_string()
            } else {
                "-".to_owned()
            }
        };
        writeln!(
            out,
            "  {row} {:>6.3} {:>7.3} {:>7.0} {:>8.1} {:>7.3} {:>7.0} {:>7.0} {:>5} {:>8} {:>6}",
            share(self.open_kept, self.open),
            share(self.recent_kept, self.recent),
            share(self.kept_tokens, self.requests),
            share(self.requests, self.cuts),
            share(self.cached, self.prompt),
            share(self.output, self.requests),
            self.cost() / self.requests.max(1) as f64,
            self.lost,
            judged(self.refused),
            judged(self.stale as u64),
        )
    }
}

impl<'a> Setting<'a> {
    fn run(&self, session: &Session, fitter: Fitter, tally: &mut Tally) {
        let rule = match self.format {
            Format::Messages => CacheRule::AtMarkers,
            _ => CacheRule::Automatic,
        };
        let mut cache = BlockCache::new(rule, self.counter);
        let profile = match self.format {
            Format::Messages => "anthropic",
            _ => "openai",
        };
        let profile = Profile {
            past_reasoning: self.past,
            ..*find_profile(profile).expect("a profile of the table")
        };
        let policy = Policy {
            tokens: find_token_rule("gpt-4o", &profile),
            rules: self.rules,
            ..make_policy(&profile, self.window, self.settings)
        };
        let mut knowledge = SessionKnowledge::default();
        let mut forty = FortyLines::default();
        let mut native = NativeClearing::default();
        // What stood before each answer as it was made, by its number.
        let mut made: Vec<u64> = Vec::new();
        let mut judge: Option<Judge> = None;
        for body in session.steps() {
            let body = translate_chat(&body, self.format, true);
            let body: Value = serde_json::from_slice(&body).expect("a translated body is JSON");
            if let Some(account) = self.account {
                judge.get_or_insert_with(|| Judge::new(account.clone(), &body));
            }
            let body = match &judge {
                Some(judge) => judge.sign(body),
                None => add_thinking(body, &[]),
            };
            let body = Bytes::from(body.to_string());
            let (sent, left) = match fitter {
                Fitter::Plimsoll => {
                    let sent = self.fit(&body, &policy, &mut knowledge, &mut cache, &made);
                    (sent.clone(), sent)
                }
                Fitter::FortyLines => {
                    let sent = forty.fit(&body, self, &mut cache, &made);
                    (sent.clone(), sent)
                }
                Fitter::NativeClearing => native.fit(&body, self, &mut cache, &made),
            };
            let hit = cache.request(&self.read(&left, &made));
            tally.lost += u64::from(hit.prompt > u64::from(self.window));
            tally.requests += 1;
            tally.cuts += u64::from(hit.changed);
            tally.prompt += hit.prompt;
            tally.cached += hit.cached;
            let sent: Value = serde_json::from_slice(&sent).expect("what is sent is JSON");
            let all: Value = serde_json::from_slice(&body).expect("what the client has is JSON");
            self.note_thinking(&all, &sent, &mut made, tally);
            if let Some(judge) = &mut judge {
                let judgement = judge.check(&sent, made.len() - 1);
                tally.refused += u64::from(judgement.is_refused);
                tally.stale += judgement.stale;
            }
        }
    }

    /// What the model reads of a request: no signature, and stale reasoning is withheld from it.
    fn read(&self, sent: &Bytes, made: &[u64]) -> Bytes {
        if self.past != PastReasoning::Dropped && self.account.is_none() {
            return sent.clone();
        }
        let mut body: Value = serde_json::from_slice(sent).expect("what is sent is JSON");
        if self.format == Format::Messages {
            let entries = body["messages"].as_array_mut().into_iter().flatten();
            let blocks = entries.filter_map(|entry| entry["content"].as_array_mut());
            for block in blocks.flatten().filter(|it| it["type"] == "thinking") {
                block["signature"] = UNSIGNED.into();
            }
            return Bytes::from(body.to_string());
        }
        let mut prefix = 0u64;
        body["input"]
            .as_array_mut()
            .expect("a list")
            .retain(|entry| {
                let text = entry["summary"][0]["text"].as_str();
                match text.and_then(|text| text.split(' ').next()?.parse::<usize>().ok()) {
                    Some(nth) => made.get(nth) == Some(&prefix),
                    None => {
                        prefix = xxh3_64(format!("{prefix} {}", plain(entry)).as_bytes());
                        true
                    }
                }
            });
        Bytes::from(body.to_string())
    }

    fn fit(
        &self,
        body: &Bytes,
        policy: &Policy<'_>,
        knowledge: &mut SessionKnowledge,
        cache: &mut BlockCache<'_>,
        made: &[u64],
    ) -> Bytes {
        let conversation = self
            .format
            .index_body(body.clone())
            .expect("a body can be indexed");
        let mut sent = body.clone();
        // The request, and two more where it is too long.
        for _ in 0..3 {
            let plan = guard::plan(&conversation, policy, knowledge);
            sent = plan.edits.apply(&conversation.body).to_bytes();
            let tokens = cache.count(&self.read(&sent, made));
            let raw = plan.report.raw_after;
            let fits = tokens <= u64::from(policy.window);
            knowledge.calibration = knowledge.calibration.learn_usage(raw, tokens as u32, false);
            if fits {
                knowledge.answers.largest = ANSWER_CAP / 2;
                knowledge.memory = plan.memory;
                knowledge.history = plan.history;
                let messages = conversation.items.iter();
                knowledge.sent_messages = messages.filter(|item| !item.author.is_system()).count();
                break;
            }
        }
        sent
    }

    /// Notes what the model reads of its thinking, and what it gives out.
    fn note_thinking(&self, all: &Value, sent: &Value, made: &mut Vec<u64>, tally: &mut Tally) {
        let count = |text: &str| self.counter.text(text);
        let entries = |body: &Value| match self.format {
            Format::Messages => body["messages"].as_array().cloned().unwrap_or_default(),
            _ => body["input"].as_array().cloned().unwrap_or_default(),
        };
        let thinking = |entry: &Value| -> Option<(usize, String)> {
            let block = match self.format {
                Format::Messages => &entry["content"][0],
                _ => entry,
            };
            let text = block["thinking"]
                .as_str()
                .or(block["summary"][0]["text"].as_str())?;
            let nth = text.split(' ').next()?.parse().ok()?;
            Some((nth, text.to_owned()))
        };
        let client: Vec<(usize, String)> = entries(all).iter().filter_map(thinking).collect();
        if made.is_empty() {
            // What came before the first request was made as it stands there.
            let mut prefix = 0u64;
            for entry in entries(all) {
                if thinking(&entry).is_some() {
                    made.push(prefix);
                }
                if entry["type"] != "reasoning" {
                    prefix = xxh3_64(format!("{prefix} {}", plain(&entry)).as_bytes());
                }
            }
        }
        let mut valid: HashMap<usize, u64> = HashMap::new();
        let mut prefix = 0u64;
        let mut last = None;
        for entry in entries(sent) {
            let found = thinking(&entry);
            if let Some((nth, text)) = &found {
                let reads = self.past == PastReasoning::Read || made.get(*nth) == Some(&prefix);
                if reads {
                    valid.insert(*nth, count(text));
                }
            }
            let is_answer = entry["role"] == "assistant" || entry["type"] == "function_call";
            let is_reasoning = entry["type"] == "reasoning";
            if is_answer && self.format == Format::Messages || is_reasoning {
                last = found.map(|it| it.0);
            }
            if !is_reasoning {
                prefix = xxh3_64(format!("{prefix} {}", plain(&entry)).as_bytes());
            }
        }
        let newest = client.len();
        // A client may ask once more with more behind the same answers.
        made.truncate(newest);
        made.push(prefix);
        let is_result = |entry: &Value| {
            entry["content"][0]["type"] == "tool_result" || entry["type"] == "function_call_output"
        };
        let mut again = 1;
        if entries(sent).last().is_some_and(is_result) {
            tally.open += 1;
            if last.is_some_and(|nth| valid.contains_key(&nth)) {
                tally.open_kept += 1
            } else {
                again = THINKS_AGAIN
            }
        }
        for (nth, _) in client.iter().rev().take(RECENT) {
            tally.recent += 1;
            if let Some(tokens) = valid.get(nth) {
                tally.recent_kept += 1;
                tally.kept_tokens += tokens;
            }
        }
        tally.output += 150 + again * count(&thought(newest));
    }
}

/// What a provider compares of an entry: without thinking and cache markers.
fn plain(entry: &Value) -> String {
    let mut entry = entry.clone();
    if let Some(blocks) = entry["content"].as_array_mut() {
        blocks.retain(|block| block["type"] != "thinking");
        for block in blocks {
            block.as_object_mut().map(|it| it.remove("cache_control"));
        }
    }
    entry.to_string()
}
