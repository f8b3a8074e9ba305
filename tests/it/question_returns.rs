//! A question that had to go for one large step is in the requests again once that step is old, in each format.

use http::Method;
use plimsoll::{
    conversation::{FORMATS, Format},
    guard::profile::find_profile,
};
use serde_json::{Map, Value, json};

use crate::support::{
    ModelCall, ModelReply, ModelRequest, ModelSetup, full_body, model_with_window,
    translate_chat::translate_unmarked, words,
};

const WINDOW: u32 = 16_384;
/// Requests of the session.
const REQUESTS: usize = 6;
/// The answer whose call is large; the numbers in it get no shorter.
const LARGE: usize = 1;
const NUMBERS: usize = 1_100;
/// Tokens of the question, about: too many to stay beside that call, and too few to be shortened as an attachment.
const QUESTION: usize = 2_900;
/// Tokens of the system message, about.
const SYSTEM: usize = 4_000;

fn say(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// The arguments of the call of an answer.
fn arguments(nth: usize) -> Value {
    let count = if nth == LARGE { NUMBERS } else { 2 };
    let numbers = (0..count).map(|at| (format!("n{at:04}"), json!(1_000_000 + at)));
    Value::Object(Map::from_iter(numbers))
}

/// The answer of the model to a request with so many results, as a client writes it.
fn step(nth: usize) -> [Value; 2] {
    let function = json!({"name": "f", "arguments": arguments(nth).to_string()});
    let (id, result) = (
        format!("call_{nth}"),
        format!("RESULT-{nth}: {}", words(100, nth)),
    );
    [
        json!({"role": "assistant", "content": null,
            "tool_calls": [{"id": id, "type": "function", "function": function}]}),
        json!({"role": "tool", "tool_call_id": id, "content": result}),
    ]
}

fn reply(heard: &ModelRequest<'_>) -> ModelReply {
    let text = heard.body.to_string();
    let nth = (0..REQUESTS)
        .rev()
        .find(|nth| text.contains(&format!("RESULT-{nth}:")));
    let nth = nth.map_or(0, |nth| nth + 1);
    ModelReply::calls([ModelCall::new(&format!("call_{nth}"), "f", &arguments(nth))])
}

/// Runs a session in a format: the question is missing in one request, and the prefix changes at cuts that are told only.
async fn check_session(format: Format) {
    let profile = find_profile(match format {
        Format::Messages => "anthropic",
        _ => "openai",
    });
    let profile = profile.unwrap();
    let model = ModelSetup::new(WINDOW).profile(profile).start(reply).await;
    let proxy = model.provider.proxy().providers(|provider| {
        if provider.base_url.is_some() {
            provider.profile = profile;
        }
    });
    let proxy = proxy.model("m", model_with_window(WINDOW)).start().await;
    let client = proxy.client();
    let path = match format {
        Format::Messages => "/v1/messages",
        Format::Responses => "/v1/responses",
        _ => "/v1/chat/completions",
    };
    let question = format!("QUESTION {} END", words(QUESTION, 3));
    let mut messages = vec![
        say("system", &words(SYSTEM, 1)),
        say("user", "TASK"),
        say("assistant", "Well."),
        say("user", &question),
    ];
    let (mut sessions, mut actions) = (Vec::new(), Vec::new());
    for nth in 0..REQUESTS {
        let function = json!({"name": "f", "parameters": {"type": "object"}});
        let tools = json!([{"type": "function", "function": function}]);
        let body = json!({"model": "m", "messages": messages, "tools": tools}).to_string();
        let body = translate_unmarked(body.as_bytes(), format);
        let mut body: Value = serde_json::from_slice(&body).unwrap();
        body["model"] = "m".into();
        let request = client.request(Method::POST, path);
        let request = request.header("content-type", "application/json");
        let request = request.body(full_body(body.to_string())).unwrap();
        let came = client.send(request).await;
        assert_eq!(came.status, 200, "{format:?}: {}", came.text());
        let told = |name: &str| came.headers[name].to_str().unwrap().to_owned();
        sessions.push(told("x-plimsoll-session"));
        actions.push(told("x-plimsoll-actions"));
        messages.extend(step(nth));
    }
    sessions.dedup();
    assert_eq!(sessions.len(), 1, "{format:?}: one session");
    let bodies = model.bodies().await;
    let lists = bodies
        .iter()
        .map(|body| body.get("input").unwrap_or(&body["messages"]));
    let lists: Vec<&Vec<Value>> = lists.map(|list| list.as_array().unwrap()).collect();
    let asked = lists
        .iter()
        .map(|list| json!(list).to_string().contains(&question));
    let asked: Vec<bool> = asked.collect();
    let expected: Vec<bool> = (0..REQUESTS).map(|nth| nth != LARGE + 1).collect();
    assert_eq!(asked, expected, "{format:?} {actions:?}");
    for (nth, pair) in lists.windows(2).enumerate() {
        let is_cut = actions[nth + 1] != actions[nth];
        assert!(
            is_cut || pair[1].starts_with(pair[0]),
            "{format:?}: request {} changes the prefix untold: {actions:?}",
            nth + 1
        );
    }
    model.assert_no_faults();
}

#[tokio::test]
async fn a_question_is_there_again_once_the_step_that_it_went_for_is_old() {
    for format in FORMATS {
        check_session(format).await;
    }
}
