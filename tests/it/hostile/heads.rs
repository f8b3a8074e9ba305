//! Request heads that are slow, large, old or malformed.

use std::time::{Duration, Instant};

use http::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{ASK, chat, pair, raw, statuses};
use crate::support::within_time;

/// A dripping head keeps no connection open, and delays no other.
#[tokio::test]
async fn a_slow_head_is_cut_off_and_others_are_served() {
    let (up, proxy) = pair().await;
    let began = Instant::now();
    let mut slow = Vec::new();
    for _ in 0..50 {
        slow.push(TcpStream::connect(proxy.address).await.unwrap());
    }
    let head = chat("content-length: 5\r\n", "");
    let mut served = 0;
    let mut bytes = head.bytes().cycle();
    while !slow.is_empty() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{} are open",
            slow.len()
        );
        assert_eq!(proxy.client().get("/healthz").await.status, 200);
        served += 1;
        let byte = bytes.next().unwrap();
        let mut open = Vec::new();
        for mut stream in slow.drain(..) {
            let mut end = [0; 1];
            let wait = Duration::from_millis(1);
            let gone = stream.write_all(&[byte]).await.is_err()
                || matches!(
                    tokio::time::timeout(wait, stream.read(&mut end)).await,
                    Ok(Ok(0) | Err(_))
                );
            if !gone {
                open.push(stream);
            }
        }
        slow = open;
    }
    assert!(served > 1);
    assert_eq!(up.count_requests(), 0);
}

#[tokio::test]
async fn heads_beyond_a_bound_are_refused() {
    let (up, proxy) = pair().await;
    let many: String = (0..200).map(|at| format!("x-{at}: 1\r\n")).collect();
    let long = "x".repeat(70_000);
    for (what, head, status) in [
        (
            "many headers",
            format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"),
            431,
        ),
        (
            "a long value",
            format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n"),
            431,
        ),
        (
            "a long name",
            format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{long}: x\r\n\r\n"),
            431,
        ),
        (
            "a long path",
            format!("GET /{long} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
            431,
        ),
        (
            "a long method",
            format!("{long} / HTTP/1.1\r\nhost: localhost\r\n\r\n"),
            431,
        ),
    ] {
        let text = raw(&proxy, head).await;
        assert_eq!(statuses(&text), [status], "{what}: {text}");
        assert!(text.contains("connection: close"), "{what}: {text}");
    }
    assert_eq!(up.count_requests(), 0);
    assert_eq!(proxy.client().get("/healthz").await.status, 200);
}

/// No HTTP, or an unsupported version: an answer without a body, and the connection closes.
#[tokio::test]
async fn an_invalid_request_ends_the_connection() {
    let (up, proxy) = pair().await;
    for (bytes, expected) in [
        ("GET /healthz\r\n\r\n", &[400][..]),
        ("GET /healthz HTTP/9.9\r\nhost: localhost\r\n\r\n", &[400]),
        ("GET  /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", &[400]),
        ("GET /healthz HTTP/1.1 x\r\nhost: localhost\r\n\r\n", &[400]),
        (
            "G\u{1}ET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
            &[400],
        ),
        (
            "GET /heal\u{0}thz HTTP/1.1\r\nhost: localhost\r\n\r\n",
            &[400],
        ),
        (
            "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3}",
            &[400],
        ),
        ("{\"model\":\"m\"}\r\n\r\n", &[400]),
        ("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", &[400]),
    ] {
        let text = raw(&proxy, bytes).await;
        assert_eq!(statuses(&text), expected, "{bytes:?}: {text}");
    }
    assert_eq!(up.count_requests(), 0);
}

/// Valid requests for things that do not exist.
#[tokio::test]
async fn odd_targets_are_answered_by_the_proxy() {
    let (up, proxy) = pair().await;
    let close = "host: localhost\r\nconnection: close\r\n\r\n";
    for (line, expected) in [
        ("CONNECT localhost:22 HTTP/1.1", 404),
        ("OPTIONS * HTTP/1.1", 404),
        ("GET http://elsewhere.example/healthz HTTP/1.1", 403),
        ("GET http://localhost/healthz HTTP/1.1", 200),
        ("FOO /v1/chat/completions HTTP/1.1", 405),
        ("get /v1/chat/completions HTTP/1.1", 405),
        ("GET /v1/../plimsoll/api/sessions HTTP/1.1", 400),
        ("GET /v1/%2e%2e/plimsoll/api HTTP/1.1", 400),
        ("TRACE /healthz HTTP/1.1", 405),
        ("GET /healthz HTTP/1.0", 200),
    ] {
        let text = raw(&proxy, format!("{line}\r\n{close}")).await;
        assert_eq!(statuses(&text), [expected], "{line}: {text}");
        if expected >= 400 {
            assert!(text.contains("x-plimsoll-error"), "{line}: {text}");
        }
    }
    assert_eq!(up.count_requests(), 0);
}

/// An upgrade to anything but a websocket is answered in HTTP.
#[tokio::test]
async fn an_unknown_upgrade_is_answered_in_http() {
    let (up, proxy) = pair().await;
    for (count, upgrade) in ["h2c", "TLS/1.0", "x\u{7f}"].into_iter().enumerate() {
        let lines = format!(
            "connection: upgrade, close\r\nupgrade: {upgrade}\r\ncontent-length: {}\r\n",
            ASK.len()
        );
        let text = raw(&proxy, chat(&lines, ASK)).await;
        let expected = if upgrade.is_ascii() && !upgrade.contains('\u{7f}') {
            200
        } else {
            400
        };
        assert_eq!(statuses(&text), [expected], "{upgrade}: {text}");
        if expected == 200 {
            let seen = up.requests(count + 1).await.pop().unwrap();
            assert_eq!(
                (seen.header("upgrade"), seen.header("connection")),
                (None, None)
            );
        }
    }
}

/// SECURITY: client, session and model names never become a header line.
#[tokio::test]
async fn client_ids_inject_no_header() {
    let (up, proxy) = pair().await;
    let client = proxy.client();
    let odd: &[&[u8]] = &[
        b"\xff\xfe\x80",
        b"a, b; c=\"d\"",
        b"%0d%0ax-evil: 1",
        "漢字".as_bytes(),
    ];
    for id in odd {
        let mut request = client.request(Method::POST, "/v1/chat/completions");
        for name in [
            "x-plimsoll-session",
            "x-session-id",
            "x-request-id",
            "x-plimsoll-recovery",
            "traceparent",
        ] {
            request = request.header(name, *id);
        }
        let got = client.send_with(request, ASK).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let session = got.headers["x-plimsoll-session"].to_str().unwrap();
        assert!(
            session
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
            "{session}"
        );
    }
    for model in [
        "m\\r\\nx-evil: 1",
        "m\\u0000",
        "\\ud800",
        "漢字",
        "up/m\\nx-evil: 1",
    ] {
        let ask = ASK.replace("\"m\"", &format!("\"{model}\""));
        let got = client.chat(ask).await;
        assert!(!got.headers.contains_key("x-evil"), "{got:?}");
        let seen = up.last_request();
        assert_eq!(seen.header("x-evil"), None, "{seen:?}");
        assert!(
            seen.line.starts_with("POST /v1/chat/completions HTTP/1.1"),
            "{}",
            seen.line
        );
    }
}

/// An incomplete body is not forwarded, and its connection is not used again.
#[tokio::test]
async fn an_incomplete_body_reaches_no_provider() {
    let (up, proxy) = pair().await;
    for lines in [
        format!("content-length: {}\r\n", ASK.len() + 10),
        "content-length: 18446744073709551615\r\n".to_owned(),
        "content-length: 33554433\r\n".to_owned(),
    ] {
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        stream
            .write_all(chat(&lines, ASK).as_bytes())
            .await
            .unwrap();
        let mut text = String::new();
        within_time(stream.read_to_string(&mut text)).await.unwrap();
        let found = statuses(&text);
        assert!(matches!(found[..], [408 | 413 | 431]), "{lines}: {text}");
    }
    // The client disconnects in the middle.
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let half = chat(&format!("content-length: {}\r\n", ASK.len() + 10), ASK);
    stream.write_all(half.as_bytes()).await.unwrap();
    drop(stream);
    assert_eq!(proxy.chat(ASK).await.status, 200);
    assert_eq!(up.count_requests(), 1);
}
