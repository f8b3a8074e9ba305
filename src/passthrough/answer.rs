//! A provider's answer on its way to the client, untouched: status, end-to-end headers, body.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Response, header::TRAILER, request::Parts};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

use crate::proxy::outgoing::cleaned;
use crate::{http::answer::accepts_trailers, provider::headers, wire::Body};

/// The answer as it goes on. Its trailers go to a client that reads them.
pub(super) fn passed(answer: Response<Body>, parts: &Parts) -> Response<Body> {
    let announced: Vec<_> = match accepts_trailers(&parts.headers) {
        true => answer.headers().get_all(TRAILER).iter().cloned().collect(),
        false => Vec::new(),
    };
    let mut answer = cleaned(answer);
    for names in announced {
        answer.headers_mut().append(TRAILER, names);
    }
    answer.map(|body| Passed { body }.boxed_unsync())
}

/// A body whose trailers are held to the rules for headers.
struct Passed {
    body: Body,
}

impl http_body::Body for Passed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let clean = |frame: Frame<Bytes>| match frame.into_trailers() {
            Ok(trailers) => Frame::trailers(headers::to_client(&trailers)),
            Err(frame) => frame,
        };
        polled.map(|frame| frame.map(|frame| frame.map(clean)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
