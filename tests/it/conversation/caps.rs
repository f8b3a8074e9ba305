//! Answer caps beyond the window: lowered before anything of the conversation is cut.

use super::{Talk, completion, header, proxy_before, user};
use crate::support::{ProviderStep, ReceivedRequest, RunningProxy, ScriptedProvider, answer};
use http::Method;
use plimsoll::format::chat;
use serde_json::{Value, json};

const WINDOW: u64 = 65_536;

/// An engine that refuses prompt plus answer cap over its window, as vLLM does. It counts a token
/// for `bytes` bytes, and finishes each answer with `stops`.
async fn strict_engine(bytes_a_token: f64, stops: &'static str) -> ScriptedProvider {
    ScriptedProvider::start_answering(move |seen| {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        let prompt = (body["messages"].to_string().len() as f64 / bytes_a_token) as u64;
        let asked = body["max_tokens"].as_u64().unwrap_or(1);
        if prompt + asked > WINDOW {
            return refusal(prompt, asked);
        }
        let message = json!({"content": "done"});
        let prompt = u32::try_from(prompt).unwrap();
        let answered = completion(&message, Some(prompt)).replace("stop", stops);
        let mut answered: Value = serde_json::from_str(&answered).unwrap();
        if stops == "length" {
            answered["usage"]["completion_tokens"] = asked.into();
        }
        vec![answer("200 OK", "", answered.to_string())]
    })
    .await
}

fn refusal(prompt: u64, asked: u64) -> Vec<ProviderStep> {
    let message = format!(
        "'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context \
         length is {WINDOW} tokens and your request has {prompt} input tokens ({asked} > {WINDOW} - \
         {prompt})."
    );
    let error =
        json!({"object": "error", "message": message, "type": "BadRequestError", "code": 400});
    vec![answer("400 Bad Request", "", error.to_string())]
}

/// Turns of plain words with so many bytes in all, and a question.
fn long_talk(proxy: &RunningProxy, bytes: usize, asked: u32) -> Talk {
    turns_of(proxy, 10, bytes / 10, asked)
}

/// Turns of so many bytes each, and a question.
fn turns_of(proxy: &RunningProxy, count: usize, bytes: usize, asked: u32) -> Talk {
    let mut talk = Talk::new(proxy);
    talk.fields = json!({ "max_tokens": asked });
    let said = "some words to fill the window with ".repeat(bytes / 35);
    for turn in 0..count {
        talk.messages.push(user(&format!("{turn} {said}")));
        talk.messages
            .push(json!({"role": "assistant", "content": "Well."}));
    }
    talk.messages.push(user("And now?"));
    talk
}

fn cap(seen: &ReceivedRequest) -> u64 {
    let body: Value = serde_json::from_slice(&seen.body).unwrap();
    body["max_tokens"].as_u64().unwrap()
}

#[tokio::test]
async fn a_cap_past_the_window_is_lowered_and_nothing_is_cut() {
    let up = strict_engine(3.0, "stop").await;
    let proxy = proxy_before(&up, 65_536).start().await;
    let mut talk = long_talk(&proxy, 150_000, 65_535);
    for question in ["And then?", "And after that?", "And in the end?"] {
        let came = talk.ask().await;
        assert_eq!(came.status, 200, "{}", came.text());
        let seen = up.last_request();
        let sent = cap(&seen);
        assert_eq!(header(&came, "actions"), format!("clamped={sent}"));
        // The room left beside the prompt, less a margin.
        assert!((4_000..16_000).contains(&sent), "{sent}");
        let number = format!("\"max_tokens\":{sent}");
        let only = talk.body().replace("\"max_tokens\":65535", &number);
        assert_eq!(String::from_utf8_lossy(&seen.body), only);
        talk.messages
            .push(json!({"role": "assistant", "content": "done"}));
        talk.messages.push(user(question));
    }
    let metrics = proxy.client().get("/metrics").await;
    assert!(
        metrics
            .text()
            .contains("plimsoll_lowered_answer_caps_total 3")
    );
}

#[tokio::test]
async fn with_unchanged_caps_the_history_is_cut_instead() {
    let up = strict_engine(3.0, "stop").await;
    let proxy = proxy_before(&up, 65_536).set(|config| config.guard.clamp_max_tokens = false);
    let proxy = proxy.start().await;
    let talk = long_talk(&proxy, 150_000, 30_000);
    let came = talk.ask().await;
    assert_eq!(came.status, 200, "{}", came.text());
    assert!(header(&came, "actions").starts_with("dropped="));
    assert_eq!(cap(&up.last_request()), 30_000);
}

#[tokio::test]
async fn a_refusal_that_counts_prompt_and_cap_lowers_the_cap() {
    // Half as many bytes a token as the guard estimates.
    let up = strict_engine(2.0, "stop").await;
    let proxy = proxy_before(&up, 65_536).start().await;
    let mut talk = long_talk(&proxy, 112_000, 30_000);
    let came = talk.say("Go on.").await;
    let actions = header(&came, "actions");
    let sent = cap(&up.last_request());
    assert_eq!(actions, format!("clamped={sent}, refitted=1"));
    assert_eq!(header(&came, "attempts"), "2");
    // It taught nothing about the length of prompts.
    let came = talk.say("And now?").await;
    assert_eq!(header(&came, "attempts"), "1");
    assert!(header(&came, "actions").starts_with("clamped="));
}

/// OpenRouter counts some per cent more than the provider, and refuses a short prompt for its answer cap.
#[tokio::test]
async fn at_openrouter_the_cap_shrinks_and_the_conversation_stays() {
    let up = ScriptedProvider::start_answering(|seen| {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        let prompt = body["messages"].to_string().len() as u64 / 2;
        let asked = body["max_tokens"].as_u64().unwrap();
        if prompt + asked <= WINDOW {
            let message = json!({"content": "done"});
            return vec![answer("200 OK", "", completion(&message, u32::try_from(prompt).ok()))];
        }
        let message = format!(
            "This endpoint's maximum context length is {WINDOW} tokens. However, you requested about {} tokens \
             ({prompt} of text input, {asked} in the output). Please reduce the length of either one, or use the \
             context-compression plugin to compress your prompt automatically.",
            prompt + asked
        );
        let error = json!({"error": {"message": message, "code": 400, "metadata": {"provider_name": null}}});
        vec![answer("400 Bad Request", "", error.to_string())]
    })
    .await;
    let profile = plimsoll::guard::profile::find_profile("openrouter").unwrap();
    let proxy = proxy_before(&up, 65_536).providers(|provider| provider.profile = profile);
    let proxy = proxy.start().await;
    // About a fifth of the window.
    let mut talk = long_talk(&proxy, 28_000, 64_000);
    let came = talk.say("Go on.").await;
    assert_eq!(came.status, 200, "{}", came.text());
    let actions = header(&came, "actions");
    assert!(
        actions.starts_with("clamped=") && !actions.contains("dropped"),
        "{actions}"
    );
    let seen = up.last_request();
    let sent: Value = serde_json::from_slice(&seen.body).unwrap();
    assert!(cap(&seen) > 40_000, "{actions}");
    assert!(sent["messages"].as_array().unwrap().len() > 20, "{actions}");
}

#[tokio::test]
async fn a_cap_as_large_as_an_unknown_window_is_lowered_after_a_refusal() {
    let up = strict_engine(3.0, "stop").await;
    let proxy = proxy_before(&up, 200_000).start().await;
    let talk = long_talk(&proxy, 60_000, 70_000);
    let came = talk.ask().await;
    assert_eq!(came.status, 200, "{}", came.text());
    let sent = cap(&up.last_request());
    let actions = format!("clamped={sent}, refitted=1");
    assert_eq!(header(&came, "actions"), actions);
    assert!(sent > 30_000, "{sent}");
}

#[tokio::test]
async fn after_an_answer_was_cut_off_at_a_lowered_cap_caps_stay_as_asked() {
    let up = strict_engine(3.0, "length").await;
    let proxy = proxy_before(&up, 65_536).start().await;
    let mut talk = long_talk(&proxy, 150_000, 30_000);
    let came = talk.say("Tell me all.").await;
    assert!(header(&came, "actions").starts_with("clamped="));
    for question in ["Go on.", "And then?"] {
        let came = talk.say(question).await;
        assert!(header(&came, "actions").starts_with("dropped="));
        assert_eq!(cap(&up.last_request()), 30_000);
    }
}

#[tokio::test]
async fn after_a_cut_off_answer_a_cap_near_the_window_keeps_half_of_it_free() {
    let up = strict_engine(3.0, "length").await;
    let proxy = proxy_before(&up, 65_536).start().await;
    let mut talk = turns_of(&proxy, 100, 1_500, 65_535);
    let came = talk.say("Tell me all.").await;
    assert!(header(&came, "actions").starts_with("clamped="));
    for question in ["Go on.", "And then?", "And in the end?"] {
        let came = talk.say(question).await;
        assert_eq!(came.status, 200, "{}", came.text());
        assert_eq!(header(&came, "attempts"), "1");
        let seen = up.last_request();
        assert!((WINDOW / 2..WINDOW).contains(&cap(&seen)), "{}", cap(&seen));
        // A cut moves by whole grid steps, and keeps turns.
        assert!(seen.body.len() > 10_000, "{}", seen.body.len());
    }
}

#[tokio::test]
async fn a_cap_stays_above_the_thinking_budget() {
    let up = strict_engine(3.0, "stop").await;
    let proxy = proxy_before(&up, 65_536).start().await;
    let mut talk = long_talk(&proxy, 150_000, 30_000);
    talk.fields["thinking"] = json!({"type": "enabled", "budget_tokens": 24_000});
    let came = talk.ask().await;
    assert_eq!(came.status, 200, "{}", came.text());
    let sent = cap(&up.last_request());
    assert!(sent > 24_000, "{sent}");
    assert!(header(&came, "actions").starts_with("dropped="));
}

#[tokio::test]
async fn the_guard_as_a_service_reports_a_lowered_cap() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 65_536).start().await;
    let talk = long_talk(&proxy, 150_000, 65_535);
    let client = proxy.client();
    let request = client.request(Method::POST, "/plimsoll/api/fit");
    let request = request.header("content-type", "application/json");
    let fitted = client.send_with(request, talk.body()).await;
    assert_eq!(fitted.status, 200, "{}", fitted.text());
    let fitted = fitted.json();
    let (report, request) = (&fitted["report"], &fitted["request"]);
    assert_eq!(report["answer_cap"]["asked"], 65_535);
    assert_eq!(report["answer_cap"]["sent"], request["max_tokens"]);
    assert_eq!(
        report["actions"],
        format!("clamped={}", request["max_tokens"])
    );
    let edited = chat::index_body(request.to_string().into()).unwrap();
    assert_eq!(edited.items.len(), talk.messages.len());
}
