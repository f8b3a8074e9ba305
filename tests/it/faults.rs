//! Faults of a provider or a client, and what the other side sees.

mod limits;

use std::time::Duration;

use http::Method;
use http_body_util::{BodyExt, StreamBody};
use plimsoll::config::Config;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};

use crate::support::{
    COMPLETION, DONE, FINISH, ProviderStep, ProxyBuilder, RunningProxy, SOON, ScriptedProvider,
    TEXT, answer, chunked_body, endless_stream, full_body, send_bytes, stream_head, stream_of,
    within_time,
};

const ASK: &str = r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}"#;

async fn proxy_of(up: &ScriptedProvider) -> RunningProxy {
    up.proxy().start().await
}

/// Asserts that the proxy still works.
async fn goes_on(up: &ScriptedProvider, proxy: &RunningProxy) {
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(proxy.chat(ASK).await.text(), COMPLETION);
}

#[tokio::test]
async fn a_providers_errors_pass_with_status_body_and_headers() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_of(&up).await;
    for status in [
        "400 Bad Request",
        "401 Unauthorized",
        "429 Too Many Requests",
        "500 Oops",
        "503 Busy",
    ] {
        for body in ["{\"error\": {\"message\":\"theirs\"}}", "<html>", ""] {
            up.script_next([answer(status, "retry-after: 7\r\n", body)]);
            let got = proxy.chat(STREAM).await;
            assert_eq!(got.status.as_str(), &status[..3]);
            assert_eq!(got.text(), body);
            assert_eq!(got.headers["retry-after"], "7");
            assert!(!got.headers.contains_key("x-plimsoll-error"));
        }
    }
    goes_on(&up, &proxy).await;
}

#[tokio::test]
async fn an_invalid_http_answer_is_a_502() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_of(&up).await;
    for (steps, code) in [
        (vec![ProviderStep::Close], "provider_unreachable"),
        (
            vec![send_bytes("\0\0 garbage\r\n\r\n"), ProviderStep::Close],
            "provider_bad_answer",
        ),
        (vec![answer("200 OK", "", "<html>")], "provider_bad_answer"),
        (vec![answer("200 OK", "", "")], "provider_bad_answer"),
        (
            vec![
                send_bytes(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
                ),
                ProviderStep::Close,
            ],
            "provider_bad_answer",
        ),
    ] {
        up.script_next(steps);
        proxy.chat(ASK).await.is_error(502, code);
    }
    // An answer that a lenient parser may read is relayed, with unknown health.
    let lax = r#"{"choices":[{"message":{"content":"x"},"logprobs":NaN}]}"#;
    up.script_next([answer("200 OK", "", lax)]);
    let got = proxy.chat(ASK).await;
    assert_eq!((got.status.as_u16(), got.text()), (200, lax));
    assert_eq!(got.headers["x-plimsoll-health"], "unknown");
    goes_on(&up, &proxy).await;

    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let proxy = up.proxy().set(|config| {
        let url = format!("http://{address}/v1");
        config.providers.get_mut("up").unwrap().base_url = Some(url);
    });
    let proxy = proxy.start().await;
    let got = proxy.chat(ASK).await;
    got.is_error(502, "provider_unreachable");
    // For a client on this machine; see `first_hour`.
    assert!(got.text().contains(&address.to_string()));
}

#[tokio::test]
async fn a_content_length_beside_a_transfer_encoding_is_dropped() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_of(&up).await;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let answer = format!("{head}{:x}\r\n{COMPLETION}\r\n0\r\n\r\n", COMPLETION.len());
    for client in [proxy.client(), proxy.client_h2()] {
        for path in ["/v1/chat/completions", "/v1/embeddings"] {
            up.script_next([send_bytes(&answer)]);
            let request = client
                .request(Method::POST, path)
                .body(full_body(ASK))
                .unwrap();
            let got = client.send(request).await;
            assert!(got.whole && got.text() == COMPLETION, "{path}: {got:?}");
        }
    }
}

#[tokio::test]
async fn an_unasked_protocol_switch_is_a_502() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_of(&up).await;
    for path in ["/v1/chat/completions", "/v1/realtime"] {
        let head =
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n";
        up.script_next([send_bytes(head), ProviderStep::Stall]);
        let client = proxy.client();
        let request = client
            .request(Method::POST, path)
            .body(full_body(ASK))
            .unwrap();
        let got = client.send(request).await;
        got.is_error(502, "provider_bad_answer");
    }
    goes_on(&up, &proxy).await;
}

#[tokio::test]
async fn an_answer_may_begin_with_a_byte_order_mark() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_of(&up).await;
    let marked = format!("\u{feff}{COMPLETION}");
    up.script_next([answer("200 OK", "", &marked)]);
    let got = proxy.chat(ASK).await;
    assert_eq!((got.status.as_u16(), got.text()), (200, marked.as_str()));
    assert_eq!(got.headers["x-plimsoll-prompt-tokens"], "7");
}

#[tokio::test]
async fn an_unread_answer_stays_counted_as_in_flight() {
    const ROOM: usize = 24 << 20;
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .set(|config| config.server.max_bytes_in_flight = ROOM)
        .start()
        .await;
    let large = COMPLETION.replace("hi", &"x".repeat(16 << 20));
    up.script_next([answer("200 OK", "", &large)]);
    // More than the kernel buffers: the rest waits in the proxy.
    let slow = TcpSocket::new_v4().unwrap();
    slow.set_recv_buffer_size(64 << 10).unwrap();
    let mut slow = slow.connect(proxy.address).await.unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let ask = format!("{head}content-length: {}\r\n\r\n{ASK}", ASK.len());
    slow.write_all(ask.as_bytes()).await.unwrap();
    let mut begin = [0; 12];
    within_time(slow.read_exact(&mut begin)).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    let other = ASK.replace('x', &"y".repeat(10 << 20));
    proxy.chat(other.clone()).await.is_error(503, "overloaded");
    // Once read to its end, it frees its bytes.
    within_time(slow.read_to_end(&mut Vec::new()))
        .await
        .unwrap();
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(proxy.chat(other).await.status, 200);
}

#[tokio::test]
async fn the_idle_timeout_counts_between_two_bytes() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().providers(|provider| {
        provider.first_byte_timeout = SOON;
        provider.idle_timeout = SOON;
    });
    let proxy = proxy.start().await;
    up.script_next([ProviderStep::Stall]);
    proxy.chat(ASK).await.is_error(504, "provider_timeout");
    up.closed(0).await;
    up.script_next(endless_stream());
    let got = proxy.chat(STREAM).await;
    assert!(!got.whole && got.text().starts_with(TEXT));
    up.closed(1).await;
}

#[tokio::test]
async fn a_cut_stream_ends_with_an_error_event_and_abnormally() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_of(&up).await;
    for client in [proxy.client(), proxy.client_h2()] {
        for half in [
            TEXT,
            "",
            "data: {\"choices\":[{\"ind",
            &format!("{TEXT}: hi\n"),
        ] {
            up.script_next(stream_of([half]));
            let got = client.chat(STREAM).await;
            assert_eq!(got.status, 200);
            assert!(!got.whole, "{half:?}");
            let event = got.text().strip_prefix(half).unwrap().trim();
            let event: serde_json::Value =
                serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(event["error"]["code"], "provider_bad_answer");
        }
    }
    for whole in [
        format!("{TEXT}{FINISH}"),
        format!("{TEXT}{DONE}"),
        "event: error\ndata: {\"error\":{\"message\":\"theirs\"}}\n\n".to_owned(),
    ] {
        up.script_next(stream_of([&whole]));
        let got = proxy.chat(STREAM).await;
        assert!(got.whole && got.text() == whole, "{whole}");
    }
    // A truncated chunked answer.
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("{:x}\r\n{TEXT}\r\n", TEXT.len());
    up.script_next([send_bytes(head), send_bytes(chunk), ProviderStep::Close]);
    let got = proxy.chat(STREAM).await;
    assert!(!got.whole && got.text().contains("provider_bad_answer"));
    goes_on(&up, &proxy).await;
}

#[tokio::test]
async fn a_pooled_connection_that_dies_is_replaced_once() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_of(&up).await;
    let client = proxy.client();
    up.script_next([answer("200 OK", "", COMPLETION)]);
    up.script_next([ProviderStep::Close]);
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(client.chat(ASK).await.status, 200);
    let got = client.chat(ASK.replace("\"x\"", "\"again\"")).await;
    assert_eq!(got.text(), COMPLETION);
    let seen = up.requests(3).await;
    let connections: Vec<_> = seen.iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
    assert_eq!(seen[1].body, seen[2].body);
    assert_eq!(seen[1].headers, seen[2].headers);
}

#[tokio::test]
async fn a_fresh_connection_that_dies_is_not_retried() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_of(&up).await;
    up.script_next([ProviderStep::Close]);
    up.script_next([answer("200 OK", "", COMPLETION)]);
    proxy.chat(ASK).await.is_error(502, "provider_unreachable");
    assert_eq!(up.count_requests(), 1);
}
