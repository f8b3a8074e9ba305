//! Reading a request body within limits: its size, the time between two reads, the bytes in
//! flight of all requests together. One in a content coding is unpacked.

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

/// How long what follows a body that is refused is read and thrown away, so that the client
/// reads our answer before its connection is reset.
const LINGER: Duration = Duration::from_secs(1);

/// The body of a request, as far as it was not read.
#[derive(Debug)]
pub struct RequestBody {
    /// `None`: all of it was read, it broke off, or it goes on to a provider.
    rest: Option<Incoming>,
    /// Its client waits to be told to go on, so nothing is under way.
    is_held_back: bool,
}

/// A whole body without its content encoding, and its share of the bytes in flight.
#[derive(Debug)]
pub struct ReceivedBody {
    pub bytes: Bytes,
    pub hold: Hold,
}

impl RequestBody {
    /// The body of a request with these headers.
    pub fn new(headers: &HeaderMap, body: Incoming) -> Self {
        Self {
            rest: (!body.is_end_stream()).then_some(body),
            is_held_back: headers.contains_key(EXPECT),
        }
    }

    /// Whether nothing is left to read.
    pub const fn is_over(&self) -> bool {
        self.rest.is_none()
    }

    /// Reads a whole body, and unpacks it.
    ///
    /// # Errors
    /// A limit was passed, the body broke off, its encoding is not one we read, or it is not in it.
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
        let mut came = 0;
        let mut unpacking = BodyUnpacker::new(unpacker, limits, flight);
        while let Some(chunk) = self.next_chunk(limits.body_timeout).await? {
            came += chunk.len();
            if came > limit {
                return Err(Failure::BodyTooLarge { limit });
            }
            unpacking.push(chunk).await?;
        }
        unpacking.finish_body()
    }

    /// Reads a whole body as it came.
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
        let bytes = gather.finish();
        Ok(ReceivedBody { bytes, hold })
    }

    /// The length of what is still to come, where it was told.
    fn expected_length(&self) -> Option<usize> {
        let length = self.rest.as_ref()?.size_hint().exact()?;
        Some(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// They did not come in time, or the body broke off.
    pub async fn next_chunk(&mut self, limit: Duration) -> Result<Option<Bytes>, Failure> {
        self.is_held_back = false;
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

    /// Reads a body that nobody looks at, so that its client reads our answer.
    ///
    /// # Errors
    /// It is longer than `limit`, or breaks off.
    pub async fn discard_body(
        &mut self,
        limit: usize,
        limits: &ServerConfig,
    ) -> Result<(), Failure> {
        let refused = Failure::BodyUnwanted { limit };
        let promised = self
            .rest
            .as_ref()
            .map_or(0, |rest| rest.size_hint().lower());
        if promised > u64::try_from(limit).unwrap_or(u64::MAX) {
            return Err(refused);
        }
        let mut thrown = 0;
        while let Some(chunk) = self.next_chunk(limits.body_timeout).await? {
            thrown += chunk.len();
            if thrown > limit {
                return Err(refused);
            }
        }
        Ok(())
    }

    /// What was read of a body, and the rest of it as it comes, with the time between two reads bounded.
    pub fn pass_on(&mut self, read: Rope, limit: Duration) -> Payload {
        let Some(rest) = self.rest.take().filter(|rest| !rest.is_end_stream()) else {
            return Payload::Whole(read);
        };
        let broken = |_| UpstreamError::BodyBroken;
        let slow = |limit| UpstreamError::BodySlow { limit };
        let rest = IdleTimeoutBody::new(rest, limit, broken, slow);
        Payload::Stream(BoxBody::new(ResumedBody { read, rest }))
    }

    /// Takes in what is left of a body that is refused, `limit` bytes at most, so that a client which
    /// writes before it reads gets our answer and not a reset.
    pub async fn drain_refused(&mut self, limit: usize) {
        if self.is_held_back {
            return;
        }
        let all = async {
            let mut thrown = 0;
            while let Ok(Some(chunk)) = self.next_chunk(LINGER).await {
                thrown += chunk.len();
                if thrown > limit {
                    break;
                }
            }
        };
        // Whether it ended or not, the answer is the same.
        let _ = tokio::time::timeout(LINGER, all).await;
    }
}

/// A body that goes on where its beginning was read.
///
/// SECURITY: no trailers pass, since nobody looked whether a key stands in them.
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

    /// Exact where the client told the length, so that the provider is told it too.
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
