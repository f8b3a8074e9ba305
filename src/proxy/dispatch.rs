//! Asking one place after the other, and again where that may help.
//!
//! The one owner of retries and fallbacks: nothing below it sends a request twice but to heal it
//! (`attempt.rs`), nothing above it sends one at all but the tool loop, whose requests follow an answer. All of
//! it happens before a byte of an answer has reached the client, and none of it after an answer began that is the
//! client's own.
//!
//! A breaker that opens ends the retries where somebody else can answer. Nothing is sent again that the client
//! caused.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use super::{
    attempt::attempt_request,
    client_request::ClientRequest,
    fallbacks::{Fallbacks, PlacedRequest},
    plan::log_plan,
    provider_reply::{CallCount, ProviderReply, SendError},
};
use crate::{
    config::Auth,
    error::Failure,
    provider::{
        Provider, UpstreamError,
        breaker::{BreakerState, Permit},
        retry::{self, RetryClass},
    },
    telemetry::{Operation, metrics::Metrics},
};

/// A provider's answer that is the client's, and the request as it went out.
pub struct AnsweredRequest {
    pub reply: ProviderReply,
    pub placed: PlacedRequest,
}

/// What came of asking one place.
enum CandidateResult {
    /// The client's answer, or one that began and broke: nobody else is asked for it.
    Final(Result<ProviderReply, SendError>),
    /// Somebody else may do better.
    Failed(Result<ProviderReply, SendError>),
}

/// What an attempt means for the next one.
struct AttemptVerdict {
    outcome: RetryClass,
    /// How long the provider asks to be left alone.
    retry_after: Option<Duration>,
}

/// Asks one place after the other until an answer is the client's.
///
/// # Errors
/// No answer began anywhere, or one broke off.
pub async fn send_with_fallbacks(
    request: &ClientRequest,
    mut placed: PlacedRequest,
    mut fallbacks: Fallbacks,
) -> Result<AnsweredRequest, Failure> {
    let mut calls = CallCount::default();
    loop {
        note_candidate(request, &placed);
        // Boxed, so that what waits for an answer stays small.
        let tried = Box::pin(ask_candidate(
            request,
            &mut placed,
            &mut fallbacks,
            &mut calls,
        ))
        .await;
        request.notes.facts().attempts = Some(calls.calls);
        let failed = match tried {
            CandidateResult::Final(tried) => {
                return Ok(AnsweredRequest {
                    reply: tried?,
                    placed,
                });
            }
            CandidateResult::Failed(failed) => failed,
        };
        let too_long = failed.as_ref().is_ok_and(|reply| reply.too_long);
        let Some(next) = fallbacks.plan_next_candidate(request, &placed, too_long) else {
            return Ok(AnsweredRequest {
                reply: failed?,
                placed,
            });
        };
        let left = std::mem::replace(&mut placed, next).target.provider;
        let count = &request.app.metrics.fallbacks;
        count.with_label_values(&[&*left.name]).inc();
        tracing::warn!(
            from = &*left.name,
            to = &*placed.target.provider.name,
            model = placed.target.model,
            "a request goes on to another place"
        );
    }
}

/// Asks this place, and again as far as that is allowed.
async fn ask_candidate(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    fallbacks: &mut Fallbacks,
    calls: &mut CallCount,
) -> CandidateResult {
    let provider = Arc::clone(&placed.target.provider);
    let metrics = &request.app.metrics;
    let mut retries = 0;
    loop {
        let permit = provider.breaker.try_admit(Instant::now());
        let permit = permit.unwrap_or_else(|| provider.breaker.force_admit());
        fallbacks.budget.count_attempt();
        let tried = attempt_request(request, placed, calls).await;
        let judged = judge_attempt(metrics, &provider, &tried, permit);
        if judged.outcome == RetryClass::Final {
            return match tried {
                Ok(reply) if reply.too_long => CandidateResult::Failed(Ok(reply)),
                Err(SendError::Unsent(unsent)) => CandidateResult::Failed(Err(unsent.into())),
                tried => CandidateResult::Final(tried),
            };
        }
        // Not where the breaker has opened while somebody else can answer.
        let is_open = provider.breaker.state_at(Instant::now()) == BreakerState::Open;
        let again = judged.outcome != RetryClass::Denied && !(is_open && fallbacks.any_admits());
        let now = Instant::now();
        let wait =
            fallbacks
                .budget
                .retry_delay(retries, judged.retry_after, now, random_fraction());
        let Some(wait) = wait.filter(|_| again) else {
            return CandidateResult::Failed(tried);
        };
        drop(tried);
        metrics.retries.with_label_values(&[&*provider.name]).inc();
        tokio::time::sleep(wait).await;
        retries += 1;
    }
}

/// Judges an attempt, and tells the breaker.
fn judge_attempt(
    metrics: &Metrics,
    provider: &Provider,
    tried: &Result<ProviderReply, SendError>,
    permit: Permit<'_>,
) -> AttemptVerdict {
    let own_key = matches!(provider.config.auth, Auth::Key(_));
    let (outcome, word) = match tried {
        Ok(reply) if reply.too_long => (RetryClass::Final, "answer"),
        Ok(reply) => match retry::classify_status(reply.answer.status(), own_key) {
            RetryClass::Final => (RetryClass::Final, "answer"),
            RetryClass::Busy => (RetryClass::Busy, "busy"),
            RetryClass::Failed => (RetryClass::Failed, "failed"),
            RetryClass::Denied => (RetryClass::Denied, "denied"),
        },
        // The client's own doing.
        Err(SendError::Unsent(
            UpstreamError::BodyBroken
            | UpstreamError::BodySlow { .. }
            | UpstreamError::NoModel { .. },
        )) => (RetryClass::Final, "unsent"),
        Err(SendError::Unsent(_)) => (RetryClass::Failed, "unsent"),
        Err(SendError::Failing(_)) => (RetryClass::Failed, "failed"),
        Err(SendError::Broken(_)) => (RetryClass::Final, "failed"),
    };
    metrics.count_attempt(&provider.name, word);
    let now = Instant::now();
    match (outcome, tried) {
        (RetryClass::Failed, _) | (_, Err(SendError::Broken(_))) => permit.record_failure(now),
        (_, Ok(_)) => permit.record_success(),
        // The client's own doing, or no model for the address: it says nothing of the provider.
        (_, Err(_)) => {}
    }
    let headers = tried.as_ref().map(|reply| reply.answer.headers()).ok();
    let retry_after =
        headers.and_then(|headers| retry::parse_retry_after(headers, SystemTime::now()));
    // A client's own account may have reached its limit: the others have theirs.
    if outcome == RetryClass::Busy
        && !matches!(provider.config.auth, Auth::Client)
        && let Some(length) = retry_after
    {
        provider.breaker.pause_for(now, length);
    }
    AttemptVerdict {
        outcome,
        retry_after,
    }
}

/// Notes who is asked now, and for what.
fn note_candidate(request: &ClientRequest, placed: &PlacedRequest) {
    let (provider, model) = (&placed.target.provider, &*placed.target.model);
    let spelt_out = || request.app.registry.is_spelt_out(provider, model);
    let metrics = &request.app.metrics;
    let labels = metrics.label_model(Operation::Chat, &provider.name, model, spelt_out);
    let mut facts = request.notes.facts();
    facts.provider = Some(provider.name.to_string());
    facts.model_labels = Some(labels);
    drop(facts);
    if let (Some(session), Some(planned)) = (&request.session, &placed.planned) {
        log_plan(session.inherited.session, planned);
    }
}

/// A number in 0..1, for waits that differ from client to client.
fn random_fraction() -> f64 {
    let bits = getrandom::u32().unwrap_or(u32::MAX / 2);
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}
