//! Idle timeouts of request and answer bodies. They bound the silence between two frames, never the
//! whole: a reasoning model is silent for minutes, and an answer may take an hour.

use std::{
    future::Future as _,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Either;
use tokio::time::{Instant, Sleep};

use crate::{
    conversation::edit::Rope,
    provider::{Payload, outgoing_request::Upload},
};

/// When the connection last took a part of a request, and whether it has all of it.
#[derive(Clone, Debug)]
pub(super) struct UploadProgress(Arc<UploadState>);

#[derive(Debug)]
struct UploadState {
    last: Mutex<Instant>,
    has_ended: AtomicBool,
}

impl UploadProgress {
    pub(super) fn new() -> Self {
        Self(Arc::new(UploadState {
            last: Mutex::new(Instant::now()),
            has_ended: AtomicBool::new(false),
        }))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Relaxed)
    }

    /// Returns once the connection took nothing for `limit`.
    pub(super) async fn wait_for_stall(&self, limit: Duration) {
        loop {
            let due = *self.0.last.lock() + limit;
            if Instant::now() >= due {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }
}

/// A request's body, whole or as it comes. Its length is exact where it is known: many servers refuse chunked requests.
pub(super) type UpstreamBody = ProgressBody<Either<Rope, Upload>>;

pub(super) fn watch_body(body: Payload, progress: &UploadProgress) -> UpstreamBody {
    let progress = progress.clone();
    let body = match body {
        Payload::Empty => Either::Left(Rope::default()),
        Payload::Whole(body) | Payload::Once(body) => Either::Left(body),
        Payload::Stream(body) => Either::Right(body),
    };
    // Nobody asks for a part of an empty one.
    let is_empty = body.is_end_stream();
    progress.0.has_ended.store(is_empty, Relaxed);
    ProgressBody { body, progress }
}

/// A request body that records its progress.
pub(super) struct ProgressBody<B> {
    body: B,
    progress: UploadProgress,
}

impl<B: Body<Data = Bytes> + Unpin> Body for ProgressBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(frame) = &polled {
            let progress = &self.progress.0;
            *progress.last.lock() = Instant::now();
            if !matches!(frame, Some(Ok(_))) || self.body.is_end_stream() {
                progress.has_ended.store(true, Relaxed);
            }
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

/// A body that ends with an error when nothing comes for `limit`.
pub struct IdleTimeoutBody<B: Body, E> {
    body: B,
    limit: Duration,
    sleep: Pin<Box<Sleep>>,
    waiting: bool,
    broken: fn(B::Error) -> E,
    stalled: fn(Duration) -> E,
}

impl<B: Body, E> IdleTimeoutBody<B, E> {
    /// `broken` converts the body's own errors, `stalled` makes the error of a timeout.
    pub fn new(
        body: B,
        limit: Duration,
        broken: fn(B::Error) -> E,
        stalled: fn(Duration) -> E,
    ) -> Self {
        Self {
            body,
            limit,
            sleep: Box::pin(tokio::time::sleep(limit)),
            waiting: false,
            broken,
            stalled,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin, E> Body for IdleTimeoutBody<B, E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.waiting = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(this.broken)));
        }
        if !std::mem::replace(&mut this.waiting, true) {
            this.sleep.as_mut().reset(Instant::now() + this.limit);
        }
        let stalled = this.sleep.as_mut().poll(cx);
        stalled.map(|()| Some(Err((this.stalled)(this.limit))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
