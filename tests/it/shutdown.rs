//! On a signal the proxy lets running answers end, and then exits.

use std::{sync::Arc, time::Duration};

use http_body_util::BodyExt;
use plimsoll::store::Store;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{
    COMPLETION, DONE, FINISH, RunningProxy, SOON, ScriptedProvider, TEXT, TestStore, answer,
    endless_stream, next, stalled_stream, within_time,
};
#[cfg(unix)]
use crate::support::{Process, Settings, TestClient};

const ASK: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}"#;

#[tokio::test]
async fn a_drain_lets_running_answers_end() {
    let up = ScriptedProvider::start().await;
    let mut proxy = up.proxy().start().await;
    for (client, idle) in [(proxy.client(), proxy.client_h2())] {
        up.script_next(stalled_stream());
        assert_eq!(idle.get("/readyz").await.status, 200);
        let mut body = client.begin(client.chat_request(ASK)).await.into_body();
        assert_eq!(next(&mut body).await, TEXT);
        proxy.stop();
        // The listener is closed first.
        within_time(async {
            while TcpStream::connect(proxy.address).await.is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        up.release_stalled();
        let rest = within_time(body.collect()).await.unwrap().to_bytes();
        assert_eq!(rest, format!("{FINISH}{DONE}"));
    }
    proxy.wait_until_gone().await;
}

/// For the delay, all goes on but that the proxy is not ready and that no connection of HTTP/1.1 is kept.
#[tokio::test]
async fn a_stopping_proxy_serves_on_for_the_delay_without_being_ready() {
    let up = ScriptedProvider::start().await;
    let mut proxy = up
        .proxy()
        .set(|config| config.server.drain_delay = Duration::from_secs(600))
        .start()
        .await;
    let mut idle = TcpStream::connect(proxy.address).await.unwrap();
    let before = ask_ready(&mut idle).await;
    assert!(
        before.starts_with("HTTP/1.1 200 OK\r\n") && !before.contains("connection: "),
        "{before}"
    );
    let h2 = proxy.client_h2();
    assert_eq!(h2.get("/readyz").await.status, 200);
    let unused = TcpStream::connect(proxy.address).await.unwrap();
    up.script_next(stalled_stream());
    let streaming = proxy.client();
    let mut running = streaming
        .begin(streaming.chat_request(ASK))
        .await
        .into_body();
    assert_eq!(next(&mut running).await, TEXT);
    proxy.stop();
    let draining = async { while h2.get("/readyz").await.status != 503 {} };
    within_time(draining).await;

    // The idle connection is there for one more request, and says that it is the last.
    let last = ask_ready(&mut idle).await;
    assert!(last.starts_with("HTTP/1.1 503"), "{last}");
    assert!(
        last.contains("connection: close\r\n") && last.contains("draining"),
        "{last}"
    );
    assert_eq!(within_time(idle.read(&mut [0; 9])).await.unwrap(), 0);
    // So is one that was opened and not yet used, as balancers do, and a new one.
    let mut fresh = TcpStream::connect(proxy.address).await.unwrap();
    for connection in [&mut { unused }, &mut fresh] {
        let answered = ask_ready(connection).await;
        assert!(answered.contains("connection: close\r\n"), "{answered}");
    }
    // Errors say so too, and answers in a stream.
    let raw = send_raw(&proxy, "GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(
        raw.starts_with("HTTP/1.1 404") && raw.contains("connection: close\r\n"),
        "{raw}"
    );
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let body = ASK.replace("true", "false");
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let raw = send_raw(&proxy, &request).await;
    assert!(
        raw.starts_with("HTTP/1.1 200") && raw.contains("connection: close\r\n"),
        "{raw}"
    );
    // Streams end whole.
    up.release_stalled();
    let rest = within_time(running.collect()).await.unwrap().to_bytes();
    assert_eq!(rest, format!("{FINISH}{DONE}"));
}

#[tokio::test]
async fn after_the_delay_the_port_closes_and_the_proxy_ends() {
    let up = ScriptedProvider::start().await;
    let mut proxy = up
        .proxy()
        .set(|config| config.server.drain_delay = SOON)
        .start()
        .await;
    let idle = proxy.client();
    assert_eq!(idle.get("/readyz").await.status, 200);
    proxy.stop();
    proxy.wait_until_gone().await;
    assert!(TcpStream::connect(proxy.address).await.is_err());
}

/// The head and the body of the answer of `/readyz`.
async fn ask_ready(connection: &mut TcpStream) -> String {
    let asked = connection.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n");
    asked.await.unwrap();
    let mut seen = String::new();
    let whole = async {
        while !seen.ends_with("\"}") {
            let mut bytes = [0; 4_096];
            let read = connection.read(&mut bytes).await.unwrap();
            assert!(read > 0, "{seen}");
            seen += std::str::from_utf8(&bytes[..read]).unwrap();
        }
    };
    within_time(whole).await;
    seen
}

/// The whole answer on a connection of its own, up to the end of that.
async fn send_raw(proxy: &RunningProxy, request: &str) -> String {
    let mut connection = TcpStream::connect(proxy.address).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut seen = String::new();
    within_time(connection.read_to_string(&mut seen))
        .await
        .unwrap();
    seen
}

#[tokio::test]
async fn a_drain_cuts_endless_answers_off() {
    let up = ScriptedProvider::start().await;
    let mut proxy = up
        .proxy()
        .set(|config| config.server.drain_timeout = SOON)
        .start()
        .await;
    up.script_next(endless_stream());
    up.script_next(endless_stream());
    let clients = [proxy.client(), proxy.client_h2()];
    let mut bodies = Vec::new();
    for client in &clients {
        let mut body = client.begin(client.chat_request(ASK)).await.into_body();
        assert_eq!(next(&mut body).await, TEXT);
        bodies.push(body);
    }
    proxy.stop();
    proxy.wait_until_gone().await;
    for body in bodies {
        assert!(within_time(body.collect()).await.is_err());
    }
    up.closed(0).await;
    up.closed(1).await;
}

#[tokio::test]
async fn idle_connections_do_not_delay_a_drain() {
    let up = ScriptedProvider::start().await;
    let mut proxy = up
        .proxy()
        .set(|config| config.server.drain_timeout = Duration::from_secs(600))
        .start()
        .await;
    let begun = [
        // An incomplete head, and an HTTP/2 client that is silent.
        &b"POST /v1/chat/completions HTTP/1.1\r\nhost: loc"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ];
    let mut connections = Vec::new();
    for bytes in begun {
        let mut connection = TcpStream::connect(proxy.address).await.unwrap();
        connection.write_all(bytes).await.unwrap();
        connections.push(connection);
    }
    // The server's first HTTP/2 frame: it has read the preface.
    let said = connections[1].read_u8();
    within_time(said).await.unwrap();
    let idle = proxy.client();
    assert_eq!(idle.get("/readyz").await.status, 200);
    proxy.stop();
    proxy.wait_until_gone().await;
}

#[tokio::test]
async fn an_answer_that_ends_during_a_drain_is_stored_and_a_cut_one_is_not() {
    let up = ScriptedProvider::start().await;
    let data = tempfile::tempdir().unwrap();
    let store = Arc::new(TestStore::default());
    let start = async || {
        up.proxy()
            .set(|config| {
                config.server.drain_timeout = Duration::from_secs(2);
                config.server.data_dir = data.path().into();
            })
            .store(Arc::clone(&store) as Arc<dyn Store>)
            .start()
            .await
    };
    let mut proxy = start().await;
    let (ending, endless) = (proxy.client(), proxy.client());
    up.script_next(stalled_stream());
    let answered = ending.begin(ending.chat_request(ASK)).await;
    let session = answered.headers()["x-plimsoll-session"].clone();
    let mut whole = answered.into_body();
    assert_eq!(next(&mut whole).await, TEXT);
    up.script_next(endless_stream());
    let asked = endless.chat_request(ASK.replace("\"x\"", "\"y\""));
    let mut cut = endless.begin(asked).await.into_body();
    assert_eq!(next(&mut cut).await, TEXT);
    proxy.stop();
    // Releases the stream that stalled first.
    up.release_stalled();
    let rest = within_time(whole.collect()).await.unwrap().to_bytes();
    assert_eq!(rest, format!("{FINISH}{DONE}"));
    assert!(
        store.sessions_at_close.lock().unwrap().is_none(),
        "one runs on"
    );
    proxy.wait_until_gone().await;
    assert!(within_time(cut.collect()).await.is_err());
    assert_eq!(
        *store.sessions_at_close.lock().unwrap(),
        Some(1),
        "sessions at the end"
    );

    let proxy = start().await;
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let answered = proxy.chat(goes_on()).await;
    assert_eq!(answered.headers["x-plimsoll-session"], session);
}

#[cfg(unix)]
#[tokio::test]
async fn a_signal_lets_a_stream_end_and_then_exits() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    settings.write("");
    let mut proxy = Process::start(&settings.file).await;
    up.script_next(stalled_stream());
    let (client, idle) = (proxy.client(), TestClient::http2(proxy.address));
    assert_eq!(idle.get("/readyz").await.status, 200);
    let mut body = client.begin(client.chat_request(ASK)).await.into_body();
    assert_eq!(next(&mut body).await, TEXT);
    proxy.signal("TERM");
    proxy.wait_for_line("draining").await;
    up.release_stalled();
    let rest = within_time(body.collect()).await.unwrap().to_bytes();
    assert_eq!(rest, format!("{FINISH}{DONE}"));
    let (status, log) = proxy.wait_for_end().await;
    assert!(status.success() && log.contains("stopped"), "{log}");
    assert!(!log.contains("cut off"), "{log}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_stream_that_does_not_end_is_reset_and_the_exit_is_clean() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::with_server(&up, "drain_timeout_ms = 200");
    settings.write("");
    let mut proxy = Process::start(&settings.file).await;
    up.script_next(stalled_stream());
    let client = proxy.client();
    let mut body = client.begin(client.chat_request(ASK)).await.into_body();
    assert_eq!(next(&mut body).await, TEXT);
    proxy.signal("TERM");
    proxy.wait_for_line("cut off").await;
    assert!(within_time(body.collect()).await.is_err());
    let (status, _) = proxy.wait_for_end().await;
    assert!(status.success());
}

#[cfg(unix)]
#[tokio::test]
async fn a_second_signal_waits_for_no_answer() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::with_server(&up, "drain_timeout_ms = 600000");
    settings.write("");
    let mut proxy = Process::start(&settings.file).await;
    up.script_next(endless_stream());
    let client = proxy.client();
    let mut body = client.begin(client.chat_request(ASK)).await.into_body();
    assert_eq!(next(&mut body).await, TEXT);
    for heard in ["draining", "second stop signal"] {
        proxy.signal("INT");
        proxy.wait_for_line(heard).await;
    }
    up.closed(0).await;
    let (status, _) = proxy.wait_for_end().await;
    assert!(status.success());
}

#[cfg(unix)]
#[tokio::test]
async fn an_answer_that_ends_during_a_shutdown_is_in_the_file() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    settings.write("[store]\nurl = \"file\"\n");
    let mut proxy = Process::start(&settings.file).await;
    up.script_next(stalled_stream());
    let client = proxy.client();
    let asked = client.begin(client.chat_request(ASK)).await;
    let session = asked.headers()["x-plimsoll-session"].clone();
    let mut body = asked.into_body();
    assert_eq!(next(&mut body).await, TEXT);
    proxy.signal("TERM");
    proxy.wait_for_line("draining").await;
    up.release_stalled();
    let rest = within_time(body.collect()).await.unwrap().to_bytes();
    assert_eq!(rest, format!("{FINISH}{DONE}"));
    let (status, log) = proxy.wait_for_end().await;
    assert!(status.success(), "{log}");

    let proxy = Process::start(&settings.file).await;
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let got = proxy.client().chat(goes_on()).await;
    assert_eq!(got.headers["x-plimsoll-session"], session);
}

/// The conversation of [`ASK`] with its answer, and one more question.
fn goes_on() -> String {
    ASK.replace("true", "false").replace(
        "\"x\"}]",
        "\"x\"},{\"role\":\"assistant\",\"content\":\"hé\"},{\"role\":\"user\",\"content\":\"z\"}]",
    )
}
