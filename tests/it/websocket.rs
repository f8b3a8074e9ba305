//! Websockets are relayed: every message and every kind of end.

use futures_util::{SinkExt, StreamExt};
use http::HeaderMap;
use plimsoll::config::{Auth, ResponsesWebsocket, secret::Secret};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, accept_hdr_async, connect_async,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest,
        handshake::server::{ErrorResponse, Request, Response},
        protocol::{
            CloseFrame, Role,
            frame::{
                Frame,
                coding::{CloseCode, Data, OpCode},
            },
        },
    },
};

use crate::support::{
    ProxyBuilder, RunningProxy, SECRET, SOON, ScriptedProvider, answer, within_time,
};

type Client = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A proxy before a websocket server, and the server's listener.
async fn proxy_and_server(
    set: impl FnOnce(ProxyBuilder) -> ProxyBuilder,
) -> (TcpListener, RunningProxy) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let up = ScriptedProvider::start().await;
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let proxy = up.proxy().providers(|provider| {
        if provider.base_url.is_some() {
            provider.base_url = Some(url.clone());
        }
    });
    (listener, set(proxy).start().await)
}

/// Accepts the next websocket; returns its request.
async fn accept(listener: &TcpListener) -> (WebSocketStream<TcpStream>, String, HeaderMap) {
    let (stream, _) = within_time(listener.accept()).await.unwrap();
    let (mut path, mut headers) = (String::new(), HeaderMap::new());
    #[expect(clippy::result_large_err, reason = "the library's own type")]
    let look = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        path = request.uri().to_string();
        headers = request.headers().clone();
        if headers.contains_key("sec-websocket-protocol") {
            let chosen = "realtime".parse().unwrap();
            let out = response.headers_mut();
            out.insert("sec-websocket-protocol", chosen);
        }
        let fake = "1".parse().unwrap();
        response.headers_mut().insert("x-plimsoll-fake", fake);
        Ok(response)
    };
    let socket = within_time(accept_hdr_async(stream, look)).await.unwrap();
    (socket, path, headers)
}

fn ask(proxy: &RunningProxy, path: &str, headers: &[(&'static str, &str)]) -> http::Request<()> {
    let url = format!("ws://{}{path}", proxy.address);
    let mut request = url.into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

async fn connected(
    listener: &TcpListener,
    proxy: &RunningProxy,
    path: &str,
    headers: &[(&'static str, &str)],
) -> (Client, WebSocketStream<TcpStream>, String, HeaderMap) {
    let request = ask(proxy, path, headers);
    let (client, server) = tokio::join!(within_time(connect_async(request)), accept(listener));
    let (client, answer) = client.unwrap();
    assert_eq!(answer.status(), 101);
    assert!(!answer.headers().contains_key("x-plimsoll-fake"));
    let (server, path, seen) = server;
    (client, server, path, seen)
}

#[tokio::test]
async fn messages_of_every_kind_pass_both_ways() {
    let (listener, proxy) = proxy_and_server(|proxy| proxy).await;
    let (mut client, mut server, path, seen) = connected(
        &listener,
        &proxy,
        "/v1/realtime?a=%41&model=up%2Frt",
        &[
            ("authorization", "Bearer theirs"),
            ("openai-beta", "realtime=v1"),
            ("cookie", "a=b"),
        ],
    )
    .await;
    assert_eq!(path, "/v1/realtime?a=%41&model=rt");
    assert_eq!(seen["authorization"], "Bearer theirs");
    assert_eq!(seen["openai-beta"], "realtime=v1");
    assert!(!seen.contains_key("cookie"));

    let big = vec![7; 3 << 20];
    let messages = [
        Message::text("hé"),
        Message::binary(vec![0, 255]),
        Message::text(""),
        Message::Ping("p".into()),
        Message::binary(big),
    ];
    for message in messages {
        let (sent, got) = tokio::join!(client.send(message.clone()), within_time(server.next()));
        sent.unwrap();
        assert_eq!(got.unwrap().unwrap(), message);
        let (sent, got) = tokio::join!(server.send(message.clone()), async {
            loop {
                match within_time(client.next()).await.unwrap().unwrap() {
                    // The answer to the ping, beside the expected message.
                    Message::Pong(_) => {}
                    got => return got,
                }
            }
        });
        sent.unwrap();
        assert_eq!(got, message);
    }
    for (text, code, last) in [
        ("fra", OpCode::Data(Data::Text), false),
        ("gmen", OpCode::Data(Data::Continue), false),
        ("ts", OpCode::Data(Data::Continue), true),
    ] {
        let frame = Frame::message(text, code, last);
        client.send(Message::Frame(frame)).await.unwrap();
    }
    let got = loop {
        match within_time(server.next()).await.unwrap().unwrap() {
            Message::Pong(_) => {}
            got => break got,
        }
    };
    assert_eq!(got, Message::text("fragments"));
}

#[tokio::test]
async fn a_close_and_its_code_reach_the_other_side() {
    let (listener, proxy) = proxy_and_server(|proxy| proxy).await;
    let farewell = |code: u16, reason: &'static str| CloseFrame {
        code: CloseCode::from(code),
        reason: reason.into(),
    };
    let (mut client, mut server, ..) = connected(&listener, &proxy, "/up/v1/realtime", &[]).await;
    client.close(Some(farewell(4001, "done"))).await.unwrap();
    let got = within_time(server.next()).await.unwrap().unwrap();
    assert_eq!(got, Message::Close(Some(farewell(4001, "done"))));
    assert!(within_time(server.next()).await.is_none());
    let got = within_time(client.next()).await.unwrap().unwrap();
    assert!(got.is_close());
    // The server closes it.
    drop(server);
    assert!(within_time(client.next()).await.is_none());

    let (mut client, mut server, ..) = connected(&listener, &proxy, "/up/v1/realtime", &[]).await;
    server.close(Some(farewell(1011, "oops"))).await.unwrap();
    let got = within_time(client.next()).await.unwrap().unwrap();
    assert_eq!(got, Message::Close(Some(farewell(1011, "oops"))));
}

#[tokio::test]
async fn a_disconnect_reaches_the_other_side() {
    let (listener, proxy) = proxy_and_server(|proxy| proxy).await;
    let (client, mut server, ..) = connected(&listener, &proxy, "/v1/realtime", &[]).await;
    drop(client);
    assert!(
        within_time(server.next())
            .await
            .is_none_or(|got| got.is_err())
    );
    let (mut client, server, ..) = connected(&listener, &proxy, "/v1/realtime", &[]).await;
    drop(server);
    assert!(
        within_time(client.next())
            .await
            .is_none_or(|got| got.is_err())
    );
}

#[tokio::test]
async fn an_idle_websocket_is_closed() {
    let (listener, proxy) =
        proxy_and_server(|proxy| proxy.providers(|provider| provider.idle_timeout = SOON)).await;
    let (mut client, mut server, ..) = connected(&listener, &proxy, "/v1/realtime", &[]).await;
    assert!(
        within_time(client.next())
            .await
            .is_none_or(|got| got.is_err())
    );
    assert!(
        within_time(server.next())
            .await
            .is_none_or(|got| got.is_err())
    );
}

#[tokio::test]
async fn a_refused_upgrade_passes_unchanged() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let refusal = r#"{"error":{"message":"no such model"}}"#;
    up.script_next([answer("404 Not Found", "x-request-id: r\r\n", refusal)]);
    let refused = within_time(connect_async(ask(&proxy, "/v1/realtime", &[]))).await;
    let Err(Error::Http(answer)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(answer.status(), 404);
    assert_eq!(answer.headers()["x-request-id"], "r");
    assert_eq!(answer.body().as_deref(), Some(refusal.as_bytes()));
    let seen = up.request().await;
    assert_eq!(seen.line, "GET /v1/realtime HTTP/1.1");

    // The provider has no more steps, so it closes without an answer.
    let refused = within_time(connect_async(ask(&proxy, "/v1/realtime", &[]))).await;
    let Err(Error::Http(answer)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(answer.headers()["x-plimsoll-error"], "provider_unreachable");
}

#[tokio::test]
async fn only_websocket_upgrades_are_forwarded() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    up.script_next([answer("200 OK", "", "{}")]);
    let client = proxy.client();
    let request = client
        .request(http::Method::GET, "/v1/realtime")
        .header("connection", "Upgrade, HTTP2-Settings")
        .header("upgrade", "h2c")
        .header("http2-settings", "AAMAAABkAAQCAAAAAAIAAAAA");
    let got = client.send_with(request, "").await;
    assert_eq!(got.status, 200);
    let seen = up.request().await;
    for gone in ["upgrade", "connection", "http2-settings"] {
        assert_eq!(seen.header(gone), None);
    }
    // Nor is a request with a body, whose end nobody could find.
    up.script_next([answer("200 OK", "", "{}")]);
    let request = client
        .request(http::Method::GET, "/v1/realtime")
        .header("connection", "upgrade")
        .header("upgrade", "websocket");
    let got = client.send_with(request, "abc").await;
    assert_eq!(got.status, 200);
    let seen = up.requests(2).await.pop().unwrap();
    assert_eq!(
        (seen.header("upgrade"), &seen.body[..]),
        (None, &b"abc"[..])
    );
}

#[tokio::test]
async fn a_browsers_key_is_accepted_and_never_forwarded() {
    let (listener, proxy) = proxy_and_server(|proxy| {
        let ours = Auth::Key(Secret::new("ours"), "KEY".into());
        proxy
            .client("alice", SECRET, &["up/rt"])
            .providers(|provider| provider.auth = ours.clone())
            .set(|config| {
                config.responses.websocket = ResponsesWebsocket::Pass;
                let alice = config.clients.get_mut("alice").unwrap();
                alice.paths = vec!["realtime".into(), "responses".into()];
                alice.max_in_flight = Some(1);
            })
    })
    .await;
    let offered = format!("realtime, openai-insecure-api-key.{SECRET}, openai-beta.realtime-v1");
    let headers = [("sec-websocket-protocol", &*offered)];
    let path = "/v1/realtime?model=up/rt";
    let (mut client, server, _, seen) = connected(&listener, &proxy, path, &headers).await;
    assert_eq!(seen["authorization"], "Bearer ours");
    let offered = "realtime, openai-beta.realtime-v1";
    assert_eq!(seen["sec-websocket-protocol"], offered);
    assert!(!format!("{seen:?}").contains(SECRET));

    let refused = async |path: &str, key: &str| {
        let key = format!("Bearer {key}");
        let request = ask(&proxy, path, &[("authorization", &key)]);
        match Box::pin(within_time(connect_async(request))).await {
            Err(Error::Http(answer)) => {
                let code = answer.headers()["x-plimsoll-error"].clone();
                (answer.status().as_u16(), code.to_str().unwrap().to_owned())
            }
            other => panic!("{other:?}"),
        }
    };
    let is = |status: u16, code: &str| (status, code.to_owned());
    // A websocket counts as a running request until its end.
    assert_eq!(refused(path, SECRET).await, is(429, "too_many_requests"));
    assert_eq!(refused(path, "wrong").await, is(401, "invalid_api_key"));
    drop(server);
    assert!(
        within_time(client.next())
            .await
            .is_none_or(|got| got.is_err())
    );
    drop(client);
    let other = "/v1/realtime?model=up/other";
    let last = within_time(async {
        loop {
            let got = Box::pin(refused(other, SECRET)).await;
            if got.0 != 429 {
                return got;
            }
        }
    })
    .await;
    assert_eq!(last, is(404, "model_not_found"));
    // Model names inside messages are not read.
    for path in ["/v1/realtime", "/v1/responses", "/v1/responses?model=up/rt"] {
        let got = Box::pin(refused(path, SECRET)).await;
        assert_eq!(got, is(404, "model_not_found"), "{path}");
    }
}

#[tokio::test]
async fn websockets_for_responses_are_refused_unless_the_settings_pass_them() {
    let (listener, proxy) = proxy_and_server(|proxy| proxy).await;
    for path in [
        "/v1/responses",
        "/v1/responses?model=up/m",
        "/up/v1/responses",
    ] {
        let refused = Box::pin(within_time(connect_async(ask(&proxy, path, &[])))).await;
        let Err(Error::Http(answer)) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(answer.status(), 426, "{path}");
        assert_eq!(answer.headers()["x-plimsoll-error"], "websocket_refused");
        let body: Value = serde_json::from_slice(answer.body().as_deref().unwrap()).unwrap();
        assert_eq!(body["error"]["code"], "websocket_refused");
    }
    proxy.reload(|config| config.responses.websocket = ResponsesWebsocket::Pass);
    let (mut client, mut server, path, _) =
        connected(&listener, &proxy, "/v1/responses", &[]).await;
    assert_eq!(path, "/v1/responses");
    client.send(Message::text("{}")).await.unwrap();
    let got = within_time(server.next()).await.unwrap().unwrap();
    assert_eq!(got, Message::text("{}"));
}

#[tokio::test]
async fn a_drain_waits_for_a_websocket_and_then_cuts_it() {
    let (listener, mut proxy) =
        proxy_and_server(|proxy| proxy.set(|config| config.server.drain_timeout = SOON)).await;
    let (mut client, mut server, ..) = connected(&listener, &proxy, "/v1/realtime", &[]).await;
    proxy.stop();
    server.send(Message::text("still here")).await.unwrap();
    let got = within_time(client.next()).await.unwrap().unwrap();
    assert_eq!(got, Message::text("still here"));
    proxy.wait_until_gone().await;
    assert!(
        within_time(client.next())
            .await
            .is_none_or(|got| got.is_err())
    );
}

#[tokio::test]
async fn bytes_after_the_upgrade_answer_are_relayed() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let request = "GET /v1/realtime HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive, Upgrade\r\n\
                   upgrade: WebSocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n\r\n";
    // An unmasked text frame of two bytes.
    up.script_next([
        crate::support::send_bytes(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n\x81\x02hi",
        ),
        crate::support::ProviderStep::Stall,
    ]);
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes())
        .await
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let read = tokio::io::AsyncReadExt::read_u8(&mut stream);
        head.push(within_time(read).await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    let got = within_time(socket.next()).await.unwrap().unwrap();
    assert_eq!(got, Message::text("hi"));
}
