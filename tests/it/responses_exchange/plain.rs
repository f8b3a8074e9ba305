//! What is forwarded, and what is cut.

use http::Method;
use serde_json::{Value, json};

use super::{WINDOW, entries, of_type, proxy_before, response, said, step};
use crate::support::{
    AgentGeneration, Mixing, ModelReply, ModelSetup, NoticeManner, ResponsesAgent, RunningModel,
    ScriptedProvider, Worker, answer, responses_tool, stream_of, user_entry, words,
};

/// In a spelling that nobody would write anew.
const ODD: &str = r#"{ "model":"m" ,"max_output_tokens":1e3,"later":{"a":[1.0,2]},"instructions":"s",
 "input":[{"content":"h\u00e9","role":"user"}, {"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e=="},{"type":"message","role":"assistant","id":"msg_1","phase":"final_answer","content":[{"type":"output_text","text":"a"}]},{"newer":1,"type":"newer"},{"role":"user","content":[{"text":"b","type":"input_text"}]}],"stream":STREAM}"#;

#[tokio::test]
async fn what_needs_no_change_is_forwarded_byte_for_byte() {
    let whole = response(&[said("h\u{e9}")], 7).replace(',', " , ");
    let events = "event: response.created\r\ndata: {\"type\":\"response.created\", \"response\":{\"id\":\"resp_1\",\"output\":[],\"usage\":null},\"sequence_number\":0}\r\n\r\n\
         event: newer\ndata: {\"type\":\"newer\"}\n\n\
         : comment\n\n\
         event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\", \"output_index\":0,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[]},\"sequence_number\":1}\n\n\
         event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0,\"delta\":\"\\u00fc\",\"obfuscation\":\"xx\",\"sequence_number\":2}\n\n\
         event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"\\u00fc\"}]},\"sequence_number\":3}\n\n\
         event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"status\":\"completed\",\"output\":[],\"usage\":{\"input_tokens\": 7,\"output_tokens\":3}},\"sequence_number\":9}\n\n";
    for (stream, script, expected) in [
        ("false", vec![answer("200 OK", "", &whole)], whole.as_str()),
        ("true", stream_of([events]), events),
    ] {
        let up = ScriptedProvider::start().await;
        let proxy = up.proxy().start().await;
        up.script_next(script);
        let body = ODD.replace("STREAM", stream);
        let client = proxy.client();
        let request = client.request(Method::POST, "/v1/responses?a=%41");
        let request = request.header("openai-beta", "responses=experimental");
        let got = client.send_with(request, body.clone()).await;
        assert_eq!(got.text(), expected);
        assert_eq!(got.headers["x-plimsoll-actions"], "none");
        let seen = up.last_request();
        assert_eq!(seen.line, "POST /v1/responses?a=%41 HTTP/1.1");
        assert_eq!(seen.header("openai-beta"), Some("responses=experimental"));
        assert_eq!(seen.body, body.as_bytes());
    }
}

#[tokio::test]
async fn health_comes_from_the_input_tokens() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy();
    let proxy = proxy.model("m", crate::support::model_with_early_levels(WINDOW));
    let proxy = proxy.start().await;
    let agent = ResponsesAgent::new(&proxy);
    for (tokens, health) in [(700, "healthy"), (10_000, "caution"), (19_000, "critical")] {
        up.script_next([answer("200 OK", "", response(&[said("a")], tokens))]);
        let generation = agent.ask().await;
        assert_eq!(generation.header("health"), Some(health));
        assert_eq!(generation.number("prompt-tokens"), Some(tokens));
        let session = agent_session(&agent, &generation).await;
        assert_eq!(session["format"], "responses");
    }
}

async fn agent_session(agent: &ResponsesAgent, generation: &AgentGeneration) -> Value {
    let id = generation.header("session").unwrap();
    let path = format!("/plimsoll/api/sessions/{id}");
    agent.client.get(&path).await.json()
}

#[tokio::test]
async fn an_oversized_output_is_truncated() {
    let up = ModelSetup::new(200_000)
        .start(|_| ModelReply::text("fine"))
        .await;
    let proxy = proxy_before(&up, 200_000).start().await;
    let long = "a line of the log\n".repeat(10_000);
    let custom =
        json!({"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "x"});
    let parts = json!([{"type": "input_text", "text": long}]);
    let custom_output =
        json!({"type": "custom_tool_call_output", "call_id": "c2", "output": parts});
    let mut agent = ResponsesAgent::new(&proxy);
    agent.push(step("c1", &long));
    agent.push([custom, custom_output]);
    let generation = agent.ask().await;
    assert_eq!(generation.action("truncated"), Some("2"));
    let body = up.bodies().await.remove(0);
    let outputs = [
        &body["input"][2]["output"],
        &body["input"][4]["output"][0]["text"],
    ];
    for kept in outputs.map(|it| it.as_str().unwrap()) {
        assert!(kept.len() < 50_000 && kept.contains("characters truncated"));
    }
    up.assert_no_faults();
}

/// A session of 60 steps, with reasoning and calls of two kinds.
async fn play_long_session(stream: bool, keeps_ids: bool) -> (RunningModel, ResponsesAgent) {
    let worker = Worker::new(NoticeManner::Ignores, Mixing::Never);
    let up = ModelSetup::new(WINDOW)
        .start(move |heard| worker.compose_reply(heard))
        .await;
    let proxy = proxy_before(&up, WINDOW)
        .set(|config| config.recovery.enabled = false)
        .start()
        .await;
    let mut agent = ResponsesAgent::new(&proxy)
        .set("stream", stream)
        .set("reasoning", json!({"effort": "high"}));
    if stream {
        agent.fields["tools"] = json!([{"type": "custom", "name": "patch"}, responses_tool("b")]);
    }
    (agent.result, agent.keeps_ids) = (900, keeps_ids);
    let generations = agent.steps(60).await;
    let first = generations[0].header("session").unwrap().to_owned();
    let mut sessions = generations.iter().map(|it| it.header("session"));
    assert!(sessions.all(|it| it == Some(&*first)));
    let is_cut = |it: &AgentGeneration| {
        let words = ["dropped", "cleared"].map(|word| it.action(word));
        words.iter().any(Option::is_some)
    };
    assert!(generations.iter().any(is_cut));
    for (generation, tokens) in generations.iter().zip(up.tokens()) {
        assert_eq!(
            generation.header("prompt-tokens"),
            Some(&*tokens.to_string())
        );
    }
    (up, agent)
}

#[tokio::test]
async fn a_long_history_is_cut_and_stays_valid() {
    for (stream, keeps_ids) in [(false, false), (true, false), (false, true), (true, true)] {
        let (up, agent) = play_long_session(stream, keeps_ids).await;
        up.assert_no_faults();
        assert_eq!(up.overflows(), 0);
        let all: Vec<&Value> = of_type(entries(&agent.fields), "reasoning").collect();
        let (mut moved, mut before) = (0, Vec::new());
        let bodies = up.bodies().await;
        for body in &bodies {
            assert_eq!(body["instructions"], agent.fields["instructions"]);
            assert_eq!(body["input"][0], agent.fields["input"][0]);
            let mut sent = of_type(entries(body), "reasoning");
            assert!(sent.all(|it| all.contains(&it)));
            let now = entries(body).to_vec();
            moved += usize::from(!now.starts_with(&before));
            before = now;
        }
        assert!(
            (1..20).contains(&moved),
            "{moved} of {} moved",
            bodies.len()
        );
    }
}

#[tokio::test]
async fn the_health_of_a_stream_stands_before_its_end() {
    let up = ModelSetup::new(WINDOW)
        .start(|_| ModelReply::text("fine"))
        .await;
    let proxy = proxy_before(&up, WINDOW).start().await;
    let mut agent = ResponsesAgent::new(&proxy)
        .set("stream", true)
        .with("te", "trailers");
    agent.push([user_entry(&words(2_000, 0))]);
    let generation = agent.ask().await;
    let events: Vec<_> = generation.answer.text().split_terminator("\n\n").collect();
    let [.., comment, end] = events[..] else {
        panic!("{events:?}")
    };
    let start = ": plimsoll health=healthy prompt-tokens=";
    assert!(comment.starts_with(start), "{comment}");
    assert!(end.starts_with("event: response.completed\n"));
    let trailers = generation.answer.trailers.clone().unwrap();
    assert_eq!(trailers["x-plimsoll-health"], "healthy");
    let tokens = up.tokens()[0].to_string();
    assert_eq!(trailers["x-plimsoll-prompt-tokens"], tokens);
}
