//! The end of a stream: what is done and what is added there.
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::HeaderMap;

use super::{AssistantTurn, Format, PrecedingText, ResponseSummary, StreamOptions, TurnDriver};

pub struct Ending {
    pub options: StreamOptions,
    /// Called once for every stream that the provider ended or broke, before the last bytes go out.
    /// Dropped after [`FooterOptions::max_wait`], so longer work must be spawned. Not called when the
    /// client leaves.
    pub on_end: OnEnd,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct FooterOptions {
    /// The trailers that [`StreamFooter`] may have; empty if the client accepts none. The head of
    /// the answer names them, since HTTP/1.1 sends no others.
    pub trailers: &'static [&'static str],
    /// How long the end is held for the state to be stored.
    pub max_wait: Duration,
}

impl Ending {
    /// Removes nothing and does nothing at the end.
    pub fn without_effects(format: Format) -> Self {
        Self {
            options: StreamOptions {
                format,
                ..StreamOptions::default()
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
    /// A whole SSE comment (`: …` and a blank line), sent before the end marker.
    pub comment: Option<Bytes>,
}

/// Drives a stream of one answer, without a next turn.
#[async_trait]
impl TurnDriver for Ending {
    async fn end_answer(
        self: Box<Self>,
        summary: ResponseSummary,
        _: AssistantTurn,
        _: PrecedingText,
    ) -> StreamFooter {
        (self.on_end)(summary).await
    }

    fn left_out_tokens(&self) -> Option<u32> {
        self.options.left_out
    }
}
