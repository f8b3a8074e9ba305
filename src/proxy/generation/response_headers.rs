//! What the headers of an answer, its trailers and the comment at the end of a stream say.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Ended, Generation};
use crate::{
    health::{self, From, Health},
    proxy::{request_options::GuardMode, send::ProviderReply},
    recovery,
    relay::Closing,
    session::State,
};

/// What the end of a stream may tell in trailers; named in its head, as HTTP/1.1 asks for.
pub const TRAILERS: &[&str] = &[
    "x-plimsoll-health",
    "x-plimsoll-health-from",
    "x-plimsoll-prompt-tokens",
    "x-plimsoll-context-limit",
    "x-plimsoll-hard-util",
    "x-plimsoll-optimal-util",
    "x-plimsoll-countdown",
    "x-plimsoll-course",
    "x-plimsoll-reminders",
    "x-plimsoll-actions",
    "x-plimsoll-billed-tokens",
];

const SESSION: HeaderName = HeaderName::from_static("x-plimsoll-session");
const ACTIONS: HeaderName = HeaderName::from_static("x-plimsoll-actions");
const PROVIDER: HeaderName = HeaderName::from_static("x-plimsoll-provider");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-plimsoll-attempts");
const TIMING: HeaderName = HeaderName::from_static("server-timing");
const BILLED: HeaderName = HeaderName::from_static("x-plimsoll-billed-tokens");

impl Generation {
    /// Headers that say what was done, and the health of the generation before this one.
    pub fn head(&self, sent: &ProviderReply) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let previous = self.inherited.state.as_ref();
        let health = previous.map_or_else(|| self.judge(None), State::health);
        headers.extend(health::headers(&health, From::Previous));
        // A dry run begins no course.
        let memory = match self.mode {
            GuardMode::Guard => self.recovering.memory(),
            GuardMode::DryRun | GuardMode::Off => self.recovering.before(),
        };
        headers.extend(recovery::headers::headers(memory));
        self.describe(&mut headers, sent);
        headers
    }

    /// The same while the request still waits for its summary: nobody was asked yet.
    pub fn early_head(&self) -> HeaderMap {
        let previous = self.inherited.state.as_ref();
        let health = previous.map_or_else(|| self.judge(None), State::health);
        let mut headers: HeaderMap = health::headers(&health, From::Previous).collect();
        headers.extend(recovery::headers::headers(self.recovering.memory()));
        if let Ok(session) = HeaderValue::try_from(self.inherited.session.to_string()) {
            headers.insert(SESSION, session);
        }
        headers.insert(ACTIONS, HeaderValue::from_static("compacting"));
        headers
    }

    /// Headers that say how it ended; in the place of those of [`Self::head`].
    pub fn foot(&self, health: &Health) -> HeaderMap {
        let mut headers: HeaderMap = health::headers(health, From::Response).collect();
        headers.extend(recovery::headers::headers(&self.memory_after(health.level)));
        // A round may have begun a new course.
        if let Ok(actions) = HeaderValue::try_from(self.actions()) {
            headers.insert(ACTIONS, actions);
        }
        if let Some(billed) = self.recovering.billed_tokens() {
            let tokens = billed
                .prompt_tokens
                .saturating_add(billed.completion_tokens);
            headers.insert(BILLED, tokens.into());
        }
        headers
    }

    /// The provider said in its answer that it failed: a success by its status alone.
    pub fn provider_failed(&self) {
        self.noted.facts().provider_failed = true;
    }

    /// What is added to the end of a stream.
    pub async fn close(&mut self, ended: Ended<'_>, comment: bool) -> Closing {
        // Half an answer is no generation; of one that cannot be read, nothing else is known.
        if !(ended.heard.complete() || ended.heard.blind) {
            if ended.heard.error {
                self.provider_failed();
            }
            return Closing::default();
        }
        let health = self.settle(ended).await;
        let trailers = self.foot(&health);
        Closing {
            comment: comment.then(|| comment_of(&trailers).into()),
            trailers,
        }
    }

    fn describe(&self, headers: &mut HeaderMap, sent: &ProviderReply) {
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

    /// What is done to the request, as the header and the log say it.
    pub fn actions(&self) -> String {
        let mut words = self.recovering.action_words();
        words.extend(self.compaction.actions().map(str::to_owned));
        let report = self.plan.report.actions();
        if words.is_empty() || report != "none" {
            words.insert(0, report);
        }
        if self.refitted > 0 {
            words.retain(|word| word != "none");
            words.push(format!("refitted={}", self.refitted));
        }
        if self.cut_in_silence {
            words.retain(|word| word != "none");
            words.push("provider-truncated".to_owned());
        }
        match self.mode {
            GuardMode::Guard => words.join(", "),
            GuardMode::DryRun => format!("dry-run, {}", words.join(", ")),
            GuardMode::Off => "guard-off".to_owned(),
        }
    }

    /// Notes the session and what was done in the request's line of the log.
    /// Plans that follow are noted there too.
    pub fn note(&self) {
        let actions = self.actions();
        // 0 where the guard did not look at the request.
        let budget = self.plan.report.budget.tokens;
        let mut facts = self.noted.facts();
        facts.session = Some(self.inherited.session.to_string());
        facts.actions = Some(actions);
        facts.guard_took = Some(self.guard_took);
        facts.budget_tokens = (budget > 0).then_some(budget);
    }
}

/// The end of a stream, as a comment that every parser passes over.
fn comment_of(trailers: &HeaderMap) -> String {
    let words: Vec<String> = trailers
        .iter()
        .filter(|(name, _)| *name != "x-plimsoll-health-from")
        .filter_map(|(name, value)| {
            let name = name.as_str().strip_prefix("x-plimsoll-")?.to_owned();
            Some(format!(
                "{name}={}",
                value.to_str().ok()?.replace(", ", ",")
            ))
        })
        .collect();
    format!(": plimsoll {}\n\n", words.join(" "))
}
