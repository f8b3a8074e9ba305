//! Reads and decompresses a request body within limits: size, time between two reads, bytes in flight.

mod unpack;

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, header::EXPECT};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, combinators::BoxBody};
use hyper::body::Incoming;

use self::unpack::{BodyUnpacker, choose_unpacker};
pub use self::unpack::{strip_encoding, unpack_body};
use super::limit::{Hold, InflightBytes};
use crate::{
    config::ServerConfig,
    conversation::edit::Rope,
    error::Failure,
    provider::{IdleTimeoutBody, Payload, UpstreamError},
    wire::gather::BytesGatherer,
};

/// How long a refused body is read on, so that the client reads the proxy's answer before a reset.
const LINGER: Duration = Duration::from_secs(1);

/// A body of at most so many bytes is copied, so that it does not keep the read buffer of its connection, several kilobytes.
const SMALL_BODY: usize = 4 << 10;

/// The part of a request's body that was not read yet.
#[derive(Debug)]
pub struct RequestBody {
    /// `None`: all of it was read, it broke off, or a provider receives it.
    rest: Option<Incoming>,
    /// The client sends nothing before it gets `100 Continue`.
    awaits_continue: bool,
}

/// A whole body without its content encoding, and its share of the bytes in flight.
#[derive(Debug)]
pub struct ReceivedBody {
    pub bytes: Bytes,
    pub hold: Hold,
}

impl RequestBody {
    pub fn new(headers: &HeaderMap, body: Incoming) -> Self {
        Self {
            rest: (!body.is_end_stream()).then_some(body),
            awaits_continue: headers.contains_key(EXPECT),
        }
    }

    /// Whether nothing is left to read.
    pub const fn is_over(&self) -> bool {
        self.rest.is_none()
    }

    /// Reads a whole body, and decompresses it.
    ///
    /// # Errors
    /// A limit was passed, the body broke off, its encoding is unknown, or the body is not in that encoding.
    pub async fn read_unpacked(
        &mut self,
        headers: &HeaderMap,
        limits: &ServerConfig,
        flight: &InflightBytes,
    ) -> Result<ReceivedBody, Failure> {
        // An unknown encoding is refused before a byte is read.
        let Some(unpacker) = choose_unpacker(headers, limits.max_body_bytes)? else {
            return self.read_packed(limits, flight).await;
        };
        let limit = limits.max_body_bytes;
        if self.expected_length().is_some_and(|length| length > limit) {
            return Err(Failure::BodyTooLarge { limit });
        }
        let mut received = 0;
        let mut unpacker = BodyUnpacker::new(unpacker, limits, flight);
        while let Some(chunk) = self.next_chunk(limits.body_timeout).await? {
            received += chunk.len();
            if received > limit {
                return Err(Failure::BodyTooLarge { limit });
            }
            unpacker.push(chunk).await?;
        }
        unpacker.finish_body()
    }

    /// Reads a whole body without decompressing it.
    ///
    /// # Errors
    /// A limit was passed, or the body broke off.
    pub async fn read_packed(
        &mut self,
        limits: &ServerConfig,
        flight: &InflightBytes,
    ) -> Result<ReceivedBody, Failure> {
        let limit = limits.max_body_bytes;
        let too_large = Failure::BodyTooLarge { limit };
        let promised = self.expected_length();
        let expected = promised.unwrap_or(0);
        if expected > limit {
            return Err(too_large);
        }
        let mut hold = flight.begin_hold();
        if !hold.grow(expected) {
            return Err(Failure::Busy);
        }
        let mut gather = BytesGatherer::new(expected);
        while let Some(chunk) = self.next_chunk(limits.body_timeout).await? {
            if gather.len() + chunk.len() > limit {
                return Err(too_large);
            }
            if promised.is_none() && !hold.grow(chunk.len()) {
                return Err(Failure::Busy);
            }
            gather.push(chunk);
        }
        let mut bytes = gather.finish();
        if bytes.len() <= SMALL_BODY {
            bytes = Bytes::copy_from_slice(&bytes);
        }
        Ok(ReceivedBody { bytes, hold })
    }

    /// The length of the rest, if the client stated it.
    fn expected_length(&self) -> Option<usize> {
        let length = self.rest.as_ref()?.size_hint().exact()?;
        Some(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// They did not come in time, or the body broke off.
    async fn next_chunk(&mut self, limit: Duration) -> Result<Option<Bytes>, Failure> {
        self.awaits_continue = false;
        while let Some(rest) = &mut self.rest {
            let failure = match tokio::time::timeout(limit, rest.frame()).await {
                // Trailers of a request mean nothing here.
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(chunk) => return Ok(Some(chunk)),
                    Err(_) => continue,
                },
                Ok(None) => None,
                Ok(Some(Err(_))) => Some(Failure::BodyBroken),
                Err(_) => Some(Failure::BodySlow { limit }),
            };
            self.rest = None;
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
        Ok(None)
    }

    /// Reads and discards a body that is not used, so that its client reads the proxy's answer.
    ///
    /// # Errors
    /// The body is longer than `limit` bytes, or breaks off.
    pub async fn discard_body(
        &mut self,
        limit: usize,
        limits: &ServerConfig,
    ) -> Result<(), Failure> {
        let expected = self.expected_length().unwrap_or(0);
        let mut discarded = 0;
        loop {
            if expected.max(discarded) > limit {
                return Err(Failure::BodyUnwanted { limit });
            }
            match self.next_chunk(limits.body_timeout).await? {
                Some(chunk) => discarded += chunk.len(),
                None => return Ok(()),
            }
        }
    }

    /// The bytes read of a body, followed by its rest as it comes. `limit` bounds the time between two reads.
    pub fn pass_on(&mut self, read: Rope, limit: Duration) -> Payload {
        let Some(rest) = self.rest.take().filter(|rest| !rest.is_end_stream()) else {
            return Payload::Whole(read);
        };
        let broken = |_| UpstreamError::BodyBroken;
        let slow = |limit| UpstreamError::BodySlow { limit };
        let rest = IdleTimeoutBody::new(rest, limit, broken, slow);
        Payload::Stream(BoxBody::new(ResumedBody { read, rest }))
    }

    /// Reads and discards the rest of a refused body, `limit` bytes at most, so that a client which writes before it
    /// reads gets the proxy's answer and not a reset.
    pub async fn drain_refused(&mut self, limit: usize) {
        if self.awaits_continue {
            return;
        }
        let drained = async {
            let mut discarded = 0;
            while discarded <= limit
                && let Ok(Some(chunk)) = self.next_chunk(LINGER).await
            {
                discarded += chunk.len();
            }
        };
        // The answer is the same whether the body ended or not.
        let _ = tokio::time::timeout(LINGER, drained).await;
    }
}

/// The bytes read of a body, and then its rest.
///
/// SECURITY: trailers are dropped, since nothing checks whether they hold a key.
struct ResumedBody {
    read: Rope,
    rest: IdleTimeoutBody<Incoming, UpstreamError>,
}

impl http_body::Body for ResumedBody {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        if !self.read.is_empty() {
            let frame = Pin::new(&mut self.read).poll_frame(cx);
            return frame.map(|frame| frame.map(|frame| frame.map_err(|never| match never {})));
        }
        let polled = Pin::new(&mut self.rest).poll_frame(cx);
        polled.map(|frame| frame.filter(|frame| frame.as_ref().map_or(true, Frame::is_data)))
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.rest.is_end_stream()
    }

    /// Exact if the client stated the length, so that the provider gets it too.
    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(self.read.len().saturating_add(rest.lower()));
        if let Some(upper) = rest.upper() {
            hint.set_upper(self.read.len().saturating_add(upper));
        }
        hint
    }
}
