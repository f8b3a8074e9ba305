//! Every failure of a provider and its effect on the client, the provider, the fallback, the
//! breaker and the counters. Prints a table.

mod breaker;
mod places;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use futures_util::stream::{self, StreamExt};
use plimsoll::config::{Auth, Config, ModelConfig};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
    task::JoinSet,
};

use crate::support::{
    COMPLETION, ClientAnswer, DONE, FINISH, ProviderStep, RunningProxy, SOON, ScriptedProvider,
    TEXT, TestClient, answer, send_bytes, stream_head, stream_of,
};

/// Failures in a row before a cell's breaker opens: as many as one request with its retries makes.
const FAILURES: u32 = 3;

/// A provider's failure, and its expected effect.
struct Row {
    name: &'static str,
    does: Does,
    /// Whether the request may be resent: to the same provider, and to another.
    retried: bool,
    goes_on: bool,
    /// The label of the attempts counter.
    outcome: &'static str,
    /// Without a fallback: status, error code of the proxy, ending, and the provider that answered.
    whole: &'static str,
    streamed: &'static str,
    /// The least time of two retries.
    waits: Duration,
}

#[derive(Clone, Copy)]
enum Does {
    /// Nobody listens.
    Refuses,
    /// Does not speak TLS where it should.
    NoTls,
    Steps(fn(bool) -> Vec<ProviderStep>),
}

#[derive(Clone, Copy)]
struct Cell {
    streams: bool,
    fallback: bool,
    retries: bool,
}

impl Row {
    /// A failure before an answer: an error of the proxy.
    const fn unsent(name: &'static str, does: Does, seen: &'static str) -> Self {
        Self {
            name,
            does,
            retried: true,
            goes_on: true,
            outcome: "unsent",
            whole: seen,
            streamed: seen,
            waits: Duration::ZERO,
        }
    }

    /// An error of the provider with its status.
    const fn status(
        name: &'static str,
        outcome: &'static str,
        seen: &'static str,
        steps: fn(bool) -> Vec<ProviderStep>,
    ) -> Self {
        Self {
            outcome,
            ..Self::unsent(name, Does::Steps(steps), seen)
        }
    }

    /// A bad answer that began: no provider is asked again.
    const fn began_badly(
        name: &'static str,
        whole: &'static str,
        steps: fn(bool) -> Vec<ProviderStep>,
    ) -> Self {
        Self {
            retried: false,
            goes_on: false,
            outcome: "answer",
            streamed: "200 - broken up",
            ..Self::unsent(name, Does::Steps(steps), whole)
        }
    }

    const fn waits(self, ms: u64) -> Self {
        Self {
            waits: Duration::from_millis(ms),
            ..self
        }
    }

    const fn not_retried(self) -> Self {
        Self {
            retried: false,
            ..self
        }
    }
}

const UNREACHABLE: &str = "502 provider_unreachable whole -";
const BAD: &str = "502 provider_bad_answer whole -";
const LATE: &str = "504 provider_timeout whole -";
const BUSY: &str = "429 - whole up";

const ROWS: [Row; 15] = [
    Row::unsent("connection refused", Does::Refuses, UNREACHABLE),
    Row::unsent("no TLS", Does::NoTls, UNREACHABLE),
    Row::unsent(
        "closed before the head",
        Does::Steps(|_| vec![ProviderStep::Close]),
        UNREACHABLE,
    ),
    Row::unsent(
        "silent before the head",
        Does::Steps(|_| vec![ProviderStep::Stall]),
        LATE,
    ),
    Row::unsent(
        "garbage for a head",
        Does::Steps(|_| vec![send_bytes("\0\0 garbage\r\n\r\n"), ProviderStep::Close]),
        BAD,
    ),
    Row::began_badly("closed after the head", BAD, |streams| {
        half_answer(streams, ProviderStep::Close)
    }),
    Row::began_badly("silent in the middle", LATE, |streams| {
        half_answer(streams, ProviderStep::Stall)
    }),
    Row::status("429, in 1 s", "busy", BUSY, |_| busy("retry-after: 1\r\n")).waits(2_000),
    Row::status("429, at a date", "busy", BUSY, |_| {
        let date = SystemTime::now() + Duration::from_secs(2);
        busy(&format!(
            "retry-after: {}\r\n",
            httpdate::fmt_http_date(date)
        ))
    })
    .waits(1_500),
    Row::status("429, in 30 ms", "busy", BUSY, |_| {
        busy("retry-after-ms: 30\r\n")
    })
    .waits(60),
    Row::status("429", "busy", BUSY, |_| busy("")),
    Row::status("429, in an hour", "busy", BUSY, |_| {
        busy("retry-after: 3600\r\n")
    })
    .not_retried(),
    Row::status("500", "failed", "500 - whole up", |_| {
        vec![answer(
            "500 Oops",
            "",
            "{\"error\":{\"message\":\"theirs\"}}",
        )]
    }),
    Row::status("502", "failed", "502 - whole up", |_| {
        vec![answer("502 Bad Gateway", "", "<html>")]
    }),
    Row::status("503", "failed", "503 - whole up", |_| {
        vec![answer("503 Busy", "", "")]
    }),
];

fn busy(headers: &str) -> Vec<ProviderStep> {
    let theirs = "{\"error\":{\"message\":\"slower\"}}";
    vec![answer("429 Too Many Requests", headers, theirs)]
}

/// Half an answer, then this step.
fn half_answer(streams: bool, then: ProviderStep) -> Vec<ProviderStep> {
    if streams {
        return vec![stream_head(), send_bytes(TEXT), then];
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    vec![send_bytes(head), then]
}

/// A good answer.
fn good_answer(streams: bool) -> Vec<ProviderStep> {
    if streams {
        return stream_of([TEXT, FINISH, DONE]);
    }
    vec![answer("200 OK", "", COMPLETION)]
}

fn ask(streams: bool) -> String {
    format!(r#"{{"model":"m","stream":{streams},"messages":[{{"role":"user","content":"x"}}]}}"#)
}

/// `m` of `up`, with these fallbacks.
fn falls_back(config: &mut Config, fallback: &[&str]) {
    let settings = ModelConfig {
        provider: Some("up".into()),
        fallback: fallback.iter().map(|&name| name.into()).collect(),
        ..ModelConfig::default()
    };
    config.models.insert("m".into(), settings);
}

fn retries(config: &mut Config) {
    config.retry.max_retries = 2;
    config.retry.max_attempts = 9;
    config.retry.max_time = Duration::from_secs(15);
    config.retry.base_delay = Duration::from_millis(1);
    config.retry.max_delay = Duration::from_secs(5);
}

/// The state of a breaker in `/readyz`.
async fn breaker(client: &TestClient, provider: &str) -> String {
    let ready = client.get("/readyz").await.json();
    let state = &ready["providers"][provider]["breaker"];
    state.as_str().unwrap_or_default().to_owned()
}

/// A counter of `/metrics` by its full name with labels.
async fn counter_value(client: &TestClient, name: &str) -> usize {
    let got = client.get("/metrics").await;
    let found = got
        .text()
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{name}")).parse().unwrap()
}

/// Listens, and answers a TLS handshake with something else. Counts connections.
async fn no_tls() -> (String, Arc<AtomicUsize>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let (counts, mut task) = (Arc::clone(&count), JoinSet::new());
    task.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counts.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 512]).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    (url, count, task)
}

/// Status, error code of the proxy, ending, and the provider that answered.
fn outcome_of(got: &ClientAnswer) -> String {
    let header = |name: &str| got.headers.get(name).map_or("-", |it| it.to_str().unwrap());
    let ended = if got.whole { "whole" } else { "broken" };
    let (code, who) = (header("x-plimsoll-error"), header("x-plimsoll-provider"));
    format!("{} {code} {ended} {who}", got.status.as_u16())
}

async fn start(
    up: &ScriptedProvider,
    url: Option<String>,
    other: &ScriptedProvider,
    (row, cell): (&Row, Cell),
) -> RunningProxy {
    // Only rows about timeouts have short ones, however slow the machine is.
    let silent = row.name.starts_with("silent");
    up.proxy()
        .provider("other", other)
        .providers(|provider| {
            provider.auth = Auth::None;
            provider.breaker_failures = FAILURES;
            if silent {
                provider.first_byte_timeout = SOON;
                provider.idle_timeout = SOON;
            }
        })
        .set(|config| {
            if let Some(url) = url {
                config.providers.get_mut("up").unwrap().base_url = Some(url);
            }
            falls_back(config, if cell.fallback { &["other/b"] } else { &[] });
            if cell.retries {
                retries(config);
            }
        })
        .start()
        .await
}

/// Runs one cell; returns its line of the table.
async fn check(row: &Row, cell: Cell) -> String {
    let up = match row.does {
        Does::Steps(steps) => ScriptedProvider::start_answering(move |_| steps(cell.streams)).await,
        _ => ScriptedProvider::start().await,
    };
    let other = ScriptedProvider::start_answering(move |_| good_answer(cell.streams)).await;
    // A bound port that nobody listens on.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (tls, connections, _task) = no_tls().await;
    let url = match row.does {
        Does::Refuses => Some(format!("http://{}/v1", nobody.local_addr().unwrap())),
        Does::NoTls => Some(tls),
        Does::Steps(_) => None,
    };
    let proxy = start(&up, url, &other, (row, cell)).await;
    let client = proxy.client();
    let begun = Instant::now();
    let got = client.chat(ask(cell.streams)).await;
    let took = begun.elapsed();

    let calls = if row.retried && cell.retries { 3 } else { 1 };
    let stands_in = usize::from(row.goes_on && cell.fallback);
    let arrived = match row.does {
        Does::Refuses => calls,
        Does::NoTls => connections.load(Ordering::SeqCst),
        // An abandoned request may be read late.
        Does::Steps(_) => up.requests(calls).await.len(),
    };
    let attempts = got.headers.get("x-plimsoll-attempts");
    let attempts = attempts.map_or("-", |it| it.to_str().unwrap()).to_owned();
    let state = breaker(&client, "up").await;
    let line = format!(
        "{:<23} {:<8} {:<8} {:<7} | {:<34} | {arrived} {} {attempts} | {state}",
        row.name,
        if cell.streams { "streamed" } else { "whole" },
        if cell.fallback { "fallback" } else { "alone" },
        if cell.retries { "retries" } else { "once" },
        outcome_of(&got),
        other.count_requests(),
    );

    let expected = match (stands_in, cell.streams) {
        (1, _) => "200 - whole other",
        (_, true) => row.streamed,
        (_, false) => row.whole,
    };
    assert_eq!(outcome_of(&got), expected, "{line}");
    assert_eq!(arrived, calls, "{line}");
    assert_eq!(other.count_requests(), stands_in, "{line}");
    // An error of the proxy names no provider.
    let answered = !got.headers.contains_key("x-plimsoll-error");
    let told = answered.then(|| (calls + stands_in).to_string());
    assert_eq!(attempts, told.unwrap_or_else(|| "-".into()), "{line}");
    if !got.whole {
        assert!(got.text().contains("provider_bad_answer"), "{line}");
    }
    let failures = row.outcome == "failed" || row.outcome == "unsent";
    let opened = failures && calls == FAILURES as usize;
    assert_eq!(state, if opened { "open" } else { "closed" }, "{line}");
    assert_eq!(breaker(&client, "other").await, "closed", "{line}");
    if calls > 1 {
        assert!(took >= row.waits, "{line}: {took:?}");
    }
    let attempt = |provider: &str, outcome: &str| {
        format!("plimsoll_provider_attempts_total{{outcome=\"{outcome}\",provider=\"{provider}\"}}")
    };
    for (name, expected) in [
        (attempt("up", row.outcome), calls),
        (attempt("other", "answer"), stands_in),
        ("plimsoll_retries_total{provider=\"up\"}".into(), calls - 1),
        (
            "plimsoll_fallbacks_total{provider=\"up\"}".into(),
            stands_in,
        ),
        (
            "plimsoll_breaker_state{provider=\"up\"}".into(),
            if opened { 2 } else { 0 },
        ),
    ] {
        assert_eq!(
            counter_value(&client, &name).await,
            expected,
            "{line}: {name}"
        );
    }
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_has_its_consequence() {
    let cells = (0..8).map(|bits| Cell {
        streams: bits & 1 != 0,
        fallback: bits & 2 != 0,
        retries: bits & 4 != 0,
    });
    let all = ROWS
        .iter()
        .flat_map(|row| cells.clone().map(move |cell| (row, cell)));
    let lines: Vec<_> = stream::iter(all.map(|(row, cell)| check(row, cell)))
        .buffered(12)
        .collect()
        .await;
    eprintln!(
        "fault, how it is asked      | the client sees: status, our code, end, who | requests: first, second, told | breaker"
    );
    for line in &lines {
        eprintln!("{line}");
    }
    assert_eq!(lines.len(), 120);
}
