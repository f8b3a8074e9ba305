//! The proxy ends when it is told to, and lets running answers end first.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
};

use http_body_util::BodyExt;
use tokio::{
    net::TcpStream,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};

use crate::support::{
    client::{Client, next},
    provider::{DONE, FINISH, Provider, SOON, Step, TEXT, send, stream_head},
    proxy::{Proxy, within},
};

const ASK: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}"#;

#[tokio::test]
async fn running_answers_may_end() {
    let up = Provider::start().await;
    let mut proxy = Proxy::new().provider("up", &up).start().await;
    for (client, idle) in [(proxy.client(), proxy.client_h2())] {
        up.then([
            stream_head(),
            send(TEXT),
            Step::Stall,
            send(FINISH),
            send(DONE),
            Step::Close,
        ]);
        assert_eq!(idle.get("/readyz").await.status, 200);
        let mut body = client.begin(client.chat_request(ASK)).await.into_body();
        assert_eq!(next(&mut body).await, TEXT);
        proxy.stop();
        // The listener is closed before anything else.
        within(async {
            while TcpStream::connect(proxy.address).await.is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        up.release();
        let rest = within(body.collect()).await.unwrap().to_bytes();
        assert_eq!(rest, format!("{FINISH}{DONE}"));
    }
    proxy.gone().await;
}

#[tokio::test]
async fn answers_that_do_not_end_are_cut_off() {
    let up = Provider::start().await;
    let mut proxy = Proxy::new()
        .provider("up", &up)
        .set(|config| config.server.drain_timeout = SOON)
        .start()
        .await;
    up.then([stream_head(), send(TEXT), Step::Stall]);
    up.then([stream_head(), send(TEXT), Step::Stall]);
    let clients = [proxy.client(), proxy.client_h2()];
    let mut bodies = Vec::new();
    for client in &clients {
        let mut body = client.begin(client.chat_request(ASK)).await.into_body();
        assert_eq!(next(&mut body).await, TEXT);
        bodies.push(body);
    }
    proxy.stop();
    proxy.gone().await;
    for body in bodies {
        assert!(within(body.collect()).await.is_err());
    }
    up.closed(0).await;
    up.closed(1).await;
}

#[cfg(unix)]
#[tokio::test]
async fn told_twice_it_waits_for_no_answer() {
    let up = Provider::start().await;
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("config.toml");
    let written = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndata_dir = {:?}\ndrain_timeout_ms = 600000\n\
         [providers.up]\nbase_url = \"http://{}/v1\"\nauth = \"none\"\nask_models = false\n",
        folder.path().join("data"),
        up.address
    );
    std::fs::write(&settings, written).unwrap();
    let proxy = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("--config")
        .arg(&settings)
        .stderr(Stdio::piped())
        .spawn();
    let mut proxy = Killed(proxy.unwrap());
    let log = BufReader::new(proxy.0.stderr.take().unwrap());
    let (lines, mut log_lines) = unbounded_channel();
    let reader = thread::spawn(move || {
        let sent = |line: std::io::Result<String>| lines.send(line.unwrap()).is_ok();
        log.lines().all(sent)
    });
    let line = line_with(&mut log_lines, "listening on").await;
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = line["listen"].as_str().unwrap().parse().unwrap();
    up.then([stream_head(), send(TEXT), Step::Stall]);
    let client = Client::new(address, false);
    let mut body = client.begin(client.chat_request(ASK)).await.into_body();
    assert_eq!(next(&mut body).await, TEXT);
    for heard in ["draining", "told again"] {
        let pid = proxy.0.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status();
        assert!(sent.unwrap().success());
        line_with(&mut log_lines, heard).await;
    }
    up.closed(0).await;
    // Its log ends with it.
    while within(log_lines.recv()).await.is_some() {}
    assert!(reader.join().unwrap() && proxy.0.wait().unwrap().success());
}

/// Does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn line_with(lines: &mut UnboundedReceiver<String>, words: &str) -> String {
    loop {
        let line = within(lines.recv()).await.expect(words);
        if line.contains(words) {
            return line;
        }
    }
}
