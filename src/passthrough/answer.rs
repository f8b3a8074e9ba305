//! A provider's answer on its way to the client, untouched: status, end-to-end headers, body.

use http::{Response, header::TRAILER, request::Parts};
use http_body::Frame;
use http_body_util::BodyExt;

use crate::{
    http::answer::accepts_trailers, provider::headers, proxy::outgoing::clean_answer_headers,
    wire::Body,
};

/// Forwards an answer. Its trailers, filtered as headers are, go to a client that reads them.
pub(super) fn pass_answer(answer: Response<Body>, parts: &Parts) -> Response<Body> {
    let announced: Vec<_> = match accepts_trailers(&parts.headers) {
        true => answer.headers().get_all(TRAILER).iter().cloned().collect(),
        false => Vec::new(),
    };
    let mut answer = clean_answer_headers(answer);
    for names in announced {
        answer.headers_mut().append(TRAILER, names);
    }
    let clean = |frame: Frame<_>| match frame.into_trailers() {
        Ok(trailers) => Frame::trailers(headers::filter_for_client(&trailers)),
        Err(frame) => frame,
    };
    answer.map(|body| body.map_frame(clean).boxed_unsync())
}
