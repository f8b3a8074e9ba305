//! What is forwarded, and what is cut.

use http::Method;
use serde_json::{Value, json};

use super::{WINDOW, message, proxy_before, step, text};
use crate::support::{
    AgentGeneration, MessagesAgent, Mixing, ModelReply, ModelSetup, NoticeManner, RunningModel,
    ScriptedProvider, Worker, answer, stream_of, words,
};

/// In a spelling that nobody would write anew.
const ODD: &str = r#"{ "model":"m" ,"max_tokens":1e3,"system":[{"text":"s","type":"text","cache_control":{"type":"ephemeral"}}],
 "later":{"a":[1.0,2]}, "messages":[{"content":"h\u00e9","role":"user"}, {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s=="},{"type":"text","text":"a"}]},{"role":"user","content":[{"type":"text","text":"b"}]}],"stream":STREAM}"#;

#[tokio::test]
async fn what_needs_no_change_is_forwarded_byte_for_byte() {
    let whole = message(&[text("h\u{e9}")], "end_turn", 7).replace(',', " , ");
    let events = "event: message_start\r\ndata: {\"type\":\"message_start\", \"message\":{\"id\":\"1\",\"usage\":{\"input_tokens\":7}}}\r\n\r\n\
         event: ping\ndata: {\"type\": \"ping\"}\n\n\
         event: newer\ndata: {\"type\":\"newer\"}\n\n\
         event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
         event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n\
         event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
         event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":3}}\n\n\
         event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    for (stream, script, expected) in [
        ("false", vec![answer("200 OK", "", &whole)], whole.as_str()),
        ("true", stream_of([events]), events),
    ] {
        let up = ScriptedProvider::start().await;
        let proxy = up.proxy().start().await;
        up.script_next(script);
        let body = ODD.replace("STREAM", stream);
        let client = proxy.client();
        let request = client.request(Method::POST, "/v1/messages?beta=true");
        let request = request.header("anthropic-beta", "a,b");
        let got = client.send_with(request, body.clone()).await;
        assert_eq!(got.text(), expected);
        assert_eq!(got.headers["x-plimsoll-actions"], "none");
        let seen = up.last_request();
        assert_eq!(seen.line, "POST /v1/messages?beta=true HTTP/1.1");
        assert_eq!(seen.header("anthropic-beta"), Some("a,b"));
        assert_eq!(seen.body, body.as_bytes());
    }
}

#[tokio::test]
async fn an_oversized_result_is_truncated() {
    let up = ModelSetup::new(200_000)
        .start(|_| ModelReply::text("fine"))
        .await;
    let proxy = proxy_before(&up, 200_000).start().await;
    let mut agent = MessagesAgent::new(&proxy);
    let [call, result] = step("toolu_1", &"a line of the log\n".repeat(10_000));
    agent.push("assistant", call["content"].clone());
    let mut results = result["content"].clone();
    results.as_array_mut().unwrap().push(text("And now?"));
    agent.push("user", results);
    let generation = agent.ask().await;
    assert_eq!(generation.action("truncated"), Some("1"));
    let body = up.bodies().await.remove(0);
    let content = &body["messages"][2]["content"];
    let kept = content[0]["content"].as_str().unwrap();
    assert!(kept.len() < 50_000 && kept.contains("characters truncated"));
    assert_eq!(content[1], text("And now?"));
    up.assert_no_faults();
}

async fn play_long_session(stream: bool, thinking: bool) -> (RunningModel, MessagesAgent) {
    let worker = Worker::new(NoticeManner::Ignores, Mixing::Never);
    let up = ModelSetup::new(WINDOW)
        .start(move |heard| worker.compose_reply(heard))
        .await;
    let proxy = proxy_before(&up, WINDOW)
        .set(|config| config.recovery.enabled = false)
        .start()
        .await;
    let mut agent = MessagesAgent::new(&proxy).set("stream", stream);
    agent.result = 900;
    if thinking {
        agent.fields["thinking"] = json!({"type": "enabled", "budget_tokens": 1_024});
    }
    let generations = agent.steps(60).await;
    let first = generations[0].answer.headers["x-plimsoll-session"].clone();
    let same = generations.iter();
    let mut same = same.map(|it| &it.answer.headers["x-plimsoll-session"]);
    assert!(same.all(|it| it == first));
    let is_cut = |it: &AgentGeneration| {
        let words = ["dropped", "cleared"].map(|word| it.action(word));
        words.iter().any(Option::is_some)
    };
    assert!(generations.iter().any(is_cut));
    let tokens = up.tokens();
    for (generation, tokens) in generations.iter().zip(&tokens) {
        let reported = generation.header("prompt-tokens");
        assert_eq!(reported, Some(&*tokens.to_string()), "{stream}");
    }
    (up, agent)
}

#[tokio::test]
async fn a_long_history_is_cut_and_stays_valid() {
    for stream in [false, true] {
        for thinking in [false, true] {
            let (up, agent) = play_long_session(stream, thinking).await;
            up.assert_no_faults();
            assert_eq!(up.overflows(), 0);
            let said = thoughts(&agent.fields);
            assert_eq!(said.is_empty(), !thinking);
            for body in up.bodies().await {
                assert_eq!(body["system"], agent.fields["system"]);
                let sent = thoughts(&body);
                assert!(sent.iter().all(|it| said.contains(it)));
                let entries = body["messages"].as_array().unwrap();
                let newest = entries.iter().rfind(|it| it["role"] == "assistant");
                let first = newest.map(|it| &it["content"][0]["type"]);
                assert!(!thinking || first.is_none_or(|kind| kind == "thinking"));
            }
        }
    }
}

/// The thinking blocks of a conversation.
fn thoughts(body: &Value) -> Vec<Value> {
    let entries = body["messages"].as_array().unwrap().iter();
    let blocks = entries.flat_map(|entry| entry["content"].as_array().into_iter().flatten());
    blocks
        .filter(|it| it["type"] == "thinking")
        .cloned()
        .collect()
}

#[tokio::test]
async fn the_health_of_a_stream_stands_before_its_end() {
    let up = ModelSetup::new(WINDOW)
        .start(|_| ModelReply::text("fine"))
        .await;
    let proxy = proxy_before(&up, WINDOW).start().await;
    let mut agent = MessagesAgent::new(&proxy)
        .set("stream", true)
        .with("te", "trailers");
    agent.push("assistant", "Where?");
    agent.push("user", words(2_000, 0));
    let generation = agent.ask().await;
    let events: Vec<_> = generation.answer.text().split_terminator("\n\n").collect();
    let [.., comment, end] = events[..] else {
        panic!("{events:?}")
    };
    let start = ": plimsoll health=healthy prompt-tokens=";
    assert!(comment.starts_with(start), "{comment}");
    assert!(end.starts_with("event: message_stop\n"));
    let trailers = generation.answer.trailers.clone().unwrap();
    assert_eq!(trailers["x-plimsoll-health"], "healthy");
    let tokens = up.tokens()[0].to_string();
    assert_eq!(trailers["x-plimsoll-prompt-tokens"], tokens);
}
