//! Retries and fallbacks: asks one candidate after the other, and asks the same candidate again if that may help.
//!
//! Retries and fallbacks are made in this file only. Below it, `attempt.rs` sends only changed requests again. Above it,
//! only the tool loop sends requests, each of which follows an answer. Retries and fallbacks end before a byte of an answer
//! reaches the client.
//!
//! A request that continues a thread of Messages is sent to one candidate only. It is sent again only if the first try
//! cannot have arrived.
//!
//! An open circuit ends the retries if another candidate can answer. Failures that the client caused are not retried.

mod attempt;
mod edit_body;
pub mod fallbacks;
mod overflow_retry;
pub mod provider_reply;
mod refusal;
mod thinking_remedy;
mod unknown_refusal;
mod window_beta;

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime},
};

pub(super) use self::attempt::attempt_request;
use http::StatusCode;

use self::{fallbacks::Fallbacks, provider_reply::is_stream};
pub use self::{
    fallbacks::PlacedRequest,
    provider_reply::{CallCount, ProviderReply, SendError},
};
use crate::{
    config::Auth,
    error::Failure,
    provider::{
        Provider, UpstreamError,
        breaker::{BreakerState, Permit},
        retry::{RetryClass, classify_status, parse_retry_after},
    },
    proxy::{ClientRequest, plan::log_plan},
    telemetry::{Operation, metrics::Metrics},
    unix_time::unix_ms_now,
};

/// The answer for the client, and the request as it went out.
pub struct AnsweredRequest {
    pub reply: ProviderReply,
    pub placed: PlacedRequest,
    /// All calls for the request, at all candidates.
    pub calls: CallCount,
}

/// What a candidate answered last, and the request as it went out to it.
struct AskedRequest {
    result: Result<ProviderReply, SendError>,
    placed: PlacedRequest,
}

/// What an attempt means for the next one.
struct AttemptVerdict {
    outcome: RetryClass,
    /// The pause that the provider asks for.
    retry_after: Option<Duration>,
}

/// Asks one candidate after the other until one gives the client's answer.
///
/// # Errors
/// No candidate began an answer, or one broke off.
pub async fn send_with_fallbacks(
    request: &ClientRequest,
    mut placed: PlacedRequest,
    mut fallbacks: Fallbacks,
) -> Result<AnsweredRequest, Failure> {
    let mut calls = CallCount::default();
    // The failure of the model that the client named, else of the first candidate that failed.
    let mut before: Option<AskedRequest> = None;
    loop {
        note_candidate(request, &placed);
        // Boxed, so that the future that waits for an answer stays small.
        let asked = ask_candidate(request, &mut placed, &mut fallbacks, &mut calls);
        let (result, may_fall_back) = Box::pin(asked).await;
        request.notes.facts().attempts = Some(calls.calls);
        let too_long = result.as_ref().is_ok_and(|reply| reply.too_long);
        let next = if may_fall_back {
            fallbacks.plan_next_candidate(request, &placed, too_long)
        } else {
            None
        };
        let Some(next) = next else {
            let before = before.filter(|_| !fallbacks.is_home(&placed.target));
            return choose_answer(request, AskedRequest { result, placed }, before, calls);
        };
        let failed = std::mem::replace(&mut placed, next);
        let (from, to) = (&*failed.target.provider.name, &*placed.target.provider.name);
        let metrics = &request.app.metrics;
        metrics.fallbacks.with_label_values(&[from]).inc();
        tracing::warn!(
            from,
            to,
            model = placed.target.model,
            "falling back to provider {to}: {from} {}",
            describe_failure(&result)
        );
        if fallbacks.is_home(&failed.target)
            || before.is_none() && !fallbacks.is_larger(&failed.target)
        {
            before = Some(AskedRequest {
                result,
                placed: failed,
            });
        }
    }
}

/// The answer for the client: the last one, or `before` if the last one says less to the client. A fallback may refuse what
/// the named model accepts, and the error of the named model says when to try again.
fn choose_answer(
    request: &ClientRequest,
    last: AskedRequest,
    before: Option<AskedRequest>,
    calls: CallCount,
) -> Result<AnsweredRequest, Failure> {
    let AskedRequest { result, placed } = match before.filter(|_| is_less_informative(&last.result))
    {
        Some(before) => {
            let fallback = &*last.placed.target.provider.name;
            tracing::warn!(
                provider = fallback,
                "fallback {fallback} {}; the client gets the first error",
                describe_failure(&last.result)
            );
            note_candidate(request, &before.placed);
            before
        }
        None => last,
    };
    Ok(AnsweredRequest {
        reply: result?,
        placed,
        calls,
    })
}

/// Whether this failure says less to the client than one of another candidate: it is no answer at all, or a refusal.
fn is_less_informative(result: &Result<ProviderReply, SendError>) -> bool {
    let Ok(reply) = result else {
        return true;
    };
    let status = reply.status();
    let class = classify_status(status, true);
    let is_refused = matches!(class, RetryClass::Final | RetryClass::Denied);
    reply.too_long || is_refused && !status.is_success()
}

/// Describes why a candidate is left or asked again, as the words that follow its name in a log line.
fn describe_failure(result: &Result<ProviderReply, SendError>) -> String {
    match result {
        Ok(reply) if reply.too_long => "refused the conversation as too long".to_owned(),
        Ok(reply) => match reply.inner {
            Some(status) => format!("answered with error {} inside a success", status.as_u16()),
            None => format!("answered {}", reply.answer.status().as_u16()),
        },
        Err(SendError::Unsent(error)) => format!("gave no answer ({})", error.as_str()),
        Err(SendError::Failing(_) | SendError::Broken(_)) => "broke off its answer".to_owned(),
    }
}

/// Asks this candidate, and retries as far as that is allowed. Returns the last result, and whether another candidate may
/// answer: not if the result is the client's answer, or an answer that began and broke off.
async fn ask_candidate(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    fallbacks: &mut Fallbacks,
    calls: &mut CallCount,
) -> (Result<ProviderReply, SendError>, bool) {
    let provider = Arc::clone(&placed.target.provider);
    let metrics = &request.app.metrics;
    let mut retries = 0;
    loop {
        let permit = provider.breaker.try_admit(Instant::now());
        let permit = permit.unwrap_or_else(|| provider.breaker.force_admit());
        fallbacks.budget.count_attempt();
        let result = attempt_request(request, placed, Some(fallbacks), calls).await;
        // If a session follows the stream, the stream counts as a success only at its end.
        let is_followed = request.session.is_some() && placed.planned.is_some();
        let asked = request.parsed.streams && is_followed;
        let ends_later = |reply: &ProviderReply| asked && is_stream(&reply.answer, true);
        let verdict = judge_attempt(metrics, &provider, &result, permit, ends_later);
        let may_have_arrived = match &result {
            Err(SendError::Unsent(error)) => error.may_have_arrived(),
            _ => true,
        };
        if may_have_arrived && request.continues_thread() {
            return (result, false);
        }
        if verdict.outcome == RetryClass::Final {
            let may_fall_back = match &result {
                // If another model was asked first, the client's own may still take the request.
                Ok(reply) => {
                    let failed = !reply.status().is_success();
                    let waits = fallbacks.is_larger(&placed.target) || fallbacks.home_was_skipped();
                    reply.too_long || failed && waits
                }
                Err(error) => matches!(error, SendError::Unsent(_)),
            };
            return (result, may_fall_back);
        }
        let now = Instant::now();
        // No retry where the circuit has opened while another candidate can answer.
        let is_open = provider.breaker.state_at(now) == BreakerState::Open;
        let may_retry =
            verdict.outcome != RetryClass::Denied && !(is_open && fallbacks.any_admits());
        let (budget, chance) = (&fallbacks.budget, random_fraction());
        let wait = budget.retry_delay(retries, verdict.retry_after, now, chance);
        let Some(wait) = wait.filter(|_| may_retry) else {
            return (result, true);
        };
        retries += 1;
        tracing::info!(
            provider = &*provider.name,
            wait_ms = wait.as_millis(),
            "retry {retries} of {}: {} {}",
            request.app.config.retry.max_retries,
            provider.name,
            describe_failure(&result)
        );
        drop(result);
        metrics.retries.with_label_values(&[&*provider.name]).inc();
        tokio::time::sleep(wait).await;
    }
}

/// Judges an attempt, and reports it to the breaker.
fn judge_attempt(
    metrics: &Metrics,
    provider: &Provider,
    result: &Result<ProviderReply, SendError>,
    permit: Permit<'_>,
    ends_later: impl Fn(&ProviderReply) -> bool,
) -> AttemptVerdict {
    let own_key = matches!(provider.config.auth, Auth::Key(..));
    let (outcome, label) = match result {
        Ok(reply) if reply.too_long => (RetryClass::Final, "answer"),
        Ok(reply) => match classify_status(reply.status(), own_key) {
            RetryClass::Final => (RetryClass::Final, "answer"),
            RetryClass::Busy => (RetryClass::Busy, "busy"),
            RetryClass::Failed => (RetryClass::Failed, "failed"),
            RetryClass::Denied => (RetryClass::Denied, "denied"),
        },
        // The client caused the failure.
        Err(SendError::Unsent(
            UpstreamError::BodyBroken
            | UpstreamError::BodySlow { .. }
            | UpstreamError::NoModel { .. },
        )) => (RetryClass::Final, "unsent"),
        Err(SendError::Unsent(_)) => (RetryClass::Failed, "unsent"),
        Err(SendError::Failing(_)) => (RetryClass::Failed, "failed"),
        Err(SendError::Broken(_)) => (RetryClass::Final, "failed"),
    };
    metrics.count_attempt(&provider.name, label);
    if let (Ok(reply), Auth::Key(_, variable)) = (result, &provider.config.auth)
        && reply.status() == StatusCode::UNAUTHORIZED
    {
        let name = &*provider.name;
        tracing::warn!(
            provider = name,
            variable = &**variable,
            "provider {name} refused the key in {variable} (401); set it anew, or name another in \
             [providers.{name}]"
        );
    }
    let now = Instant::now();
    match (outcome, result) {
        (RetryClass::Failed, _) | (_, Err(SendError::Broken(_))) => permit.record_failure(now),
        (_, Ok(reply)) if ends_later(reply) => permit.record_begun(),
        (_, Ok(_)) => permit.record_success(),
        // The client caused the failure, which shows nothing about the provider.
        (_, Err(_)) => {}
    }
    if matches!(
        result,
        Err(SendError::Unsent(UpstreamError::Unreachable { .. }))
    ) {
        provider
            .unreachable_ms
            .store(unix_ms_now(), Ordering::Relaxed);
    }
    let headers = result.as_ref().ok().map(|reply| reply.answer.headers());
    let retry_after = headers.and_then(|headers| parse_retry_after(headers, SystemTime::now()));
    // With the client's credentials, the limit is that of one account, so the provider is not paused for others.
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

/// Notes the candidate that is asked, and logs its plan.
fn note_candidate(request: &ClientRequest, placed: &PlacedRequest) {
    let (provider, model) = (&placed.target.provider, &*placed.target.model);
    let labels = request.app.label_model(Operation::Chat, provider, model);
    let mut facts = request.notes.facts();
    facts.provider = Some(provider.name.to_string());
    facts.model_labels = Some(labels);
    drop(facts);
    if let (Some(session), Some(planned)) = (&request.session, &placed.planned) {
        log_plan(session.inherited.session, planned);
    }
}

/// A number in 0..1, so that waits differ between clients.
fn random_fraction() -> f64 {
    let bits = getrandom::u32().unwrap_or(u32::MAX / 2);
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}
