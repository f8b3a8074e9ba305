//! One summary from its first request to its outcome.
//!
//! A job runs apart from client requests, within `compaction.timeout_ms`, and retries nothing. While the provider's
//! circuit breaker is open, a job sends nothing. It reports only connection failures and successes to the breaker: a
//! slow or refused summary must not take a provider away from conversations. Shutdown does not wait for a job.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Response;
use thiserror::Error;

use super::{
    BackoffSubject, JobTicket, Summariser, SummaryCost, SummaryProgress, SummaryRange,
    SummaryRejection, SummaryWork, provider_summary,
};
use crate::{
    conversation::{Conversation, edit::Edits},
    guard::injections::Summary,
    provider::{
        Target, UpstreamError,
        breaker::BreakerState,
        summary_refusal::{SummaryRefusal, detect_summary_refusal},
    },
    relay::{self, BadAnswer, BufferedAnswer, ResponseSummary},
    telemetry::trace::Trace,
    wire::Body,
};

/// Largest answer in bytes. The longest summary is far smaller, even with its reasoning.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryAsk {
    /// A text about a transcript.
    OfTranscript,
    /// A text about the conversation. The request begins as the conversation's own requests do, so that the provider's
    /// prompt cache may have that prefix.
    OfConversation,
    /// The provider's own summary of the conversation. Its request begins as the conversation's requests do too.
    OfProvider,
}

/// Sends the requests of a job to the summary model.
pub trait SummaryClient: Sync {
    /// Sends a request in the format of the conversation and waits for the head of its answer.
    fn send_summary_request(
        &self,
        trace: &Trace,
        body: Bytes,
        ask: SummaryAsk,
    ) -> impl Future<Output = Result<Response<Body>, UpstreamError>> + Send;
}

/// A summary to be made.
pub struct SummaryJob<C> {
    pub ticket: JobTicket,
    pub client: C,
    pub conversation: Arc<Conversation>,
    /// The edits with which the conversation was sent.
    pub edits: Edits,
    pub range: SummaryRange,
    /// If set, the provider is asked for its own summary of all messages before this one, counted as the range's boundary
    /// is. If the provider makes none, then its model is asked for a summary of the range.
    pub safe_cut: Option<u32>,
    pub summariser: Summariser,
    pub target: Target,
    pub timeout: Duration,
    /// Session id for the log and the trace.
    pub session: String,
    /// The trace of the request that began the job.
    pub trace: Trace,
}

#[derive(Clone, Copy, Debug, Default)]
struct JobCost {
    calls: u32,
    tokens: SummaryCost,
    /// Completion tokens of the last answer.
    summary_tokens: u32,
}

/// Why there is no summary. Never holds any of its text.
#[derive(Debug, Error)]
enum JobError {
    #[error("timed out after compaction.timeout_ms")]
    TimedOut,
    #[error("the summary model has no room for the request, or the conversation cannot be cut")]
    Nothing,
    #[error("circuit open")]
    CircuitOpen,
    #[error(transparent)]
    Unsent(#[from] UpstreamError),
    #[error(transparent)]
    Bad(#[from] BadAnswer),
    #[error("the summary model answered with status {0}")]
    Refused(u16),
    /// `is_unknown`: the error names the member that asks for the summary, so the provider does not know it.
    #[error("the provider makes no summary of this request")]
    NotMade { is_unknown: bool },
    #[error("the answer is longer than {MAX_ANSWER_BYTES} bytes")]
    Overlong,
    #[error("the answer cannot be decompressed")]
    Unreadable,
    #[error(transparent)]
    Rejected(#[from] SummaryRejection),
}

impl JobError {
    const fn metric_label(&self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::Rejected(_) | Self::Overlong | Self::Unreadable => "rejected",
            Self::Nothing | Self::CircuitOpen => "skipped",
            Self::Unsent(_) | Self::Bad(_) | Self::Refused(_) | Self::NotMade { .. } => "failed",
        }
    }
}

impl<C: SummaryClient> SummaryJob<C> {
    /// Makes the summary and delivers the outcome to the requests that wait for it.
    pub async fn run(mut self) {
        self.ticket.mark_started();
        let trace = self.trace.begin_linked_trace("plimsoll.summary");
        let begun = Instant::now();
        let mut cost = JobCost::default();
        let result = tokio::time::timeout(self.timeout, self.make_summary(&trace, &mut cost)).await;
        let result = result.unwrap_or(Err(JobError::TimedOut));
        if !matches!(result, Err(JobError::Nothing | JobError::CircuitOpen)) {
            let model = BackoffSubject::from_target(&self.target);
            self.ticket.record_model(model, result.is_ok());
        }
        self.ticket.count_tokens(cost.tokens);
        self.log_outcome(&result, cost, begun.elapsed());
        let outcome = result
            .as_ref()
            .map_or_else(JobError::metric_label, |_| "made");
        trace.end_request(|span| {
            span.set_attribute("plimsoll.outcome", outcome);
            span.set_attribute("gen_ai.conversation.id", self.session);
            let tokens = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            span.set_attribute(
                "gen_ai.usage.input_tokens",
                tokens(cost.tokens.prompt_tokens),
            );
            span.set_attribute(
                "gen_ai.usage.output_tokens",
                tokens(cost.tokens.completion_tokens),
            );
        });
        self.ticket.deliver_outcome(outcome, result.ok());
    }

    async fn make_summary(&self, trace: &Trace, cost: &mut JobCost) -> Result<Summary, JobError> {
        if let Some(summary) = self.ask_provider(trace, cost).await? {
            return Ok(summary);
        }
        let (conversation, summariser) = (&self.conversation, self.summariser.clone());
        let work = SummaryWork::begin_summary(conversation, &self.edits, self.range, summariser);
        let (mut work, mut body) = work.ok_or(JobError::Nothing)?;
        loop {
            let ask = if work.repeats_conversation {
                SummaryAsk::OfConversation
            } else {
                SummaryAsk::OfTranscript
            };
            let answer = self.fetch_answer(body, ask, trace, cost).await?;
            match work.read_answer(&answer)? {
                SummaryProgress::Ask(next) => body = next,
                SummaryProgress::Done(summary) => return Ok(summary),
            }
        }
    }

    /// Asks the provider for its own summary; `None` if it makes none. A provider that does not support such summaries is
    /// not asked again.
    async fn ask_provider(
        &self,
        trace: &Trace,
        cost: &mut JobCost,
    ) -> Result<Option<Summary>, JobError> {
        let Self {
            conversation,
            target,
            ..
        } = self;
        let build = |cut| {
            let body =
                provider_summary::build_request(conversation, &self.edits, cut, &target.model)?;
            Some((cut, body))
        };
        let Some((boundary, body)) = self.safe_cut.and_then(build) else {
            return Ok(None);
        };
        let (most, weights) = (self.range.replaced / 2, &self.summariser.weights);
        let answer = self.fetch_answer(body, SummaryAsk::OfProvider, trace, cost);
        let read = answer.await.and_then(|answer| {
            let format = conversation.format;
            Ok(provider_summary::read_block(
                format, &answer, most, weights,
            )?)
        });
        let error = match read {
            Ok(text) => return Ok(Some(Summary { boundary, text })),
            Err(error @ (JobError::NotMade { .. } | JobError::Rejected(_))) => error,
            Err(error) => return Err(error),
        };
        tracing::warn!(
            session = self.session, provider = &*target.provider.name, model = target.model, reason = %error,
            "the provider did not summarise the conversation; the model of the conversation is asked for the summary"
        );
        if let JobError::NotMade { is_unknown: true }
        | JobError::Rejected(SummaryRejection::NoBlock) = error
        {
            let provider = &target.provider;
            provider.change_notes(&target.model, |it| it.refuses_summaries = true);
        }
        Ok(None)
    }

    /// Sends one request and reads its whole answer.
    async fn fetch_answer(
        &self,
        body: Bytes,
        ask: SummaryAsk,
        trace: &Trace,
        cost: &mut JobCost,
    ) -> Result<Bytes, JobError> {
        let provider = &self.target.provider;
        // A half-open breaker admits one request at a time; a summary would block it for too long.
        if provider.breaker.state_at(Instant::now()) != BreakerState::Closed {
            return Err(JobError::CircuitOpen);
        }
        let permit = provider.breaker.try_admit(Instant::now());
        let permit = permit.ok_or(JobError::CircuitOpen)?;
        cost.calls += 1;
        let answer = match self.client.send_summary_request(trace, body, ask).await {
            Ok(answer) => answer,
            Err(error) => {
                if matches!(error, UpstreamError::Unreachable { .. }) {
                    permit.record_failure(Instant::now());
                }
                return Err(error.into());
            }
        };
        let status = answer.status();
        if ask == SummaryAsk::OfProvider && [400, 422].contains(&status.as_u16()) {
            return Err(self.judge_refusal(answer).await?);
        }
        if !status.is_success() {
            return Err(JobError::Refused(status.as_u16()));
        }
        permit.record_success();
        let (body, summary) = self.read_answer(answer).await?;
        if let Some(usage) = summary.usage {
            cost.summary_tokens = usage.completion_tokens.unwrap_or(0);
            cost.tokens.prompt_tokens += u64::from(usage.prompt_tokens);
            cost.tokens.completion_tokens += u64::from(cost.summary_tokens);
        }
        Ok(body)
    }

    async fn read_answer(
        &self,
        answer: Response<Body>,
    ) -> Result<(Bytes, ResponseSummary), JobError> {
        let (format, provider) = (self.conversation.format, &self.target.provider.name);
        let mut left = MAX_ANSWER_BYTES;
        let room = |bytes| {
            left = left.saturating_sub(bytes);
            left > 0
        };
        match relay::buffer_answer(format, answer, provider, room).await? {
            BufferedAnswer::Overlong(_) => Err(JobError::Overlong),
            BufferedAnswer::Complete {
                head,
                body,
                summary,
            } => {
                let body = relay::unpack_answer(&head.headers, &body);
                Ok((body.ok_or(JobError::Unreadable)?, summary))
            }
        }
    }

    /// Judges why the provider refused to make its own summary. A summary that is only unavailable for now is asked for
    /// again later.
    async fn judge_refusal(&self, answer: Response<Body>) -> Result<JobError, JobError> {
        let status = answer.status();
        let (text, _) = self.read_answer(answer).await?;
        Ok(match detect_summary_refusal(status, &text) {
            Some(SummaryRefusal::Unavailable) => JobError::Refused(status.as_u16()),
            refused => JobError::NotMade {
                is_unknown: refused == Some(SummaryRefusal::Unknown),
            },
        })
    }

    /// Logs one line per job.
    fn log_outcome(&self, result: &Result<Summary, JobError>, cost: JobCost, took: Duration) {
        let (session, calls) = (&*self.session, cost.calls);
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let (provider, model) = (&*self.target.provider.name, &*self.target.model);
        let SummaryCost {
            prompt_tokens,
            completion_tokens,
        } = cost.tokens;
        match result {
            Ok(_) => tracing::info!(
                session,
                provider,
                model,
                replaced_tokens = self.range.replaced,
                summary_tokens = cost.summary_tokens,
                calls,
                ms,
                prompt_tokens,
                completion_tokens,
                "the older part of a conversation was summarised"
            ),
            Err(error) => tracing::warn!(
                session, provider, model, reason = %error, calls, ms,
                prompt_tokens, completion_tokens,
                "summary failed; the conversation continues without it"
            ),
        }
    }
}
