//! Hostile requests and answers over real sockets: what each side gets, and what reaches no
//! provider.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::support::{
    COMPLETION, Process, RunningProxy, SOON, ScriptedProvider, Settings, TestClient, answer,
    within_time,
};

mod answers;
mod bodies;
mod framing;
mod heads;

const ASK: &str = r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;

/// A provider that answers every request, and a proxy with short timeouts.
async fn pair() -> (ScriptedProvider, RunningProxy) {
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", COMPLETION)]).await;
    let proxy = up.proxy().set(|config| {
        config.server.max_header_bytes = 16_384;
        config.server.header_timeout = SOON;
        config.server.body_timeout = SOON;
    });
    let proxy = proxy.start().await;
    (up, proxy)
}

/// Writes the bytes, and reads until the proxy closes.
async fn raw(proxy: &RunningProxy, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    // The answer and the end of the connection may come before everything was written.
    let _ = stream.write_all(bytes.as_ref()).await;
    let mut answer = Vec::new();
    let _ = within_time(stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// The statuses of all answers on a connection.
fn statuses(text: &str) -> Vec<u16> {
    let heads = text.match_indices("HTTP/1.").map(|(at, _)| &text[at + 9..]);
    heads
        .filter_map(|head| head.get(..3)?.parse().ok())
        .collect()
}

/// A chat completion with these lines in its head.
fn chat(lines: &str, body: &str) -> String {
    format!("POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n{body}")
}

fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

/// One worker serves all connections, and a plan may take seconds.
#[tokio::test]
async fn a_long_plan_holds_no_other_request_up() {
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", COMPLETION)]).await;
    let settings = Settings::with_server(&up, "max_body_bytes = 134217728");
    settings.write("[models.m]\ncontext_length = 100000");
    let process = Process::run(|command| {
        command
            .env("TOKIO_WORKER_THREADS", "1")
            .arg("--config")
            .arg(&settings.file)
    })
    .await;
    let said = "The planks of the deck are of oak, and there are 4,711 of them. ".repeat(4);
    let messages: Vec<Value> = (0..120_000)
        .map(
            |nth| json!({"role": if nth % 2 == 0 { "user" } else { "assistant" }, "content": said}),
        )
        .collect();
    let body = json!({"model": "up/m", "messages": messages}).to_string();
    let client = TestClient::http1(process.address);
    let begun = Instant::now();
    let other = TestClient::http1(process.address);
    let mut asked = JoinSet::new();
    asked.spawn(async move { other.chat(body).await });
    let mut longest = Duration::ZERO;
    let answered = loop {
        if let Some(answered) = asked.try_join_next() {
            break answered.unwrap();
        }
        let begun = Instant::now();
        assert_eq!(client.get("/healthz").await.status, 200);
        longest = longest.max(begun.elapsed());
    };
    assert_eq!(answered.status, 200);
    let whole = begun.elapsed();
    assert!(longest * 3 < whole, "{longest:?} of {whole:?}");
}
