//! Providers that refuse the request for a stream's usage.

use serde_json::json;

use super::{Talk, header, proxy_before, stream_of_deltas, user};
use crate::support::{ProviderStep, ReceivedRequest, RunningProxy, ScriptedProvider, answer};

const REFUSAL: &str = r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted","input":{"include_usage":true}}]}"#;

fn asks_for_usage(seen: &ReceivedRequest) -> bool {
    String::from_utf8_lossy(&seen.body).contains("stream_options")
}

/// A provider that refuses it with this status and body, and streams without usage otherwise.
async fn refusing_provider(status: &'static str, body: &'static str) -> ScriptedProvider {
    ScriptedProvider::start_answering(move |seen| {
        if asks_for_usage(seen) {
            return vec![answer(status, "retry-after: 9\r\n", body)];
        }
        stream_of_deltas(&[json!({"content": "hello"})], None)
    })
    .await
}

fn streaming(proxy: &RunningProxy) -> Talk {
    let mut talk = Talk::new(proxy);
    talk.fields = json!({"stream": true});
    talk.messages.push(user("x"));
    talk
}

#[tokio::test]
async fn refused_stream_options_are_left_out_and_remembered() {
    for (status, body) in [
        ("422 Unprocessable Entity", REFUSAL),
        (
            "400 Bad Request",
            r#"{"error_code":"BAD_REQUEST","message":"json: unknown field \"stream_options\""}"#,
        ),
    ] {
        let up = refusing_provider(status, body).await;
        let proxy = proxy_before(&up, 10_000).start().await;
        let talk = streaming(&proxy);
        let first = talk.ask().await;
        assert!(first.whole && first.text().contains("hello"));
        assert_eq!(header(&first, "attempts"), "2");
        let seen = up.requests(2).await;
        assert!(asks_for_usage(&seen[0]));
        assert_eq!(String::from_utf8_lossy(&seen[1].body), talk.body());
        let second = talk.ask().await;
        assert_eq!(header(&second, "attempts"), "1");
        assert_eq!(up.count_requests(), 3);
        assert_eq!(talk.session(&second).await["health"], "unknown");
        // Another model of the same provider is asked.
        let client = proxy.client();
        let other = client.chat(talk.body().replace("\"m\"", "\"n\"")).await;
        assert_eq!(header(&other, "attempts"), "2");
    }
}

#[tokio::test]
async fn a_client_that_sets_stream_options_gets_the_refusal() {
    let up = refusing_provider("422 Unprocessable Entity", REFUSAL).await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = streaming(&proxy);
    for asked in [true, false] {
        talk.fields["stream_options"] = json!({"include_usage": asked});
        let got = talk.ask().await;
        assert_eq!((got.status.as_u16(), got.text()), (422, REFUSAL));
        assert_eq!(header(&got, "attempts"), "1");
    }
    assert_eq!(up.count_requests(), 2);
}

#[tokio::test]
async fn other_errors_pass_as_they_came() {
    let long = format!(r#"{{"error":{{"message":"{}"}}}}"#, "no ".repeat(60_000));
    let echo = r#"{"detail":[{"loc":["body","messages"],"input":{"stream_options":1}}]}"#;
    let html = "<html>bad gateway</html>";
    for body in [
        &*long,
        echo,
        html,
        "",
        r#"{"error":{"message":"too long"}}"#,
    ] {
        let up = ScriptedProvider::start().await;
        let proxy = proxy_before(&up, 10_000).start().await;
        up.script_next([answer("400 Bad Request", "retry-after: 9\r\n", body)]);
        let got = streaming(&proxy).ask().await;
        assert_eq!((got.status.as_u16(), got.text()), (400, body));
        assert_eq!(got.headers["retry-after"], "9");
        assert_eq!(header(&got, "attempts"), "1");
        assert_eq!(up.count_requests(), 1);
    }
}

#[tokio::test]
async fn an_error_that_persists_without_stream_options_is_not_remembered() {
    let up =
        ScriptedProvider::start_answering(|_| vec![answer("400 Bad Request", "", REFUSAL)]).await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let talk = streaming(&proxy);
    for count in [2, 4] {
        let got = talk.ask().await;
        assert_eq!((got.status.as_u16(), got.text()), (400, REFUSAL));
        assert_eq!(header(&got, "attempts"), "2");
        assert_eq!(up.count_requests(), count);
    }
    // Half an error is not recognised.
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let half = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 100\r\n\r\n{\"stream_options".to_vec();
    up.script_next([ProviderStep::Send(half), ProviderStep::Close]);
    let got = streaming(&proxy).ask().await;
    got.is_error(502, "provider_bad_answer");
}
