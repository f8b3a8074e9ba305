//! What happens at the end of a stream.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{HeaderMap, Response};

use super::{AssistantTurn, PrecedingText, ResponseSummary, TurnDriver};
use crate::wire::Body;

/// What happens at the end of a stream.
pub struct Ending {
    /// Take out the chunk with usage that the client did not ask for.
    pub strip_usage: bool,
    /// Tokens left out of the request, to be added to the prompt tokens that the client reads.
    /// `None` and 0: no byte changes.
    pub left_out: Option<u32>,
    pub foot: FooterOptions,
    /// Called once for every stream that the provider ended, broken ones included, before the
    /// last bytes go out. Dropped after [`Foot::within`]: what must outlive that is spawned inside.
    /// Not called when the client leaves.
    pub on_end: OnEnd,
}

/// What the last bytes of a stream wait for.
#[derive(Clone, Copy, Debug)]
pub struct FooterOptions {
    /// The trailers that [`Closing`] may have; empty where the client accepts none. The head of the
    /// answer names them, since HTTP/1.1 sends no others.
    pub trailers: &'static [&'static str],
    /// How long the end is held for the state to be stored.
    pub within: Duration,
}

impl Ending {
    /// Nothing is taken out, and nothing is done at the end.
    pub fn without_effects() -> Self {
        Self {
            strip_usage: false,
            left_out: None,
            foot: FooterOptions {
                trailers: &[],
                within: Duration::ZERO,
            },
            on_end: Box::new(|_| async { StreamFooter::default() }.boxed()),
        }
    }
}

type OnEnd = Box<dyn FnOnce(ResponseSummary) -> BoxFuture<'static, StreamFooter> + Send>;

/// What is added to the end of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamFooter {
    pub trailers: HeaderMap,
    /// A whole SSE comment (`: …` and a blank line), sent before `[DONE]`.
    pub comment: Option<Bytes>,
}

/// A stream of one answer: none goes on with it.
#[async_trait]
impl TurnDriver for Ending {
    async fn next_turn(&mut self, _: AssistantTurn) -> Option<Response<Body>> {
        None
    }

    async fn end_answer(
        self: Box<Self>,
        heard: ResponseSummary,
        _: AssistantTurn,
        _: PrecedingText,
    ) -> StreamFooter {
        (self.on_end)(heard).await
    }

    fn left_out_tokens(&self) -> Option<u32> {
        self.left_out
    }
}
