//! Reads the answers of a provider for a refusal that another request may avoid. `judge_error.rs` judges what is read.
//!
//! Every 4xx and 5xx is read for a refusal. If the profile says that errors come inside a success, a success is read too: a
//! whole answer, or the first event of a stream, whose head is held for at most 2 s. If another candidate may answer, every
//! success is read in this way, whatever the profile says, and a stream up to its first event with content. The answer is
//! passed on unchanged.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;

use super::{
    judge_error::{RefusedRequest, judge_error, judge_event, judge_success},
    provider_reply::{ProviderReply, SendError, is_stream, read_short},
};
use crate::{
    format::{AnswerEvents, beta_header::BETA_HEADER, error_body::is_plain_chat_answer},
    provider::{
        overflow::{self, Overflow},
        size_refusal::SizeRefusal,
        summary_refusal::SummaryRefusal,
        thinking_refusal::ThinkingRefusal,
    },
    proxy::{ClientRequest, PlannedRequest, ProviderRequest},
    relay::{BadAnswer, FirstEvent, peek_first_event},
};

/// How long the head of a stream is held for its first event, which may be an error.
const FIRST_EVENT_WITHIN: Duration = Duration::from_secs(2);

/// What a provider refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The conversation is longer than the window.
    OverWindow {
        overflow: Overflow,
        /// The error has the words that the clients of the format look for, so it is passed on as it came.
        classic: bool,
        /// The provider says that one of several hosts refused it.
        by_one_host: bool,
    },
    /// The bytes of the request, or its images.
    OverSize(SizeRefusal),
    /// The whole request: the error gives no reason.
    WithoutReason,
    /// The whole request, in words that no table knows. `size`: by its status, the error is about bytes.
    Unknown {
        wording: String,
        size: Option<SizeRefusal>,
    },
    /// The tokens of this single request, which is beyond a limit of tokens a minute.
    OverMinuteLimit(Overflow),
    /// The beta that the suffix of the model's name asks for.
    WindowBeta,
    /// Perhaps recovery's additions.
    Additions,
    /// The report of the usage of a stream.
    Usage,
    /// Perhaps the members that were added to answers by the model's name.
    Filling,
    /// Not what the newest error names, but what an earlier one was about: the members of answers that it seemed to refuse are
    /// demanded. See [`PastRefusals::reinterpret`](super::past_refusals::PastRefusals::reinterpret).
    MembersDemanded,
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
    prepared: &ProviderRequest,
    reply: ProviderReply,
    tries_drop: bool,
    has_fallback: bool,
) -> Result<(ProviderReply, Option<Refusal>), SendError> {
    let status = reply.answer.status();
    if status.is_success() {
        return find_refusal_inside(request, prepared, reply, has_fallback).await;
    }
    if !status.is_client_error() && !status.is_server_error() {
        return Ok((reply, None));
    }
    let format = request.parsed.format;
    let read = read_short(format, reply.answer, &prepared.target.provider.name).await;
    let (answer, text) = read.map_err(|bad| {
        if status.is_server_error() {
            SendError::Failing(bad)
        } else {
            SendError::Broken(bad)
        }
    })?;
    let reply = ProviderReply { answer, ..reply };
    let text = text.unwrap_or_default();
    let refused = describe_request(prepared, &reply, tries_drop);
    let refusal = judge_error(format, status, &text, refused);
    Ok((reply, refusal))
}

fn describe_request(
    prepared: &ProviderRequest,
    reply: &ProviderReply,
    tries_drop: bool,
) -> RefusedRequest {
    let (target, planned) = (&prepared.target, prepared.planned.as_deref());
    let (provider, model) = (&target.provider, &target.model);
    RefusedRequest {
        sent: reply.sent,
        window_betas: prepared.head.added_window_betas(target),
        has_client_betas: prepared.head.headers.contains_key(&BETA_HEADER),
        has_provider_summary: planned.is_some_and(PlannedRequest::has_provider_summary),
        has_additions: prepared.has_additions(),
        takes_markers: provider.takes_markers(model, Instant::now()),
        tries_drop,
    }
}

/// Finds errors inside a success, if the provider's profile says that it sends such errors, or if another candidate may
/// answer.
async fn find_refusal_inside(
    request: &ClientRequest,
    prepared: &ProviderRequest,
    reply: ProviderReply,
    has_fallback: bool,
) -> Result<(ProviderReply, Option<Refusal>), SendError> {
    let (provider, format) = (&prepared.target.provider, request.parsed.format);
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
        let refusal = text.and_then(|text| judge_success(&text));
        return Ok((reply, refusal));
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
        FirstEvent::Event(data) => judge_event(&data, format.rules().reports_overflow_in_stream),
        FirstEvent::Nothing => profile.errors_inside.then_some(Refusal::WithoutReason),
        FirstEvent::Broken | FirstEvent::Unknown => None,
    };
    Ok((reply, refusal))
}
