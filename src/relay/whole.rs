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

use super::{BadAnswer, Before, Heard, Rounds, Sifting, Spoken, decode::Decoder, peek::resume};
use crate::{
    error::{Stalled, chain},
    format::{
        Listener,
        chat::answer::{self, Rewriter},
    },
    wire::{Body, gather::Gather},
};

const BOM: &[u8] = b"\xef\xbb\xbf";

/// An answer of known or unknown size.
pub enum Whole {
    /// All of it.
    Complete {
        head: Parts,
        body: Bytes,
        heard: Heard,
    },
    /// It passed the bound: it goes on as it comes, and nothing is known of it.
    Overlong(Response<Body>),
}

/// Reads an answer as long as `room` grants the bytes (asked with the length of each new chunk).
///
/// # Errors
/// The answer broke off, or a successful one is not JSON.
pub async fn whole(
    answer: Response<Body>,
    provider: &str,
    mut room: impl FnMut(usize) -> bool,
) -> Result<Whole, BadAnswer> {
    let (head, mut source) = answer.into_parts();
    let mut gather = Gather::default();
    while let Some(frame) = source.frame().await {
        let frame = frame.map_err(|error| {
            tracing::warn!(provider, error = %chain(&error), "an answer broke off");
            let provider = provider.to_owned();
            match Stalled::limit_of(&error) {
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
            let body = resume([read].into(), source);
            return Ok(Whole::Overlong(Response::from_parts(head, body)));
        }
    }
    let body = gather.finish();
    let heard = judge(&head, &body).ok_or_else(|| BadAnswer::NotJson {
        provider: provider.to_owned(),
    })?;
    Ok(Whole::Complete { head, body, heard })
}

/// Reads an answer and takes out what is ours; where it was for us alone, goes on with the next
/// ([`Rounds::go_on`]; the end is the caller's). The last answer is what the client gets, with the
/// text of all; [`Spoken`] is what it said. What cannot be read or taken into memory goes on as it
/// is, and nothing is known of it.
///
/// # Errors
/// An answer broke off, a successful one is not JSON, or there is no next one. A next one that is no
/// success is none of these: it goes on as it is.
pub async fn sifted_whole(
    mut answer: Response<Body>,
    sifting: Sifting,
    rounds: &mut dyn Rounds,
    provider: &str,
    mut room: impl FnMut(usize) -> bool,
) -> Result<(Whole, Spoken, Before), BadAnswer> {
    let mut rewriter = Rewriter::new(sifting, None);
    let mut listener = Listener::default();
    loop {
        let read = whole(answer, provider, &mut room).await?;
        let Whole::Complete { head, body, heard } = read else {
            return Ok((read, Spoken::default(), rewriter.before()));
        };
        let text = unpacked(&head.headers, &body).filter(|_| head.status.is_success());
        let text = text.map(|text| match text.starts_with(BOM) {
            true => text.slice(BOM.len()..),
            false => text,
        });
        let text = text.unwrap_or_default();
        match rewriter.take_whole(&text, &mut listener) {
            None => {
                let read = Whole::Complete { head, body, heard };
                return Ok((read, Spoken::default(), rewriter.before()));
            }
            Some(answer::Whole::Round(spoken)) => {
                let next = rounds.go_on(spoken).await;
                answer = next.ok_or_else(|| no_more(provider))?;
            }
            Some(answer::Whole::Last { json, spoken }) => {
                let read = if json == text {
                    Whole::Complete { head, body, heard }
                } else {
                    edited(head, json)
                };
                return Ok((read, spoken, rewriter.before()));
            }
        }
    }
}

fn no_more(provider: &str) -> BadAnswer {
    BadAnswer::Broken {
        provider: provider.to_owned(),
    }
}

/// An answer that is no longer the one that the provider sent.
fn edited(mut head: Parts, body: Bytes) -> Whole {
    head.headers.remove(CONTENT_ENCODING);
    head.headers.remove(CONTENT_LENGTH);
    let heard = judge(&head, &body).unwrap_or_default();
    Whole::Complete { head, body, heard }
}

/// The body of an answer without its content encoding; `None` where it cannot be read.
pub fn unpacked(headers: &HeaderMap, body: &Bytes) -> Option<Bytes> {
    match Decoder::of(headers) {
        None => Some(body.clone()),
        Some(mut decoder) => decoder.push(body.clone()).map(Bytes::from),
    }
}

/// A whole answer with the prompt tokens of what the client sent; its headers no longer speak of
/// what it was packed in where it is edited. With nothing left out, or where it cannot be read, it
/// stays as it is.
pub fn received(headers: &mut HeaderMap, body: Bytes, left_out: Option<u32>) -> Bytes {
    let Some(tokens) = left_out.filter(|tokens| *tokens > 0) else {
        return body;
    };
    let text = unpacked(headers, &body).unwrap_or_default();
    let bom = if text.starts_with(BOM) { BOM.len() } else { 0 };
    let Some(edited) = answer::add_prompt_tokens(&text.slice(bom..), tokens) else {
        return body;
    };
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    [&text[..bom], &edited[..]].concat().into()
}

/// What the answer says; `None` for a success that says nothing.
fn judge(head: &Parts, body: &Bytes) -> Option<Heard> {
    let mut listener = Listener::default();
    let Some(text) = unpacked(&head.headers, body) else {
        listener.go_blind();
        return Some(listener.heard());
    };
    // Clients read past a byte order mark, so it is no fault.
    let text = text.strip_prefix(BOM).unwrap_or(&text);
    let json = serde_json::from_slice::<IgnoredAny>(text).is_ok();
    if head.status.is_success() && !json && !like_an_object(text) {
        return None;
    }
    if let (Ok(answer), true) = (answer::read(text), json) {
        listener.hear(text, &answer.events);
    }
    Some(listener.heard())
}

/// Whether this may be an object to a laxer parser than ours: some engines write `NaN`, and some
/// clients read it. It goes on, and nothing is known of it.
fn like_an_object(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    text.starts_with(b"{") && text.ends_with(b"}")
}

#[cfg(test)]
mod tests;
