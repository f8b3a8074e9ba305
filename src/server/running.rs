//! One of the requests that a client may have running: held until the last byte of its answer.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;

use crate::wire::Body;

/// A running request; it has ended when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Running {
    permit: Option<Arc<OwnedSemaphorePermit>>,
}

impl Running {
    /// One of any number.
    pub const fn unbounded() -> Self {
        Self { permit: None }
    }

    pub fn of(permit: OwnedSemaphorePermit) -> Self {
        Self {
            permit: Some(Arc::new(permit)),
        }
    }

    /// The answer, which runs until its body is gone.
    pub fn until_end(self, answer: Response<Body>) -> Response<Body> {
        if self.permit.is_none() {
            return answer;
        }
        let running = self;
        answer.map(|body| {
            Runs {
                body,
                _running: running,
            }
            .boxed_unsync()
        })
    }
}

struct Runs {
    body: Body,
    _running: Running,
}

impl http_body::Body for Runs {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
