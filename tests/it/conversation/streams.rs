//! Health of a stream: the previous answer's at its head, its own at its end.

use http::HeaderMap;
use serde_json::{Value, json};

use super::{
    Talk, completion_of, header, health_line, numbering_provider, proxy_before, stream_of_deltas,
    user,
};
use crate::support::{
    ClientAnswer, DONE, FINISH, ProviderStep, RunningProxy, ScriptedProvider, TEXT, TestClient,
    USAGE, answer, next, send_bytes, stream_head, stream_of,
};

fn hello() -> Vec<Value> {
    vec![
        json!({"role": "assistant", "content": "he"}),
        json!({"content": "llo"}),
    ]
}

fn streaming(proxy: &RunningProxy, client: TestClient) -> Talk {
    let mut talk = Talk::new(proxy);
    talk.client = client;
    talk.fields = json!({"stream": true});
    talk.messages.push(user("x"));
    talk
}

#[tokio::test]
async fn the_head_of_a_stream_has_the_health_of_the_previous_answer() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = streaming(&proxy, proxy.client());
    for (used, expected) in [
        (Some(5_000), "unknown previous unknown 10000 - -"),
        (Some(6_800), "caution previous 5000 10000 0.500 1.129"),
        (None, "critical previous 6800 10000 0.680 1.535"),
        (Some(9), "unknown previous unknown 10000 - -"),
        (Some(9), "healthy previous 9 10000 0.001 0.002"),
    ] {
        up.script_next(stream_of_deltas(&hello(), used));
        let got = talk.ask().await;
        assert!(got.whole && got.trailers.is_none());
        assert_eq!(health_line(&got.headers), expected);
        assert_eq!(header(&got, "actions"), "none");
        assert!(!got.headers.contains_key("trailer"));
        assert!(!got.text().contains("plimsoll"));
        talk.messages
            .push(json!({"role": "assistant", "content": "hello"}));
        talk.messages.push(user("y"));
    }
}

/// The last comment of a stream, and its trailers.
async fn check(proxy: &RunningProxy, client: TestClient, up: &ScriptedProvider) {
    let talk = streaming(proxy, client)
        .with("te", "trailers")
        .with("x-plimsoll-stream-health", "comment");
    up.script_next(stream_of_deltas(&hello(), Some(4_600)));
    let got = talk.ask().await;
    assert!(got.whole);
    let trailers: HeaderMap = got.trailers.clone().expect("trailers came");
    assert_eq!(
        health_line(&trailers),
        "caution response 4600 10000 0.460 1.039"
    );
    assert_eq!(trailers.len(), 7);
    let comment = ": plimsoll health=caution prompt-tokens=4600 context-limit=10000 hard-util=0.460 optimal-util=1.039 actions=none\n\n";
    assert!(
        got.text().ends_with(&format!("{comment}{DONE}")),
        "{}",
        got.text()
    );
    let named = got.headers.get_all("trailer").iter();
    let named = named.flat_map(|value| value.to_str().unwrap().split(", "));
    let named: Vec<_> = named.collect();
    assert!(trailers.keys().all(|name| named.contains(&name.as_str())));
}

#[tokio::test]
async fn the_end_of_a_stream_has_its_own_health() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    check(&proxy, proxy.client(), &up).await;
    check(&proxy, proxy.client_h2(), &up).await;
}

#[tokio::test]
async fn a_stream_without_done_has_its_health_too() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let talk = streaming(&proxy, proxy.client()).with("x-plimsoll-stream-health", "comment");
    up.script_next(stream_of([TEXT, FINISH, USAGE]));
    let got = talk.ask().await;
    let comment = ": plimsoll health=healthy prompt-tokens=7 context-limit=10000 hard-util=0.001 optimal-util=0.002 actions=none\n\n";
    assert!(got.whole);
    assert_eq!(got.text(), format!("{TEXT}{FINISH}{comment}"));
}

#[tokio::test]
async fn a_client_that_disconnects_leaves_no_state() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let talk = streaming(&proxy, proxy.client());
    up.script_next([
        stream_head(),
        send_bytes(TEXT),
        send_bytes(FINISH),
        ProviderStep::Stall,
    ]);
    let mut answer = talk.client.begin(talk.request()).await;
    let session = answer.headers()["x-plimsoll-session"].clone();
    next(answer.body_mut()).await;
    drop(answer);
    up.closed(0).await;
    let path = format!("/plimsoll/api/sessions/{}", session.to_str().unwrap());
    talk.client
        .get(&path)
        .await
        .is_error(404, "session_not_found");
}

#[tokio::test]
async fn a_stream_without_usage_ends_with_unknown_health() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    up.script_next(stream_of_deltas(&hello(), None));
    let talk = streaming(&proxy, proxy.client())
        .with("te", "trailers")
        .with("x-plimsoll-stream-health", "comment");
    let got = talk.ask().await;
    let comment =
        ": plimsoll health=unknown prompt-tokens=unknown context-limit=10000 actions=none\n\n";
    assert!(got.text().ends_with(&format!("{comment}{DONE}")));
    let trailers = got.trailers.unwrap();
    assert_eq!(health_line(&trailers), "unknown response unknown 10000 - -");
}

#[tokio::test]
async fn a_broken_stream_leaves_no_state() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let talk = streaming(&proxy, proxy.client()).with("te", "trailers");
    up.script_next(stream_of([TEXT]));
    let got = talk.ask().await;
    assert!(!got.whole && got.trailers.is_none());
    assert_eq!(talk.session(&got).await, Value::Null);
    // An answer that is an error leaves none either.
    let error = "data: {\"error\":{\"message\":\"overloaded\"}}\n\n";
    up.script_next(stream_of([error, DONE]));
    let got = talk.ask().await;
    assert_eq!(talk.session(&got).await, Value::Null);
    up.script_next(stream_of_deltas(&hello(), Some(9)));
    let got = talk.ask().await;
    assert_eq!(talk.session(&got).await["generations"], 1);
}

/// A streamed answer and the message an SDK makes of it; checks that the session is found.
async fn found_again(deltas: &[Value], made: Value, results: &[Value]) {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = streaming(&proxy, proxy.client());
    let mut other = streaming(&proxy, proxy.client());
    up.script_next(stream_of_deltas(deltas, Some(77)));
    let first = talk.ask().await;
    // A second answer to the same request, so that only the answer distinguishes them.
    up.script_next(stream_of_deltas(
        &[json!({"content": "something else"})],
        Some(5),
    ));
    let second = other.ask().await;
    assert_ne!(header(&first, "session"), header(&second, "session"));
    talk.messages.push(made);
    talk.messages.extend_from_slice(results);
    other
        .messages
        .push(json!({"role": "assistant", "content": "something else"}));
    other.messages.push(user("y"));
    let found = |got: &ClientAnswer, first: &ClientAnswer| {
        assert_eq!(header(got, "session"), header(first, "session"));
    };
    up.script_next(stream_of_deltas(&hello(), Some(9)));
    let got = talk.ask().await;
    found(&got, &first);
    assert_eq!(header(&got, "prompt-tokens"), "77");
    up.script_next(stream_of_deltas(&hello(), Some(9)));
    found(&other.ask().await, &second);
    assert_eq!(talk.session(&got).await["generations"], 2);
}

#[tokio::test]
async fn text_streamed_in_pieces_is_recognised() {
    let deltas = [
        json!({"role": "assistant", "content": ""}),
        json!({"content": "h\u{e9}"}),
        json!({"content": " \"quoted\"\n"}),
        json!({"content": "\u{1F600}"}),
    ];
    let made = json!({"role": "assistant", "content": "h\u{e9} \"quoted\"\n\u{1F600}"});
    found_again(&deltas, made, &[user("y")]).await;
}

#[tokio::test]
async fn calls_streamed_in_fragments_are_recognised() {
    let piece = |index: u32, call: Value| {
        let mut call = call;
        call["index"] = index.into();
        json!({"tool_calls": [call]})
    };
    let start = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": ""}});
    let more = |text: &str| json!({"function": {"arguments": text}});
    let deltas = [
        json!({"role": "assistant", "content": null}),
        piece(0, start("a1")),
        piece(0, more("{\"x\"")),
        piece(0, more(":1}")),
        piece(1, start("a2")),
        piece(1, more("{}")),
    ];
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
    // Arguments as some SDKs rewrite them, and missing text as an empty string.
    let made = json!({"role": "assistant", "content": "", "tool_calls": [call("a1", "{\"x\": 1}"), call("a2", "{ }")]});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "ok"});
    found_again(&deltas, made, &[result("a1"), result("a2")]).await;
}

#[tokio::test]
async fn a_stream_answered_in_one_piece_is_judged_at_once() {
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let talk = streaming(&proxy, proxy.client());
    let got = talk.ask().await;
    assert_eq!(
        health_line(&got.headers),
        "healthy response 1000 10000 0.100 0.226"
    );
    // The reverse: a stream for a request without `stream`.
    let mut talk = Talk::new(&proxy);
    talk.messages.push(user("z"));
    up.script_next(stream_of_deltas(&hello(), Some(9)));
    let got = talk.ask().await;
    assert_eq!(header(&got, "health-from"), "previous");
    assert_eq!(talk.session(&got).await["prompt_tokens"], 9);
    up.script_next([answer("200 OK", "", "not json")]);
    talk.ask().await.is_error(502, "provider_bad_answer");
    up.script_next([completion_of("fine", None)]);
    assert_eq!(talk.ask().await.status, 200);
}
