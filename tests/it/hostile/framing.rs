//! Where a request ends: ambiguous framing is refused, or read in the one way that leaves no second
//! request.

use super::{ASK, chat, chunked, pair, raw, statuses};

/// The request that an attacker wants the provider to see.
const SMUGGLED: &str = "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";

/// Refused by its head alone.
#[tokio::test]
async fn ambiguous_framing_reaches_no_provider() {
    let (up, proxy) = pair().await;
    let length = ASK.len();
    let mut wrong = Vec::new();
    for lines in [
        format!("content-length: {length}\r\ncontent-length: 5\r\n"),
        format!("content-length: 5\r\ncontent-length: {length}\r\n"),
        format!("content-length: {length}, 5\r\n"),
        format!("content-length: +{length}\r\n"),
        format!("content-length: -{length}\r\n"),
        format!("content-length: 0x{length:x}\r\n"),
        "content-length: \r\n".to_owned(),
        "content-length: 99999999999999999999999\r\n".to_owned(),
        format!("content-length : {length}\r\n"),
        format!("content-length\t: {length}\r\n"),
        format!("x-a: 1\r\n content-length: {length}\r\n"),
        format!(" content-length: {length}\r\nx-a: 1\r\n"),
        format!("x-a: 1\rx-b: 2\r\ncontent-length: {length}\r\n"),
        format!("x-a: 1\0\r\ncontent-length: {length}\r\n"),
        format!("content-length: {length}\r\nx\0a: 1\r\n"),
        format!(": nameless\r\ncontent-length: {length}\r\n"),
        format!("no colon\r\ncontent-length: {length}\r\n"),
        "transfer-encoding: xchunked\r\n".to_owned(),
        "transfer-encoding: chunked, identity\r\n".to_owned(),
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n".to_owned(),
        "transfer-encoding: \x0bchunked\r\n".to_owned(),
        "transfer-encoding: \"chunked\"\r\n".to_owned(),
        "transfer-encoding : chunked\r\n".to_owned(),
        "transfer-encoding:\r\n chunked\r\n".to_owned(),
    ] {
        for body in [ASK.to_owned(), chunked(ASK)] {
            let text = raw(&proxy, chat(&lines, &format!("{body}{SMUGGLED}"))).await;
            if statuses(&text) != [400] {
                wrong.push(format!("{lines:?}: {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(up.count_requests(), 0);
}

/// Two equal lengths, and transfer codings in another spelling, are one request.
#[tokio::test]
async fn unambiguous_framing_is_one_request() {
    let (up, proxy) = pair().await;
    let length = ASK.len();
    let close = "connection: close\r\n";
    let cases = [
        (
            format!("content-length: {length}\r\ncontent-length: {length}\r\n"),
            ASK.to_owned(),
        ),
        (format!("content-length:{length}  \r\n"), ASK.to_owned()),
        ("transfer-encoding: Chunked\r\n".to_owned(), chunked(ASK)),
        ("transfer-encoding:  chunked \r\n".to_owned(), chunked(ASK)),
        (
            "transfer-encoding: chunked\r\n".to_owned(),
            chunked(ASK).replacen("\r\n", ";a=\"b\"\r\n", 1),
        ),
    ];
    for (count, (lines, body)) in cases.iter().enumerate() {
        let text = raw(&proxy, chat(&format!("{lines}{close}"), body)).await;
        assert_eq!(statuses(&text), [200], "{lines:?}: {text}");
        let seen = up.requests(count + 1).await.pop().unwrap();
        assert_eq!(seen.body, ASK.as_bytes());
        let framing = |name: &str| seen.headers.iter().filter(|(it, _)| it == name).count();
        assert_eq!(framing("content-length") + framing("transfer-encoding"), 1);
    }
    assert_eq!(up.count_requests(), cases.len());
}

/// SECURITY: a length beside a transfer coding smuggles a request past a server that reads the
/// other one. The coding counts, the length is not forwarded, and the rest of the connection is not
/// read.
#[tokio::test]
async fn a_content_length_beside_an_encoding_smuggles_no_request() {
    let (up, proxy) = pair().await;
    let whole = chunked(ASK);
    let mut count = 0;
    for length in [5, whole.len(), whole.len() + SMUGGLED.len()] {
        let length = format!("content-length: {length}\r\n");
        let coding = "transfer-encoding: chunked\r\n";
        for lines in [format!("{length}{coding}"), format!("{coding}{length}")] {
            let text = raw(&proxy, chat(&lines, &format!("{whole}{SMUGGLED}"))).await;
            assert_eq!(statuses(&text), [200], "{lines:?}: {text}");
            count += 1;
            let seen = up.requests(count).await.pop().unwrap();
            assert_eq!(seen.body, ASK.as_bytes());
            assert_eq!(seen.header("transfer-encoding"), None);
        }
    }
    assert_eq!(up.count_requests(), count);
}

#[tokio::test]
async fn damaged_chunks_are_refused() {
    let (up, proxy) = pair().await;
    let lines = "transfer-encoding: chunked\r\n";
    let length = ASK.len();
    let extension = "x".repeat(100_000);
    for body in [
        format!("fffffffffffffffff\r\n{ASK}\r\n0\r\n\r\n"),
        format!("0x{length:x}\r\n{ASK}\r\n0\r\n\r\n"),
        format!("+{length:x}\r\n{ASK}\r\n0\r\n\r\n"),
        format!("-1\r\n{ASK}\r\n0\r\n\r\n"),
        format!("\r\n{ASK}\r\n0\r\n\r\n"),
        format!("{:x}\r\n{ASK}\r\n0\r\n\r\n", length - 3),
        format!("{:x}\r\n{ASK}\r\n0\r\n\r\n", length + 3),
        format!("{length:x};{extension}\r\n{ASK}\r\n0\r\n\r\n"),
        format!("{length:x}\n{ASK}\n0\n\n"),
        format!(
            "{length:x}\r\n{ASK}\r\n0\r\n{}\r\n",
            "a: b\r\n".repeat(20_000)
        ),
        format!("{length:x}\r\n{ASK}\r\n"),
    ] {
        let text = raw(&proxy, chat(lines, &body)).await;
        let shown = &body[..body.len().min(80)];
        let found = statuses(&text);
        assert!(matches!(found[..], [400 | 408]), "{shown:?}: {text}");
        assert!(
            text.contains("body_incomplete") || text.contains("body_timeout"),
            "{text}"
        );
        assert!(text.contains("connection: close"), "{text}");
    }
    assert_eq!(up.count_requests(), 0);
}

/// Two requests in one packet get two answers, in order.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (up, proxy) = pair().await;
    let ask = |close: &str| chat(&format!("content-length: {}\r\n{close}", ASK.len()), ASK);
    let row = [
        ask(""),
        "GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n".into(),
        ask("connection: close\r\n"),
        ask(""),
    ];
    let text = raw(&proxy, row.concat()).await;
    assert_eq!(statuses(&text), [200, 404, 200], "{text}");
    assert_eq!(up.count_requests(), 2);
}
