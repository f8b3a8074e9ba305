//! An answer that is not streamed: buffered within a bound, read, then sent.

use bytes::Bytes;
use http::{
    HeaderMap, Response,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
    response::Parts,
};
use http_body::Frame;
use http_body_util::BodyExt;
use serde::de::IgnoredAny;

use super::{
    AnswerDriver, AnswerFilter, BadAnswer, Format, ModelAnswer, PrecedingText, ResponseSummary,
    decode::Decoder, peek::resume_body,
};
use crate::{
    error::{IdleTimeoutError, format_error_chain},
    format::{AnswerEvents, AnswerRewriter, ResponseSummarizer, RewrittenAnswer},
    wire::{Body, gather::BytesGatherer},
};

const BOM: &[u8] = b"\xef\xbb\xbf";

pub enum BufferedAnswer {
    Complete {
        head: Parts,
        body: Bytes,
        summary: ResponseSummary,
    },
    /// It is longer than the bound: it passes as it comes, and is not read.
    Overlong(Response<Body>),
}

/// Buffers an answer as long as `reserve` grants the bytes of each chunk.
///
/// # Errors
/// The answer broke off, or a successful one is not JSON.
pub async fn buffer_answer(
    format: Format,
    answer: Response<Body>,
    provider: &str,
    mut reserve: impl FnMut(usize) -> bool,
) -> Result<BufferedAnswer, BadAnswer> {
    let (head, mut source) = answer.into_parts();
    let mut gather = BytesGatherer::default();
    while let Some(frame) = source.frame().await {
        let frame = frame.map_err(|error| {
            tracing::warn!(provider, error = %format_error_chain(&error), "the provider's answer broke off");
            let provider = provider.to_owned();
            match IdleTimeoutError::limit_from_error(&error) {
                Some(limit) => BadAnswer::Stalled { provider, limit },
                None => BadAnswer::Broken { provider },
            }
        })?;
        let Ok(chunk) = frame.into_data() else {
            continue;
        };
        let fits = reserve(chunk.len());
        gather.push(chunk);
        if !fits {
            let start = Ok(Frame::data(gather.finish()));
            let body = resume_body([start].into(), source);
            return Ok(BufferedAnswer::Overlong(Response::from_parts(head, body)));
        }
    }
    let body = gather.finish();
    match summarize_answer(format, &head, &body) {
        Some(summary) => Ok(BufferedAnswer::Complete {
            head,
            body,
            summary,
        }),
        None => Err(BadAnswer::NotJson {
            provider: provider.to_owned(),
        }),
    }
}

/// Buffers an answer and removes what `filter` names. After an answer for the proxy only, it takes
/// the next one of `driver` (whose end the caller reports). The client gets the last answer with the
/// texts of all; the [`ModelAnswer`] is the last one too, and empty if that is not read: it is too
/// long, cannot be decompressed, or is no success.
///
/// # Errors
/// An answer broke off, a successful one is not JSON, or there is no next one.
pub async fn buffer_filtered_answer(
    format: Format,
    mut answer: Response<Body>,
    filter: AnswerFilter,
    driver: &mut dyn AnswerDriver,
    provider: &str,
    mut reserve: impl FnMut(usize) -> bool,
) -> Result<(BufferedAnswer, ModelAnswer, PrecedingText), BadAnswer> {
    let mut rewriter = AnswerRewriter::new(format, filter, None);
    loop {
        let mut buffered = buffer_answer(format, answer, provider, &mut reserve).await?;
        let mut rewritten = None;
        if let BufferedAnswer::Complete {
            head,
            body,
            summary,
        } = &mut buffered
            && head.status.is_success()
            && let Some(text) = unpack_answer(&head.headers, body)
        {
            let bom = if text.starts_with(BOM) { BOM.len() } else { 0 };
            let text = text.slice(bom..);
            rewritten = rewriter.take_whole(&text);
            if let Some(RewrittenAnswer::ForClient { json, .. }) = &rewritten
                && *json != text
            {
                head.headers.remove(CONTENT_ENCODING);
                head.headers.remove(CONTENT_LENGTH);
                *body = json.clone();
                *summary = summarize_answer(format, head, body).unwrap_or_default();
            }
        }
        let said = match rewritten {
            Some(RewrittenAnswer::ForProxy(said)) => {
                let next = driver.next_answer(said).await;
                answer = next.ok_or_else(|| BadAnswer::Broken {
                    provider: provider.to_owned(),
                })?;
                continue;
            }
            Some(RewrittenAnswer::ForClient { said, .. }) => said,
            None => ModelAnswer::default(),
        };
        return Ok((buffered, said, rewriter.preceding_text()));
    }
}

/// The body of an answer without its content encoding; `None` if it cannot be decompressed.
pub fn unpack_answer(headers: &HeaderMap, body: &Bytes) -> Option<Bytes> {
    match Decoder::from_headers(headers) {
        None => Some(body.clone()),
        Some(mut decoder) => decoder.push(body.clone()).map(Bytes::from),
    }
}

/// Adds the tokens left out of the request to the prompt tokens of a whole answer, and names its model
/// as the client asked for it (in quotes), where the provider was sent another name. An edited answer
/// loses its content encoding; one that cannot be read stays as it is.
pub fn edit_whole_answer(
    format: Format,
    headers: &mut HeaderMap,
    body: Bytes,
    left_out: Option<u32>,
    asked_model: Option<Bytes>,
) -> Bytes {
    if left_out.unwrap_or(0) == 0 && asked_model.is_none() {
        return body;
    }
    let text = unpack_answer(headers, &body).unwrap_or_default();
    let bom = if text.starts_with(BOM) { BOM.len() } else { 0 };
    let mut rewriter = AnswerRewriter::new(format, AnswerFilter::default(), left_out);
    rewriter.set_asked_model(asked_model);
    match rewriter.take_whole(&text.slice(bom..)) {
        Some(RewrittenAnswer::ForClient { json, .. }) if json != text[bom..] => {
            headers.remove(CONTENT_ENCODING);
            headers.remove(CONTENT_LENGTH);
            [&text[..bom], &json[..]].concat().into()
        }
        _ => body,
    }
}

/// The summary of an answer; `None` for a success that is not JSON.
fn summarize_answer(format: Format, head: &Parts, body: &Bytes) -> Option<ResponseSummary> {
    let mut summarizer = ResponseSummarizer::default();
    let Some(text) = unpack_answer(&head.headers, body) else {
        summarizer.mark_unreadable();
        return Some(summarizer.to_summary());
    };
    // Clients skip a byte order mark.
    let text = text.strip_prefix(BOM).unwrap_or(&text);
    let is_json = serde_json::from_slice::<IgnoredAny>(text).is_ok();
    // A lax parser may accept it: some engines write `NaN`, and some clients read it.
    let trimmed = text.trim_ascii();
    let may_be_object = trimmed.starts_with(b"{") && trimmed.ends_with(b"}");
    if head.status.is_success() && !is_json && !may_be_object {
        return None;
    }
    if let (Ok(answer), true) = (format.read_answer(text), is_json) {
        summarizer.add_events(text, answer.events());
    }
    Some(summarizer.to_summary())
}

#[cfg(test)]
mod tests;
