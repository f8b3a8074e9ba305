//! Drives a session through the guard, request by request, against a provider that counts tokens
//! itself, caches, and refuses requests that are invalid or too long.

use super::{cache::PromptCache, count::TokenCounter, generate::Session, strict};
use bytes::Bytes;
use plimsoll::{
    config::{GuardConfig, WhenUnsure, tokens::find_token_rule},
    conversation::{Author, Conversation},
    format::chat,
    guard::{self, Policy, SessionKnowledge, profile::Profile},
};

pub(crate) use super::plans::{apply_plan, make_policy};

/// The guard's default settings, with which every budget is kept.
pub(crate) fn settings() -> GuardConfig {
    GuardConfig {
        when_unsure: Some(WhenUnsure::Cut),
        ..GuardConfig::default()
    }
}

/// The same with three ASCII characters per token, so that a test can say how large its texts are.
pub(crate) fn counted_by_characters() -> GuardConfig {
    GuardConfig {
        chars_per_token: Some(3.0),
        ..settings()
    }
}

/// Raw tokens of an unedited body, by the guard's estimate.
pub(crate) fn raw_tokens(body: &Bytes, profile: &Profile) -> u32 {
    raw_tokens_for(body, profile, "")
}

/// The same for a model whose name is known.
pub(crate) fn raw_tokens_for(body: &Bytes, profile: &Profile, model: &str) -> u32 {
    let settings = GuardConfig {
        enabled: false,
        ..settings()
    };
    let conversation = chat::index_body(body.clone()).expect("a generated body can be indexed");
    let policy = Policy {
        tokens: find_token_rule(model, profile),
        ..make_policy(profile, u32::MAX / 4, &settings)
    };
    guard::plan(&conversation, &policy, &SessionKnowledge::default())
        .report
        .raw_before
}

/// Tokens of a preface, by any count.
const NOTE: u64 = 150;

/// Tokens of a result at its strongest truncation.
const CUT_RESULT: u64 = 150;

/// How the provider counts.
#[derive(Clone, Copy)]
pub(crate) enum TokenMeter<'a> {
    Foreign(&'a TokenCounter),
    /// The guard's own estimate times this factor.
    Times(f64),
}

impl TokenMeter<'_> {
    pub(crate) fn count(self, body: &Bytes, profile: &Profile) -> u64 {
        match self {
            Self::Foreign(counter) => counter.request(body),
            Self::Times(factor) => (f64::from(raw_tokens(body, profile)) * factor) as u64,
        }
    }
}

/// Counts over a session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionOutcome {
    pub(crate) requests: usize,
    pub(crate) edited: usize,
    /// Requests with a new cut.
    pub(crate) folds: usize,
    /// Requests that do not begin with the previous request.
    pub(crate) changes: usize,
    pub(crate) prompt: u64,
    pub(crate) cached: u64,
    /// Requests that the strict provider refuses though it accepts the original.
    pub(crate) refused: usize,
    /// Requests over the window at the first attempt.
    pub(crate) over: usize,
    /// Of these, those still over after two refits with the numbers of the overflow error.
    pub(crate) lost: usize,
    /// Of these, those that no guard could have fitted.
    pub(crate) hopeless: usize,
    /// Plans that the guard's own lint rejected.
    pub(crate) unsound: usize,
    /// The newest cut.
    boundary: Option<u32>,
}

impl SessionOutcome {
    pub(crate) const fn add(&mut self, more: &Self) {
        self.requests += more.requests;
        self.edited += more.edited;
        self.folds += more.folds;
        self.changes += more.changes;
        self.prompt += more.prompt;
        self.cached += more.cached;
        self.refused += more.refused;
        self.over += more.over;
        self.lost += more.lost;
        self.hopeless += more.hopeless;
        self.unsound += more.unsound;
    }

    /// The share of prompt tokens that the cache held.
    pub(crate) fn share(&self) -> f64 {
        self.cached as f64 / self.prompt.max(1) as f64
    }
}

/// How a session is driven.
#[derive(Clone, Copy)]
pub(crate) struct GuardedSession<'a> {
    pub(crate) policy: Policy<'a>,
    pub(crate) meter: TokenMeter<'a>,
    /// Counts tokens for the cache.
    pub(crate) counter: &'a TokenCounter,
    /// Whether state is kept between requests.
    pub(crate) keeps: bool,
}

impl GuardedSession<'_> {
    /// Drives the whole session.
    pub(crate) fn run(&self, session: &Session) -> SessionOutcome {
        let mut cache = PromptCache::new(self.counter);
        let (mut prompt, mut cached, mut changes) = (0, 0, 0);
        let mut outcome = self.each(session, |_, body| {
            let hit = cache.request(&body);
            prompt += hit.prompt;
            cached += hit.cached;
            changes += usize::from(hit.changed);
        });
        (outcome.prompt, outcome.cached, outcome.changes) = (prompt, cached, changes);
        outcome
    }

    /// The whole session, guarded, with each request as it goes out, by its number; the cache apart.
    pub(crate) fn each(
        &self,
        session: &Session,
        mut sent: impl FnMut(usize, Bytes),
    ) -> SessionOutcome {
        let mut outcome = SessionOutcome::default();
        let mut knowledge = SessionKnowledge::default();
        for (number, body) in session.steps().enumerate() {
            if !self.keeps {
                knowledge = SessionKnowledge::default();
            }
            sent(
                number,
                self.request(Bytes::from(body), &mut knowledge, &mut outcome),
            );
            outcome.requests += 1;
        }
        outcome
    }

    /// Sends one request, and refits it up to twice where it is too long for the provider.
    fn request(
        &self,
        original: Bytes,
        knowledge: &mut SessionKnowledge,
        outcome: &mut SessionOutcome,
    ) -> Bytes {
        let profile = self.policy.profile;
        let conversation =
            chat::index_body(original.clone()).expect("a generated body can be indexed");
        // Providers cap an answer longer than half the window.
        let asked = conversation.max_answer_tokens().unwrap_or(0);
        let asked = asked.min(u64::from(self.policy.window / 2));
        let limit = if profile.checks_answer_cap() {
            u64::from(self.policy.window).saturating_sub(asked)
        } else {
            u64::from(self.policy.window)
        };
        let mut tries = 0;
        loop {
            let plan = guard::plan(&conversation, &self.policy, knowledge);
            let body = apply_plan(&conversation, &plan);
            let tokens = self.meter.count(&body, profile);
            let (raw, calibration) = (plan.report.raw_after, knowledge.calibration);
            knowledge.calibration = calibration.learn_usage(raw, tokens as u32, tokens > limit);
            if tokens > limit && tries < 2 {
                outcome.over += usize::from(tries == 0);
                tries += 1;
                knowledge.memory = plan.memory;
                knowledge.sent_messages = conversation.items.len();
                continue;
            }
            if tokens > limit {
                outcome.lost += 1;
                outcome.hopeless += usize::from(self.is_hopeless(&conversation, limit));
            }
            let boundary = plan.memory.boundary();
            outcome.folds += usize::from(boundary.is_some() && boundary != outcome.boundary);
            outcome.boundary = boundary;
            outcome.edited += usize::from(!plan.edits.is_empty());
            outcome.unsound += usize::from(matches!(
                plan.report.stood_back,
                Some(guard::StandBackReason::Unsound(_))
            ));
            outcome.refused += usize::from(self.is_refused(&original, &body));
            knowledge.memory = plan.memory;
            knowledge.sent_messages = conversation.items.len();
            return body;
        }
    }

    fn is_refused(&self, original: &[u8], body: &[u8]) -> bool {
        // A valid request needs no comparison with the original, which may be long.
        let profile = self.policy.profile;
        original != body
            && !strict::find_violations(body, profile).is_empty()
            && !strict::find_broken_rules(original, body, profile).is_empty()
    }

    /// Whether no guard could fit it: pinned messages and the newest step exceed the limit even
    /// with their results at their shortest and a preface between them.
    pub(crate) fn is_hopeless(&self, conversation: &Conversation, limit: u64) -> bool {
        let messages = &conversation.items;
        let first_user = messages
            .iter()
            .position(|message| message.author == Author::User);
        let newest = messages
            .iter()
            .rposition(|message| !message.author.is_tool())
            .unwrap_or(0);
        let results = messages.len() - newest - 1;
        let kept = messages.iter().enumerate().filter(|(at, message)| {
            message.author.is_system() || Some(*at) == first_user || *at == newest
        });
        let mut body = conversation.body[..conversation.list.start as usize + 1].to_vec();
        for (place, (_, message)) in kept.enumerate() {
            if place > 0 {
                body.push(b',');
            }
            body.extend_from_slice(conversation.span_bytes(message.span));
        }
        body.extend_from_slice(&conversation.body[conversation.list.end as usize - 1..]);
        let least = self.meter.count(&Bytes::from(body), self.policy.profile);
        least + NOTE + results as u64 * CUT_RESULT > limit
    }
}

/// The same session in an unlimited window: the upper bound of the cache.
pub(crate) fn run_unlimited(session: &Session, counter: &TokenCounter) -> SessionOutcome {
    let mut cache = PromptCache::new(counter);
    let mut outcome = SessionOutcome::default();
    for body in session.steps() {
        let hit = cache.request(&body);
        outcome.requests += 1;
        outcome.prompt += hit.prompt;
        outcome.cached += hit.cached;
        outcome.changes += usize::from(hit.changed);
    }
    outcome
}
