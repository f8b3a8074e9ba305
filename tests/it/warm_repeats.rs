//! Repeats that only warm the provider's cache go out as the session's last request did, and leave no trace in the session.

mod traces;

use http::Method;
use plimsoll::{
    conversation::{FORMATS, Format},
    guard::profile::find_profile,
};
use serde_json::{Value, json};

use crate::support::{
    ModelCall, ModelReply, ModelRequest, ModelSetup, ScriptedProvider, answer, client::TestClient,
    full_body, model_with_courses, model_with_early_levels, model_with_window,
    translate_chat::translate_unmarked, words,
};

const WINDOW: u32 = 8_192;
/// Requests of a session.
const REQUESTS: usize = 24;
/// Members of a request that are part of the prompt.
const PROMPT: [&str; 6] = [
    "messages",
    "input",
    "system",
    "instructions",
    "tools",
    "tool_choice",
];

/// How a client repeats its last request.
#[derive(Clone, Copy, Debug)]
enum Repeat {
    /// With the least cap that the provider takes.
    LeastCap,
    /// With a cap of 0 in Messages, else with `prewarm`.
    Says,
    /// As Codex says it in Responses.
    Codex,
    /// As Claude Code says it in headers, if it is asked to.
    Claude,
}

/// Whether `request` is repeated in a way that its format has.
fn repeat(format: Format, how: Repeat, request: &Value) -> Option<Value> {
    let mut body = request.clone();
    let (cap, least) = match format {
        Format::Responses => ("max_output_tokens", 16),
        _ => ("max_tokens", 1),
    };
    match (how, format) {
        (Repeat::LeastCap, _) => body[cap] = least.into(),
        (Repeat::Says, Format::Messages) => body[cap] = 0.into(),
        (Repeat::Says, _) => body["prompt_cache_options"] = json!({"prewarm": true}),
        (Repeat::Codex, Format::Responses) => {
            let turn = json!({"request_kind": "prewarm", "thread_id": "t"}).to_string();
            body["client_metadata"] = json!({"x-codex-turn-metadata": turn});
        }
        (Repeat::Claude, Format::Messages) => {}
        (Repeat::Codex | Repeat::Claude, _) => return None,
    }
    Some(body)
}

fn say(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

fn step(nth: usize) -> [Value; 2] {
    let function = json!({"name": "f", "arguments": json!({"n": nth}).to_string()});
    let id = format!("call_{nth}");
    let result = format!("RESULT-{nth}: {}", words(700, nth));
    [
        json!({"role": "assistant", "content": null,
            "tool_calls": [{"id": id, "type": "function", "function": function}]}),
        json!({"role": "tool", "tool_call_id": id, "content": result}),
    ]
}

/// Calls the client's tool; where a notice asks for reminders, the proxy's first.
fn reply(heard: &ModelRequest<'_>) -> ModelReply {
    let text = heard.body.to_string();
    let seen = |nth: &usize| text.contains(&format!("RESULT-{nth}:"));
    let nth = (0..REQUESTS).rev().find(seen).map_or(0, |nth| nth + 1);
    if heard.notice.is_some() && heard.offers_tool("add_reminder") && !heard.follows_proxy_call() {
        let note = json!({"text": format!("step {nth} is done"), "content": format!("step {nth} is done")});
        return ModelReply::calls([ModelCall::new(&format!("own_{nth}"), "add_reminder", &note)]);
    }
    ModelReply::calls([ModelCall::new(
        &format!("call_{nth}"),
        "f",
        &json!({"n": nth}),
    )])
}

/// Headers by which Claude Code says what a request is.
const WARMS: [(&str, &str); 2] = [
    ("x-claude-code-request-class", "auxiliary"),
    ("x-claude-code-auxiliary-type", "resume_cache_warm"),
];
const COMPACTS: [(&str, &str); 1] = [("x-claude-code-request-class", "compaction")];

async fn send(
    client: &TestClient,
    format: Format,
    body: &Value,
    class: &[(&str, &str)],
) -> (String, String) {
    let path = match format {
        Format::Messages => "/v1/messages",
        Format::Responses => "/v1/responses",
        _ => "/v1/chat/completions",
    };
    let request = client.request(Method::POST, path);
    let mut request = request.header("content-type", "application/json");
    for (name, value) in class {
        request = request.header(*name, *value);
    }
    let request = request.body(full_body(body.to_string())).unwrap();
    let came = client.send(request).await;
    assert_eq!(came.status, 200, "{format:?}: {}", came.text());
    let told = |name: &str| came.headers[name].to_str().unwrap().to_owned();
    (told("x-plimsoll-session"), told("x-plimsoll-actions"))
}

/// What the provider reads of a request, without its cap.
fn prompt(body: &Value) -> Value {
    let members = PROMPT
        .iter()
        .filter_map(|name| Some((*name, body.get(name)?)));
    members
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The same without the ids of the model's entries, which count its answers.
fn without_ids(mut prompt: Value) -> Value {
    for entry in prompt["input"].as_array_mut().into_iter().flatten() {
        entry.as_object_mut().unwrap().remove("id");
    }
    prompt
}

/// Runs a session; `how`: each of its requests is repeated so, twice. Returns what the provider read of each request of the
/// session, without the repeats, and what the client was told.
async fn run_session(format: Format, levels: usize, how: Option<Repeat>) -> Vec<(Value, String)> {
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
    let settings = match levels {
        0 => model_with_window(WINDOW),
        1 => model_with_early_levels(WINDOW),
        _ => model_with_courses(WINDOW),
    };
    let proxy = proxy.model("m", settings).start().await;
    let client = proxy.client();
    let (mut messages, mut told) = (vec![say("system", "SYSTEM"), say("user", "TASK")], vec![]);
    let mut sessions = Vec::new();
    for nth in 0..REQUESTS {
        let function = json!({"name": "f", "parameters": {"type": "object"}});
        let tools = json!([{"type": "function", "function": function}]);
        let body = json!({"model": "m", "messages": messages, "tools": tools, "max_tokens": 900});
        let body = translate_unmarked(body.to_string().as_bytes(), format);
        let mut body: Value = serde_json::from_slice(&body).unwrap();
        body["model"] = "m".into();
        let (session, actions) = send(&client, format, &body, &[]).await;
        sessions.push(session);
        let sent = model.bodies().await.pop().unwrap();
        for _ in 0..2 {
            let Some(body) = how.and_then(|how| repeat(format, how, &body)) else {
                break;
            };
            let before = model.count();
            let class = match how {
                Some(Repeat::Claude) => &WARMS[..],
                _ => &[],
            };
            sessions.push(send(&client, format, &body, class).await.0);
            let repeats = model.bodies_from(before).await;
            assert_eq!(
                repeats.len(),
                1,
                "{format:?} {how:?}: one request for a repeat"
            );
            assert_eq!(
                prompt(&repeats[0]),
                prompt(&sent),
                "{format:?} {how:?}, request {nth}"
            );
        }
        told.push((without_ids(prompt(&sent)), actions));
        messages.extend(step(nth));
    }
    sessions.dedup();
    assert_eq!(sessions.len(), 1, "{format:?} {how:?}: one session");
    model.assert_no_faults();
    told
}

#[tokio::test]
async fn a_repeat_goes_out_as_the_last_request_and_leaves_no_trace() {
    for format in FORMATS {
        for levels in 0..3 {
            let plain = run_session(format, levels, None).await;
            let told: Vec<&str> = plain.iter().map(|(_, actions)| &**actions).collect();
            let says = |what: &str| told.iter().any(|actions| actions.contains(what));
            let cuts = ["cleared=", "trimmed=", "dropped="].into_iter().any(says);
            assert!(cuts, "{format:?}, levels {levels}: no cut in {told:?}");
            let prompts = levels == 0 || says("injected=");
            assert!(
                prompts,
                "{format:?}, levels {levels}: no prompt in {told:?}"
            );
            for how in [
                Repeat::LeastCap,
                Repeat::Says,
                Repeat::Codex,
                Repeat::Claude,
            ] {
                let repeated = run_session(format, levels, Some(how)).await;
                for (nth, (one, other)) in plain.iter().zip(&repeated).enumerate() {
                    assert_eq!(one, other, "{format:?} {how:?}, request {nth}");
                }
            }
        }
    }
}

/// A cap of 1 alone is no repeat: the request is a turn of the session, and the next one continues it.
#[tokio::test]
async fn a_request_with_a_cap_of_one_that_repeats_nothing_is_a_turn() {
    let model = ModelSetup::new(WINDOW)
        .start(|_| ModelReply::text("yes"))
        .await;
    let proxy = model
        .provider
        .proxy()
        .model("m", model_with_window(WINDOW))
        .start()
        .await;
    let client = proxy.client();
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
    let mut messages = vec![say("user", "Is it so?")];
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let body = json!({"model": "m", "messages": messages, "tools": tools, "max_tokens": 1});
        sessions.push(send(&client, Format::Chat, &body, &[]).await.0);
        messages.extend([say("assistant", "yes"), say("user", "And now?")]);
    }
    assert_eq!(sessions[0], sessions[1]);
}

/// A request of the kind "compaction" gets no prompt, however due one is, and the turn after it gets its own.
#[tokio::test]
async fn a_request_that_claude_code_calls_a_compaction_gets_nothing_of_recovery() {
    let profile = find_profile("anthropic").unwrap();
    let model = ModelSetup::new(WINDOW).profile(profile).start(reply).await;
    let proxy = model.provider.proxy().providers(|provider| {
        if provider.base_url.is_some() {
            provider.profile = profile;
        }
    });
    let proxy = proxy
        .model("m", model_with_early_levels(WINDOW))
        .start()
        .await;
    let client = proxy.client();
    let (mut body, mut prompts) = (
        json!({"model": "m", "max_tokens": 900, "messages": [say("user", "TASK")],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
        0,
    );
    for nth in 0..REQUESTS {
        let mut other = body.clone();
        let messages = other["messages"].as_array_mut().unwrap();
        let last = messages.last_mut().unwrap();
        let asked = json!({"type": "text", "text": "Summarise all of this."});
        match last["content"].as_array_mut() {
            Some(blocks) => blocks.push(asked),
            None => last["content"] = json!([{"type": "text", "text": "TASK"}, asked]),
        }
        let before = model.count();
        let (_, actions) = send(&client, Format::Messages, &other, &COMPACTS).await;
        assert!(!actions.contains("injected="), "request {nth}: {actions}");
        assert_eq!(
            model.count(),
            before + 1,
            "request {nth}: a round of recovery"
        );
        let (_, actions) = send(&client, Format::Messages, &body, &[]).await;
        prompts += usize::from(actions.contains("injected="));
        let call = json!({"type": "tool_use", "id": format!("call_{nth}"), "name": "f", "input": {"n": nth}});
        let result = json!({"type": "tool_result", "tool_use_id": format!("call_{nth}"),
            "content": format!("RESULT-{nth}: {}", words(700, nth))});
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": [call]}));
        messages.push(json!({"role": "user", "content": [result]}));
    }
    assert!(prompts > 3, "{prompts} prompts");
    model.assert_no_faults();
}

/// The switches of a repeat hold, whatever those of its request were.
#[tokio::test]
async fn a_repeat_with_the_guard_off_goes_out_as_it_came() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .set(|config| config.guard.max_tool_result_chars = Some(2_000));
    let proxy = proxy.model("m", model_with_window(32_768)).start().await;
    let client = proxy.client();
    let mut messages = vec![say("user", "TASK")];
    messages.extend(step(1));
    let body = json!({"model": "m", "messages": messages, "max_tokens": 900});
    let mut repeated = body.clone();
    repeated["max_tokens"] = 1.into();
    let said = json!({"choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "Well."}}]});
    let mut sent = Vec::new();
    for (body, switch) in [(&body, "on"), (&repeated, "on"), (&repeated, "off")] {
        up.script_next([answer("200 OK", "", said.to_string())]);
        send(&client, Format::Chat, body, &[("x-plimsoll-guard", switch)]).await;
        let body: Value = serde_json::from_slice(&up.last_request().body).unwrap();
        sent.push(body["messages"].clone());
    }
    assert_ne!(sent[0], body["messages"], "the result is shortened");
    assert_eq!(sent[1], sent[0]);
    assert_eq!(sent[2], body["messages"]);
}

/// A refused request of Messages, repeated at another model with the credit of the refusal, goes out as it was, however the
/// other model would have it cut, unless that has no room for it; and the session goes on from the repeat.
#[tokio::test]
async fn a_repeat_with_a_credit_goes_out_as_the_refused_request_and_is_a_turn() {
    let profile = find_profile("anthropic").unwrap();
    for (with_token, window) in [(true, 4 * WINDOW), (false, 4 * WINDOW), (true, WINDOW / 2)] {
        let model = ModelSetup::new(WINDOW).profile(profile).start(reply).await;
        let proxy = model.provider.proxy().providers(|provider| {
            if provider.base_url.is_some() {
                provider.profile = profile;
            }
        });
        // By itself, a model with a larger window would be sent more of the conversation.
        let proxy = proxy.model("m", model_with_window(WINDOW));
        let proxy = proxy.model("other", model_with_window(window));
        let proxy = proxy.start().await;
        let client = proxy.client();
        let (mut messages, mut differing) = (vec![say("system", "SYSTEM"), say("user", "TASK")], 0);
        let mut sessions = Vec::new();
        for nth in 0..REQUESTS {
            let function = json!({"name": "f", "parameters": {"type": "object"}});
            let tools = json!([{"type": "function", "function": function}]);
            let body =
                json!({"model": "m", "messages": messages, "tools": tools, "max_tokens": 900});
            let body = translate_unmarked(body.to_string().as_bytes(), Format::Messages);
            let mut body: Value = serde_json::from_slice(&body).unwrap();
            body["model"] = "m".into();
            sessions.push(send(&client, Format::Messages, &body, &[]).await.0);
            let sent = model.bodies().await.pop().unwrap();
            body["model"] = "other".into();
            if with_token {
                body["fallback_credit_token"] = "opaque".into();
            }
            sessions.push(send(&client, Format::Messages, &body, &[]).await.0);
            let repeated = model.bodies().await.pop().unwrap();
            assert_eq!(repeated["model"], "other");
            assert_eq!(repeated.get("fallback_credit_token").is_some(), with_token);
            differing += usize::from(prompt(&repeated) != prompt(&sent));
            messages.extend(step(nth));
        }
        // Without a token it is a request like any other.
        let goes_out_as_sent = with_token && window > WINDOW;
        assert_eq!(differing == 0, goes_out_as_sent, "{differing} differ");
        sessions.dedup();
        assert!(!with_token || sessions.len() == 1, "{sessions:?}");
        if with_token {
            model.assert_no_faults();
        }
    }
}
