//! Which prompt tokens a client reads in the `usage` of a cut request.

use plimsoll::config::UsageMode;
use serde_json::json;

use crate::support::{
    COMPLETION, ClientAnswer, DONE, ProviderStep, ProxyBuilder, ScriptedProvider, TEXT, USAGE,
    answer, model_with_window, stream_head, stream_of,
};

const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1,\"total_tokens\":8},\"x_groq\":{\"usage\":{\"prompt_tokens\":7,\"total_tokens\": 8}}}\n\n";

/// A conversation that exceeds the window of `small`.
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

fn proxy_before(up: &ScriptedProvider) -> ProxyBuilder {
    let small = model_with_window(4_096);
    up.proxy()
        .set(|config| drop(config.models.insert("small".into(), small)))
}

fn was_cut(got: &ClientAnswer) {
    let actions = got.headers["x-plimsoll-actions"].to_str().unwrap();
    assert!(actions.contains("dropped="), "{actions}");
}

#[tokio::test]
async fn usage_as_sent_is_the_providers() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up).start().await;
    let client = proxy.client();
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let got = client.chat(long(false)).await;
    was_cut(&got);
    assert_eq!(got.text(), COMPLETION);
    assert_eq!(got.headers["x-plimsoll-prompt-tokens"], "7");
    let stream = format!("{TEXT}{FINISH}{USAGE}{DONE}");
    up.script_next([
        stream_head(),
        ProviderStep::Drip(stream.clone().into()),
        ProviderStep::Close,
    ]);
    let got = client.chat(long(true)).await;
    was_cut(&got);
    assert_eq!(got.text(), stream);
    // The last chunk is the proxy's where the client did not ask; the others are unchanged.
    up.script_next(stream_of([&stream]));
    let unasked = long(true).replace("\"stream_options\":{\"include_usage\":true}", "\"n\":1");
    let got = client.chat(unasked).await;
    assert_eq!(got.text(), stream.replace(USAGE, ""));
}

/// The prompt tokens and the total of a usage.
fn tokens(usage: &serde_json::Value) -> (u64, u64) {
    let number = |name: &str| usage[name].as_u64().unwrap();
    (number("prompt_tokens"), number("total_tokens"))
}

#[tokio::test]
async fn usage_as_received_adds_the_omitted_tokens_but_health_does_not() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up).set(|config| config.guard.usage = UsageMode::AsReceived);
    let proxy = proxy.start().await;
    let client = proxy.client();
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let got = client.chat(long(false)).await;
    was_cut(&got);
    let (prompt, total) = tokens(&got.json()["usage"]);
    // About 3,000 tokens of 40 questions were sent of about 10,000.
    assert!((3_000..20_000).contains(&prompt), "{prompt}");
    assert_eq!(got.headers["x-plimsoll-prompt-tokens"], "7");
    let (sent, all) =
        tokens(&serde_json::from_str::<serde_json::Value>(COMPLETION).unwrap()["usage"]);
    assert_eq!(total - prompt, all - sent);
    let same = COMPLETION.replace(
        &format!("\"prompt_tokens\":{sent}"),
        &format!("\"prompt_tokens\":{prompt}"),
    );
    let same = same.replace(
        &format!("\"total_tokens\":{all}"),
        &format!("\"total_tokens\":{total}"),
    );
    assert_eq!(got.text(), same, "only the numbers changed");
    let stream = format!("{TEXT}{USAGE}{DONE}");
    up.script_next([
        stream_head(),
        ProviderStep::Drip(stream.clone().into()),
        ProviderStep::Close,
    ]);
    let got = client.chat(long(true)).await;
    was_cut(&got);
    assert!(
        !got.text().contains("\"prompt_tokens\":7,"),
        "{}",
        got.text()
    );
    assert!(got.text().starts_with(TEXT) && got.text().ends_with(DONE));
    // Nothing was cut from a short one.
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let short = r#"{"model":"small","messages":[{"role":"user","content":"Hello"}]}"#;
    assert_eq!(client.chat(short).await.text(), COMPLETION);
}
