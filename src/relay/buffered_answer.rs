//! An answer that is not streamed: taken into memory within a bound, judged, then sent.

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
    AnswerFilter, AssistantTurn, BadAnswer, PrecedingText, ResponseSummary, TurnDriver,
    decode::Decoder, peek::resume_body,
};
use crate::{
    error::{IdleTimeoutError, format_error_chain},
    format::{
        ResponseSummarizer,
        chat::answer::{self, Rewriter},
    },
    wire::{Body, gather::BytesGatherer},
};

const BOM: &[u8] = b"\xef\xbb\xbf";

/// An answer of known or unknown size.
pub enum BufferedAnswer {
    /// All of it.
    Complete {
        head: Parts,
        body: Bytes,
        heard: ResponseSummary,
    },
    /// It passed the bound: it goes on as it comes, and nothing is known of it.
    Overlong(Response<Body>),
}

/// Reads an answer as long as `room` grants the bytes (asked with the length of each new chunk).
///
/// # Errors
/// The answer broke off, or a successful one is not JSON.
pub async fn buffer_answer(
    answer: Response<Body>,
    provider: &str,
    mut room: impl FnMut(usize) -> bool,
) -> Result<BufferedAnswer, BadAnswer> {
    let (head, mut source) = answer.into_parts();
    let mut gather = BytesGatherer::default();
    while let Some(frame) = source.frame().await {
        let frame = frame.map_err(|error| {
            tracing::warn!(provider, error = %format_error_chain(&error), "an answer broke off");
            let provider = provider.to_owned();
            match IdleTimeoutError::limit_from_error(&error) {
                Some(limit) => BadAnswer::Stalled { provider, limit },
                None => BadAnswer::Broken { provider },
            }
        })?;
        let Ok(chunk) = frame.into_data() else {
            continue;
        };
        let fits = room(chunk.len());
        gather.push(chunk);
        if !fits {
            let read = Ok(Frame::data(gather.finish()));
            let body = resume_body([read].into(), source);
            return Ok(BufferedAnswer::Overlong(Response::from_parts(head, body)));
        }
    }
    let body = gather.finish();
    let heard = summarise_answer(&head, &body).ok_or_else(|| BadAnswer::NotJson {
        provider: provider.to_owned(),
    })?;
    Ok(BufferedAnswer::Complete { head, body, heard })
}

/// Reads an answer and takes out what is ours; where it was for us alone, goes on with the next
/// ([`Rounds::go_on`]; the end is the caller's). The last answer is what the client gets, with the
/// text of all; [`Spoken`] is what it said. What cannot be read or taken into memory goes on as it
/// is, and nothing is known of it.
///
/// # Errors
/// An answer broke off, a successful one is not JSON, or there is no next one. A next one that is no
/// success is none of these: it goes on as it is.
pub async fn buffer_sifted_answer(
    mut answer: Response<Body>,
    sifting: AnswerFilter,
    rounds: &mut dyn TurnDriver,
    provider: &str,
    mut room: impl FnMut(usize) -> bool,
) -> Result<(BufferedAnswer, AssistantTurn, PrecedingText), BadAnswer> {
    let mut rewriter = Rewriter::new(sifting, None);
    let mut listener = ResponseSummarizer::default();
    loop {
        let read = buffer_answer(answer, provider, &mut room).await?;
        let BufferedAnswer::Complete { head, body, heard } = read else {
            return Ok((read, AssistantTurn::default(), rewriter.preceding_text()));
        };
        let text = unpack_answer(&head.headers, &body).filter(|_| head.status.is_success());
        let text = text.map(|text| match text.starts_with(BOM) {
            true => text.slice(BOM.len()..),
            false => text,
        });
        let text = text.unwrap_or_default();
        match rewriter.take_whole(&text, &mut listener) {
            None => {
                let read = BufferedAnswer::Complete { head, body, heard };
                return Ok((read, AssistantTurn::default(), rewriter.preceding_text()));
            }
            Some(answer::RewrittenAnswer::ForProxy(spoken)) => {
                let next = rounds.next_turn(spoken).await;
                answer = next.ok_or_else(|| broken_answer(provider))?;
            }
            Some(answer::RewrittenAnswer::ForClient { json, spoken }) => {
                let read = if json == text {
                    BufferedAnswer::Complete { head, body, heard }
                } else {
                    replace_body(head, json)
                };
                return Ok((read, spoken, rewriter.preceding_text()));
            }
        }
    }
}

fn broken_answer(provider: &str) -> BadAnswer {
    BadAnswer::Broken {
        provider: provider.to_owned(),
    }
}

/// An answer that is no longer the one that the provider sent.
fn replace_body(mut head: Parts, body: Bytes) -> BufferedAnswer {
    head.headers.remove(CONTENT_ENCODING);
    head.headers.remove(CONTENT_LENGTH);
    let heard = summarise_answer(&head, &body).unwrap_or_default();
    BufferedAnswer::Complete { head, body, heard }
}

/// The body of an answer without its content encoding; `None` where it cannot be read.
pub fn unpack_answer(headers: &HeaderMap, body: &Bytes) -> Option<Bytes> {
    match Decoder::from_headers(headers) {
        None => Some(body.clone()),
        Some(mut decoder) => decoder.push(body.clone()).map(Bytes::from),
    }
}

/// A whole answer with the prompt tokens of what the client sent; its headers no longer speak of
/// what it was packed in where it is edited. With nothing left out, or where it cannot be read, it
/// stays as it is.
pub fn add_left_out_tokens(headers: &mut HeaderMap, body: Bytes, left_out: Option<u32>) -> Bytes {
    let Some(tokens) = left_out.filter(|tokens| *tokens > 0) else {
        return body;
    };
    let text = unpack_answer(headers, &body).unwrap_or_default();
    let bom = if text.starts_with(BOM) { BOM.len() } else { 0 };
    let Some(edited) = answer::add_prompt_tokens(&text.slice(bom..), tokens) else {
        return body;
    };
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    [&text[..bom], &edited[..]].concat().into()
}

/// What the answer says; `None` for a success that says nothing.
fn summarise_answer(head: &Parts, body: &Bytes) -> Option<ResponseSummary> {
    let mut listener = ResponseSummarizer::default();
    let Some(text) = unpack_answer(&head.headers, body) else {
        listener.mark_unreadable();
        return Some(listener.to_summary());
    };
    // Clients read past a byte order mark, so it is no fault.
    let text = text.strip_prefix(BOM).unwrap_or(&text);
    let json = serde_json::from_slice::<IgnoredAny>(text).is_ok();
    if head.status.is_success() && !json && !like_an_object(text) {
        return None;
    }
    if let (Ok(answer), true) = (answer::read_answer(text), json) {
        listener.add_events(text, &answer.events);
    }
    Some(listener.to_summary())
}

/// Whether this may be an object to a laxer parser than ours: some engines write `NaN`, and some
/// clients read it. It goes on, and nothing is known of it.
fn like_an_object(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    text.starts_with(b"{") && text.ends_with(b"}")
}

#[cfg(test)]
mod tests;
