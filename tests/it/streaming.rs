//! Streams, as they come and to their end.

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::BodyExt;

use crate::support::{
    client::next,
    data,
    provider::{DONE, FINISH, Provider, Step, TEXT, USAGE, send, stream_head},
    proxy::{Proxy, within},
};

const ASK: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}"#;

#[tokio::test]
async fn every_piece_goes_on_at_once() {
    let up = Provider::start().await;
    up.then([
        stream_head(),
        send(TEXT),
        Step::Stall,
        send(&FINISH[..20]),
        Step::Stall,
        send(&FINISH[20..]),
        send(DONE),
        Step::Close,
    ]);
    let proxy = Proxy::new().provider("up", &up).start().await;
    // An explicit `false` is respected, so nothing is held that may be usage.
    let ask = ASK.replace(
        "\"stream\"",
        "\"stream_options\":{\"include_usage\":false},\"stream\"",
    );
    let client = proxy.client();
    let mut body = client
        .begin(client.chat_request(ask.clone()))
        .await
        .into_body();
    assert_eq!(next(&mut body).await, TEXT);
    up.release();
    assert_eq!(next(&mut body).await, &FINISH[..20]);
    up.release();
    let rest = within(body.collect()).await.unwrap().to_bytes();
    assert_eq!(rest, format!("{}{DONE}", &FINISH[20..]));
    assert_eq!(up.request().await.body, ask.as_bytes());
}

#[tokio::test]
async fn usage_is_asked_for_and_its_chunk_taken_out_again() {
    let up = Provider::start().await;
    let proxy = Proxy::new().provider("up", &up).start().await;
    let all = format!("{TEXT}{FINISH}{USAGE}{DONE}");
    let stream = [stream_head(), Step::Drip(all.clone().into()), Step::Close];
    for client in [proxy.client(), proxy.client_h2()] {
        up.then(stream.clone());
        let got = client.chat(ASK).await;
        assert_eq!(got.text(), all.replace(USAGE, ""));
        assert!(got.whole);
    }
    let seen = up.request().await;
    let asked = ASK.replace("]}", "],\"stream_options\":{\"include_usage\":true}}");
    assert_eq!(String::from_utf8(seen.body.clone()).unwrap(), asked);
    assert_eq!(
        seen.header("content-length"),
        Some(asked.len().to_string().as_str())
    );

    up.then(stream);
    let got = proxy.client().chat(asked).await;
    assert_eq!(got.text(), all, "who asks gets the chunk");
}

#[tokio::test]
async fn a_compressed_stream_is_relayed_as_it_is() {
    use std::io::Write;

    let up = Provider::start().await;
    let proxy = Proxy::new().provider("up", &up).start().await;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed
        .write_all(format!("{TEXT}{FINISH}{DONE}").as_bytes())
        .unwrap();
    let packed = packed.finish().unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n";
    // The client asked for the usage itself: there is nothing to take out.
    let asks = ASK.replace("]}", "],\"stream_options\":{\"include_usage\":true}}");
    up.then([send(head), Step::Drip(packed.clone()), Step::Close]);
    let got = proxy.client().chat(asks.clone()).await;
    assert_eq!(got.body, packed);
    assert_eq!(got.headers["content-encoding"], "gzip");
    assert!(got.whole);
    // Half of it is no whole answer, compressed or not.
    up.then([send(head), send(&packed[..packed.len() / 2]), Step::Close]);
    let got = proxy.client().chat(asks.clone()).await;
    assert_eq!(got.body, packed[..packed.len() / 2]);
    assert!(!got.whole);
}

#[tokio::test]
async fn our_own_chunk_is_taken_out_of_a_compressed_stream_too() {
    use std::io::Write;

    let up = Provider::start().await;
    let proxy = Proxy::new().provider("up", &up).start().await;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed
        .write_all(format!("{TEXT}{FINISH}{USAGE}{DONE}").as_bytes())
        .unwrap();
    let packed = packed.finish().unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n";
    up.then([send(head), Step::Drip(packed.clone()), Step::Close]);
    let got = proxy.client().chat(ASK).await;
    let expected = format!("{TEXT}{FINISH}{DONE}");
    assert_eq!(String::from_utf8_lossy(&got.body), expected);
    assert!(!got.headers.contains_key("content-encoding"));
    assert!(got.whole);
    // Damaged on the way: no clean end.
    up.then([
        send(head),
        send(&packed[..packed.len() / 2]),
        send("damage"),
        Step::Close,
    ]);
    let got = proxy.client().chat(ASK).await;
    assert!(!got.whole);
}

#[tokio::test]
async fn recorded_streams_pass_over_sockets() {
    let recorded = data::responses();
    let up = Provider::start().await;
    let proxy = Proxy::new().provider("up", &up).start().await;
    let ask = ASK.replace("]}", "],\"stream_options\":{\"include_usage\":true}}");
    let streams = recorded
        .into_iter()
        .filter(|response| response.name.ends_with(".sse"));
    for response in streams.step_by(4) {
        let stream = response.body;
        let middle = stream.len() / 2;
        up.then([
            stream_head(),
            send(&stream[..middle]),
            Step::Drip(stream[middle..].to_vec()),
            Step::Close,
        ]);
        let got = proxy.client().chat(ask.clone()).await;
        assert!(got.whole && got.body == stream, "{}", response.name);
    }
}

#[tokio::test]
async fn a_hundred_streams_at_once() {
    let up = Provider::start().await;
    let proxy = Proxy::new().provider("up", &up).start().await;
    for _ in 0..100 {
        up.then([
            stream_head(),
            send(TEXT),
            Step::Stall,
            send(FINISH),
            send(DONE),
            Step::Close,
        ]);
    }
    let client = proxy.client();
    let begun = (0..100).map(|_| async {
        let mut body = client.begin(client.chat_request(ASK)).await.into_body();
        assert_eq!(next(&mut body).await, TEXT);
        body
    });
    let bodies = within(join_all(begun)).await;
    (0..100).for_each(|_| up.release());
    let ends = bodies
        .into_iter()
        .map(|body| async { within(body.collect()).await.unwrap().to_bytes() });
    let end = Bytes::from(format!("{FINISH}{DONE}"));
    assert!(join_all(ends).await.iter().all(|rest| *rest == end));
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_providers_request() {
    let up = Provider::start().await;
    let proxy = Proxy::new().provider("up", &up).start().await;
    let phases: [&[Step]; 3] = [
        // Waiting for the head.
        &[Step::Stall],
        // Reading an answer that is not streamed.
        &[
            send(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
            ),
            Step::Stall,
        ],
        // Streaming.
        &[stream_head(), send(TEXT), Step::Stall],
    ];
    let mut count = 0;
    for http2 in [false, true] {
        for (phase, steps) in phases.iter().enumerate() {
            up.then(steps.to_vec());
            let client = if http2 {
                proxy.client_h2()
            } else {
                proxy.client()
            };
            let mut body = None;
            if phase == 2 {
                let answer = client.begin(client.chat_request(ASK)).await;
                let mut streamed = answer.into_body();
                assert_eq!(next(&mut streamed).await, TEXT);
                body = Some(streamed);
                count += 1;
            } else {
                let request = client.begin(client.chat_request(ASK));
                count += 1;
                tokio::select! {
                    _ = request => panic!("there is no answer"),
                    _ = up.requests(count) => {}
                }
            }
            let connection = up.requests(count).await[count - 1].connection;
            drop((body, client));
            up.closed(connection).await;
        }
    }
}
