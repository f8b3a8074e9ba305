//! Retries and fallbacks: asks one candidate after the other, and asks the same candidate again if that may help.
//!
//! Retries and fallbacks are made in this file only, as `follow_attempt` says. Below it, `attempt.rs` sends only changed
//! requests again, as `next_step::list_remedies` says. Above it, only the tool loop sends requests, each of which follows an
//! answer. Retries and fallbacks end before a byte of an answer reaches the client.
//!
//! A request that continues a thread of Messages is sent to one candidate only. It is sent again only if the first try
//! cannot have arrived.
//!
//! An open circuit ends the retries if another candidate can answer. Failures that the client caused are not retried.

mod attempt;
mod edit_body;
pub mod fallbacks;
mod judge_error;
mod next_step;
mod overflow_retry;
mod past_refusals;
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

use self::{
    fallbacks::Fallbacks,
    next_step::{AttemptEnd, CandidateFacts, NextCandidate, follow_attempt},
    provider_reply::is_stream,
};
pub use self::{
    fallbacks::ProviderRequest,
    provider_reply::{CallCount, ProviderReply, SendError},
};
use crate::{
    config::Auth,
    error::Failure,
    provider::{
        Provider, UpstreamError,
        breaker::{BreakerState, Permit},
        retry::parse_retry_after,
    },
    proxy::{ClientRequest, plan::log_plan},
    telemetry::{Operation, metrics::Metrics},
    unix_time::unix_ms_now,
};

/// The answer for the client, and the request as it went out.
pub struct AnsweredRequest {
    pub reply: ProviderReply,
    pub prepared: ProviderRequest,
    /// All calls for the request, at all candidates.
    pub calls: CallCount,
}

/// What a candidate answered last, and the request as it went out to it.
struct AskedRequest {
    result: Result<ProviderReply, SendError>,
    end: AttemptEnd,
    prepared: ProviderRequest,
}

/// Asks one candidate after the other until one gives the client's answer.
///
/// # Errors
/// No candidate began an answer, or one broke off.
pub async fn send_with_fallbacks(
    request: &ClientRequest,
    mut prepared: ProviderRequest,
    mut fallbacks: Fallbacks,
) -> Result<AnsweredRequest, Failure> {
    let mut calls = CallCount::default();
    // The failure of the model that the client named, else of the first candidate that failed.
    let mut before: Option<AskedRequest> = None;
    loop {
        note_candidate(request, &prepared);
        // Boxed, so that the future that waits for an answer stays small.
        let asked = ask_candidate(request, &mut prepared, &mut fallbacks, &mut calls);
        let (result, end, next) = Box::pin(asked).await;
        request.notes.facts().attempts = Some(calls.calls);
        let too_long = next == NextCandidate::Larger;
        let next = if next == NextCandidate::None {
            None
        } else {
            fallbacks.plan_next_candidate(request, &prepared, too_long)
        };
        let Some(next) = next else {
            let before = before.filter(|_| !fallbacks.is_first(&prepared.target));
            let last = AskedRequest {
                result,
                end,
                prepared,
            };
            return choose_answer(request, last, before, calls);
        };
        let failed = std::mem::replace(&mut prepared, next);
        let (from, to) = (
            &*failed.target.provider.name,
            &*prepared.target.provider.name,
        );
        let metrics = &request.app.metrics;
        metrics.fallbacks.with_label_values(&[from]).inc();
        tracing::warn!(
            from,
            to,
            model = prepared.target.model,
            "falling back to provider {to}: {from} {}",
            describe_failure(&result)
        );
        if fallbacks.is_first(&failed.target)
            || before.is_none() && !fallbacks.is_larger(&failed.target)
        {
            before = Some(AskedRequest {
                result,
                end,
                prepared: failed,
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
    let chosen = match before.filter(|_| last.end.is_less_informative()) {
        Some(before) => {
            let fallback = &*last.prepared.target.provider.name;
            tracing::warn!(
                provider = fallback,
                "fallback {fallback} {}; the client gets the first error",
                describe_failure(&last.result)
            );
            note_candidate(request, &before.prepared);
            before
        }
        None => last,
    };
    Ok(AnsweredRequest {
        reply: chosen.result?,
        prepared: chosen.prepared,
        calls,
    })
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

/// Asks this candidate, and retries as far as that is allowed. Returns the last result, how it ended, and who may be asked
/// next.
async fn ask_candidate(
    request: &ClientRequest,
    prepared: &mut ProviderRequest,
    fallbacks: &mut Fallbacks,
    calls: &mut CallCount,
) -> (Result<ProviderReply, SendError>, AttemptEnd, NextCandidate) {
    let provider = Arc::clone(&prepared.target.provider);
    let metrics = &request.app.metrics;
    let own_key = matches!(provider.config.auth, Auth::Key(..));
    let mut retries = 0;
    loop {
        let permit = provider.breaker.try_admit(Instant::now());
        let permit = permit.unwrap_or_else(|| provider.breaker.force_admit());
        fallbacks.budget.count_attempt();
        let result = attempt_request(request, prepared, Some(fallbacks), calls).await;
        let end = AttemptEnd::from_result(&result, own_key);
        // If a session follows the stream, the stream counts as a success only at its end.
        let is_followed = request.session.is_some() && prepared.planned.is_some();
        let asked = request.parsed.streams && is_followed;
        let ends_later = |reply: &ProviderReply| asked && is_stream(&reply.answer, true);
        let retry_after = report_attempt(metrics, &provider, &result, end, permit, ends_later);
        let facts = CandidateFacts {
            continues_thread: request.continues_thread(),
            named_one_waits: fallbacks.is_larger(&prepared.target) || fallbacks.first_was_skipped(),
        };
        let next = follow_attempt(end, facts);
        if next != NextCandidate::SameOrNext {
            return (result, end, next);
        }
        let Some(wait) = find_retry_wait(&provider, fallbacks, retries, retry_after) else {
            return (result, end, next);
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

/// The wait before the candidate is asked again. `None`: it is not, as the budget says, or since its circuit is open while
/// another candidate can answer.
fn find_retry_wait(
    provider: &Provider,
    fallbacks: &Fallbacks,
    retries: u32,
    retry_after: Option<Duration>,
) -> Option<Duration> {
    let now = Instant::now();
    let is_open = provider.breaker.state_at(now) == BreakerState::Open;
    if is_open && fallbacks.any_admits() {
        return None;
    }
    let (budget, chance) = (&fallbacks.budget, random_fraction());
    budget.retry_delay(retries, retry_after, now, chance)
}

/// Reports an attempt to the metrics, the breaker and the log. Returns the pause that the provider asks for.
fn report_attempt(
    metrics: &Metrics,
    provider: &Provider,
    result: &Result<ProviderReply, SendError>,
    end: AttemptEnd,
    permit: Permit<'_>,
    ends_later: impl Fn(&ProviderReply) -> bool,
) -> Option<Duration> {
    metrics.count_attempt(&provider.name, end.label());
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
    match result {
        _ if end.is_failure() => permit.record_failure(now),
        Ok(reply) if ends_later(reply) => permit.record_begun(),
        Ok(_) => permit.record_success(),
        // The client caused the failure, which shows nothing about the provider.
        Err(_) => {}
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
    if end == AttemptEnd::Busy
        && !matches!(provider.config.auth, Auth::Client)
        && let Some(length) = retry_after
    {
        provider.breaker.pause_for(now, length);
    }
    retry_after
}

/// Notes the candidate that is asked, and logs its plan.
fn note_candidate(request: &ClientRequest, prepared: &ProviderRequest) {
    let (provider, model) = (&prepared.target.provider, &*prepared.target.model);
    let labels = request.app.label_model(Operation::Chat, provider, model);
    let mut facts = request.notes.facts();
    facts.provider = Some(provider.name.to_string());
    facts.model_labels = Some(labels);
    drop(facts);
    if let (Some(session), Some(planned)) = (&request.session, &prepared.planned) {
        log_plan(session.inherited.session, planned);
    }
}

/// A number in 0..1, so that waits differ between clients.
fn random_fraction() -> f64 {
    let bits = getrandom::u32().unwrap_or(u32::MAX / 2);
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}
