//! An agent whose model thinks before each answer, in small windows: how much of its thinking the model still has, and
//! what that costs, beside a guard of a few lines.

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
    guard::{self, Policy, Recall, profile::find_profile},
};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    cache::steps,
    support::{
        block_cache::{BlockCache, CacheRule},
        count::TokenCounter,
        drive::make_policy,
        generate::{
            Random, Session, Shape,
            prose::{self, Tongue},
        },
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
}

/// A model's provider.
#[derive(Clone, Copy)]
struct Setting<'a> {
    format: Format,
    past: PastReasoning,
    window: u32,
    counter: &'a TokenCounter,
    settings: &'a GuardConfig,
}

pub(crate) fn report(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nthinking: 300 steps of an agent that thinks before each answer, tokens by o200k, state kept. open: requests that return\n\
         results whose calls have their thinking; recent: thinking of the ten newest answers that the model reads, and its\n\
         tokens; between: answers from one change of the prefix to the next; cost: a step, uncached + 0.1 x cached + 5 x output\n"
    )?;
    writeln!(
        out,
        "  model                    window  guard        open  recent  tokens  between  cached  output    cost  lost"
    )?;
    let counter = TokenCounter::o200k();
    let settings = GuardConfig::default();
    for (name, format, past) in [
        ("Messages, bound", Format::Messages, PastReasoning::Refused),
        ("Messages, not bound", Format::Messages, PastReasoning::Read),
        (
            "Responses, gpt-6.2",
            Format::Responses,
            PastReasoning::Dropped,
        ),
    ] {
        for window in [32_768, 131_072] {
            for fitter in [Fitter::Plimsoll, Fitter::FortyLines] {
                let setting = Setting {
                    format,
                    past,
                    window,
                    counter: &counter,
                    settings: &settings,
                };
                let mut tally = Tally::default();
                for seed in 0..SEEDS {
                    for shape in [Shape::OneTurn, Shape::Agent] {
                        setting.run(&steps(seed, shape), fitter, &mut tally);
                    }
                }
                tally.write_row(out, name, window, fitter)?;
            }
        }
    }
    writeln!(out)
}

impl Tally {
    fn write_row(
        &self,
        out: &mut impl Write,
        name: &str,
        window: u32,
        fitter: Fitter,
    ) -> io::Result<()> {
        let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let uncached = self.prompt - self.cached;
        let cost = uncached as f64 + 0.1 * self.cached as f64 + (OUTPUT_PRICE * self.output) as f64;
        writeln!(
            out,
            "  {name:<22} {window:>8}  {:<10} {:>6.3} {:>7.3} {:>7.0} {:>8.1} {:>7.3} {:>7.0} {:>7.0} {:>5}",
            format!("{fitter:?}"),
            share(self.open_kept, self.open),
            share(self.recent_kept, self.recent),
            share(self.kept_tokens, self.requests),
            share(self.requests, self.cuts),
            share(self.cached, self.prompt),
            share(self.output, self.requests),
            cost / self.requests.max(1) as f64,
            self.lost,
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
            ..make_policy(&profile, self.window, self.settings)
        };
        let mut recall = Recall::default();
        let mut forty = FortyLines::default();
        // What stood before each answer as it was made, by its number.
        let mut made: Vec<u64> = Vec::new();
        for body in session.steps() {
            let body = add_thinking(&translate_chat(&body, self.format, true), self.format);
            let sent = match fitter {
                Fitter::Plimsoll => self.fit(&body, &policy, &mut recall, &mut cache, &made),
                Fitter::FortyLines => forty.fit(&body, self, &mut cache, &made),
            };
            let hit = cache.request(&self.read(&sent, &made));
            tally.lost += u64::from(hit.prompt > u64::from(self.window));
            tally.requests += 1;
            tally.cuts += u64::from(hit.changed);
            tally.prompt += hit.prompt;
            tally.cached += hit.cached;
            let sent: Value = serde_json::from_slice(&sent).expect("what is sent is JSON");
            let all: Value = serde_json::from_slice(&body).expect("what the client has is JSON");
            self.note_thinking(&all, &sent, &mut made, tally);
        }
    }

    /// What the model reads of a request: stale reasoning is withheld from it.
    fn read(&self, sent: &Bytes, made: &[u64]) -> Bytes {
        if self.past != PastReasoning::Dropped {
            return sent.clone();
        }
        let mut body: Value = serde_json::from_slice(sent).expect("what is sent is JSON");
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
        recall: &mut Recall,
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
            let plan = guard::plan(&conversation, policy, recall);
            sent = plan.edits.apply(&conversation.body).to_bytes();
            let tokens = cache.count(&self.read(&sent, made));
            let raw = plan.report.raw_after;
            let fits = tokens <= u64::from(policy.window);
            recall.calibration = recall
                .calibration
                .learn_usage(raw, tokens as u32, policy.profile);
            if fits {
                recall.answers.largest = ANSWER_CAP / 2;
                recall.memory = plan.memory;
                recall.history = plan.history;
                let messages = conversation.items.iter();
                recall.messages = messages.filter(|item| !item.author.is_system()).count();
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
                assert!(
                    reads || self.past == PastReasoning::Dropped,
                    "stale thinking is sent"
                );
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
            match last.is_some_and(|nth| valid.contains_key(&nth)) {
                true => tally.open_kept += 1,
                false => again = THINKS_AGAIN,
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

/// The thinking before an answer, which begins with its number.
fn thought(nth: usize) -> String {
    let mut random = Random::for_part(nth as u64, 77);
    let chars = 300 + random.below(1_000) + random.below(1_000);
    format!("{nth} {}", prose::text(&mut random, Tongue::Prose, chars))
}

/// The same request, with thinking before each answer.
fn add_thinking(body: &[u8], format: Format) -> Bytes {
    let mut body: Value = serde_json::from_slice(body).expect("a translated body is JSON");
    let mut nth = 0;
    let cap = match format {
        Format::Messages => "max_tokens",
        _ => "max_output_tokens",
    };
    body[cap] = ANSWER_CAP.into();
    if format == Format::Messages {
        let mut is_answer = false;
        for entry in body["messages"].as_array_mut().into_iter().flatten() {
            let continues = std::mem::replace(&mut is_answer, entry["role"] == "assistant");
            if is_answer && !continues {
                let block = json!({"type": "thinking", "thinking": thought(nth), "signature": "s"});
                if let Some(blocks) = entry["content"].as_array_mut() {
                    blocks.insert(0, block);
                }
                nth += 1;
            }
        }
        return Bytes::from(body.to_string());
    }
    let mut entries: Vec<Value> = Vec::new();
    let mut is_answer = false;
    for entry in body["input"].as_array().into_iter().flatten() {
        let begins = entry["role"] == "assistant" || entry["type"] == "function_call";
        if begins && !is_answer {
            entries.push(json!({"type": "reasoning", "id": format!("rs_{nth}"),
                "summary": [{"type": "summary_text", "text": thought(nth)}]}));
            nth += 1;
        }
        is_answer = begins;
        entries.push(entry.clone());
    }
    body["input"] = entries.into();
    Bytes::from(body.to_string())
}

/// The guard of a few lines, which counts as the provider does.
#[derive(Default)]
struct FortyLines {
    /// Entries left out behind the task.
    cut: usize,
    /// The first entry made since.
    epoch: usize,
}

impl FortyLines {
    fn fit(
        &mut self,
        body: &Bytes,
        setting: &Setting<'_>,
        cache: &mut BlockCache<'_>,
        made: &[u64],
    ) -> Bytes {
        let body: Value = serde_json::from_slice(body).expect("a body is JSON");
        let list = match setting.format {
            Format::Messages => "messages",
            _ => "input",
        };
        let window = u64::from(setting.window);
        let mut sent = self.apply(&body, list, setting.past);
        if cache.count(&setting.read(&sent, made)) > window * 9 / 10 {
            self.epoch = body[list].as_array().map_or(0, Vec::len);
            // The first cut that is deep enough.
            let (mut shallow, mut deep) = (self.cut, self.epoch.saturating_sub(2));
            while deep > shallow + 1 {
                self.cut = usize::midpoint(shallow, deep);
                let sent = self.apply(&body, list, setting.past);
                match cache.count(&setting.read(&sent, made)) > window / 2 {
                    true => shallow = self.cut,
                    false => deep = self.cut,
                }
            }
            self.cut = deep;
            sent = self.apply(&body, list, setting.past);
        }
        sent
    }

    fn apply(&self, body: &Value, list: &str, past: PastReasoning) -> Bytes {
        let mut body = body.clone();
        let entries = body[list].as_array_mut().expect("a list");
        let stale = self.epoch.min(entries.len());
        if past == PastReasoning::Refused {
            for entry in &mut entries[..stale] {
                if let Some(blocks) = entry["content"].as_array_mut() {
                    blocks.retain(|block| block["type"] != "thinking");
                }
            }
        }
        // Whole steps: what follows begins with an answer or the user's own words.
        let begins = |entry: &Value| {
            entry["type"] == "reasoning"
                || entry["role"] == "assistant"
                || entry["role"] == "user" && entry["content"][0]["type"] != "tool_result"
        };
        let mut end = 1 + self.cut;
        while end < entries.len() && !begins(&entries[end]) {
            end += 1;
        }
        entries.drain(1..end);
        Bytes::from(body.to_string())
    }
}
