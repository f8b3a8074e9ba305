//! Streams from their first byte to their end.

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::BodyExt;

use crate::support::{
    DONE, FINISH, ProviderStep, ScriptedProvider, TEXT, USAGE, data, endless_stream, next,
    send_bytes, stalled_stream, stream_head, within_time,
};

const ASK: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}"#;

#[tokio::test]
async fn every_piece_is_relayed_at_once() {
    let up = ScriptedProvider::start().await;
    up.script_next([
        stream_head(),
        send_bytes(TEXT),
        ProviderStep::Stall,
        send_bytes(&FINISH[..20]),
        ProviderStep::Stall,
        send_bytes(&FINISH[20..]),
        send_bytes(DONE),
        ProviderStep::Close,
    ]);
    let proxy = up.proxy().start().await;
    // An explicit `false` is respected, so no chunk is held as possible usage.
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
    up.release_stalled();
    assert_eq!(next(&mut body).await, &FINISH[..20]);
    up.release_stalled();
    let rest = within_time(body.collect()).await.unwrap().to_bytes();
    assert_eq!(rest, format!("{}{DONE}", &FINISH[20..]));
    assert_eq!(up.request().await.body, ask.as_bytes());
}

#[tokio::test]
async fn usage_is_requested_and_its_chunk_removed() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let all = format!("{TEXT}{FINISH}{USAGE}{DONE}");
    let stream = [
        stream_head(),
        ProviderStep::Drip(all.clone().into()),
        ProviderStep::Close,
    ];
    for client in [proxy.client(), proxy.client_h2()] {
        up.script_next(stream.clone());
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

    up.script_next(stream);
    let got = proxy.chat(asked).await;
    assert_eq!(got.text(), all, "who asks gets the chunk");
}

#[tokio::test]
async fn a_compressed_stream_is_relayed_unchanged() {
    use std::io::Write;

    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed
        .write_all(format!("{TEXT}{FINISH}{DONE}").as_bytes())
        .unwrap();
    let packed = packed.finish().unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n";
    // The client asked for the usage, so nothing is removed.
    let asks = ASK.replace("]}", "],\"stream_options\":{\"include_usage\":true}}");
    up.script_next([
        send_bytes(head),
        ProviderStep::Drip(packed.clone()),
        ProviderStep::Close,
    ]);
    let got = proxy.chat(asks.clone()).await;
    assert_eq!(got.body, packed);
    assert_eq!(got.headers["content-encoding"], "gzip");
    assert!(got.whole);
    // Half a stream is incomplete, compressed or not.
    up.script_next([
        send_bytes(head),
        send_bytes(&packed[..packed.len() / 2]),
        ProviderStep::Close,
    ]);
    let got = proxy.chat(asks.clone()).await;
    assert_eq!(got.body, packed[..packed.len() / 2]);
    assert!(!got.whole);
}

#[tokio::test]
async fn the_usage_chunk_is_removed_from_a_compressed_stream() {
    use std::io::Write;

    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed
        .write_all(format!("{TEXT}{FINISH}{USAGE}{DONE}").as_bytes())
        .unwrap();
    let packed = packed.finish().unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n";
    up.script_next([
        send_bytes(head),
        ProviderStep::Drip(packed.clone()),
        ProviderStep::Close,
    ]);
    let got = proxy.chat(ASK).await;
    let expected = format!("{TEXT}{FINISH}{DONE}");
    assert_eq!(String::from_utf8_lossy(&got.body), expected);
    assert!(!got.headers.contains_key("content-encoding"));
    assert!(got.whole);
    // Damaged in transit: no clean end.
    up.script_next([
        send_bytes(head),
        send_bytes(&packed[..packed.len() / 2]),
        send_bytes("damage"),
        ProviderStep::Close,
    ]);
    let got = proxy.chat(ASK).await;
    assert!(!got.whole);
}

#[tokio::test]
async fn recorded_streams_pass_unchanged() {
    let recorded = data::responses();
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let ask = ASK.replace("]}", "],\"stream_options\":{\"include_usage\":true}}");
    let streams = recorded
        .into_iter()
        .filter(|response| response.name.ends_with(".sse"));
    for response in streams.step_by(4) {
        let stream = response.body;
        let middle = stream.len() / 2;
        up.script_next([
            stream_head(),
            send_bytes(&stream[..middle]),
            ProviderStep::Drip(stream[middle..].to_vec()),
            ProviderStep::Close,
        ]);
        let got = proxy.chat(ask.clone()).await;
        assert!(got.whole && got.body == stream, "{}", response.name);
    }
}

#[tokio::test]
async fn a_hundred_streams_run_at_once() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    for _ in 0..100 {
        up.script_next(stalled_stream());
    }
    let client = proxy.client();
    let begun = (0..100).map(|_| async {
        let mut body = client.begin(client.chat_request(ASK)).await.into_body();
        assert_eq!(next(&mut body).await, TEXT);
        body
    });
    let bodies = within_time(join_all(begun)).await;
    (0..100).for_each(|_| up.release_stalled());
    let ends = bodies
        .into_iter()
        .map(|body| async { within_time(body.collect()).await.unwrap().to_bytes() });
    let end = Bytes::from(format!("{FINISH}{DONE}"));
    assert!(join_all(ends).await.iter().all(|rest| *rest == end));
}

#[tokio::test]
async fn a_client_that_disconnects_ends_the_providers_request() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let phases: [&[ProviderStep]; 3] = [
        // Waiting for the head.
        &[ProviderStep::Stall],
        // Reading an answer that is not streamed.
        &[
            send_bytes(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
            ),
            ProviderStep::Stall,
        ],
        // Streaming.
        &endless_stream(),
    ];
    let mut count = 0;
    for http2 in [false, true] {
        for (phase, steps) in phases.iter().enumerate() {
            up.script_next(steps.to_vec());
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
