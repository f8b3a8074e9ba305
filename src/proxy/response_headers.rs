//! The headers and trailers that the proxy adds to an answer, and the comment at the end of a stream.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::{
    ClientRequest, GuardMode, PlannedRequest, ProviderRequest, SessionContext, dispatch::CallCount,
};
use crate::{
    health::{self, HealthSource},
    recovery,
    session::SessionState,
    wire::Body,
};

/// Trailers that a stream may have; its head names them, as HTTP/1.1 requires.
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
pub(super) const ACTIONS: HeaderName = HeaderName::from_static("x-plimsoll-actions");
const PROVIDER: HeaderName = HeaderName::from_static("x-plimsoll-provider");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-plimsoll-attempts");
const TIMING: HeaderName = HeaderName::from_static("server-timing");
const BILLED: HeaderName = HeaderName::from_static("x-plimsoll-billed-tokens");

/// Builds the headers in the head of an answer: what was done, and the health of the previous generation. `calls`: the calls
/// to providers before the answer.
pub fn build_head_headers(
    session: &SessionContext,
    planned: &PlannedRequest,
    answer: &Response<Body>,
    calls: CallCount,
) -> HeaderMap {
    // A dry run begins no course.
    let memory = match planned.mode {
        GuardMode::Guard => &planned.recovery.memory,
        GuardMode::DryRun | GuardMode::Off => &planned.recovery.inherited,
    };
    let mut headers = build_session_headers(session, planned, memory);
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    let (guard, upstream) = (ms(planned.guard_took), ms(calls.took));
    let timing = format!("guard;dur={guard:.3}, upstream;dur={upstream:.3}");
    insert_header(&mut headers, ACTIONS, planned.describe_actions(None));
    insert_header(
        &mut headers,
        PROVIDER,
        planned.target.provider.name.to_string(),
    );
    insert_header(&mut headers, ATTEMPTS, calls.calls.to_string());
    insert_header(&mut headers, TIMING, timing);
    // The header is a list: the provider's entries stay.
    for entry in answer.headers().get_all(TIMING) {
        headers.append(TIMING, entry.clone());
    }
    headers
}

/// Builds such headers while the request still waits for its summary, before a provider is asked. There are none if there is
/// no conversation to follow.
pub fn build_early_headers(request: &ClientRequest, prepared: &ProviderRequest) -> HeaderMap {
    let (Some(session), Some(planned)) = (&request.session, &prepared.planned) else {
        return HeaderMap::new();
    };
    let mut headers = build_session_headers(session, planned, &planned.recovery.memory);
    headers.insert(ACTIONS, HeaderValue::from_static("compacting"));
    headers
}

/// Builds the headers at the end of an answer, which replace those of [`build_head_headers`]. `actions` may differ from the
/// actions in the head: a further tool round may have begun a new course.
pub fn build_end_headers(
    planned: &PlannedRequest,
    state: &SessionState,
    actions: String,
) -> HeaderMap {
    let mut headers: HeaderMap =
        health::build_health_headers(&state.last_health(), HealthSource::Response).collect();
    headers.extend(recovery::headers::build_recovery_headers(&state.recovery));
    insert_header(&mut headers, ACTIONS, actions);
    if let Some(billed) = planned.recovery.billed_tokens() {
        let (prompt, completion) = (billed.prompt_tokens, billed.completion_tokens);
        headers.insert(BILLED, prompt.saturating_add(completion).into());
    }
    headers
}

/// The session, its recovery memory, and the health of the previous generation (unknown if there is none).
fn build_session_headers(
    session: &SessionContext,
    planned: &PlannedRequest,
    memory: &recovery::RecoveryMemory,
) -> HeaderMap {
    let state = session.inherited.state.as_ref();
    let window = planned.target.window.known_tokens();
    let health = state.map_or_else(
        || health::assess_health(None, window, &planned.limits),
        SessionState::last_health,
    );
    let mut headers: HeaderMap =
        health::build_health_headers(&health, HealthSource::Previous).collect();
    headers.extend(recovery::headers::build_recovery_headers(memory));
    insert_header(&mut headers, SESSION, session.inherited.session.to_string());
    headers
}

fn insert_header(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

/// Writes the trailers as a comment for the end of a stream, which every parser ignores.
pub fn stream_comment(trailers: &HeaderMap) -> String {
    let words = trailers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix("x-plimsoll-")?;
        let value = value.to_str().ok()?.replace(", ", ",");
        (name != "health-from").then(|| format!("{name}={value}"))
    });
    format!(": plimsoll {}\n\n", words.collect::<Vec<_>>().join(" "))
}
