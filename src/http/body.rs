//! Reading a request body within limits: its size, the time between two reads, the bytes in
//! flight of all requests together. One in a content coding is unpacked on the way in.

mod unpack;

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, EXPECT},
};
use http_body::Body as _;
use http_body_util::{BodyExt, combinators::BoxBody};
use hyper::body::Incoming;

use self::unpack::Unpacking;
use super::limit::{Flight, Hold};
use crate::{
    config::ServerConfig,
    error::Failure,
    provider::{Impatient, Payload, Unsent},
    wire::{
        coding::{Unknown, Unpacker},
        gather::Gather,
    },
};

/// How long what follows a body that is refused is read and thrown away, so that the client
/// reads our answer before its connection is reset.
const LINGER: Duration = Duration::from_secs(1);

/// A whole body, and its share of the bytes in flight.
#[derive(Debug)]
pub struct Received {
    /// Without its content encoding.
    pub bytes: Bytes,
    pub hold: Hold,
    /// It had one, which may not go on beside these bytes: see [`without_encoding`].
    pub decoded: bool,
}

/// Reads a whole body.
///
/// # Errors
/// A limit was passed, the body broke off, its encoding is not one we read, or it is not in it.
pub async fn read(
    headers: &HeaderMap,
    mut body: Incoming,
    limits: &ServerConfig,
    flight: &Flight,
) -> Result<Received, Failure> {
    let limit = limits.max_body_bytes;
    let admitted = match admit(headers, &body, limit, flight) {
        Ok(admitted) => admitted,
        Err(failure) => return Err(turn_away(headers, body, limit, failure).await),
    };
    let decoded = admitted.unpacker.is_some();
    let read = match admitted.unpacker {
        Some(unpacker) => {
            Unpacking::new(unpacker, limits, flight)
                .read(&mut body)
                .await
        }
        None => gather(&mut body, admitted.promised, admitted.hold, limits).await,
    };
    match read {
        Ok((bytes, hold)) => Ok(Received {
            bytes,
            hold,
            decoded,
        }),
        Err(failure @ (Failure::BodyBroken | Failure::BodySlow { .. })) => Err(failure),
        // It is under way, whatever its client waited for.
        Err(failure) => Err(linger(body, limit, failure).await),
    }
}

/// What is known of a body that may be read.
struct Admitted {
    /// Its length, where that was told.
    promised: Option<usize>,
    hold: Hold,
    unpacker: Option<Unpacker>,
}

/// What can be refused before a byte was read: the encoding, the length that is promised, and room
/// for it.
fn admit(
    headers: &HeaderMap,
    body: &Incoming,
    limit: usize,
    flight: &Flight,
) -> Result<Admitted, Failure> {
    let unpacker = unpacker(headers, limit)?;
    let promised = match body.size_hint().exact().map(usize::try_from) {
        Some(Ok(length)) if length <= limit => Some(length),
        Some(_) => return Err(Failure::BodyTooLarge { limit }),
        None => None,
    };
    let mut hold = flight.hold();
    // What comes in an encoding is not kept: room is held for what comes out.
    let kept = promised.filter(|_| unpacker.is_none()).unwrap_or(0);
    if !hold.grow(kept) {
        return Err(Failure::Busy);
    }
    Ok(Admitted {
        promised,
        hold,
        unpacker,
    })
}

/// Reads a body that comes as it is. `hold` has room for what was promised.
async fn gather(
    body: &mut Incoming,
    promised: Option<usize>,
    mut hold: Hold,
    limits: &ServerConfig,
) -> Result<(Bytes, Hold), Failure> {
    let limit = limits.max_body_bytes;
    let mut gather = Gather::new(promised.unwrap_or(0));
    while let Some(chunk) = next(body, limits.body_timeout).await? {
        if gather.len() + chunk.len() > limit {
            return Err(Failure::BodyTooLarge { limit });
        }
        if promised.is_none() && !hold.grow(chunk.len()) {
            return Err(Failure::Busy);
        }
        gather.push(chunk);
    }
    Ok((gather.finish(), hold))
}

/// What a body is without its encodings; `None` where it has none.
///
/// # Errors
/// A limit was passed, it is not what its encoding says, or the encoding is not one we read.
pub async fn unpacked(
    headers: &HeaderMap,
    body: Bytes,
    limits: &ServerConfig,
    flight: &Flight,
) -> Result<Option<Bytes>, Failure> {
    let Some(unpacker) = unpacker(headers, limits.max_body_bytes)? else {
        return Ok(None);
    };
    let unpacking = Unpacking::new(unpacker, limits, flight);
    let (bytes, hold) = unpacking.all(body).await?;
    Ok(Some(hold.keep(bytes)))
}

fn unpacker(headers: &HeaderMap, limit: usize) -> Result<Option<Unpacker>, Failure> {
    Unpacker::of(headers, limit)
        .map_err(|Unknown(named)| Failure::Encoded(named.chars().take(50).collect()))
}

/// Takes the encodings out of the headers of a body that has none any more; `identity`, which is
/// none, may stay.
pub fn without_encoding(headers: &mut HeaderMap) {
    // A bound of any size: nothing is unpacked.
    if !matches!(Unpacker::of(headers, 0), Ok(None)) {
        headers.remove(CONTENT_ENCODING);
    }
}

/// Reads a body that nobody looks at, so that its client reads our answer.
///
/// # Errors
/// It is longer than `limit`, or breaks off.
pub async fn discard(
    headers: &HeaderMap,
    mut body: Incoming,
    limit: usize,
    limits: &ServerConfig,
) -> Result<(), Failure> {
    let refused = Failure::BodyUnwanted { limit };
    let promised = body.size_hint().lower();
    if promised > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Err(turn_away(headers, body, limits.max_body_bytes, refused).await);
    }
    let mut thrown = 0;
    while let Some(chunk) = next(&mut body, limits.body_timeout).await? {
        thrown += chunk.len();
        if thrown > limit {
            return Err(turn_away(headers, body, limits.max_body_bytes, refused).await);
        }
    }
    Ok(())
}

/// A body that goes on as it comes, with the time between two reads bounded.
pub fn pass_on(body: Incoming, limit: Duration) -> Payload {
    if body.is_end_stream() {
        return Payload::Empty;
    }
    Payload::Stream(BoxBody::new(Impatient::new(
        body,
        limit,
        |_| Unsent::BodyBroken,
        |limit| Unsent::BodySlow { limit },
    )))
}

/// The next bytes of a body; `None` at its end.
///
/// # Errors
/// They did not come in time, or the body broke off.
pub async fn next(body: &mut Incoming, limit: Duration) -> Result<Option<Bytes>, Failure> {
    loop {
        let frame = tokio::time::timeout(limit, body.frame())
            .await
            .map_err(|_| Failure::BodySlow { limit })?;
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(Failure::BodyBroken),
            Some(Ok(frame)) => {
                // Trailers of a request mean nothing here.
                if let Ok(chunk) = frame.into_data() {
                    return Ok(Some(chunk));
                }
            }
        }
    }
}

/// Takes in what follows of a body that is refused, `limit` bytes at most, so that a client which
/// writes before it reads gets our answer and not a reset. One that waits to be told to go on has
/// nothing under way.
pub async fn turn_away(
    headers: &HeaderMap,
    body: Incoming,
    limit: usize,
    failure: Failure,
) -> Failure {
    if headers.contains_key(EXPECT) {
        return failure;
    }
    linger(body, limit, failure).await
}

async fn linger(mut body: Incoming, limit: usize, failure: Failure) -> Failure {
    let all = async {
        let mut thrown = 0;
        while let Some(Ok(frame)) = body.frame().await {
            thrown += frame.data_ref().map_or(0, Bytes::len);
            if thrown > limit {
                break;
            }
        }
    };
    // Whether it ended or not, the answer is the same.
    let _ = tokio::time::timeout(LINGER, all).await;
    failure
}
