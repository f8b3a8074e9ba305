//! Finds what a provider refuses in a request, if another request may avoid the refusal.
//!
//! Every 4xx and 5xx is read for a refusal. If the profile says that errors come inside a success, a success is read too: a
//! whole answer, or the first event of a stream, whose head is held for at most 2 s. If another candidate may answer, every
//! success is read in this way, whatever the profile says, and a stream up to its first event with content. The answer is
//! passed on unchanged.
//!
//! Every provider words a refusal of additions differently. So an error counts as one unless there is evidence against it:
//! an overflow is about the conversation, and most server errors have other reasons. A wrong guess costs one more request,
//! or leaves the client an error that the proxy caused. Some providers refuse every request with `stream_options` (Mistral's
//! API and some model gateways answer 422, Databricks 400); if the client asked for the usage itself, it gets that refusal.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::provider_reply::{ProviderReply, SendError, is_stream, read_short};
use crate::{
    config::profile::{AnswerFilling, name_window_betas},
    conversation::Format,
    format::{
        AnswerEvents,
        beta_header::BETA_HEADER,
        error_body::{ErrorBody, is_plain_chat_answer},
        refusal::CHAT_TEMPLATE_WORDS,
    },
    provider::{
        overflow::{self, Overflow, OverflowVerdict},
        size_refusal::{SizeRefusal, detect_size_refusal, names_bytes},
        summary_refusal::{SummaryRefusal, detect_summary_refusal},
        thinking_refusal::{ThinkingRefusal, detect_thinking_refusal, names_binding, refuses_name},
        window_beta_refusal::refuses_window_beta,
    },
    proxy::{ClientRequest, PlacedRequest, PlannedRequest},
    relay::{BadAnswer, FirstEvent, peek_first_event},
};

/// How long the head of a stream is held for its first event, which may be an error.
const FIRST_EVENT_WITHIN: Duration = Duration::from_secs(2);

/// Fields that a refusal to report usage names.
const USAGE_WORDS: [&str; 2] = ["stream_options", "include_usage"];

/// What a provider refuses.
#[derive(Clone)]
pub(super) enum Refusal {
    TooLong {
        overflow: Overflow,
        /// The error has the words that the clients of the format look for, so it is passed on as it came.
        classic: bool,
        /// The provider says that one of several hosts refused it.
        by_one_host: bool,
    },
    /// The bytes of the request, or its images.
    TooLarge(SizeRefusal),
    /// The whole request: the error gives no reason.
    Wordless,
    /// The whole request, in words that no table knows. `size`: by its status, the error is about bytes.
    Unknown {
        wording: String,
        size: Option<SizeRefusal>,
    },
    /// The tokens of this single request, which is beyond a limit of tokens a minute.
    OneRequest(Overflow),
    /// The beta that the suffix of the model's name asks for.
    WindowBeta,
    /// Perhaps recovery's additions.
    Additions,
    /// The report of the usage of a stream.
    Usage,
    /// Perhaps the members that were added to answers by the model's name.
    Filling,
    /// Perhaps the cache markers that the proxy added: the model is not known to take them.
    Markers,
    /// The summary of the provider's own with which the request begins.
    Summary(SummaryRefusal),
    /// Thinking of earlier answers.
    Thinking(ThinkingRefusal),
    /// The member that asks the provider to drop thinking. `named`: the error says so; else it is a guess. `by_name`: only
    /// the name is refused.
    ToDrop { named: bool, by_name: bool },
}

/// Finds the refusal in an answer, or in an error inside a success. `has_fallback`: another candidate may answer.
/// `tries_drop`: this attempt asks the provider to drop thinking, and the session does not know whether the provider accepts
/// that.
///
/// # Errors
/// The answer broke off.
pub(super) async fn find_refusal(
    request: &ClientRequest,
    placed: &PlacedRequest,
    reply: ProviderReply,
    tries_drop: bool,
    has_fallback: bool,
) -> Result<(ProviderReply, Option<Refusal>), SendError> {
    let status = reply.answer.status();
    if status.is_success() {
        return find_refusal_inside(request, placed, reply, has_fallback).await;
    }
    if !status.is_client_error() && !status.is_server_error() {
        return Ok((reply, None));
    }
    let format = request.parsed.format;
    let read = read_short(format, reply.answer, &placed.target.provider.name).await;
    let (answer, text) = read.map_err(|bad| {
        if status.is_server_error() {
            SendError::Failing(bad)
        } else {
            SendError::Broken(bad)
        }
    })?;
    let reply = ProviderReply { answer, ..reply };
    let text = text.unwrap_or_default();
    let refusal = judge_error(format, placed, &reply, &text, tries_drop);
    Ok((reply, refusal))
}

/// Whether an error is about the length of the prompt. Such an error may advise the client to compact the conversation.
fn is_overflow(status: StatusCode, text: &Bytes) -> bool {
    matches!(
        overflow::detect_overflow(status, text),
        OverflowVerdict::Overflow(_)
    )
}

/// What an error refuses; the first rule that fits counts.
fn judge_error(
    format: Format,
    placed: &PlacedRequest,
    reply: &ProviderReply,
    text: &Bytes,
    tries_drop: bool,
) -> Option<Refusal> {
    let (status, sent, target) = (reply.answer.status(), reply.sent, &placed.target);
    if sent.usage && refuses_usage(status, text) {
        return Some(Refusal::Usage);
    }
    let betas = placed.head.added_window_betas(target);
    let has_others = placed.head.headers.contains_key(&BETA_HEADER);
    if betas != 0 && refuses_window_beta(status, text, name_window_betas(betas), has_others) {
        return Some(Refusal::WindowBeta);
    }
    let planned = placed.planned.as_deref();
    if planned.is_some_and(PlannedRequest::has_provider_summary)
        && let Some(refused) = detect_summary_refusal(status, text)
        && (refused != SummaryRefusal::Unknown || !is_overflow(status, text))
    {
        return Some(Refusal::Summary(refused));
    }
    if let Some(refused) = detect_thinking_refusal(status, text) {
        return Some(Refusal::Thinking(refused));
    }
    let named = sent.drop_by.is_some() && names_binding(text);
    let takes_markers = || target.provider.takes_markers(&target.model, Instant::now());
    let may_refuse_markers = sent.markers && !takes_markers();
    match overflow::detect_overflow(status, text) {
        OverflowVerdict::Overflow(overflow) => Some(Refusal::TooLong {
            classic: status == StatusCode::BAD_REQUEST && is_classic(format, text),
            by_one_host: names_host(text),
            overflow,
        }),
        _ if named || tries_drop && is_bad_request(status) => {
            let by_name = sent.drop_by.is_some_and(|by| refuses_name(text, by));
            Some(Refusal::ToDrop { named, by_name })
        }
        // A 413 without a word is about bytes.
        OverflowVerdict::Wordless if status == StatusCode::PAYLOAD_TOO_LARGE => {
            Some(Refusal::TooLarge(SizeRefusal::Bytes))
        }
        OverflowVerdict::Wordless if may_refuse_markers => Some(Refusal::Markers),
        OverflowVerdict::Wordless => Some(Refusal::Wordless),
        OverflowVerdict::Other => judge_other_error(placed, reply, text, may_refuse_markers),
    }
}

/// Judges an error that has none of the words of an overflow.
fn judge_other_error(
    placed: &PlacedRequest,
    reply: &ProviderReply,
    text: &Bytes,
    may_refuse_markers: bool,
) -> Option<Refusal> {
    let status = reply.answer.status();
    if let Some(limit) = overflow::read_request_limit(status, text) {
        return Some(Refusal::OneRequest(limit));
    }
    let size = detect_size_refusal(status, text);
    if size.is_none() && refuses_additions(status, text) {
        if may_refuse_markers {
            return Some(Refusal::Markers);
        }
        if reply.sent.filling == AnswerFilling::ByName {
            return Some(Refusal::Filling);
        }
        if placed.has_additions() {
            return Some(Refusal::Additions);
        }
    }
    let is_named = size.is_some_and(|it| it != SizeRefusal::Bytes || names_bytes(text));
    let wording = overflow::read_unknown_wording(status, text).filter(|_| !is_named);
    let unknown = wording.map(|wording| Refusal::Unknown { wording, size });
    unknown.or(size.map(Refusal::TooLarge))
}

/// Finds errors inside a success, if the provider's profile says that it sends such errors, or if another candidate may
/// answer.
async fn find_refusal_inside(
    request: &ClientRequest,
    placed: &PlacedRequest,
    reply: ProviderReply,
    has_fallback: bool,
) -> Result<(ProviderReply, Option<Refusal>), SendError> {
    let (provider, format) = (&placed.target.provider, request.parsed.format);
    let profile = format.refine_profile(*provider.config.profile);
    if !profile.errors_inside && !has_fallback {
        return Ok((reply, None));
    }
    let no_answer = has_fallback.then_some(StatusCode::BAD_GATEWAY);
    if !is_stream(&reply.answer, request.parsed.streams) {
        let read = read_short(format, reply.answer, &provider.name).await;
        let (answer, text) = read.map_err(|bad| match bad {
            BadAnswer::NotJson { .. } if has_fallback => SendError::Failing(bad),
            bad => {
                // The answer began, so it counts as an answer too, like a stream that breaks off.
                if !profile.errors_inside {
                    request.app.metrics.count_attempt(&provider.name, "answer");
                }
                SendError::Broken(bad)
            }
        })?;
        // A plain chat answer holds no error, so it is not parsed for one.
        let text = text.filter(|text| has_fallback || !is_plain_chat_answer(text));
        let has_message = |text: &Bytes| match format.read_answer(text) {
            Ok(answer) => answer.has_message() || answer.find_finish().is_some(),
            Err(_) => false,
        };
        let inner = text.as_ref().and_then(|text| {
            let status = overflow::read_inner_status(text);
            status.or(no_answer.filter(|_| !has_message(text)))
        });
        let reply = ProviderReply {
            answer,
            inner,
            ..reply
        };
        let judge = |text: Bytes| {
            let verdict = overflow::detect_overflow(StatusCode::OK, &text);
            judge_success(&text, verdict, false)
        };
        return Ok((reply, text.and_then(judge)));
    }
    let peeked = peek_first_event(format, reply.answer, FIRST_EVENT_WITHIN, has_fallback);
    let (answer, first) = peeked.await;
    let inner = match &first {
        FirstEvent::Event(data) => overflow::read_inner_status(data),
        FirstEvent::Nothing | FirstEvent::Broken => no_answer,
        FirstEvent::Unknown => None,
    };
    let reply = ProviderReply {
        answer,
        inner,
        ..reply
    };
    let refusal = match first {
        FirstEvent::Event(data) => {
            let verdict = overflow::detect_overflow_in_event(&data);
            judge_success(&data, verdict, format.rules().reports_overflow_in_stream)
        }
        FirstEvent::Nothing => profile.errors_inside.then_some(Refusal::Wordless),
        FirstEvent::Broken | FirstEvent::Unknown => None,
    };
    Ok((reply, refusal))
}

/// The refusal in an answer whose status is a success.
fn judge_success(text: &Bytes, verdict: OverflowVerdict, classic: bool) -> Option<Refusal> {
    match (detect_thinking_refusal(StatusCode::OK, text), verdict) {
        (Some(refused), _) => Some(Refusal::Thinking(refused)),
        (None, OverflowVerdict::Overflow(overflow)) => Some(Refusal::TooLong {
            overflow,
            classic,
            by_one_host: names_host(text),
        }),
        (None, _) => {
            let limit = overflow::read_request_limit(StatusCode::OK, text);
            let wording = || overflow::read_unknown_wording(StatusCode::OK, text);
            let unknown = || {
                let wording = wording()?;
                Some(Refusal::Unknown {
                    wording,
                    size: None,
                })
            };
            limit.map(Refusal::OneRequest).or_else(unknown)
        }
    }
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

/// Whether an error says that the request itself cannot be accepted.
pub(super) fn is_bad_request(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY
    )
}

/// Whether an error may be about what the proxy added. Providers refuse with 400 or 422 what their grammar does not
/// allow; templates of local engines fail with 500.
fn refuses_additions(status: StatusCode, text: &Bytes) -> bool {
    let may_refuse = match status {
        _ if is_bad_request(status) => true,
        StatusCode::INTERNAL_SERVER_ERROR => {
            let text = String::from_utf8_lossy(text).to_lowercase();
            CHAT_TEMPLATE_WORDS.iter().any(|word| text.contains(word))
        }
        _ => false,
    };
    may_refuse && overflow::detect_overflow(status, text) == OverflowVerdict::Other
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
mod tests {
    use std::path::PathBuf;

    use http::StatusCode;

    use super::{refuses_additions, refuses_usage};

    #[test]
    fn an_overflow_is_never_taken_for_a_refusal_of_additions() {
        let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
        let data = std::env::var_os("PLIMSOLL_DATA").map_or(beside, PathBuf::from);
        let Ok(errors) = std::fs::read_dir(data.join("errors")) else {
            println!("the recorded errors are absent");
            return;
        };
        let mut overflows = 0;
        for entry in errors {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|kind| kind != "json") {
                continue;
            }
            let error: serde_json::Value =
                serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let status = error["http_status"].as_u64().unwrap_or(0);
            let status = StatusCode::from_u16(status as u16).unwrap_or(StatusCode::OK);
            if error["context_overflow"] == true && [400, 422, 500].contains(&status.as_u16()) {
                overflows += 1;
                let body = error["body"].as_str().unwrap_or_default().to_owned();
                assert!(
                    !refuses_additions(status, &body.into()),
                    "{}",
                    path.display()
                );
            }
        }
        assert!(overflows > 20, "the recorded errors are there");
    }

    #[test]
    fn refusals_of_additions_differ_from_other_failures() {
        let check = |status: u16, text: &'static str, refused: bool| {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(refuses_additions(status, &text.into()), refused, "{text}");
        };
        check(400, "messages with role 'tool' must be a response", true);
        check(422, "Extra inputs are not permitted", true);
        check(
            400,
            "Invalid 'tools[3].function.description': string too long. Expected a string with maximum length 1024",
            true,
        );
        check(500, "Jinja template: roles must alternate", true);
        check(500, "out of memory", false);
        check(
            400,
            r#"{"error":{"message":"too much","code":"context_length_exceeded"}}"#,
            false,
        );
    }

    #[test]
    fn refusals_of_usage_differ_from_other_errors() {
        let check = |body: &'static str, refused: bool| {
            assert_eq!(
                refuses_usage(StatusCode::BAD_REQUEST, body.as_bytes()),
                refused,
                "{body}"
            );
        };
        check(
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted","input":{"include_usage":true}}]}"#,
            true,
        );
        check(
            r#"{"error_code":"BAD_REQUEST","message":"json: unknown field \"stream_options\""}"#,
            true,
        );
        check(
            r#"{"error":{"message":"Unknown parameter","param":"stream_options.include_usage"}}"#,
            true,
        );
        check("Unrecognized request argument: include_usage", true);
        check(
            r#"{"detail":[{"loc":["body","messages"],"msg":"Field required","input":{"stream_options":{"include_usage":true},"x":["stream_options"]}}]}"#,
            false,
        );
        check(
            r#"{"error":{"message":"context_length_exceeded","param":"messages"}}"#,
            false,
        );
        check("", false);
    }
}
