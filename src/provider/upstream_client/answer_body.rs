//! The body of an answer, which drives the connection that it comes from.

use std::{
    pin::Pin,
    sync::Weak,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::pool::{ConnectionPool, Http1Connection};

/// CANCEL: dropping it before its end closes the connection (or resets the stream).
#[derive(Debug)]
pub(super) struct AnswerBody {
    body: Incoming,
    /// `None` once the answer has ended, and where another task drives the connection.
    own: Option<Box<Http1Connection>>,
    /// Where the connection goes at the end; nowhere if there is none.
    home: Weak<ConnectionPool>,
}

impl AnswerBody {
    pub(super) fn new(
        body: Incoming,
        own: Box<Http1Connection>,
        home: Weak<ConnectionPool>,
    ) -> Self {
        let mut this = Self {
            body,
            own: Some(own),
            home,
        };
        if this.body.is_end_stream() {
            // Nobody may ask for a part of it.
            this.give_connection_back(&mut Context::from_waker(Waker::noop()));
        }
        this
    }

    pub(super) const fn driven_elsewhere(body: Incoming) -> Self {
        Self {
            body,
            own: None,
            home: Weak::new(),
        }
    }

    fn give_connection_back(&mut self, cx: &mut Context<'_>) {
        let Some(mut own) = self.own.take() else {
            return;
        };
        if let Some(home) = self.home.upgrade()
            && own.becomes_ready(cx)
        {
            home.keep(own);
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let mut polled = Pin::new(&mut this.body).poll_frame(cx);
        if polled.is_pending()
            && let Some(own) = &mut this.own
        {
            own.drive(cx);
            polled = Pin::new(&mut this.body).poll_frame(cx);
        }
        let has_ended = match &polled {
            Poll::Ready(Some(Ok(_))) => this.body.is_end_stream(),
            Poll::Ready(_) => true,
            Poll::Pending => false,
        };
        if has_ended {
            this.give_connection_back(cx);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
