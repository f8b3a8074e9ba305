//! A client's connection, and the times of an answer.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, Response,
    header::{CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use plimsoll::conversation::Format;
use tokio::{net::TcpStream, task::JoinSet, time::timeout};

use crate::{
    bodies::Mode,
    provider::{EVENTS, TIME, now},
};

/// Time limit of an answer; a slower one counts as failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Address and headers of a peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerAddress {
    pub(crate) address: SocketAddr,
    pub(crate) headers: HeaderMap,
}

pub(crate) struct LoadClient {
    door: PeerAddress,
    format: Format,
    open: Option<OpenConnection>,
}

/// The sender of requests, and the task of the connection.
type OpenConnection = (SendRequest<Full<Bytes>>, JoinSet<hyper::Result<()>>);

/// A complete answer.
pub(crate) struct TimedAnswer {
    pub(crate) headers: HeaderMap,
    /// From sending until the first byte of the body.
    pub(crate) first: Duration,
    pub(crate) whole: Duration,
    /// Transit time of each event.
    pub(crate) events: Vec<Duration>,
}

impl LoadClient {
    pub(crate) const fn new(door: PeerAddress, format: Format) -> Self {
        Self {
            door,
            format,
            open: None,
        }
    }

    /// Sends a body and reads the answer.
    ///
    /// # Errors
    /// Any answer other than a complete success within 30 s.
    pub(crate) async fn ask(&mut self, body: Bytes, mode: Mode) -> io::Result<TimedAnswer> {
        let asked = timeout(PATIENCE, self.exchange(body, mode)).await;
        let answer = asked.unwrap_or_else(|_| Err(io_failure("no whole answer within 30 s")));
        if answer.is_err() {
            self.open = None;
        }
        answer
    }

    async fn exchange(&mut self, body: Bytes, mode: Mode) -> io::Result<TimedAnswer> {
        self.connect().await?;
        let sent = Instant::now();
        let answer = self.send(body).await?;
        let headers = answer.headers().clone();
        let mut body = answer.into_body();
        let (mut first, mut reader, mut spoke) = (None, TimeReader::default(), false);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(io::Error::other)?.into_data() else {
                continue;
            };
            first.get_or_insert_with(|| sent.elapsed());
            if mode == Mode::Whole {
                spoke = spoke || memchr::memmem::find(&data, b"Aye.").is_some();
            } else {
                reader.read(&data);
            }
        }
        let whole = sent.elapsed();
        let events = reader.events;
        match mode {
            Mode::Whole if !spoke => return Err(io_failure("the answer's text is not there")),
            Mode::Burst | Mode::Paced if events.len() != EVENTS => {
                let seen = events.len();
                return Err(io_failure(&format!("{seen} of {EVENTS} events came")));
            }
            _ => {}
        }
        Ok(TimedAnswer {
            headers,
            first: first.unwrap_or(whole),
            whole,
            events,
        })
    }

    /// Opens a stream and returns its body.
    pub(crate) async fn open(&mut self, body: Bytes) -> io::Result<Incoming> {
        self.connect().await?;
        Ok(self.send(body).await?.into_body())
    }

    async fn connect(&mut self) -> io::Result<()> {
        if self
            .open
            .as_ref()
            .is_some_and(|(sender, _)| !sender.is_closed())
        {
            return Ok(());
        }
        let stream = TcpStream::connect(self.door.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let mut task = JoinSet::new();
        task.spawn(connection);
        self.open = Some((sender, task));
        Ok(())
    }

    async fn send(&mut self, body: Bytes) -> io::Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("/v1{}", self.format.path()))
            .header(HOST, self.door.address.to_string())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(io::Error::other)?;
        request.headers_mut().extend(self.door.headers.clone());
        let (sender, _) = self
            .open
            .as_mut()
            .ok_or_else(|| io_failure("not connected"))?;
        sender.ready().await.map_err(io::Error::other)?;
        let answer = sender
            .send_request(request)
            .await
            .map_err(io::Error::other)?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let text = answer.into_body().collect().await;
        let text = text.map(|it| it.to_bytes()).unwrap_or_default();
        let start = String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned();
        Err(io_failure(&format!("status {status} {}", start.trim())))
    }
}

pub(crate) fn io_failure(why: &str) -> io::Error {
    io::Error::other(why.to_owned())
}

/// Finds the times in the bytes of a stream, however the proxy changed its events.
#[derive(Default)]
pub(crate) struct TimeReader {
    /// The tail that may be the start of a time.
    rest: Vec<u8>,
    pub(crate) events: Vec<Duration>,
}

impl TimeReader {
    pub(crate) fn read(&mut self, data: &[u8]) {
        let arrived = now();
        self.rest.extend_from_slice(data);
        let (before, after) = (TIME.0 as u8, TIME.1 as u8);
        let mut done = 0;
        while let Some(start) = memchr::memchr(before, &self.rest[done..]) {
            let start = done + start;
            let Some(end) = memchr::memchr(after, &self.rest[start..]) else {
                done = start;
                self.rest.drain(..done);
                return;
            };
            let digits = std::str::from_utf8(&self.rest[start + 1..start + end]).ok();
            if let Some(made) = digits.and_then(|it| it.parse().ok()) {
                let late = arrived.saturating_sub(Duration::from_nanos(made));
                self.events.push(late);
            }
            done = start + end;
        }
        self.rest.clear();
    }
}
