//! Which prompt tokens a client reads in `usage`, of a request that was cut.

use plimsoll::config::ModelConfig;
use serde_json::json;

use crate::support::{
    client::Answer,
    provider::{COMPLETION, DONE, Provider, Step, TEXT, USAGE, answer, send, stream_head},
    proxy::Proxy,
};

const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1,\"total_tokens\":8},\"x_groq\":{\"usage\":{\"prompt_tokens\":7,\"total_tokens\": 8}}}\n\n";

/// A conversation that is longer than the window of `small`.
fn long(stream: bool) -> String {
    let mut messages = Vec::new();
    for turn in 0..40 {
        let question = format!("question {turn}: {}", "what of the keel ".repeat(40));
        messages.push(json!({"role": "user", "content": question}));
        messages.push(json!({"role": "assistant", "content": format!("answer {turn}")}));
    }
    messages.push(json!({"role": "user", "content": "and now?"}));
    let mut ask = json!({"model": "small", "messages": messages, "stream": stream});
    if stream {
        ask["stream_options"] = json!({"include_usage": true});
    }
    ask.to_string()
}

fn before(up: &Provider) -> Proxy {
    let small = ModelConfig {
        context_length: Some(4_096),
        ..ModelConfig::default()
    };
    Proxy::new()
        .provider("up", up)
        .set(|config| drop(config.models.insert("small".into(), small)))
}

fn was_cut(got: &Answer) {
    let actions = got.headers["x-plimsoll-actions"].to_str().unwrap();
    assert!(actions.contains("dropped="), "{actions}");
}

#[tokio::test]
async fn as_sent_is_what_the_provider_said() {
    let up = Provider::start().await;
    let proxy = before(&up).start().await;
    let client = proxy.client();
    up.then([answer("200 OK", "", COMPLETION)]);
    let got = client.chat(long(false)).await;
    was_cut(&got);
    assert_eq!(got.text(), COMPLETION);
    assert_eq!(got.headers["x-plimsoll-prompt-tokens"], "7");
    let stream = format!("{TEXT}{FINISH}{USAGE}{DONE}");
    up.then([
        stream_head(),
        Step::Drip(stream.clone().into()),
        Step::Close,
    ]);
    let got = client.chat(long(true)).await;
    was_cut(&got);
    assert_eq!(got.text(), stream);
    // The last chunk is ours where the client did not ask; the others are as they came.
    up.then([stream_head(), send(&stream), Step::Close]);
    let unasked = long(true).replace("\"stream_options\":{\"include_usage\":true}", "\"n\":1");
    let got = client.chat(unasked).await;
    assert_eq!(got.text(), stream.replace(USAGE, ""));
}
