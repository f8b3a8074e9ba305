//! Relays a provider's answer to the client: streamed as it comes, or whole. Calls of the proxy's tools are taken out of it,
//! and its end is settled.

use http::{HeaderMap, Response};

use super::tool_loop::ToolLoop;
use crate::{
    error::Failure,
    format::SentEvents,
    http::{answer, limit::Hold},
    proxy::{
        ClientRequest, ProviderRequest,
        dispatch::{AnsweredRequest, provider_reply::is_stream},
        response_headers::{TRAILERS, build_head_headers},
        settle::{StreamEnd, settle_answer},
        summary::keep_for_summary,
    },
    relay::{
        self, AnswerDriver, AnswerFilter, BufferedAnswer, FooterOptions, ResponseSummary,
        StreamOptions,
    },
    wire::{Body, whole_body},
};

/// Relays an answer. `hold`: the share of the request's body in the bytes in flight.
///
/// # Errors
/// An answer that is not a stream broke off, or is not JSON.
pub(in crate::proxy) async fn relay_answer(
    request: ClientRequest,
    answered: AnsweredRequest,
    hold: Hold,
) -> Result<Response<Body>, Failure> {
    if is_stream(&answered.reply.answer, request.parsed.streams) {
        Ok(relay_stream(request, answered, hold))
    } else {
        Box::pin(relay_whole(request, answered, hold)).await
    }
}

/// Relays a stream. Headers report what is known before the stream. Trailers, or a comment, report what is known at its end.
pub(super) fn relay_stream(
    request: ClientRequest,
    answered: AnsweredRequest,
    hold: Hold,
) -> Response<Body> {
    let AnsweredRequest {
        mut reply,
        prepared,
        calls,
    } = answered;
    request.notes.facts().is_stream = true;
    let mut options = StreamOptions {
        format: request.parsed.format,
        asked_model: request.parsed.copy_renamed_model(&prepared.target.model),
        sent: SentEvents::none_of(&request.parsed.model),
        ..StreamOptions::default()
    };
    let (Some(session), Some(planned)) = (&request.session, &prepared.planned) else {
        return relay::stream_answer(reply.answer, None, options);
    };
    let head = build_head_headers(session, planned, &reply.answer, calls);
    reply.answer.headers_mut().extend(head);
    let reads_trailers = answer::accepts_trailers(&request.parts.headers);
    options.filter = planned.answer_filter();
    options.strip_usage = reply.sent.usage;
    options.left_out = prepared.left_out_tokens(&request.app.config.guard);
    options.footer = FooterOptions {
        trailers: if reads_trailers { TRAILERS } else { &[] },
        max_wait: request.app.config.store.save_timeout(),
    };
    let driver: Box<dyn AnswerDriver> = if options.filter.is_active() {
        Box::new(ToolLoop {
            request,
            prepared,
            streamed: true,
            // The request may be sent again, so its body is kept.
            _hold: Some(hold),
        })
    } else {
        Box::new(StreamEnd::new(request, prepared))
    };
    relay::stream_answer(reply.answer, Some(driver), options)
}

/// Relays an answer in one piece: all of it is read before its head is released.
async fn relay_whole(
    request: ClientRequest,
    answered: AnsweredRequest,
    mut hold: Hold,
) -> Result<Response<Body>, Failure> {
    let AnsweredRequest {
        reply,
        prepared,
        calls,
    } = answered;
    let head = match (&request.session, &prepared.planned) {
        (Some(session), Some(planned)) => {
            build_head_headers(session, planned, &reply.answer, calls)
        }
        _ => HeaderMap::new(),
    };
    let mut tool_loop = ToolLoop {
        request,
        prepared,
        streamed: false,
        _hold: None,
    };
    let read = read_whole(&mut tool_loop, reply.answer, &mut hold).await?;
    let (request, prepared) = (tool_loop.request, tool_loop.prepared);
    let (mut answer, response) = write_whole(&request, &prepared, read, hold);
    let source = keep_for_summary(&request, &prepared);
    let (Some(session), Some(planned)) = (&request.session, prepared.planned) else {
        return Ok(answer);
    };
    if answer.status().is_success() && response.is_none() {
        session.note_provider_failed();
    }
    let headers = answer.headers_mut();
    headers.extend(head);
    if let Some(response) = response {
        let end_headers = settle_answer(session, *planned, &response, source).await;
        for name in TRAILERS {
            headers.remove(*name);
        }
        headers.extend(end_headers);
    }
    Ok(answer)
}

/// Reads an answer, as long as it stays within the limits of a body, and executes the calls of the proxy's tools in it.
async fn read_whole(
    tool_loop: &mut ToolLoop,
    answer: Response<Body>,
    hold: &mut Hold,
) -> Result<BufferedAnswer, Failure> {
    let (request, prepared) = (&tool_loop.request, &tool_loop.prepared);
    let mut left = request.app.config.server.max_body_bytes;
    let room = |bytes| {
        left = left.saturating_sub(bytes);
        left > 0 && hold.grow(bytes)
    };
    let (format, provider) = (request.parsed.format, prepared.target.provider.name.clone());
    let planned = prepared.planned.as_ref();
    let filter = planned.map_or_else(AnswerFilter::default, |planned| planned.answer_filter());
    if !filter.is_active() {
        return Ok(relay::buffer_answer(format, answer, &provider, room).await?);
    }
    // Boxed: most answers are not filtered, and their future stays small.
    let rounds = relay::buffer_filtered_answer(format, answer, filter, tool_loop, &provider, room);
    let (read, last, before) = Box::pin(rounds).await?;
    tool_loop.finish_answer(&last, before);
    Ok(read)
}

/// Makes the answer for the client. Returns it with its summary, if it is a whole success.
fn write_whole(
    request: &ClientRequest,
    prepared: &ProviderRequest,
    read: BufferedAnswer,
    hold: Hold,
) -> (Response<Body>, Option<ResponseSummary>) {
    let (mut head, mut body, summary) = match read {
        BufferedAnswer::Complete {
            head,
            body,
            summary,
        } => (head, body, summary),
        BufferedAnswer::Overlong(answer) => {
            return (answer.map(|body| hold.attach_to_body(body)), None);
        }
    };
    let is_success = head.status.is_success();
    if is_success {
        let left_out = prepared.left_out_tokens(&request.app.config.guard);
        let asked = request.parsed.copy_renamed_model(&prepared.target.model);
        let (format, headers) = (request.parsed.format, &mut head.headers);
        body = relay::edit_whole_answer(format, headers, body, left_out, asked);
    }
    let answer = Response::from_parts(head, whole_body(hold.attach_to_bytes(body)));
    (answer, (is_success && !summary.error).then_some(summary))
}
