//! The one line per request: its fields and their names.
//!
//! A record travels inside the answer's body and is written when that ends, breaks or is dropped,
//! so that a stream is logged with all its bytes and its real end. With the line goes what is
//! counted of the request, and its trace ends. Stages write to it and never read it.

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
use opentelemetry::{Array, Value};

pub use super::notes::{Answered, Notes};
use super::{
    Operation,
    metrics::{Ended, InFlight},
    notes::Noted,
    trace::{Finish, Trace},
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
            method: method.clone(),
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

    fn log(&self, noted: &Noted, outcome: &'static str, took: Duration) {
        let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let session = noted.session.map(tracing::field::display);
        let answered = noted.answered.as_ref();
        let prompt_tokens = answered.and_then(|it| it.prompt_tokens);
        let completion_tokens = answered.and_then(|it| it.completion_tokens);
        let cached_tokens = answered.and_then(|it| it.cached_tokens);
        let hard_util = answered.and_then(|it| it.hard_util);
        let hard_util = hard_util.map(|share| (share * 1e3).round() / 1e3);
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    method = %self.method,
                    path = self.path,
                    status = self.status,
                    outcome,
                    client = self.client.as_deref(),
                    model = self.model.as_deref(),
                    provider = noted.provider.as_deref(),
                    attempts = noted.attempts,
                    session,
                    actions = noted.actions.as_deref(),
                    health = answered.map(|it| it.level.word()),
                    hard_util,
                    prompt_tokens,
                    completion_tokens,
                    cached_tokens,
                    bytes = self.bytes,
                    guard_ms = noted.guard.map(ms),
                    first_byte_ms = self.first_byte.map(ms),
                    duration_ms = ms(took),
                    trace_id = self.trace.id(),
                    "request answered"
                )
            };
        }
        if self.quiet {
            line!(tracing::Level::DEBUG);
        } else {
            line!(tracing::Level::INFO);
        }
    }

    fn tell(&self, noted: &Noted, error: Option<&'static str>, span: &mut Finish<'_>) {
        span.name(match (self.operation, &self.model) {
            (Some(operation), Some(model)) => format!("{} {model}", operation.word()),
            (Some(operation), None) => operation.word().to_owned(),
            (None, _) => format!("{} {}", self.method, self.route.unwrap_or_default()),
        });
        span.set("http.request.method", self.method.as_str().to_owned());
        span.set_some("http.route", self.route);
        span.set_some("http.response.status_code", self.status.map(i64::from));
        span.set_some("gen_ai.operation.name", self.operation.map(Operation::word));
        span.set_some("gen_ai.provider.name", noted.provider.clone());
        span.set_some("gen_ai.request.model", self.model.clone());
        let session = noted.session.map(|session| session.to_string());
        span.set_some("gen_ai.conversation.id", session);
        span.set_some("plimsoll.client", self.client.as_deref().map(str::to_owned));
        span.set_some("plimsoll.actions", noted.actions.clone());
        span.set_some("plimsoll.attempts", noted.attempts.map(i64::from));
        if let Some(answered) = &noted.answered {
            let count = |tokens: Option<u32>| tokens.map(i64::from);
            span.set_some("gen_ai.usage.input_tokens", count(answered.input_tokens()));
            span.set_some(
                "gen_ai.usage.output_tokens",
                count(answered.output_tokens()),
            );
            let cached = count(answered.cached_tokens);
            span.set_some("gen_ai.usage.cache_read.input_tokens", cached);
            let finish = answered.finish_reason;
            let finish = finish.map(|reason| Value::Array(Array::String(vec![reason.into()])));
            span.set_some("gen_ai.response.finish_reasons", finish);
            span.set("plimsoll.health", answered.level.word());
            span.set_some("plimsoll.hard_util", answered.hard_util);
        }
        if let (true, Some(first)) = (noted.streamed, self.first_byte) {
            span.set("gen_ai.response.time_to_first_chunk", first.as_secs_f64());
        }
        if let Some(error) = error {
            span.set("error.type", error);
            if error == "broken" || self.status.is_some_and(|status| status >= 500) {
                span.fails();
            }
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let outcome = self.outcome.unwrap_or("client_left");
        let noted = self.notes.take();
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

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// A status as a word; those that no standard knows are one, since there are so many.
fn status_word(status: u16) -> &'static str {
    const KNOWN: [(u16, &str); 17] = [
        (400, "400"),
        (401, "401"),
        (402, "402"),
        (403, "403"),
        (404, "404"),
        (405, "405"),
        (408, "408"),
        (409, "409"),
        (413, "413"),
        (415, "415"),
        (422, "422"),
        (429, "429"),
        (500, "500"),
        (502, "502"),
        (503, "503"),
        (504, "504"),
        (529, "529"),
    ];
    let found = KNOWN.iter().find(|(known, _)| *known == status);
    found.map_or("_OTHER", |(_, word)| word)
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
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use http::{Method, Response};
    use http_body::Frame;
    use http_body_util::{BodyExt, StreamBody};

    use super::Record;
    use crate::wire::whole;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(run: impl FnOnce()) -> serde_json::Value {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, run);
        let line = lines.0.lock().unwrap().clone();
        serde_json::from_slice(&line).expect("one line")
    }

    #[test]
    fn one_line_is_written_when_the_answer_ends() {
        let line = logged(|| {
            let mut record = Record::new(&Method::POST, "/v1/chat/completions");
            record.model("m");
            record.provider("up");
            record.notes().attempts(2);
            let answer = record.attach(Response::new(whole("hello")));
            let body = answer.into_body().collect();
            futures_util::FutureExt::now_or_never(body)
                .unwrap()
                .unwrap();
        });
        assert_eq!(line["method"], "POST");
        assert_eq!(line["path"], "/v1/chat/completions");
        assert_eq!(
            (&line["model"], &line["provider"]),
            (&"m".into(), &"up".into())
        );
        assert_eq!((&line["status"], &line["bytes"]), (&200.into(), &5.into()));
        assert_eq!(line["attempts"], 2);
        assert_eq!(line["outcome"], "done");
        assert!(line["duration_ms"].as_f64() >= line["first_byte_ms"].as_f64());
    }

    #[test]
    fn an_answer_that_ends_with_trailers_is_done() {
        let line = logged(|| {
            let frames: [io::Result<_>; 2] = [
                Ok(Frame::data("hi".into())),
                Ok(Frame::trailers(http::HeaderMap::new())),
            ];
            let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
            let mut answer = Record::new(&Method::GET, "/").attach(Response::new(body));
            // As a server does: it stops asking once the trailers came.
            for _ in 0..2 {
                let frame = answer.body_mut().frame();
                futures_util::FutureExt::now_or_never(frame).unwrap();
            }
        });
        assert_eq!(line["outcome"], "done");
    }

    #[test]
    fn who_leaves_early_is_logged_as_such() {
        let line = logged(|| drop(Record::new(&Method::GET, "/v1/models")));
        assert_eq!(line["outcome"], "client_left");
        let line = logged(|| {
            let record = Record::new(&Method::GET, "/v1/models");
            drop(record.attach(Response::new(whole("hello"))));
        });
        assert_eq!(line["outcome"], "client_left");
    }
}
