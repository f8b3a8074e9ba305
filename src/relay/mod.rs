//! Bytes back to the client as they come.
//!
//! [`stream`] passes a streamed answer on, [`whole`] takes one that is not streamed into memory,
//! within a bound, so that its headers can speak of it. Neither changes a byte, but for the usage
//! chunk that the proxy asked for itself, and the prompt tokens where the client wants them as it sent
//! them ([`received`] does that to whole answers). [`sifted`] and [`sifted_whole`] are the same for requests
//! that carry proxy-executed tools or ask for a continuation block: they take these out, and go on with the
//! next answer where one was for the proxy alone. What is held back: an event that may still turn out to
//! be one of these, and the end of an answer until [`Ending`] has stored what was heard.

mod buffered_answer;
mod decode;
mod ending;
mod peek;
mod pipeline;
#[cfg(test)]
mod recorded;
mod stream;
mod tunnel;
mod turn_driver;

use crate::error::{Failure, TimeoutStage};

pub use self::{
    buffered_answer::{
        BufferedAnswer, add_left_out_tokens, buffer_answer, buffer_sifted_answer, unpack_answer,
    },
    ending::{Ending, FooterOptions, StreamFooter},
    peek::{FirstEvent, peek_first_event},
    stream::{stream_answer, stream_sifted_answer},
    tunnel::tunnel_bytes,
    turn_driver::TurnDriver,
};
pub use crate::format::{
    AnswerFilter, AssistantTurn, ContinuationBlock, PrecedingText, ProxyToolCall, ResponseSummary,
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
                    wait: TimeoutStage::NextChunk,
                    limit,
                };
            }
        };
        Self::ProviderBadAnswer { provider, what }
    }
}
