//! Relays answers to the client.
//!
//! [`stream_answer`] passes a stream on as it comes. [`buffer_answer`] buffers a whole answer within
//! a bound, so that headers can depend on it. Neither changes a byte, except the usage chunk that
//! only the proxy asked for, prompt tokens if the client wants those of what it sent, and the model's
//! name if the provider was sent another one ([`edit_whole_answer`] for whole answers). Where a filter is set,
//! [`stream_answer`] and [`buffer_filtered_answer`] also remove proxy-executed calls and continuation blocks, and continue
//! with the next answer after one for the proxy only. Bytes are held back only while they may belong
//! to the proxy, and at the end until [`AnswerDriver::end_answer`] has stored the state.

mod answer_driver;
mod buffered_answer;
mod decode;
mod peek;
mod pipeline;
mod stream;
mod tunnel;

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;

use crate::error::{Failure, TimeoutStage};

pub use self::{
    answer_driver::AnswerDriver,
    buffered_answer::{
        BufferedAnswer, buffer_answer, buffer_filtered_answer, edit_whole_answer, unpack_answer,
    },
    peek::{FirstEvent, peek_first_event},
    stream::stream_answer,
    tunnel::tunnel_bytes,
};
pub use crate::{
    conversation::Format,
    format::{
        AnswerFilter, ContinuationBlock, InputChanges, ModelAnswer, PrecedingText, ProxyToolCall,
        ResponseSummary, SentEvents,
    },
};

/// How a stream is relayed, and what is changed in it.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    pub format: Format,
    pub filter: AnswerFilter,
    /// Remove the chunk with usage that the client did not ask for.
    pub strip_usage: bool,
    /// Tokens left out of the request, to be added to the prompt tokens that the client reads.
    /// `None` and 0: no byte changes.
    pub left_out: Option<u32>,
    /// The model's name as the client asked for it, in quotes, where the provider was sent another one.
    /// `None`: no byte changes.
    pub asked_model: Option<Bytes>,
    /// What the client has before anything is relayed: the model's name as it asked for it.
    pub sent: SentEvents,
    pub footer: FooterOptions,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct FooterOptions {
    /// The trailers that [`StreamFooter`] may have; empty if the client accepts none. The head of
    /// the answer names them, since HTTP/1.1 sends no others.
    pub trailers: &'static [&'static str],
    /// How long the end is held for the state to be stored.
    pub max_wait: Duration,
}

/// What is added to the end of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamFooter {
    pub trailers: HeaderMap,
    /// A whole SSE comment (`: …` and a blank line), sent before the end marker.
    pub comment: Option<Bytes>,
}

/// Why an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    #[error("the answer of {provider} broke off")]
    Broken { provider: String },
    #[error("the answer of {provider} stalled")]
    Stalled { provider: String, limit: Duration },
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

#[cfg(test)]
mod tests;
