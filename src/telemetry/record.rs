//! The one line per request: its fields and their names.
//!
//! A record travels inside the answer's body and is written when that ends, breaks or is dropped,
//! so that a stream is logged with all its bytes and its real end. Stages write to it and never
//! read it.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http::{Method, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use super::metrics::InFlight;
use crate::{session::SessionId, wire::Body};

/// Characters of a client's text that go into a line.
const MAX_TEXT: usize = 200;

/// What is logged of one request. Written once, on drop.
#[derive(Debug)]
pub struct Record {
    begun: Instant,
    method: Method,
    path: String,
    model: String,
    notes: Notes,
    status: Option<u16>,
    bytes: u64,
    outcome: Option<&'static str>,
    quiet: bool,
    in_flight: Option<InFlight>,
}

/// What is known of a request, and was done to it: some of it is decided only while its answer is on
/// its way.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    provider: String,
    attempts: Option<u32>,
    session: Option<SessionId>,
    actions: String,
}

impl Notes {
    pub fn provider(&self, provider: &str) {
        self.change(|noted| provider.clone_into(&mut noted.provider));
    }

    /// Calls to providers so far.
    pub fn attempts(&self, attempts: u32) {
        self.change(|noted| noted.attempts = Some(attempts));
    }

    pub fn session(&self, session: SessionId) {
        self.change(|noted| noted.session = Some(session));
    }

    /// What was done, as the client is told it.
    pub fn actions(&self, actions: String) {
        self.change(|noted| noted.actions = actions);
    }

    fn change(&self, change: impl FnOnce(&mut Noted)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn take(&self) -> Noted {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Record {
    /// `path` without its query, which can hold keys.
    pub fn new(method: &Method, path: &str) -> Self {
        Self {
            begun: Instant::now(),
            method: method.clone(),
            path: cut(path),
            model: String::new(),
            notes: Notes::default(),
            status: None,
            bytes: 0,
            outcome: None,
            quiet: false,
            in_flight: None,
        }
    }

    /// The model as the client named it.
    pub fn model(&mut self, model: &str) {
        self.model = cut(model);
    }

    pub fn provider(&mut self, provider: &str) {
        self.notes.provider(provider);
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

    /// The request is none of those in flight, however long it takes.
    pub fn uncounted(&mut self) {
        self.in_flight = None;
    }

    /// Logged at debug level only and not counted, as the probes of orchestrators are.
    pub fn quiet(&mut self) {
        self.quiet = true;
        self.in_flight = None;
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
}

impl Drop for Record {
    fn drop(&mut self) {
        let outcome = self.outcome.unwrap_or("client_left");
        let Noted {
            provider,
            attempts,
            session,
            actions,
        } = self.notes.take();
        let session = session.map(tracing::field::display);
        let duration_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    method = %self.method,
                    path = self.path,
                    model = self.model,
                    provider,
                    attempts,
                    session,
                    actions,
                    status = self.status,
                    bytes = self.bytes,
                    duration_ms,
                    outcome,
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
                self.record.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
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
        assert!(line["duration_ms"].is_u64());
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
