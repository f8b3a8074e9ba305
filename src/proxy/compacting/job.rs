//! One summary from its first request to what becomes of it.
//!
//! Runs apart from any request, within `compaction.timeout`, and tries nothing twice. What becomes
//! of it is left beside the session, where the next request of the branch finds it, in any
//! replica. A provider's breaker is respected; of what happens here it learns only that nobody
//! could be reached, or that somebody answered: a summary takes longer than conversations do, and
//! is no reason to take a provider from them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Method;
use thiserror::Error;

use super::{Kept, Ticket, who::Who};
use crate::{
    compaction::{Due, Next, Outcome, Rejected, Work},
    guard::{estimate::Calibration, record::Summary},
    provider::{
        Outgoing, Payload, Unsent,
        breaker::{Permit, State},
    },
    proxy::{App, traced_send},
    recovery::Language,
    relay::{self, BadAnswer, Whole},
    session::{Account, SessionId},
    telemetry::{Operation, trace::Trace},
    wire::{
        edit::{Edits, Rope},
        usage::Usage,
    },
};

/// Bytes of an answer that are read; the longest summary is far smaller, reasoning included.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// How long what became of it may take to be stored.
const CONCLUDE_WITHIN: Duration = Duration::from_secs(5);

/// A summary that is to be made.
pub struct Job {
    pub(super) ticket: Ticket,
    pub(super) kept: Kept,
    /// Those that the conversation went out with.
    pub(super) edits: Edits,
    pub(super) due: Due,
    pub(super) who: Who,
    pub(super) language: Language,
    /// Of the conversation's own model.
    pub(super) calibration: Calibration,
    pub(super) account: Account,
    pub(super) session: SessionId,
    /// Of the request that it was begun for.
    pub(super) trace: Trace,
}

/// What it cost.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    calls: u32,
    prompt_tokens: u64,
    completion_tokens: u64,
    /// Of the last answer.
    last: u32,
}

/// Why there is no summary. Never holds any of its text.
#[derive(Debug, Error)]
enum Lost {
    #[error("it was not made in time")]
    Late,
    #[error("there is nothing that could be asked")]
    Nothing,
    #[error("the summary model is left alone after several failures")]
    Paused,
    #[error("its provider is passed over for now")]
    PassedOver,
    #[error(transparent)]
    Unsent(#[from] Unsent),
    #[error(transparent)]
    Bad(#[from] BadAnswer),
    #[error("the summary model answered with status {0}")]
    Refused(u16),
    #[error("the answer is too long")]
    Overlong,
    #[error("the answer cannot be read")]
    Unreadable,
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

impl Lost {
    /// As the metrics name it.
    const fn word(&self) -> &'static str {
        match self {
            Self::Late => "timed_out",
            Self::Rejected(_) | Self::Overlong | Self::Unreadable => "rejected",
            Self::Nothing | Self::Paused | Self::PassedOver => "skipped",
            Self::Unsent(_) | Self::Bad(_) | Self::Refused(_) => "failed",
        }
    }
}

impl Job {
    /// Runs it apart from the request. Dropped where the proxy ends before it.
    pub fn start(mut self, app: &Arc<App>) {
        self.ticket.ran = true;
        let running = Arc::clone(app);
        app.jobs.spawn(async move { self.run(&running).await });
    }

    async fn run(self, app: &App) {
        let trace = self.trace.linked("plimsoll.summary");
        let begun = Instant::now();
        let mut spent = Spent::default();
        let limit = app.config.compaction.timeout;
        let made = tokio::time::timeout(limit, self.guarded(app, &trace, &mut spent)).await;
        let made = made.unwrap_or(Err(Lost::Late));
        self.note(&made, spent, begun.elapsed());
        trace.end(|span| {
            let outcome = made.as_ref().map_or_else(Lost::word, |_| "made");
            span.set("plimsoll.outcome", outcome);
            span.set("gen_ai.conversation.id", self.session.to_string());
            let tokens = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            span.set("gen_ai.usage.input_tokens", tokens(spent.prompt_tokens));
            span.set(
                "gen_ai.usage.output_tokens",
                tokens(spent.completion_tokens),
            );
        });
        let outcome = Outcome {
            job: self.ticket.id(),
            summary: made.ok(),
        };
        for session in self.ticket.tell(outcome.clone()) {
            self.conclude(app, session, outcome.clone()).await;
        }
    }

    /// Leaves beside a session what became of it.
    async fn conclude(&self, app: &App, session: SessionId, outcome: Outcome) {
        let concluded = app.sessions.conclude(&self.account, session, outcome);
        match tokio::time::timeout(CONCLUDE_WITHIN, concluded).await {
            Ok(Ok(Some(known))) => app.news.tell(&known),
            // It has expired.
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::warn!(
                %session, error = crate::error::chain(&error),
                "what became of a summary was not stored"
            ),
            Err(_) => tracing::warn!(
                %session, "what became of a summary was not stored in time"
            ),
        }
    }

    /// Makes it, and counts for the summary model whether that went well.
    async fn guarded(&self, app: &App, trace: &Trace, spent: &mut Spent) -> Result<Summary, Lost> {
        let breaker = self.ticket.all.breaker(&self.who.target);
        let permit = breaker.admit(Instant::now()).ok_or(Lost::Paused)?;
        // A model that does not answer in time has failed as well.
        let mut unless_late = Failing(Some(permit));
        let made = self.make(app, trace, spent).await;
        if let Some(permit) = unless_late.0.take() {
            match made {
                Ok(_) => permit.succeeded(),
                Err(Lost::Nothing | Lost::PassedOver) => drop(permit),
                Err(_) => permit.failed(Instant::now()),
            }
        }
        made
    }

    async fn make(&self, app: &App, trace: &Trace, spent: &mut Spent) -> Result<Summary, Lost> {
        // Drawn when the conversation was there, and told to nobody.
        let nonce = self.ticket.id().bytes();
        let fit = (self.language, self.calibration);
        let summariser = self.who.summariser(app, fit, nonce);
        let conversation = &self.kept.conversation;
        let begun = Work::begin(conversation, &self.edits, self.due, summariser);
        let (mut work, mut body) = begun.ok_or(Lost::Nothing)?;
        loop {
            let answer = self.ask(body, trace, spent).await?;
            match work.next(&answer) {
                Next::Ask(next) => body = next,
                Next::Done(summary) => return Ok(summary),
                Next::Failed(rejected) => return Err(rejected.into()),
            }
        }
    }

    /// One request, and the whole of its answer.
    async fn ask(&self, body: Bytes, trace: &Trace, spent: &mut Spent) -> Result<Bytes, Lost> {
        let provider = &self.who.target.provider;
        // A probe that takes as long as a summary would keep conversations away.
        if provider.breaker.state(Instant::now()) != State::Closed {
            return Err(Lost::PassedOver);
        }
        let permit = provider.breaker.admit(Instant::now());
        let permit = permit.ok_or(Lost::PassedOver)?;
        spent.calls += 1;
        let outgoing = Outgoing {
            method: Method::POST,
            path: self.who.path.clone(),
            headers: self.who.headers.clone(),
            body: Payload::Whole(Rope::from(body)),
            model: Some(self.who.target.model.clone()),
        };
        let sent = traced_send::send(trace, provider, Some(Operation::Chat), outgoing).await;
        let answer = match sent {
            Ok(answer) => answer,
            Err(unsent) => {
                if matches!(unsent, Unsent::Unreachable { .. }) {
                    permit.failed(Instant::now());
                }
                return Err(unsent.into());
            }
        };
        let status = answer.status();
        if !status.is_success() {
            return Err(Lost::Refused(status.as_u16()));
        }
        permit.succeeded();
        let mut left = MAX_ANSWER_BYTES;
        let room = |bytes| {
            left = left.saturating_sub(bytes);
            left > 0
        };
        match relay::whole(answer, &provider.name, room).await? {
            Whole::Overlong(_) => Err(Lost::Overlong),
            Whole::Complete { head, body, heard } => {
                spent.add(heard.usage);
                relay::unpacked(&head.headers, &body).ok_or(Lost::Unreadable)
            }
        }
    }

    /// The one line of a job, and what is counted of it.
    fn note(&self, made: &Result<Summary, Lost>, spent: Spent, took: Duration) {
        let counts = self.ticket.counts();
        counts.ended(made.as_ref().map_or_else(Lost::word, |_| "made"));
        counts.spent(spent.prompt_tokens, spent.completion_tokens);
        let (session, calls) = (self.session, spent.calls);
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let provider = &*self.who.target.provider.name;
        let model = &*self.who.target.model;
        match made {
            Ok(_) => tracing::info!(
                %session, provider, model, replaced_tokens = self.due.replaced,
                summary_tokens = spent.last, calls, ms,
                prompt_tokens = spent.prompt_tokens, completion_tokens = spent.completion_tokens,
                "the older part of a conversation was summarised"
            ),
            Err(lost) => tracing::warn!(
                %session, provider, model, reason = %lost, calls, ms,
                prompt_tokens = spent.prompt_tokens, completion_tokens = spent.completion_tokens,
                "a summary was not made; the conversation goes on without"
            ),
        }
    }
}

impl Spent {
    fn add(&mut self, usage: Option<Usage>) {
        let Some(usage) = usage else { return };
        let completion = usage.completion_tokens.unwrap_or(0);
        self.prompt_tokens += u64::from(usage.prompt_tokens);
        self.completion_tokens += u64::from(completion);
        self.last = completion;
    }
}

/// A permit that counts as a failure where nothing else is said.
struct Failing<'a>(Option<Permit<'a>>);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if let Some(permit) = self.0.take() {
            permit.failed(Instant::now());
        }
    }
}
