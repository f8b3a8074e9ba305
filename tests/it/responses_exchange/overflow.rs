//! Overflows, and other errors of the provider.

use serde_json::{Value, json};

use super::{WINDOW, proxy_before, response, said, step};
use crate::support::{
    Mixing, ModelReply, ModelSetup, NoticeManner, ProviderStep, ResponsesAgent, RunningProxy,
    ScriptedProvider, Worker, answer, model_with_window, stream_of, words,
};

const CODE: &str = "context_length_exceeded";

/// As OpenAI refuses: without numbers.
fn too_long() -> Value {
    let message = "Your input exceeds the context window of this model. Please adjust your input and try again.";
    json!({"type": "invalid_request_error", "code": CODE, "message": message, "param": "input"})
}

fn event(kind: &str, mut data: Value, number: usize) -> String {
    (data["type"], data["sequence_number"]) = (kind.into(), number.into());
    format!("event: {kind}\ndata: {data}\n\n")
}

fn beginning() -> String {
    let begun = json!({"response": {"id": "resp_0", "status": "in_progress", "output": [],
        "error": null, "usage": null}});
    let names = ["response.created", "response.in_progress"];
    let events = names.iter().enumerate();
    events
        .map(|(at, name)| event(name, begun.clone(), at))
        .collect()
}

fn completed() -> String {
    let body: Value = serde_json::from_str(&response(&[], 9_000)).unwrap();
    beginning() + &event("response.completed", json!({ "response": body }), 2)
}

/// The streams in which a provider refuses after it began an answer.
fn refused_streams() -> [String; 4] {
    let failed = json!({"response": {"id": "resp_0", "status": "failed", "output": [],
        "error": {"code": CODE, "message": "Your input exceeds the context window of this model."}}});
    let nested = json!({ "error": too_long() });
    [
        beginning() + &event("response.failed", failed.clone(), 2),
        event("response.failed", failed, 0),
        beginning() + &event("error", nested, 2),
        beginning() + &event("error", too_long(), 2),
    ]
}

/// A conversation that can be cut.
fn long_agent(proxy: &RunningProxy) -> ResponsesAgent {
    let mut agent = ResponsesAgent::new(proxy);
    for nth in 0..8 {
        agent.push(step(&format!("call_{nth}"), &words(3_000, nth)));
    }
    agent
}

async fn start_provider() -> (ScriptedProvider, RunningProxy) {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().model("m", model_with_window(60_000));
    let proxy = proxy.start().await;
    (up, proxy)
}

#[tokio::test]
async fn an_overflow_without_numbers_is_healed() {
    for stream in [false, true] {
        let worker = Worker::new(NoticeManner::Ignores, Mixing::Never);
        let up = ModelSetup::new(WINDOW)
            .start(move |heard| worker.compose_reply(heard))
            .await;
        let proxy = proxy_before(&up, 3 * WINDOW)
            .set(|config| config.recovery.enabled = false)
            .start()
            .await;
        let mut agent = ResponsesAgent::new(&proxy).set("stream", stream);
        agent.result = 900;
        let generations = agent.steps(50).await;
        assert!((1..4).contains(&up.overflows()), "{}", up.overflows());
        let healed = generations.iter();
        let healed = healed.filter(|it| it.action("refitted").is_some());
        assert!(healed.count() >= 1);
        up.assert_no_faults();
    }
}

#[tokio::test]
async fn an_overflow_inside_a_stream_is_healed_before_the_client_gets_any_of_it() {
    for refused in refused_streams() {
        let (up, proxy) = start_provider().await;
        let agent = long_agent(&proxy).set("stream", true);
        up.script_next(stream_of([&refused]));
        up.script_next(stream_of([completed()]));
        let generation = agent.ask().await;
        assert_eq!(generation.action("refitted"), Some("1"), "{refused}");
        let seen = up.requests(2).await;
        assert!(seen[1].body.len() < seen[0].body.len());
    }
}

#[tokio::test]
async fn an_overflow_inside_a_whole_answer_is_healed() {
    let (up, proxy) = start_provider().await;
    let agent = long_agent(&proxy);
    let failed = json!({"id": "resp_0", "object": "response", "status": "failed", "output": [],
        "error": too_long()});
    up.script_next([answer("200 OK", "", failed.to_string())]);
    up.script_next([answer("200 OK", "", response(&[said("a")], 9_000))]);
    let generation = agent.ask().await;
    assert_eq!(generation.action("refitted"), Some("1"));
}

#[tokio::test]
async fn what_cannot_be_healed_has_the_code_that_clients_look_for() {
    let (up, proxy) = start_provider().await;
    let classic = json!({ "error": too_long() }).to_string();
    let other = r#"{"error":{"message":"Input is too long for requested model.","type":"invalid_request_error","param":null,"code":null}}"#;
    for stream in [false, true] {
        let agent = ResponsesAgent::new(&proxy).set("stream", stream);
        up.script_next([answer("400 Bad Request", "", &classic)]);
        let got = agent.send().await;
        assert_eq!((got.status.as_u16(), got.text()), (400, &*classic));
        up.script_next([answer("400 Bad Request", "", other)]);
        let got = agent.send().await;
        assert_eq!(got.status, 400);
        assert_eq!(got.json()["error"]["code"], CODE);
        assert_eq!(got.json()["error"]["param"], "input");
    }
}

#[tokio::test]
async fn a_stream_that_cannot_be_healed_is_the_providers() {
    let (up, proxy) = start_provider().await;
    let mut agent = ResponsesAgent::new(&proxy).set("stream", true);
    agent.fields["input"] = "Where?".into();
    for refused in refused_streams() {
        let asked = up.count_requests();
        up.script_next(stream_of([&refused]));
        let got = agent.send().await;
        assert_eq!(got.status, 200);
        let lines = got.text().split_inclusive("\n\n");
        let provided: String = lines.filter(|it| !it.starts_with(": plimsoll")).collect();
        assert_eq!(provided, refused);
        assert_eq!(up.count_requests(), asked + 1);
    }
}

#[tokio::test]
async fn other_errors_pass_as_they_came() {
    let (up, proxy) = start_provider().await;
    let agent = ResponsesAgent::new(&proxy);
    for status in [
        "429 Too Many Requests",
        "503 Service Unavailable",
        "413 Too Large",
        "401 Unauthorized",
    ] {
        let body = json!({"error": {"type": "some_error", "message": status, "code": null}});
        let body = body.to_string();
        up.script_next([answer(status, "retry-after: 7\r\n", &body)]);
        let got = agent.send().await;
        assert_eq!(got.status.as_str(), &status[..3]);
        assert_eq!(got.text(), body);
        assert_eq!(got.headers["retry-after"], "7");
    }
}

#[tokio::test]
async fn errors_of_the_proxy_have_openais_shape() {
    let up = ModelSetup::new(WINDOW)
        .start(|_| ModelReply::text("fine"))
        .await;
    let proxy = proxy_before(&up, WINDOW).start().await;
    for stream in [false, true] {
        let agent = ResponsesAgent::new(&proxy).set("stream", stream);
        let got = agent.with("x-plimsoll-provider", "absent").send().await;
        got.is_error(404, "provider_not_found");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_as_clients_of_responses_expect() {
    let (up, proxy) = start_provider().await;
    let agent = ResponsesAgent::new(&proxy).set("stream", true);
    let mut steps = stream_of([beginning()]);
    steps.pop();
    steps.push(ProviderStep::Reset);
    up.script_next(steps);
    let got = agent.send().await;
    assert!(got.text().starts_with(&beginning()), "{}", got.text());
    let end = got.text().trim_end().rsplit("\ndata: ").next().unwrap();
    let end: Value = serde_json::from_str(end).unwrap();
    assert_eq!(end["type"], "response.failed");
    assert_eq!(end["response"]["error"]["code"], "provider_bad_answer");
}
