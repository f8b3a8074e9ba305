//! One generation, from what is known before it to what is stored after it.
//!
//! Before: the session's state, the guard's plan, what the headers can say. After: the usage
//! becomes a level, the calibration learns, and the new state is stored before the end of the
//! answer is released. A request that nobody answered, or whose answer broke, changes nothing.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{App, ask_usage::Sent, wish::Wish};
use crate::{
    guard::{self, Plan, Policy, Recall},
    health::{self, From, Health, limits::Limits},
    provider::{Source, Target},
    relay::{Closing, Heard},
    session::{Inherited, State},
    telemetry::record::Record,
    wire::{
        chat::{Conversation, answer_digest},
        edit::Edits,
    },
};

/// How long the end of an answer waits for its state to be stored.
const STORE_WITHIN: Duration = Duration::from_millis(50);

/// What the end of a stream may tell in trailers; named in its head, as HTTP/1.1 asks for.
pub const TRAILERS: &[&str] = &[
    "x-plimsoll-health",
    "x-plimsoll-health-from",
    "x-plimsoll-prompt-tokens",
    "x-plimsoll-context-limit",
    "x-plimsoll-hard-util",
    "x-plimsoll-optimal-util",
];

/// Cuts of one request that are logged each by itself.
const LOGGED_CUTS: usize = 20;

const SESSION: HeaderName = HeaderName::from_static("x-plimsoll-session");
const ACTIONS: HeaderName = HeaderName::from_static("x-plimsoll-actions");
const PROVIDER: HeaderName = HeaderName::from_static("x-plimsoll-provider");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-plimsoll-attempts");
const TIMING: HeaderName = HeaderName::from_static("server-timing");

/// One request of a conversation that is followed.
pub struct Generation {
    app: Arc<App>,
    inherited: Inherited,
    target: Target,
    limits: Limits,
    plan: Plan,
    wish: Wish,
    /// Raw tokens of the request as it goes out.
    raw_sent: u32,
    recall: Recall,
    guard_took: Duration,
}

impl Generation {
    /// Plans what is done to a request that continues `inherited`.
    pub fn plan(
        app: &Arc<App>,
        conversation: &Conversation,
        inherited: Inherited,
        target: &Target,
        headers: &HeaderMap,
    ) -> Self {
        let begun = Instant::now();
        let profile = target.provider.config.profile;
        let settings = &app.config.guard;
        let policy = Policy {
            profile,
            window: target.window.tokens,
            input_limit: target.window.input,
            settings,
        };
        let recall = recall(app, &inherited, target);
        let plan = guard::plan(conversation, &policy, &recall);
        let wish = Wish::of(headers);
        let raw_sent = match wish {
            Wish::Guard => plan.report.raw_after,
            Wish::DryRun | Wish::Off => plan.report.raw_before,
        };
        let limits = health::limits::limits(
            target.window.tokens,
            target.window.input,
            profile.answer_inside_window,
            settings,
            &target.settings,
            Some(plan.report.budget.tokens),
        );
        let generation = Self {
            app: Arc::clone(app),
            inherited,
            target: target.clone(),
            limits,
            plan,
            wish,
            raw_sent,
            recall,
            guard_took: begun.elapsed(),
        };
        generation.log();
        generation
    }

    /// The edits to carry out.
    pub fn edits(&self) -> Edits {
        match self.wish {
            Wish::Guard => self.plan.edits.clone(),
            Wish::DryRun | Wish::Off => Edits::default(),
        }
    }

    /// Headers that say what was done, and the health of the generation before this one.
    pub fn head(&self, sent: &Sent) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let previous = self.inherited.state.as_ref();
        let health = previous.map_or_else(|| self.judge(None), State::health);
        headers.extend(health::headers(&health, From::Previous));
        self.describe(&mut headers, sent);
        headers
    }

    /// The end of a whole answer: judged and stored.
    pub async fn settle(&self, heard: &Heard) -> Health {
        let state = self.state_after(heard);
        let health = state.health();
        let answer = answer_digest(heard.text, &heard.call_ids);
        let sessions = &self.app.sessions;
        sessions
            .save(&self.inherited.lineage, answer, &state, STORE_WITHIN)
            .await;
        health
    }

    /// What is added to the end of a stream.
    pub async fn close(&self, heard: &Heard, comment: bool) -> Closing {
        // Half an answer is no generation; of one that cannot be read, nothing else is known.
        if !(heard.complete() || heard.blind) {
            return Closing::default();
        }
        let health = self.settle(heard).await;
        Closing {
            trailers: health::headers(&health, From::Response).collect(),
            comment: comment.then(|| comment_of(&health).into()),
        }
    }

    fn state_after(&self, heard: &Heard) -> State {
        let usage = heard.usage;
        // No prompt has no tokens: servers that do not count report a zero.
        let reported = usage
            .map(|usage| usage.prompt_tokens)
            .filter(|&tokens| tokens > 0);
        let mut state = self.inherited.successor();
        let (provider, model) = (&self.target.provider.name, &self.target.model);
        state.calibration = self.recall.calibration;
        if let Some(reported) = reported {
            let profile = self.target.provider.config.profile;
            state.calibration = state.calibration.learn(self.raw_sent, reported, profile);
            if !profile.counts_missed_only {
                let ratios = &self.app.ratios;
                ratios.learn(provider, model, self.raw_sent, reported);
            }
        }
        if self.wish == Wish::Guard {
            state.guard = self.plan.memory.clone();
        }
        state.provider = (&**provider).into();
        state.model = model.as_str().into();
        state.window = self.window();
        state.optimal_max_tokens = Some(self.limits.optimal_max_tokens);
        state.prompt_tokens = reported;
        state.completion_tokens = usage.and_then(|usage| usage.completion_tokens);
        state.cached_tokens = usage.and_then(|usage| usage.cached_tokens);
        state.health = self.judge(reported).level;
        state.updated_s = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        state
    }

    fn judge(&self, reported: Option<u32>) -> Health {
        health::judge(reported, self.window(), &self.limits)
    }

    /// The window where a source names it.
    fn window(&self) -> Option<u32> {
        let window = self.target.window;
        (window.source != Source::Assumed).then_some(window.tokens)
    }

    fn describe(&self, headers: &mut HeaderMap, sent: &Sent) {
        let mut put = |name: HeaderName, value: String| {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        };
        put(SESSION, self.inherited.session.to_string());
        put(ACTIONS, self.actions());
        put(PROVIDER, self.target.provider.name.to_string());
        put(ATTEMPTS, sent.attempts.to_string());
        let ms = |took: Duration| took.as_secs_f64() * 1e3;
        let (guard, upstream) = (ms(self.guard_took), ms(sent.took));
        put(
            TIMING,
            format!("guard;dur={guard:.3}, upstream;dur={upstream:.3}"),
        );
        // A list, to which the provider may have something to say too.
        for theirs in sent.answer.headers().get_all(TIMING) {
            headers.append(TIMING, theirs.clone());
        }
    }

    fn actions(&self) -> String {
        match self.wish {
            Wish::Guard => self.plan.report.actions(),
            Wish::DryRun => format!("dry-run, {}", self.plan.report.actions()),
            Wish::Off => "guard-off".to_owned(),
        }
    }

    /// Notes the session and what was done in the request's line of the log.
    pub fn note(&self, record: &mut Record) {
        record.session(self.inherited.session);
        record.actions(self.actions());
    }

    /// One line for each cut that is new with this request; those of before were logged then.
    fn log(&self) {
        let report = &self.plan.report;
        if self.wish != Wish::Guard {
            return;
        }
        let session = self.inherited.session;
        let mut cuts = report.truncated.iter().filter(|cut| cut.new);
        for cut in cuts.by_ref().take(LOGGED_CUTS) {
            let (tool, before, after) = (named(&cut.tool), cut.before, cut.after);
            tracing::warn!(
                %session, tool, before_chars = before, after_chars = after, place = cut.message,
                "a result of {tool} was truncated: {before} -> {after} characters"
            );
        }
        let more = cuts.count();
        if more > 0 {
            tracing::warn!(%session, more, "{more} more results were truncated");
        }
        if let Some(folded) = report.folded.filter(|folded| folded.new) {
            let (messages, tokens) = (folded.messages, folded.tokens);
            tracing::warn!(
                %session, messages, estimated_tokens = tokens, budget_tokens = report.budget.tokens,
                "a conversation was folded: {messages} messages, about {tokens} tokens"
            );
        }
        match report.stood_back {
            Some(guard::StoodBack::Unsound(broken)) => tracing::error!(
                %session, ?broken, "a plan of the guard was unsound; the request goes on as it came"
            ),
            Some(guard::StoodBack::Invalid(invalid)) => tracing::warn!(
                %session, %invalid, "a conversation came in invalid and goes on as it came"
            ),
            _ => {}
        }
    }
}

/// A tool's name, for a sentence.
fn named(tool: &str) -> &str {
    if tool.is_empty() { "a tool" } else { tool }
}

/// What is known from before. A calibration is that of a model: another model begins anew.
fn recall(app: &App, inherited: &Inherited, target: &Target) -> Recall {
    let mut recall = inherited.recall();
    let same = inherited.state.as_ref().is_some_and(|state| {
        *state.model == *target.model && *state.provider == *target.provider.name
    });
    if !same {
        recall.calibration = app.ratios.of(&target.provider.name, &target.model);
    }
    recall
}

/// The level of a stream, as a comment that every parser passes over.
fn comment_of(health: &Health) -> String {
    let words: Vec<String> = health::headers(health, From::Response)
        .filter(|(name, _)| name != "x-plimsoll-health-from")
        .filter_map(|(name, value)| {
            let name = name.as_str().strip_prefix("x-plimsoll-")?.to_owned();
            Some(format!("{name}={}", value.to_str().ok()?))
        })
        .collect();
    format!(": plimsoll {}\n\n", words.join(" "))
}
