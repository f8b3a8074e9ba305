//! Overflows, and other errors of the provider.

use plimsoll::guard::profile::find_profile;

use super::{WINDOW, message, proxy_before, step, text};
use crate::support::{
    MessagesAgent, Mixing, ModelReply, ModelSetup, NoticeManner, ScriptedProvider, Worker, answer,
    model_with_window, stream_of, words,
};

const TOO_LONG: &str = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"},"request_id":"r"}"#;

#[tokio::test]
async fn an_overflow_is_learnt_and_healed() {
    for stream in [false, true] {
        let worker = Worker::new(NoticeManner::Ignores, Mixing::Never);
        let up = ModelSetup::new(WINDOW)
            .start(move |heard| worker.compose_reply(heard))
            .await;
        let proxy = proxy_before(&up, 3 * WINDOW)
            .set(|config| config.recovery.enabled = false)
            .start()
            .await;
        let mut agent = MessagesAgent::new(&proxy).set("stream", stream);
        agent.result = 900;
        let generations = agent.steps(50).await;
        assert_eq!(up.overflows(), 1);
        let healed = generations.iter();
        let healed = healed.filter(|it| it.action("refitted").is_some());
        assert_eq!(healed.count(), 1);
        up.assert_no_faults();
    }
}

/// Makes a conversation that can be cut.
fn push_steps(agent: &mut MessagesAgent) {
    for nth in 0..8 {
        let [call, result] = step(&format!("toolu_{nth}"), &words(3_000, nth));
        agent.push("assistant", call["content"].clone());
        agent.push("user", result["content"].clone());
    }
}

#[tokio::test]
async fn an_overflow_in_the_first_event_is_healed() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .providers(|provider| provider.profile = find_profile("template").unwrap())
        .model("m", model_with_window(60_000))
        .start()
        .await;
    let mut agent = MessagesAgent::new(&proxy).set("stream", true);
    push_steps(&mut agent);
    let error = TOO_LONG.replace("210000", "24000");
    let error = error.replace("200000", "16000");
    up.script_next(stream_of([
        "event: ping\ndata: {\"type\":\"ping\"}\n\n".to_owned(),
        format!("event: error\ndata: {error}\n\n"),
    ]));
    let events = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"1\",\"content\":[],\"usage\":{\"input_tokens\":9000,\"output_tokens\":1}}}\n\n\
         event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":3}}\n\n\
         event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    up.script_next(stream_of([events]));
    let generation = agent.ask().await;
    assert_eq!(generation.action("refitted"), Some("1"));
    let seen = up.requests(2).await;
    assert!(seen[1].body.len() < seen[0].body.len());
}

#[tokio::test]
async fn an_overflow_that_cannot_be_healed_is_in_words_that_clients_know() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .model("m", model_with_window(200_000))
        .start()
        .await;
    let other = r#"{"type":"error","error":{"type":"invalid_request_error","message":"Input is too long for requested model."}}"#;
    for stream in [false, true] {
        let agent = MessagesAgent::new(&proxy).set("stream", stream);
        up.script_next([answer("400 Bad Request", "", TOO_LONG)]);
        let got = agent.send().await;
        assert_eq!((got.status.as_u16(), got.text()), (400, TOO_LONG));
        up.script_next([answer("400 Bad Request", "", other)]);
        let got = agent.send().await;
        assert_eq!(got.status, 400);
        let error = &got.json()["error"];
        assert_eq!(error["type"], "invalid_request_error");
        let said = error["message"].as_str().unwrap();
        assert!(said.starts_with("prompt is too long"), "{said}");
    }
}

#[tokio::test]
async fn other_errors_pass_as_they_came() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let agent = MessagesAgent::new(&proxy);
    for status in [
        "429 Too Many Requests",
        "529 Overloaded",
        "413 Too Large",
        "401 Unauthorized",
    ] {
        let body =
            format!(r#"{{"type":"error","error":{{"type":"some_error","message":"{status}"}}}}"#);
        up.script_next([answer(status, "retry-after: 7\r\n", &body)]);
        let got = agent.send().await;
        assert_eq!(got.status.as_str(), &status[..3]);
        assert_eq!(got.text(), body);
        assert_eq!(got.headers["retry-after"], "7");
    }
}

#[tokio::test]
async fn errors_of_the_proxy_have_the_shape_of_messages() {
    let up = ModelSetup::new(WINDOW)
        .start(|_| ModelReply::text("fine"))
        .await;
    let proxy = proxy_before(&up, WINDOW).start().await;
    let agent = MessagesAgent::new(&proxy).with("x-plimsoll-provider", "absent");
    let got = agent.send().await;
    // Claude Code hides the words of a 404.
    assert_eq!(got.status, 400);
    let error = got.json();
    assert_eq!(error["type"], "error");
    assert_eq!(error["error"]["type"], "invalid_request_error");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("absent"), "{message}");
    assert_eq!(got.headers["x-plimsoll-error"], "provider_not_found");
}

#[tokio::test]
async fn an_answer_that_fills_the_window_is_no_error() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .model("m", model_with_window(WINDOW))
        .start()
        .await;
    let said = message(&[text("and then")], "model_context_window_exceeded", 19_000);
    up.script_next([answer("200 OK", "", &said)]);
    let generation = MessagesAgent::new(&proxy).ask().await;
    assert_eq!(generation.answer.text(), said);
    assert_eq!(generation.header("health"), Some("critical"));
}
