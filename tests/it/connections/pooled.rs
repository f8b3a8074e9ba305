//! Each way in which a kept connection can die, and that one that lives is used again.

use http::Method;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::ask;
use crate::support::{
    COMPLETION, ProviderStep, ProxyBuilder, ScriptedProvider, answer, send_bytes, within_time,
};

/// Answers in all forms that leave a connection open.
fn any_answer(nth: usize) -> Vec<ProviderStep> {
    let chunked = |end: &str| {
        let size = COMPLETION.len();
        send_bytes(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n\
             {size:x}\r\n{COMPLETION}\r\n0\r\n{end}\r\n"
        ))
    };
    let step = match nth % 4 {
        0 => answer("200 OK", "", COMPLETION),
        1 => chunked(""),
        2 => chunked("x-trailer: a\r\n"),
        _ => answer("400 Bad Request", "", ""),
    };
    vec![step]
}

#[tokio::test]
async fn a_kept_connection_is_used_again_whatever_the_answer_was() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    for nth in 0..8 {
        up.script_next(any_answer(nth));
        let got = proxy.chat(ask("lives", 0, nth)).await;
        assert_eq!(
            got.status,
            [200, 200, 200, 400][nth % 4],
            "{nth}: {}",
            got.text()
        );
    }
    up.script_next([send_bytes("HTTP/1.1 204 No Content\r\n\r\n")]);
    let client = proxy.client();
    let got = client
        .send_with(client.request(Method::DELETE, "/v1/files/f"), "")
        .await;
    assert_eq!(got.status, 204);
    let last = up.script_next(any_answer(0));
    assert_eq!(proxy.chat(ask("lives", 0, 9)).await.status, 200);
    let all = last.requests(10).await;
    assert!(all.iter().all(|seen| seen.connection == 0), "one for all");
}

/// What a server does with a connection that it said it would keep, once it has answered on it.
#[tokio::test]
async fn a_kept_connection_that_dies_costs_no_request() {
    let half = "HTTP/1.1 200 OK\r\ncontent-type: application/";
    let early = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    // After the first answer, and once a second request is there: none is read a third time.
    let deaths: [(&str, Vec<ProviderStep>, Vec<ProviderStep>); 6] = [
        ("closed", vec![ProviderStep::Close], vec![]),
        ("reset", vec![ProviderStep::Reset], vec![]),
        (
            "unasked answer",
            vec![send_bytes(early), ProviderStep::Close],
            vec![],
        ),
        ("closed at the request", vec![], vec![ProviderStep::Close]),
        ("reset at the request", vec![], vec![ProviderStep::Reset]),
        (
            "half a head",
            vec![],
            vec![send_bytes(half), ProviderStep::Close],
        ),
    ];
    for (death, after, at_request) in deaths {
        let up = ScriptedProvider::start().await;
        let proxy = up.proxy().start().await;
        let is_read = !at_request.is_empty();
        let mut first = vec![answer("200 OK", "", COMPLETION)];
        first.extend(after);
        up.script_next(first);
        if is_read {
            up.script_next(at_request);
        }
        up.script_next([answer("200 OK", "", COMPLETION)]);
        for nth in 0..2 {
            let got = proxy.chat(ask("lives", 0, nth)).await;
            assert_eq!(got.status, 200, "{death}, {nth}: {}", got.text());
        }
        let seen = up.requests(2 + usize::from(is_read)).await;
        assert_eq!(seen.last().unwrap().connection, 1, "{death}");
    }
}

/// An answer that says so, and bytes behind an answer, end their connection.
#[tokio::test]
async fn a_connection_is_not_kept_where_more_may_come_on_it() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let closing = answer("200 OK", "connection: close\r\n", COMPLETION);
    let longer = answer("200 OK", "", COMPLETION);
    let extra = send_bytes("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    for (nth, steps) in [vec![closing], vec![longer, extra]].into_iter().enumerate() {
        up.script_next(steps);
        assert_eq!(proxy.chat(ask("lives", 0, nth)).await.status, 200, "{nth}");
        up.closed(nth).await;
    }
}

/// A server that ends its side of an idle connection sees the end of the other one, without a further request.
#[tokio::test]
async fn an_idle_connection_that_the_server_ends_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        let ProviderStep::Send(answer) = answer("200 OK", "", COMPLETION) else {
            unreachable!()
        };
        stream.write_all(&answer).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        // The body of the request, and the end.
        let _ = stream.read_to_end(&mut rest).await;
    });
    let nobody = ScriptedProvider::start().await;
    let proxy = ProxyBuilder::new().provider("up", &nobody).set(|config| {
        let provider = config.providers.get_mut("up").unwrap();
        provider.base_url = Some(format!("http://{address}/v1"));
    });
    let proxy = proxy.start().await;
    let got = proxy.chat(ask("lives", 0, 0)).await;
    assert_eq!(got.json()["object"], Value::from("chat.completion"));
    within_time(server.join_next()).await.unwrap().unwrap();
}

async fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        assert!(stream.read_buf(&mut head).await.unwrap() > 0);
    }
}

#[tokio::test]
async fn an_upload_goes_on_behind_an_answer_that_came_before_its_end() {
    const UPLOAD: usize = 16 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut server = JoinSet::new();
    server.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = Vec::new();
        let end = loop {
            stream.read_buf(&mut seen).await.unwrap();
            if let Some(at) = memchr::memmem::find(&seen, b"\r\n\r\n") {
                break at + 4;
            }
        };
        let early = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        stream.write_all(early.as_bytes()).await.unwrap();
        let (mut received, mut part) = (seen.len() - end, vec![0; 64 << 10]);
        while received < UPLOAD {
            let read = stream.read(&mut part).await.unwrap();
            assert_ne!(read, 0, "cut off after {received} bytes");
            received += read;
        }
        received
    });
    let nobody = ScriptedProvider::start().await;
    let proxy = ProxyBuilder::new().provider("up", &nobody).set(|config| {
        config.providers.get_mut("up").unwrap().base_url = Some(base_url);
    });
    let proxy = proxy.start().await;
    let client = proxy.client();
    let request = client.request(Method::POST, "/v1/files");
    let request = request.header("content-type", "application/octet-stream");
    let got = client.send_with(request, vec![b'x'; UPLOAD]).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let received = within_time(server.join_next()).await.unwrap();
    assert_eq!(received.unwrap(), UPLOAD);
}
