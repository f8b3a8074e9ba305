//! The log line of a request: its fields and their names.
//!
//! A record travels inside the answer's body. It is written when the body ends, breaks or is dropped, so a stream is
//! logged with all its bytes and its real end. At the same time the request is counted and its trace ends. Stages
//! write to a record and never read it.

mod output;

use std::{
    any::Any,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, Response, header::CONTENT_LENGTH};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

pub use self::output::group_digits;
pub use super::notes::{GenerationFacts, RequestNotes};
use super::{Operation, metrics::InFlightRequest, trace::Trace};
use crate::wire::Body;

/// Most characters of a client's text in a line.
const MAX_TEXT_CHARS: usize = 200;

/// The log line of one request. Written once, on drop.
#[derive(Debug)]
pub struct RequestRecord {
    begun: Instant,
    method: Method,
    path: String,
    /// For requests to a model.
    pub route: Option<&'static str>,
    pub operation: Option<Operation>,
    /// The name of the client's key.
    pub client: Option<Arc<str>>,
    model: Option<String>,
    pub notes: RequestNotes,
    status: Option<u16>,
    bytes: u64,
    first_byte: Option<Duration>,
    /// How the answer ended, or why there is no provider's answer.
    pub outcome: Option<&'static str>,
    is_quiet: bool,
    /// Counts a client's request as in flight until its answer ends; `None` for other requests, which are not
    /// counted.
    pub in_flight: Option<InFlightRequest>,
    /// Dropped with the record, at the end of the answer.
    pub held_until_end: Option<Arc<dyn Any + Send + Sync>>,
}

impl RequestRecord {
    /// `path` comes without its query, which can hold keys.
    pub fn new(method: &Method, path: &str) -> Self {
        Self {
            begun: Instant::now(),
            method: standard_method(method),
            path: shorten_text(path),
            route: None,
            operation: None,
            client: None,
            model: None,
            notes: RequestNotes::default(),
            status: None,
            bytes: 0,
            first_byte: None,
            outcome: None,
            is_quiet: false,
            in_flight: None,
            held_until_end: None,
        }
    }

    /// The model as the client named it.
    pub fn set_model(&mut self, model: &str) {
        self.model = (!model.is_empty()).then(|| shorten_text(model));
    }

    /// The trace ends with the record. It must be set before the notes are cloned.
    pub fn set_trace(&mut self, trace: Trace) {
        self.notes.trace = trace;
    }

    /// Logs at debug level and does not count the request, as for probes of orchestrators.
    pub fn set_quiet(&mut self) {
        self.is_quiet = true;
        self.in_flight = None;
    }

    /// Puts the record into the answer's body, which writes it at its end.
    pub fn attach_to_response(mut self, answer: Response<Body>) -> Response<Body> {
        self.status = Some(answer.status().as_u16());
        let length = answer.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        answer.map(|body| {
            RecordedBody {
                ended: body.is_end_stream(),
                expected: length.or(body.size_hint().exact()),
                body,
                record: self,
            }
            .boxed_unsync()
        })
    }
}

/// Replaces a method that no standard knows, which is a client's text of any length.
fn standard_method(method: &Method) -> Method {
    const STANDARD: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE",
    ];
    if STANDARD.contains(&method.as_str()) {
        method.clone()
    } else {
        Method::from_bytes(b"_OTHER").unwrap_or_default()
    }
}

fn shorten_text(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}

struct RecordedBody {
    body: Body,
    record: RequestRecord,
    /// The announced length: the server polls no more once it is sent.
    expected: Option<u64>,
    ended: bool,
}

impl http_body::Body for RecordedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                if self.record.bytes == 0 && bytes > 0 {
                    self.record.first_byte = Some(self.record.begun.elapsed());
                }
                self.record.bytes += bytes;
                // Nothing follows trailers, and the server polls no more.
                self.ended = frame.is_trailers() || self.body.is_end_stream();
            }
            Poll::Ready(Some(Err(_))) => self.record.outcome = Some("broken"),
            Poll::Ready(None) => self.ended = true,
            Poll::Pending => {}
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

impl Drop for RecordedBody {
    fn drop(&mut self) {
        let all = self.expected == Some(self.record.bytes) || self.record.method == Method::HEAD;
        if self.ended || all {
            self.record.outcome.get_or_insert("done");
        }
    }
}

#[cfg(test)]
mod tests;
