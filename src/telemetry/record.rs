//! The one line per request: its fields and their names.
//!
//! A record travels inside the answer's body and is written when that ends, breaks or is dropped,
//! so that a stream is logged with all its bytes and its real end. With the line goes what is
//! counted of the request, and its trace ends. Stages write to it and never read it.

mod told;

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use self::told::status_word;
pub use super::notes::{Answered, Notes};
use super::{
    Operation,
    metrics::{Ended, InFlight},
    trace::Trace,
};
use crate::wire::Body;

/// Characters of a client's text that go into a line.
const MAX_TEXT: usize = 200;

/// What is logged of one request. Written once, on drop.
#[derive(Debug)]
pub struct Record {
    begun: Instant,
    method: Method,
    path: String,
    route: Option<&'static str>,
    operation: Option<Operation>,
    client: Option<Arc<str>>,
    model: Option<String>,
    notes: Notes,
    trace: Trace,
    status: Option<u16>,
    bytes: u64,
    first_byte: Option<Duration>,
    outcome: Option<&'static str>,
    quiet: bool,
    in_flight: Option<InFlight>,
}

impl Record {
    /// `path` without its query, which can hold keys.
    pub fn new(method: &Method, path: &str) -> Self {
        Self {
            begun: Instant::now(),
            method: known(method),
            path: cut(path),
            route: None,
            operation: None,
            client: None,
            model: None,
            notes: Notes::default(),
            trace: Trace::default(),
            status: None,
            bytes: 0,
            first_byte: None,
            outcome: None,
            quiet: false,
            in_flight: None,
        }
    }

    /// A request for a model: its kind of path, and what it asks for.
    pub fn asks(&mut self, route: &'static str, operation: Option<Operation>) {
        self.route = Some(route);
        self.operation = operation;
    }

    /// The name of the client's key.
    pub fn client(&mut self, name: Option<&Arc<str>>) {
        self.client = name.cloned();
    }

    /// The model as the client named it.
    pub fn model(&mut self, model: &str) {
        self.model = (!model.is_empty()).then(|| cut(model));
    }

    pub fn provider(&mut self, provider: &str) {
        self.notes.provider(provider);
    }

    /// The trace that ends with the record. Before anybody has notes of it.
    pub fn trace(&mut self, trace: Trace) {
        self.notes = Notes::of(trace.clone());
        self.trace = trace;
    }

    /// Where more is noted, until the line is written.
    pub fn notes(&self) -> Notes {
        self.notes.clone()
    }

    /// Why we answered ourselves, or how the answer ended.
    pub fn outcome(&mut self, outcome: &'static str) {
        self.outcome = Some(outcome);
    }

    /// The request is one of those in flight, until its answer ends.
    pub fn counts(&mut self, in_flight: InFlight) {
        self.in_flight = Some(in_flight);
    }

    /// Not counted: it is no client that asks.
    pub fn uncounted(&mut self) {
        self.in_flight = None;
    }

    /// Logged at debug level only and not counted, as the probes of orchestrators are.
    pub fn quiet(&mut self) {
        self.quiet = true;
        self.uncounted();
    }

    /// Puts the record into an answer's body, which writes it at its end.
    pub fn attach(mut self, answer: Response<Body>) -> Response<Body> {
        self.status = Some(answer.status().as_u16());
        answer.map(|body| {
            Recorded {
                ended: body.is_end_stream(),
                expected: body.size_hint().exact(),
                body,
                record: self,
            }
            .boxed_unsync()
        })
    }

    /// What kept the request from being done, in one word.
    fn error(&self, outcome: &'static str) -> Option<&'static str> {
        match (outcome, self.status) {
            ("done", Some(status @ 400..)) => Some(status_word(status)),
            ("done" | "upgraded", _) => None,
            _ => Some(outcome),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let noted = self.notes.take();
        let outcome = match self.outcome.unwrap_or("client_left") {
            "done" if noted.failed => "provider_error",
            outcome => outcome,
        };
        let error = self.error(outcome);
        let took = self.begun.elapsed();
        self.log(&noted, outcome, took);
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.ended(&Ended {
                outcome,
                status: self.status,
                series: noted.series.as_deref(),
                error,
                took,
                first_chunk: self.first_byte.filter(|_| noted.streamed),
                guard: noted.guard,
                answered: noted.answered.as_ref(),
            });
        }
        self.trace.end(|span| self.tell(&noted, error, span));
    }
}

/// A method that no standard knows is a client's text, and as long as it likes.
fn known(method: &Method) -> Method {
    let standard = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::CONNECT,
        Method::TRACE,
    ];
    match standard.into_iter().find(|it| it == method) {
        Some(method) => method,
        None => Method::from_bytes(b"_OTHER").unwrap_or_default(),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// A body that knows how it ended.
struct Recorded {
    body: Body,
    record: Record,
    /// The length that was promised: nobody asks for more once that went out.
    expected: Option<u64>,
    ended: bool,
}

impl http_body::Body for Recorded {
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
                // Nothing follows trailers, and nobody asks for more.
                self.ended = frame.is_trailers() || self.body.is_end_stream();
            }
            Poll::Ready(Some(Err(_))) => self.record.outcome("broken"),
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

impl Drop for Recorded {
    fn drop(&mut self) {
        let all = self.expected == Some(self.record.bytes) || self.record.method == Method::HEAD;
        if (self.ended || all) && self.record.outcome.is_none() {
            self.record.outcome("done");
        }
    }
}

#[cfg(test)]
mod tests;
