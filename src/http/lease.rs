//! Leases of a proxy: who holds one keeps a proxy alive that ends when nobody uses it, and learns at once when it is gone.
//! `plimsoll run` holds one for each client that it has started; `serve`, `doctor` and commands with a key take one for a
//! moment, to learn whose listener it is.
//!
//! A lease is a request whose answer has no end. It begins with a challenge in both directions.
//!
//! SECURITY: after a crash any program of the machine may own the port. So the listener proves that it knows the secret,
//! which the proxy makes at its start and which only a file for its owner has. What is proved names the address too, so that
//! nobody can answer with the proof of a proxy elsewhere. Who asks proves the same first; all others get a 404.

use std::{
    convert::Infallible,
    future::ready,
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use crate::{error::Failure, wire::Body};

pub const LEASE_PATH: &str = "/plimsoll/lease";

/// Chosen by who asks, at random and used once; at most 64 bytes.
pub const NONCE_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-nonce");
/// In the request and in the answer: a digest of the nonce, keyed with the secret.
pub const PROOF_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-proof");

const MAX_NONCE_BYTES: usize = 64;

/// What a listener and its leases prove to each other: 256 random bits.
#[derive(Clone, Deserialize, Serialize)]
#[serde(into = "String", try_from = "String")]
pub struct LeaseSecret([u8; 32]);

/// Who proves to know a secret.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Asks,
    Listens,
}

impl LeaseSecret {
    /// # Errors
    /// The system has no random bytes.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The proof of a side for this nonce, about the listener that clients reach at this address.
    pub fn prove(&self, side: Side, address: SocketAddr, nonce: &[u8]) -> String {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut digest = blake3::Hasher::new_keyed(&self.0);
        digest.update(&[side as u8]).update(&ip.octets());
        digest.update(&address.port().to_le_bytes());
        digest.update(nonce).finalize().to_hex().to_string()
    }

    /// Compares in constant time.
    pub fn check(&self, side: Side, address: SocketAddr, nonce: &[u8], proof: &[u8]) -> bool {
        let expected = self.prove(side, address, nonce);
        expected.as_bytes().ct_eq(proof).into()
    }
}

impl From<LeaseSecret> for String {
    fn from(secret: LeaseSecret) -> Self {
        hex::encode(secret.0)
    }
}

impl TryFrom<String> for LeaseSecret {
    type Error = hex::FromHexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes)?;
        Ok(Self(bytes))
    }
}

/// The leases of a process, and when it was used last.
#[derive(Debug)]
pub struct Leases {
    /// Until it is there, nobody gets a lease.
    listener: OnceLock<(LeaseSecret, SocketAddr)>,
    usage: Mutex<Usage>,
}

#[derive(Debug)]
struct Usage {
    leases: usize,
    was_held: bool,
    /// The end of a lease, or a client's request.
    last: Instant,
}

impl std::fmt::Debug for LeaseSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[hidden]")
    }
}

impl Default for Leases {
    fn default() -> Self {
        let usage = Usage {
            leases: 0,
            was_held: false,
            last: Instant::now(),
        };
        Self {
            listener: OnceLock::new(),
            usage: Mutex::new(usage),
        }
    }
}

impl Leases {
    /// Lets the holders of a secret in, at the address where clients of this machine reach the proxy. The first call counts.
    pub fn open(&self, secret: LeaseSecret, address: SocketAddr) {
        // A process has one listener.
        let _ = self.listener.set((secret, address));
    }

    /// An answer without an end, but that of the proxy.
    ///
    /// # Errors
    /// The request does not prove that its sender knows the secret.
    pub fn grant(
        self: &Arc<Self>,
        headers: &HeaderMap,
        draining: CancellationToken,
    ) -> Result<Response<Body>, Failure> {
        let (secret, address) = self.listener.get().ok_or(Failure::PathNotFound)?;
        let read = |name| headers.get(name).map(HeaderValue::as_bytes);
        let nonce = read(NONCE_HEADER).filter(|nonce| nonce.len() <= MAX_NONCE_BYTES);
        let (nonce, proof) = nonce.zip(read(PROOF_HEADER)).ok_or(Failure::PathNotFound)?;
        if !secret.check(Side::Asks, *address, nonce, proof) {
            return Err(Failure::PathNotFound);
        }
        let lease = Lease::begin(Arc::clone(self));
        let until_end = stream::once(async move {
            let _lease = lease;
            draining.cancelled_owned().await;
        });
        let nothing = until_end.filter_map(|()| ready(None::<Result<Frame<Bytes>, Infallible>>));
        let body = StreamBody::new(nothing).map_err(|never| match never {});
        let mut answer = Response::new(body.boxed_unsync());
        let proof = secret.prove(Side::Listens, *address, nonce);
        if let Ok(proof) = HeaderValue::try_from(proof) {
            answer.headers_mut().insert(PROOF_HEADER, proof);
        }
        Ok(answer)
    }

    /// A client asks for something.
    pub fn note_use(&self) {
        self.usage.lock().last = Instant::now();
    }

    /// Whether there was a lease.
    pub fn was_held(&self) -> bool {
        self.usage.lock().was_held
    }

    /// How long nobody has used the proxy; nothing while there are leases.
    pub fn unused_for(&self) -> Option<Duration> {
        let usage = self.usage.lock();
        (usage.leases == 0).then(|| usage.last.elapsed())
    }
}

/// Counts until it is dropped.
struct Lease(Arc<Leases>);

impl Lease {
    fn begin(leases: Arc<Leases>) -> Self {
        let mut usage = leases.usage.lock();
        usage.leases += 1;
        usage.was_held = true;
        drop(usage);
        Self(leases)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut usage = self.0.usage.lock();
        usage.leases = usage.leases.saturating_sub(1);
        usage.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(leases: &Arc<Leases>, nonce: &str, proof: &str) -> Option<Response<Body>> {
        let mut headers = HeaderMap::new();
        headers.insert(NONCE_HEADER, nonce.parse().unwrap());
        headers.insert(PROOF_HEADER, proof.parse().unwrap());
        leases.grant(&headers, CancellationToken::new()).ok()
    }

    #[test]
    fn both_sides_prove_the_secret_for_an_address() {
        let (leases, secret) = (Arc::<Leases>::default(), LeaseSecret([7; 32]));
        let [here, other_port, other_host, other_family] =
            ["127.0.0.1:80", "127.0.0.1:81", "127.0.0.2:80", "[::1]:80"]
                .map(|address| address.parse::<SocketAddr>().unwrap());
        let proof = secret.prove(Side::Asks, here, b"nonce");
        assert!(ask(&leases, "nonce", &proof).is_none(), "it is not open");
        leases.open(secret.clone(), here);
        let answer = ask(&leases, "nonce", &proof).unwrap();
        let answered = answer.headers()[PROOF_HEADER].as_bytes();
        assert!(secret.check(Side::Listens, here, b"nonce", answered));
        for elsewhere in [other_port, other_host, other_family] {
            assert!(!secret.check(Side::Listens, elsewhere, b"nonce", answered));
        }
        let others = [
            ("other", proof.clone()),
            ("nonce", secret.prove(Side::Listens, here, b"nonce")),
            ("nonce", secret.prove(Side::Asks, other_port, b"nonce")),
            ("nonce", secret.prove(Side::Asks, other_host, b"nonce")),
            (
                "nonce",
                LeaseSecret([8; 32]).prove(Side::Asks, here, b"nonce"),
            ),
            ("nonce", String::new()),
        ];
        for (nonce, proof) in others {
            assert!(ask(&leases, nonce, &proof).is_none(), "{nonce} {proof}");
        }
        assert!(
            leases
                .grant(&HeaderMap::new(), CancellationToken::new())
                .is_err()
        );
    }

    #[test]
    fn a_proxy_with_a_lease_is_in_use() {
        let (leases, secret) = (Arc::<Leases>::default(), LeaseSecret([7; 32]));
        let address = "127.0.0.1:80".parse().unwrap();
        leases.open(secret.clone(), address);
        assert!(leases.unused_for().is_some());
        let answer = ask(&leases, "n", &secret.prove(Side::Asks, address, b"n"));
        assert!(leases.unused_for().is_none());
        drop(answer);
        assert!(leases.unused_for().is_some());
    }

    #[test]
    fn a_secret_is_written_and_read_as_text_and_never_shown() {
        let secret = LeaseSecret([7; 32]);
        let text = serde_json::to_string(&secret).unwrap();
        let read: LeaseSecret = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (read.0, format!("{secret:?}")),
            (secret.0, "[hidden]".to_owned())
        );
        assert!(serde_json::from_str::<LeaseSecret>("\"07\"").is_err());
    }
}
