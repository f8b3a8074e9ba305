//! Clients that send the next request after each answer.

use std::{
    io,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, Request, header::HOST};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinSet};

use super::{BUSY, CONNECTIONS, QUIET, proxy::MeasuredProxy};

/// The repeated request.
pub(crate) struct TelemetryLoad {
    pub(crate) name: &'static str,
    body: Bytes,
}

/// The figures of a turn.
pub(crate) struct TurnFigures {
    pub(crate) per_second: f64,
    pub(crate) median_us: f64,
    /// The 99th percentile.
    pub(crate) late_us: f64,
    pub(crate) cpu_us: f64,
}

impl TelemetryLoad {
    pub(crate) fn all_loads() -> [Self; 4] {
        let load = |name, streams, bytes| Self {
            name,
            body: write_conversation(streams, bytes),
        };
        [
            load("1 KB, whole", false, 1_000),
            load("1 KB, 53 events", true, 1_000),
            load("100 KB, whole", false, 100_000),
            load("100 KB, 53 events", true, 100_000),
        ]
    }
}

/// An agent's conversation of about so many bytes.
fn write_conversation(streams: bool, bytes: usize) -> Bytes {
    let mut body = format!(
        "{{\"stream\":{streams},\"model\":\"up/m\",\"messages\":[{{\"role\":\"system\",\"content\":\"You mend boats.\"}},\
         {{\"role\":\"user\",\"content\":\"Mend the \\\"keel\\\".\"}}"
    );
    for step in 0.. {
        let call = format!(
            ",{{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{{\"id\":\"call_{step}\",\"type\":\"function\",\
             \"function\":{{\"name\":\"read\",\"arguments\":\"{{\\\"path\\\":\\\"hull_{step}.rs\\\"}}\"}}}}]}},\
             {{\"role\":\"tool\",\"tool_call_id\":\"call_{step}\",\"content\":\"{}\"}}",
            "fn plank() -> \\\"oak\\\" {\\n    tar(7)\\n}\\n".repeat(if bytes > 2_000 {
                40
            } else {
                8
            })
        );
        if body.len() + call.len() > bytes + 100 {
            break;
        }
        body.push_str(&call);
    }
    body.push_str("]}");
    body.into()
}

/// Runs one turn of a proxy.
pub(crate) async fn run_turn(
    near: &MeasuredProxy,
    load: &TelemetryLoad,
) -> io::Result<TurnFigures> {
    let before = near.cpu_seconds()?;
    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        clients.spawn(run_client(near.address, load.body.clone(), BUSY));
    }
    let mut answers = 0;
    while let Some(done) = clients.join_next().await {
        answers += done.map_err(io::Error::other)??.len();
    }
    let took = begun.elapsed().as_secs_f64();
    let cpu = near.cpu_seconds()? - before;
    let mut times = run_client(near.address, load.body.clone(), QUIET).await?;
    times.sort_unstable();
    let at = |share: usize| {
        let time = times.get(times.len() * share / 100);
        time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    };
    Ok(TurnFigures {
        per_second: answers as f64 / took,
        median_us: at(50),
        late_us: at(99),
        cpu_us: cpu * 1e6 / answers as f64,
    })
}

/// The duration of each request.
async fn run_client(
    address: std::net::SocketAddr,
    body: Bytes,
    length: Duration,
) -> io::Result<Vec<Duration>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let opened = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = opened.map_err(io::Error::other)?;
    let mut open = JoinSet::new();
    open.spawn(connection);
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < length {
        let asked = Instant::now();
        let request = Request::builder()
            .method(Method::POST)
            .uri("/v1/chat/completions")
            .header(HOST, address.to_string())
            .header("content-type", "application/json")
            .body(Full::new(body.clone()))
            .map_err(io::Error::other)?;
        sender.ready().await.map_err(io::Error::other)?;
        let answer = sender
            .send_request(request)
            .await
            .map_err(io::Error::other)?;
        if !answer.status().is_success() {
            return Err(io::Error::other(format!("status {}", answer.status())));
        }
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            frame.map_err(io::Error::other)?;
        }
        times.push(asked.elapsed());
    }
    Ok(times)
}
