//! What a session keeps and costs under given rules.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use plimsoll::{
    config::RecoveryConfig,
    conversation::Format,
    guard::{self, EarlierPlan, Policy, SessionKnowledge, StandBackReason, rules::Rules},
};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use super::cases::Case;
use crate::{
    needs::{self, Said},
    support::{
        block_cache::{BlockCache, CacheRule},
        count::TokenCounter,
        plans::{apply_plan, make_policy},
    },
};

/// Each request of this number follows a pause after which the provider's cache is gone.
const PAUSE_EVERY: usize = 12;
/// What a cached token costs, as a part of one that is not.
const READ_PRICE: f64 = 0.1;
/// From this share of the window on, results that come get shorter.
const NEARLY_FULL: f64 = 0.8;

/// Members of entries that are no text.
const NEVER_READ: [&str; 8] = [
    "id",
    "tool_call_id",
    "tool_use_id",
    "call_id",
    "type",
    "role",
    "cache_control",
    "url",
];

/// Counts over sessions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measure {
    requests: u64,
    needed: u64,
    found: u64,
    needed_old: u64,
    found_old: u64,
    newest: u64,
    newest_found: u64,
    question: u64,
    question_found: u64,
    prompt: u64,
    cached: u64,
    /// Requests that are not sent as they are with all rules.
    changed: u64,
    /// Requests that the provider refused at first, as too long.
    pub(super) retried: u64,
    /// Requests that did not fit in three attempts.
    pub(super) refused: u64,
    /// Requests that the provider refuses though it takes the client's, and those whose plan was unsound.
    pub(super) invalid: u64,
}

/// The columns of the table that are shares and costs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    pub(super) needs: f64,
    pub(super) old: f64,
    pub(super) newest: f64,
    pub(super) question: f64,
    pub(super) cached: f64,
    /// Of all requests.
    pub(super) changed: f64,
    /// Uncached prompt tokens a request, and the cached ones at [`READ_PRICE`].
    pub(super) cost: f64,
}

impl Measure {
    pub(super) fn add(&mut self, more: &Self) {
        self.requests += more.requests;
        self.needed += more.needed;
        self.found += more.found;
        self.needed_old += more.needed_old;
        self.found_old += more.found_old;
        self.newest += more.newest;
        self.newest_found += more.newest_found;
        self.question += more.question;
        self.question_found += more.question_found;
        self.changed += more.changed;
        self.prompt += more.prompt;
        self.cached += more.cached;
        self.retried += more.retried;
        self.refused += more.refused;
        self.invalid += more.invalid;
    }

    pub(super) fn shares(&self) -> Shares {
        let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        Shares {
            needs: share(self.found, self.needed),
            old: share(self.found_old, self.needed_old),
            newest: share(self.newest_found, self.newest),
            question: share(self.question_found, self.question),
            changed: share(self.changed, self.requests),
            cached: share(self.cached, self.prompt),
            cost: (self.prompt as f64 - (1.0 - READ_PRICE) * self.cached as f64)
                / self.requests.max(1) as f64,
        }
    }
}

/// A session that is measured under several rules: what does not depend on them is found once.
pub(super) struct MeasuredCase<'a> {
    case: &'a Case,
    counter: &'a TokenCounter,
    bodies: Vec<Bytes>,
    /// For each request, the words that its answer needs, and those of them that were last said long ago.
    needs: Vec<(Vec<u32>, Vec<u32>)>,
    /// For each request, the words of the messages behind the newest answer.
    newest: Vec<Vec<u32>>,
    /// For each request, the words of the user's newest message.
    question: Vec<Vec<u32>>,
    /// What is sent with all rules, which are measured first: digests.
    with_all_rules: Vec<Option<u128>>,
    words: HashMap<String, u32>,
    /// The words of entries by their digests.
    entries: HashMap<u128, Vec<u32>>,
}

impl<'a> MeasuredCase<'a> {
    pub(super) fn new(case: &'a Case, counter: &'a TokenCounter) -> Self {
        let said = needs::list_said(&case.chat);
        let mut needed = needs::find_needs(&said);
        let mut words = HashMap::new();
        let mut number = |word: &str| -> u32 {
            let next = words.len() as u32;
            *words.entry(word.to_owned()).or_insert(next)
        };
        let requests = 0..case.chat.requests();
        let ends = requests
            .clone()
            .map(|request| case.chat.messages_at(request));
        let needs = ends.clone().map(|end| {
            let (all, old) = needed.remove(&end).unwrap_or_default();
            let mut list = |set: HashSet<&str>| set.into_iter().map(&mut number).collect();
            (list(all), list(old))
        });
        let needs = needs.collect();
        let newest = ends.clone().map(|end| {
            let fresh = said[..end]
                .iter()
                .rev()
                .take_while(|it| it.role != "assistant");
            let fresh = fresh.filter(|it| it.role != "system");
            let fresh = fresh.flat_map(|it: &Said| it.words.iter().map(String::as_str));
            let fresh: HashSet<&str> = fresh.collect();
            fresh.into_iter().map(&mut number).collect()
        });
        let newest = newest.collect();
        let question = ends.map(|end| {
            let asked = said[..end].iter().rev().find(|it| it.role == "user");
            let words: HashSet<&str> = asked
                .iter()
                .flat_map(|it| it.words.iter())
                .map(String::as_str)
                .collect();
            words.into_iter().map(&mut number).collect()
        });
        Self {
            question: question.collect(),
            with_all_rules: Vec::new(),
            newest,
            needs,
            words,
            entries: HashMap::new(),
            bodies: requests.map(|request| case.body(request).into()).collect(),
            case,
            counter,
        }
    }

    /// Runs the session. The first call is with all rules.
    pub(super) fn measure(&mut self, rules: &Rules, clamps: bool) -> Measure {
        let case = self.case;
        let mut settings = case.settings.clone();
        settings.clamp_max_tokens = clamps;
        let policy = Policy {
            rules,
            ..make_policy(case.profile, case.window, &settings)
        };
        let rule = match case.format {
            Format::Messages => CacheRule::AtMarkers,
            _ => CacheRule::Automatic,
        };
        let mut cache = BlockCache::new(rule, self.counter);
        let mut knowledge = SessionKnowledge::default();
        let mut measure = Measure::default();
        let mut seen = Vec::new();
        let mut digests = Vec::new();
        for request in 0..self.bodies.len() {
            if !case.keeps_state {
                knowledge = SessionKnowledge::default();
            }
            knowledge.is_cold = request > 0 && request % PAUSE_EVERY == 0;
            if knowledge.is_cold {
                cache = BlockCache::new(rule, self.counter);
            }
            let body = self.bodies[request].clone();
            let sent = self.send(&body, &policy, &mut knowledge, &mut cache, &mut measure);
            measure.requests += 1;
            digests.push(sent.as_ref().map(|it| xxh3_128(it)));
            let Some(sent) = sent else {
                // What is refused has no answer, and nothing of it is read.
                measure.needed += self.needs[request].0.len() as u64;
                measure.needed_old += self.needs[request].1.len() as u64;
                measure.newest += self.newest[request].len() as u64;
                measure.question += self.question[request].len() as u64;
                continue;
            };
            let hit = cache.request(&sent);
            measure.prompt += hit.prompt;
            measure.cached += hit.cached;
            self.mark_seen(&sent, &mut seen);
            let count =
                |words: &[u32]| words.iter().filter(|&&it| seen[it as usize]).count() as u64;
            let ((all, old), newest) = (&self.needs[request], &self.newest[request]);
            measure.needed += all.len() as u64;
            measure.found += count(all);
            measure.needed_old += old.len() as u64;
            measure.found_old += count(old);
            measure.newest += newest.len() as u64;
            measure.newest_found += count(newest);
            measure.question += self.question[request].len() as u64;
            measure.question_found += count(&self.question[request]);
        }
        if self.with_all_rules.is_empty() {
            self.with_all_rules = digests;
        } else {
            let pairs = digests.iter().zip(&self.with_all_rules);
            measure.changed = pairs.filter(|(now, was)| now != was).count() as u64;
        }
        measure
    }

    /// Sends one request, and twice more where it is too long. `None`: the provider refuses it.
    fn send(
        &self,
        original: &Bytes,
        policy: &Policy<'_>,
        knowledge: &mut SessionKnowledge,
        cache: &mut BlockCache<'_>,
        measure: &mut Measure,
    ) -> Option<Bytes> {
        let conversation = self.case.format.index_body(original.clone());
        let conversation = conversation.expect("a generated body can be indexed");
        knowledge.refused.was_too_long = false;
        for attempt in 0..3 {
            let plan = guard::plan(&conversation, policy, knowledge);
            let unsound = matches!(plan.report.stood_back, Some(StandBackReason::Unsound(_)));
            let annotated = apply_plan(&conversation, &plan);
            let mut edits = plan.edits;
            conversation.take_out_annotations(&mut edits);
            let body = edits.apply(&conversation.body).to_bytes();
            let parsed: Value = serde_json::from_slice(&body).expect("what is sent is JSON");
            let tokens = cache.count(&body);
            let limit = u64::from(self.case.window).saturating_sub(self.case.answer_cap(&parsed));
            let fits = tokens <= limit;
            let (raw, calibration) = (plan.report.raw_after, knowledge.calibration);
            knowledge.calibration = calibration.learn_usage(raw, tokens as u32, !fits);
            knowledge.refused.was_too_long = !fits;
            if !fits {
                // As the product plans anew: what was cut stays cut.
                knowledge.earlier_plan = Some(EarlierPlan {
                    memory: plan.memory,
                    due: plan.report.due,
                });
                measure.retried += u64::from(attempt == 0);
                continue;
            }
            (knowledge.memory, knowledge.earlier_plan) = (plan.memory, None);
            let messages = conversation.items.iter();
            knowledge.sent_messages = messages.filter(|item| !item.author.is_system()).count();
            let made_invalid = self.case.is_made_invalid(original, &annotated);
            measure.invalid += u64::from(unsound || made_invalid);
            let is_full = tokens as f64 > NEARLY_FULL * f64::from(self.case.window);
            let tight = RecoveryConfig::default().max_tool_result_chars;
            knowledge.injections.tight_chars = is_full.then_some(tight);
            return Some(body);
        }
        // The session learns the count alone.
        knowledge.earlier_plan = None;
        measure.refused += 1;
        None
    }

    /// Marks the words that a body has.
    fn mark_seen(&mut self, body: &[u8], seen: &mut Vec<bool>) {
        seen.clear();
        seen.resize(self.words.len(), false);
        let body: Value = serde_json::from_slice(body).expect("what is sent is JSON");
        let lists = ["messages", "input", "system"].map(|name| body[name].as_array());
        let entries = lists.into_iter().flatten().flatten();
        for entry in entries.chain([&body["instructions"]]) {
            let text = entry.to_string();
            let known = self.entries.entry(xxh3_128(text.as_bytes()));
            let words = known.or_insert_with(|| {
                let mut texts = String::new();
                collect_texts(entry, &mut texts);
                let words = needs::words(&texts);
                words
                    .iter()
                    .filter_map(|word| self.words.get(word).copied())
                    .collect()
            });
            words.iter().for_each(|&word| seen[word as usize] = true);
        }
    }
}

/// All texts of an entry, without ids, types and signatures.
fn collect_texts(value: &Value, texts: &mut String) {
    match value {
        Value::String(text) => {
            texts.push_str(text);
            texts.push('\n');
        }
        Value::Array(list) => list.iter().for_each(|it| collect_texts(it, texts)),
        Value::Object(members) => {
            let read = members
                .iter()
                .filter(|(name, _)| !NEVER_READ.contains(&name.as_str()));
            read.for_each(|(_, it)| collect_texts(it, texts));
        }
        _ => {}
    }
}
