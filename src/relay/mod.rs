//! Bytes back to the client as they come; a tap looks on.
//!
//! [`stream`] passes a streamed answer on, [`whole`] takes one that is not streamed into memory,
//! within a bound, so that its headers can speak of it. Neither changes a byte, but for the usage
//! chunk that we asked for ourselves, and the prompt tokens where the client wants them as it sent
//! them ([`received`] does that to whole answers). [`sifted`] and [`sifted_whole`] are the same for requests that
//! carry something of ours: they take it out, and go on with the next answer where one was for us
//! alone. What is held back: an event that may still turn out to be
//! that chunk, and the end of an answer until [`Ending`] has stored what was heard.

mod decode;
mod meter;
mod own;
mod passage;
mod peek;
mod sieve;
mod stream;
mod tap;
mod tunnel;
mod way;
mod whole;

use crate::error::{Failure, Wait};

pub use self::{
    meter::received,
    own::{Before, Own, Package, Rounds, Sifting, Spoken},
    peek::{First, peek},
    stream::{Closing, Ending, Foot, sifted, stream},
    tap::Heard,
    tunnel::tunnel,
    whole::{Whole, sifted_whole, unpacked, whole},
};

/// Why an answer is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    #[error("the answer of {provider} broke off")]
    Broken { provider: String },
    #[error("the answer of {provider} did not go on in time")]
    Stalled {
        provider: String,
        limit: std::time::Duration,
    },
    #[error("the answer of {provider} is not JSON")]
    NotJson { provider: String },
}

impl From<BadAnswer> for Failure {
    fn from(bad: BadAnswer) -> Self {
        let (provider, what) = match bad {
            BadAnswer::Broken { provider } => (provider, "its answer broke off"),
            BadAnswer::NotJson { provider } => (provider, "it is not JSON"),
            BadAnswer::Stalled { provider, limit } => {
                return Self::ProviderTimeout {
                    provider,
                    wait: Wait::Next,
                    limit,
                };
            }
        };
        Self::ProviderBadAnswer { provider, what }
    }
}
