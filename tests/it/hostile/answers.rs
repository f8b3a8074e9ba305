//! Answers of a hostile provider: the client gets an answer or an error, and the proxy keeps
//! working.

use std::io::Write as _;

use super::ASK;
use crate::support::{
    COMPLETION, DONE, FINISH, ProviderStep, RunningProxy, SOON, ScriptedProvider, answer,
    send_bytes, stream_head,
};

const STREAM: &str = r#"{"model":"m","stream":true,"stream_options":{"include_usage":false},"messages":[{"role":"user","content":"x"}]}"#;

async fn pair() -> (ScriptedProvider, RunningProxy) {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy();
    let proxy = proxy.set(|config| config.server.max_bytes_in_flight = 4 << 20);
    let proxy = proxy.providers(|provider| {
        provider.first_byte_timeout = 10 * SOON;
        provider.breaker_failures = 1_000;
    });
    (up, proxy.start().await)
}

async fn goes_on(up: &ScriptedProvider, proxy: &RunningProxy) {
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(proxy.chat(ASK).await.text(), COMPLETION);
}

#[tokio::test]
async fn endless_and_malformed_answer_heads_are_a_502() {
    let (up, proxy) = pair().await;
    let many: String = (0..100_000).map(|at| format!("x-{at}: y\r\n")).collect();
    let rest = format!("content-length: {}\r\n\r\n{COMPLETION}", COMPLETION.len());
    for head in [
        format!("HTTP/1.1 200 OK\r\n{many}{rest}"),
        format!("HTTP/1.1 200 OK\r\nx: {}\r\n{rest}", "y".repeat(2_000_000)),
        format!("HTTP/1.1 200 {}\r\n{rest}", "y".repeat(2_000_000)),
        format!("HTTP/1.1 200 OK\r\nx: a\rb\r\n{rest}"),
        format!("HTTP/1.1 200 OK\r\nx: a\0b\r\n{rest}"),
        format!("HTTP/1.1 99 OK\r\n{rest}"),
        format!("HTTP/1.1 2000 OK\r\n{rest}"),
        format!("HTTP/7.1 200 OK\r\n{rest}"),
        format!("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n{rest}"),
        format!("HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n{COMPLETION}"),
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{COMPLETION}"
        ),
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nnot hex\r\n{COMPLETION}"
        ),
    ] {
        let shown = head[..head.len().min(80)].to_owned();
        up.script_next([send_bytes(&head), ProviderStep::Close]);
        let got = proxy.chat(ASK).await;
        assert_eq!(got.status, 502, "{shown:?}: {}", got.text());
        let code = got.headers["x-plimsoll-error"].to_str().unwrap();
        assert!(code.starts_with("provider_"), "{shown:?}: {code}");
    }
    goes_on(&up, &proxy).await;
}

/// Informational answers are skipped; a flood of them ends with the first-byte timeout.
#[tokio::test]
async fn a_flood_of_informational_answers_is_ended() {
    let (up, proxy) = pair().await;
    let early = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        COMPLETION.len()
    );
    up.script_next([
        send_bytes(early.repeat(1_000)),
        send_bytes(&head),
        send_bytes(COMPLETION),
    ]);
    let got = proxy.chat(ASK).await;
    assert_eq!((got.status.as_u16(), got.text()), (200, COMPLETION));
    assert!(!got.headers.contains_key("link"));
    up.script_next([send_bytes(early.repeat(1_000)), ProviderStep::Stall]);
    proxy.chat(ASK).await.is_error(504, "provider_timeout");
    goes_on(&up, &proxy).await;
}

/// Ids and texts of an error stay in its body.
#[tokio::test]
async fn error_texts_of_a_provider_become_no_header() {
    let (up, proxy) = pair().await;
    let text = r#"{"error":{"message":"no\r\nset-cookie: a=b\r\n\r\n<script>","type":"x\r\ny","code":"a\nx-evil: 1"}}"#;
    let odd = "x-request-id: caf\u{e9}\u{6f22}\r\nset-cookie: a=b\r\nx-plimsoll-session: theirs\r\nx-plimsoll-health: healthy\r\n";
    for status in ["400 Bad Request", "500 Oops"] {
        up.script_next([answer(status, odd, text)]);
        let got = proxy.chat(ASK).await;
        assert_eq!((got.status.as_str(), got.text()), (&status[..3], text));
        assert!(!got.headers.contains_key("x-evil") && !got.headers.contains_key("set-cookie"));
        assert_eq!(
            got.headers["x-request-id"].as_bytes(),
            "caf\u{e9}\u{6f22}".as_bytes()
        );
        assert_ne!(
            got.headers
                .get("x-plimsoll-session")
                .map(|it| it.as_bytes()),
            Some(&b"theirs"[..])
        );
    }
    goes_on(&up, &proxy).await;
}

/// A line without an end is relayed and never buffered whole.
#[tokio::test]
async fn an_event_of_any_length_is_relayed() {
    const LINE: usize = 24 << 20;
    let (up, proxy) = pair().await;
    let piece = "y".repeat(1 << 20);
    let mut steps = vec![stream_head(), send_bytes("data: ")];
    steps.extend(vec![send_bytes(&piece); LINE >> 20]);
    steps.extend([
        send_bytes("\n\n"),
        send_bytes(FINISH),
        send_bytes(DONE),
        ProviderStep::Close,
    ]);
    up.script_next(steps);
    let got = proxy.chat(STREAM).await;
    assert!(got.whole && got.status == 200);
    assert_eq!(got.body.len(), 6 + LINE + 2 + FINISH.len() + DONE.len());
    goes_on(&up, &proxy).await;
}

/// A decompression bomb is relayed compressed, with unknown usage.
#[tokio::test]
async fn a_compressed_bomb_is_relayed_unchanged() {
    let (up, proxy) = pair().await;
    let zeros = vec![b' '; 64 << 20];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&zeros).unwrap();
    let mut br = Vec::new();
    brotli::CompressorWriter::new(&mut br, 1 << 16, 5, 22)
        .write_all(&zeros)
        .unwrap();
    let zstd = zstd::encode_all(&zeros[..], 3).unwrap();
    for (coding, packed) in [("gzip", gzip.finish().unwrap()), ("br", br), ("zstd", zstd)] {
        assert!(packed.len() < 1 << 20);
        up.script_next([answer(
            "200 OK",
            &format!("content-encoding: {coding}\r\n"),
            &packed,
        )]);
        let got = proxy.chat(ASK).await;
        assert_eq!(got.status, 200, "{coding}");
        assert!(got.body == packed && got.whole, "{coding}");
        assert_eq!(got.headers["content-encoding"], coding);
        assert_eq!(got.headers["x-plimsoll-health"], "unknown");
        // As a stream, and as an error.
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ncontent-encoding: {coding}\r\n\r\n"
        );
        up.script_next([send_bytes(head), send_bytes(&packed), ProviderStep::Close]);
        let got = proxy.chat(STREAM).await;
        assert!(got.body.starts_with(&packed), "{coding}");
        up.script_next([answer(
            "400 Bad Request",
            &format!("content-encoding: {coding}\r\n"),
            &packed,
        )]);
        let got = proxy.chat(ASK).await;
        assert!(got.status == 400 && got.body == packed, "{coding}");
    }
    goes_on(&up, &proxy).await;
}
