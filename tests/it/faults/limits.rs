//! What a client may send: its size and its time.

use super::*;

#[tokio::test]
async fn bodies_are_read_within_limits() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().set(|config| {
        config.server.max_body_bytes = 1_000;
        config.server.body_timeout = SOON;
    });
    let proxy = proxy.start().await;
    let large = format!("{ASK}{}", " ".repeat(1_000));
    for client in [proxy.client(), proxy.client_h2()] {
        let refused = client.chat(large.clone()).await;
        refused.is_error(413, "body_too_large");
        assert!(refused.text().contains("raise server.max_body_bytes"));
        // The limit holds without a content length too.
        let pieces = large
            .as_bytes()
            .chunks(100)
            .map(bytes::Bytes::copy_from_slice);
        let request = client.request(Method::POST, "/v1/chat/completions");
        let request = request.body(chunked_body(pieces)).unwrap();
        client.send(request).await.is_error(413, "body_too_large");
        // A body that stalls.
        let never = StreamBody::new(futures_util::stream::pending()).boxed_unsync();
        let request = client.request(Method::POST, "/v1/chat/completions");
        client
            .send(request.body(never).unwrap())
            .await
            .is_error(408, "body_timeout");
        let request = client
            .request(Method::POST, "/v1/chat/completions")
            .header("content-encoding", "compress");
        let got = client.send_with(request, "x").await;
        got.is_error(415, "unsupported_content_encoding");
    }
    assert_eq!(up.count_requests(), 0);
}

#[tokio::test]
async fn a_client_that_writes_first_gets_the_refusal_and_no_reset() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .providers(|provider| provider.auth = plimsoll::config::Auth::None)
        .client("alice", "alice", &["m"])
        .set(|config| config.server.max_bytes_in_flight = 2 << 20)
        .start()
        .await;
    let known = "authorization: Bearer alice\r\n";
    for (path, headers, status) in [
        ("/v1/chat/completions", "", "401"),
        ("/nowhere", known, "404"),
        ("/v1/files", known, "403"),
        ("/v1/embeddings", known, "503"),
        ("/v1/chat/completions", known, "503"),
        (
            "/v1/chat/completions",
            &format!("{known}content-encoding: x\r\n"),
            "415",
        ),
    ] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\
             content-length: 4000000\r\n\r\n"
        );
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // All of it is read, for clients that read only after writing.
        within_time(stream.write_all(&vec![b' '; 4_000_000]))
            .await
            .unwrap();
        let mut answer = String::new();
        within_time(stream.read_to_string(&mut answer))
            .await
            .unwrap();
        assert_eq!(&answer[9..12], status, "{path}: {answer}");

        // With `expect: 100-continue` the refusal comes first.
        let head = head.replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n");
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        within_time(stream.read_to_string(&mut answer))
            .await
            .unwrap();
        assert_eq!(&answer[9..12], status, "{path}: {answer}");
    }
    assert_eq!(up.count_requests(), 0);
}

#[tokio::test]
async fn bytes_in_flight_are_bounded() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .set(|config| config.server.max_bytes_in_flight = ASK.len() + 10)
        .start()
        .await;
    let client = proxy.client();
    up.script_next([
        ProviderStep::Stall,
        stream_head(),
        send_bytes(TEXT),
        send_bytes(DONE),
        ProviderStep::Close,
    ]);
    let first = client.chat(ASK);
    tokio::pin!(first);
    tokio::select! {
        _ = &mut first => panic!("there is no answer yet"),
        _ = up.requests(1) => {}
    }
    let got = client.chat(ASK).await;
    got.is_error(503, "overloaded");
    assert_eq!(got.headers["retry-after"], "1");
    up.release_stalled();
    assert_eq!(first.await.status, 200);
    // An answer beyond the limit is relayed without being read.
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(client.chat(ASK).await.text(), COMPLETION);
}

#[tokio::test]
async fn heads_are_bounded_in_size_and_time() {
    let proxy = ProxyBuilder::new().set(limit_heads).start().await;
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let head = format!(
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
        "x".repeat(20_000)
    );
    // The answer may come before everything was written.
    let _ = stream.write_all(head.as_bytes()).await;
    let mut answer = vec![0; 12];
    within_time(stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 431");

    for begun in ["", "PRI * HTTP", "GET /healthz HTTP/1.1\r\nhost: local"] {
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        // Closed or reset: either ends it.
        let _ = within_time(stream.read_to_end(&mut rest)).await;
    }
}

#[tokio::test]
async fn an_idle_connection_outlives_the_head_timeout() {
    let proxy = ProxyBuilder::new().set(limit_heads).start().await;
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let head = b"HEAD /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for _ in 0..2 {
        stream.write_all(head).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            assert_ne!(within_time(stream.read_buf(&mut answer)).await.unwrap(), 0);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        let closed = tokio::time::timeout(Duration::from_millis(500), stream.readable());
        assert!(closed.await.is_err(), "it stays open between two requests");
    }
}

fn limit_heads(config: &mut Config) {
    config.server.max_header_bytes = 8_192;
    config.server.header_timeout = Duration::from_millis(300);
}

#[tokio::test]
async fn connections_are_bounded() {
    let proxy = ProxyBuilder::new()
        .set(|config| config.server.max_connections = 1)
        .start()
        .await;
    let first = proxy.client();
    assert_eq!(first.get("/healthz").await.status, 200);
    let mut second = TcpStream::connect(proxy.address).await.unwrap();
    second
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    assert!(
        tokio::time::timeout(SOON, second.readable()).await.is_err(),
        "the second waits while the first is open"
    );
    drop(first);
    within_time(second.read_to_string(&mut answer))
        .await
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"));
}
