//! Judges an error of a provider: what of the request it refuses. [`ERROR_RULES`] and [`SUCCESS_RULES`] are the tables: the
//! first rule that fits counts. Nothing is read or sent here. What follows a refusal is in [`super::next_step`].
//!
//! Every provider words a refusal of additions differently. So an error counts as one unless there is evidence against it:
//! an overflow is about the conversation, and most server errors have other reasons. A wrong guess costs one more request,
//! or leaves the client an error that the proxy caused. Some providers refuse every request with `stream_options` (Mistral's
//! API and some model gateways answer 422, Databricks 400); if the client asked for the usage itself, it gets that refusal.

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::{edit_body::Extras, refusal::Refusal};
use crate::{
    config::profile::{AnswerFilling, name_window_betas},
    conversation::Format,
    format::{error_body::ErrorBody, refusal::CHAT_TEMPLATE_WORDS},
    provider::{
        overflow::{self, OverflowVerdict},
        size_refusal::{SizeRefusal, detect_size_refusal, names_bytes},
        summary_refusal::{SummaryRefusal, detect_summary_refusal},
        thinking_refusal::{detect_thinking_refusal, names_binding, refuses_name},
        window_beta_refusal::refuses_window_beta,
    },
};

/// Fields that a refusal to report usage names.
const USAGE_WORDS: [&str; 2] = ["stream_options", "include_usage"];

/// What a rule needs to know of the refused request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RefusedRequest {
    /// The extras that the request had.
    pub(super) sent: Extras,
    /// The betas of larger windows that the proxy added, one bit for each.
    pub(super) window_betas: u8,
    /// The client sent betas of its own.
    pub(super) has_client_betas: bool,
    /// The request begins with a summary of the provider's own.
    pub(super) has_provider_summary: bool,
    /// The request had anything that recovery adds.
    pub(super) has_additions: bool,
    /// The model is known to take cache markers.
    pub(super) takes_markers: bool,
    /// This attempt asks the provider to drop thinking, and the session does not know whether the provider accepts that.
    pub(super) tries_drop: bool,
}

/// An error and the request that it refuses.
struct ErrorCase<'a> {
    status: StatusCode,
    text: &'a Bytes,
    request: RefusedRequest,
    verdict: OverflowVerdict,
    /// If this is an overflow, it has the words that the clients of the format look for, at the place where they look.
    classic: bool,
}

type Rule = fn(&ErrorCase<'_>) -> Option<Refusal>;

/// The rules for a 4xx and a 5xx.
const ERROR_RULES: [Rule; 14] = [
    find_usage,
    find_window_beta,
    find_summary,
    find_thinking,
    find_overflow,
    find_drop,
    find_bytes_without_reason,
    find_request_limit,
    find_markers,
    find_no_reason,
    find_filling,
    find_additions,
    find_unknown,
    find_size,
];

/// The rules for an error inside a success. The proxy's additions are not blamed for such an error.
const SUCCESS_RULES: [Rule; 4] = [
    find_thinking,
    find_overflow,
    find_request_limit,
    find_unknown,
];

/// Judges a 4xx or 5xx by its status and its decoded body.
pub(super) fn judge_error(
    format: Format,
    status: StatusCode,
    text: &Bytes,
    request: RefusedRequest,
) -> Option<Refusal> {
    let case = ErrorCase {
        status,
        text,
        request,
        verdict: overflow::detect_overflow(status, text),
        classic: status == StatusCode::BAD_REQUEST && is_classic(format, text),
    };
    ERROR_RULES.iter().find_map(|rule| rule(&case))
}

/// Judges the decoded body of an answer whose status is a success.
pub(super) fn judge_success(text: &Bytes) -> Option<Refusal> {
    let verdict = overflow::detect_overflow(StatusCode::OK, text);
    apply_success_rules(text, verdict, false)
}

/// Judges the data of the first event of a stream. `classic`: the clients of the format look for an overflow there.
pub(super) fn judge_event(data: &Bytes, classic: bool) -> Option<Refusal> {
    let verdict = overflow::detect_overflow_in_event(data);
    apply_success_rules(data, verdict, classic)
}

fn apply_success_rules(text: &Bytes, verdict: OverflowVerdict, classic: bool) -> Option<Refusal> {
    let case = ErrorCase {
        status: StatusCode::OK,
        text,
        request: RefusedRequest::default(),
        verdict,
        classic,
    };
    SUCCESS_RULES.iter().find_map(|rule| rule(&case))
}

fn find_usage(case: &ErrorCase<'_>) -> Option<Refusal> {
    let refused = case.request.sent.usage && refuses_usage(case.status, case.text);
    refused.then_some(Refusal::Usage)
}

fn find_window_beta(case: &ErrorCase<'_>) -> Option<Refusal> {
    let (betas, has_others) = (case.request.window_betas, case.request.has_client_betas);
    let names = name_window_betas(betas);
    let refused = betas != 0 && refuses_window_beta(case.status, case.text, names, has_others);
    refused.then_some(Refusal::WindowBeta)
}

/// An overflow may advise the client to compact the conversation, which is no refusal of a summary.
fn find_summary(case: &ErrorCase<'_>) -> Option<Refusal> {
    if !case.request.has_provider_summary {
        return None;
    }
    let refused = detect_summary_refusal(case.status, case.text)?;
    let is_advice =
        refused == SummaryRefusal::Unknown && matches!(case.verdict, OverflowVerdict::Overflow(_));
    (!is_advice).then_some(Refusal::Summary(refused))
}

fn find_thinking(case: &ErrorCase<'_>) -> Option<Refusal> {
    detect_thinking_refusal(case.status, case.text).map(Refusal::Thinking)
}

fn find_overflow(case: &ErrorCase<'_>) -> Option<Refusal> {
    let OverflowVerdict::Overflow(overflow) = case.verdict else {
        return None;
    };
    Some(Refusal::OverWindow {
        overflow,
        classic: case.classic,
        by_one_host: names_host(case.text),
    })
}

fn find_drop(case: &ErrorCase<'_>) -> Option<Refusal> {
    let drop_by = case.request.sent.drop_by;
    let named = drop_by.is_some() && names_binding(case.text);
    let is_refused = named || case.request.tries_drop && is_bad_request(case.status);
    is_refused.then(|| Refusal::ToDrop {
        named,
        by_name: drop_by.is_some_and(|by| refuses_name(case.text, by)),
    })
}

/// A 413 without a word is about bytes.
fn find_bytes_without_reason(case: &ErrorCase<'_>) -> Option<Refusal> {
    let is_large = case.status == StatusCode::PAYLOAD_TOO_LARGE;
    let refused = is_large && case.verdict == OverflowVerdict::WithoutReason;
    refused.then_some(Refusal::OverSize(SizeRefusal::Bytes))
}

fn find_request_limit(case: &ErrorCase<'_>) -> Option<Refusal> {
    let has_words = case.verdict == OverflowVerdict::Other;
    let limit = overflow::read_request_limit(case.status, case.text);
    limit.filter(|_| has_words).map(Refusal::OverMinuteLimit)
}

fn find_markers(case: &ErrorCase<'_>) -> Option<Refusal> {
    let may_refuse = case.request.sent.markers && !case.request.takes_markers;
    let is_unclear = case.verdict == OverflowVerdict::WithoutReason || may_refuse_additions(case);
    (may_refuse && is_unclear).then_some(Refusal::Markers)
}

fn find_no_reason(case: &ErrorCase<'_>) -> Option<Refusal> {
    (case.verdict == OverflowVerdict::WithoutReason).then_some(Refusal::WithoutReason)
}

fn find_filling(case: &ErrorCase<'_>) -> Option<Refusal> {
    let is_filled = case.request.sent.filling == AnswerFilling::ByName;
    (is_filled && may_refuse_additions(case)).then_some(Refusal::Filling)
}

fn find_additions(case: &ErrorCase<'_>) -> Option<Refusal> {
    let has_additions = case.request.has_additions;
    (has_additions && may_refuse_additions(case)).then_some(Refusal::Additions)
}

fn find_unknown(case: &ErrorCase<'_>) -> Option<Refusal> {
    let size = detect_size_refusal(case.status, case.text);
    let is_named = size.is_some_and(|it| it != SizeRefusal::Bytes || names_bytes(case.text));
    if case.verdict != OverflowVerdict::Other || is_named {
        return None;
    }
    let wording = overflow::read_unknown_wording(case.status, case.text)?;
    Some(Refusal::Unknown { wording, size })
}

fn find_size(case: &ErrorCase<'_>) -> Option<Refusal> {
    detect_size_refusal(case.status, case.text).map(Refusal::OverSize)
}

/// Whether an error may be about what the proxy added. Providers refuse with 400 or 422 what their grammar does not
/// allow; templates of local engines fail with 500.
fn may_refuse_additions(case: &ErrorCase<'_>) -> bool {
    let may_refuse = match case.status {
        status if is_bad_request(status) => true,
        StatusCode::INTERNAL_SERVER_ERROR => {
            let text = String::from_utf8_lossy(case.text).to_lowercase();
            CHAT_TEMPLATE_WORDS.iter().any(|word| text.contains(word))
        }
        _ => false,
    };
    may_refuse
        && case.verdict == OverflowVerdict::Other
        && detect_size_refusal(case.status, case.text).is_none()
}

/// Whether an error says that the request itself cannot be accepted.
pub(super) fn is_bad_request(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY
    )
}

/// Whether an error comes from a router and names the host that refused (OpenRouter, and gateways before it).
fn names_host(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.contains("\"provider_name\"") || text.contains("This endpoint's maximum context")
}

/// Whether an overflow has the words that the clients of the format look for, so that it can be passed on as it came.
fn is_classic(format: Format, text: &[u8]) -> bool {
    ErrorBody::parse_body(text).is_some_and(|fault| format.is_overflow_error(&fault))
}

/// Whether an error, in any shape, refuses to report the usage of a stream.
fn refuses_usage(status: StatusCode, body: &[u8]) -> bool {
    is_bad_request(status)
        && match serde_json::from_slice(body) {
            Ok(error) => names_usage(&error),
            Err(_) => contains_usage_words(&String::from_utf8_lossy(body)),
        }
}

fn names_usage(error: &Value) -> bool {
    match error {
        Value::String(text) => contains_usage_words(text),
        Value::Array(list) => list.iter().any(names_usage),
        // Validators repeat the request's fields under `input`.
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name != "input" && names_usage(value)),
        _ => false,
    }
}

fn contains_usage_words(text: &str) -> bool {
    USAGE_WORDS.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests;
