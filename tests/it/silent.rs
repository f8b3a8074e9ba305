//! Providers that cut a prompt, or fill up, without an error.

use std::sync::atomic::{AtomicU32, Ordering};

use http::HeaderMap;
use plimsoll::{config::ModelConfig, guard::profile::find_profile};
use serde_json::{Value, json};

use crate::support::{
    DONE, ProviderStep, ReceivedRequest, ResponsesAgent, ScriptedProvider, TEXT, answer,
    responses_agent::user_entry, stream_of,
};

/// Tokens that the provider reads of any prompt; at first a few less, since it drops whole
/// messages.
const CAP: u32 = 4_096;

/// An answer with this finish reason and usage.
fn completion_with(streams: bool, finish: &str, prompt: u32, completion: u32) -> Vec<ProviderStep> {
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion});
    if streams {
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]});
        let usage = json!({"choices": [], "usage": usage});
        let events = format!("{TEXT}data: {end}\n\ndata: {usage}\n\n{DONE}");
        return stream_of([events]);
    }
    let message = json!({"role": "assistant", "content": "hé"});
    let choice = json!({"index": 0, "message": message, "finish_reason": finish});
    let body = json!({"object": "chat.completion", "choices": [choice], "usage": usage});
    vec![answer("200 OK", "", body.to_string())]
}

/// Counts a token for three bytes, up to its limit.
async fn ollama_like(streams: bool) -> ScriptedProvider {
    let asked = AtomicU32::new(0);
    ScriptedProvider::start_answering(move |seen: &ReceivedRequest| {
        let nth = asked.fetch_add(1, Ordering::SeqCst);
        let cap = if nth == 0 { CAP - 6 } else { CAP };
        let counted = u32::try_from(seen.body.len() / 3).unwrap();
        completion_with(streams, "stop", counted.min(cap), 2)
    })
    .await
}

/// Health at the end of an answer, from its headers or its trailers.
fn plimsoll_header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let value = headers.get(format!("x-plimsoll-{name}"))?;
    value.to_str().ok()
}

fn growing_message(nth: usize) -> Value {
    let words = ["keel of a ship ", "mast of a ship "][nth % 2];
    json!({"role": "user", "content": words.repeat(145)})
}

#[tokio::test]
async fn a_provider_that_cuts_silently_is_detected() {
    for streams in [false, true] {
        let up = ollama_like(streams).await;
        let settings = ModelConfig {
            context_length: Some(32_768),
            // With these tokens the second answer would be critical.
            optimal_max_tokens: Some(CAP - 4),
            critical_max_tokens: Some(CAP - 4),
            ..ModelConfig::default()
        };
        let proxy = up
            .proxy()
            .providers(|provider| provider.profile = find_profile("ollama").unwrap())
            .set(|config| drop(config.models.insert("m".into(), settings)))
            .start()
            .await;
        let client = proxy.client();
        let mut messages = vec![json!({"role": "system", "content": "You mend ships."})];
        for nth in 0..16 {
            messages.push(growing_message(nth));
            messages.push(json!({"role": "assistant", "content": "hé"}));
        }
        let mut sizes = Vec::new();
        for nth in 0..4 {
            messages.push(growing_message(nth));
            let body = json!({"model": "m", "stream": streams, "messages": messages});
            let mut request = client.chat_request(body.to_string());
            let headers = request.headers_mut();
            headers.insert("te", "trailers".parse().unwrap());
            headers.insert("x-plimsoll-stream-health", "comment".parse().unwrap());
            let got = client.send(request).await;
            assert!(got.status == 200 && got.whole, "{}", got.text());
            let told = got.trailers.as_ref().unwrap_or(&got.headers);
            let actions = plimsoll_header(told, "actions").unwrap();
            let found = actions.contains("provider-truncated");
            assert_eq!(found, nth == 1, "{nth}: {actions}");
            if nth < 2 {
                let level = if nth == 0 { "healthy" } else { "unknown" };
                assert_eq!(plimsoll_header(told, "health"), Some(level), "{nth}");
                assert_eq!(plimsoll_header(told, "countdown"), None, "no clock moved");
                assert!(up.last_request().body.len() > 35_000);
            }
            if nth == 1 && streams {
                let comment = got
                    .text()
                    .lines()
                    .find(|line| line.starts_with(": plimsoll"));
                let comment = comment.expect("the comment came");
                assert!(comment.contains("health=unknown"), "{comment}");
                assert!(comment.contains("provider-truncated"), "{comment}");
            }
            sizes.push(up.last_request().body.len());
            messages.push(json!({"role": "assistant", "content": "hé"}));
        }
        eprintln!("bytes sent: {sizes:?}");
        // From the third on nothing is left for the provider to cut.
        for &size in &sizes[2..] {
            assert!(size / 3 <= CAP as usize, "{sizes:?}");
        }
        let name = "plimsoll_silent_truncations_total{provider=\"up\"} 1";
        let metrics = client.get("/metrics").await;
        assert!(metrics.text().contains(name));
    }
}

#[tokio::test]
async fn a_prompt_that_leaves_no_room_for_an_answer_is_always_critical() {
    const WINDOW: u32 = 8_192;
    for streams in [false, true] {
        let up = ScriptedProvider::start().await;
        let settings = ModelConfig {
            context_length: Some(WINDOW),
            optimal_max_tokens: Some(9_000),
            critical_max_tokens: Some(9_000),
            ..ModelConfig::default()
        };
        let proxy = up
            .proxy()
            .set(|config| drop(config.models.insert("m".into(), settings)))
            .start()
            .await;
        let client = proxy.client();
        for (nth, (finish, prompt, completion, level)) in [
            ("stop", 8_150, 5, "healthy"),
            ("length", 8_150, 5, "healthy"),
            ("length", 8_150, 0, "critical"),
            ("stop", WINDOW + 1, 5, "critical"),
        ]
        .into_iter()
        .enumerate()
        {
            up.script_next(completion_with(streams, finish, prompt, completion));
            let messages = [json!({"role": "user", "content": format!("{nth}")})];
            let body = json!({"model": "m", "stream": streams, "messages": messages});
            let mut request = client.chat_request(body.to_string());
            let headers = request.headers_mut();
            headers.insert("te", "trailers".parse().unwrap());
            let got = client.send(request).await;
            let told = got.trailers.as_ref().unwrap_or(&got.headers);
            assert_eq!(
                plimsoll_header(told, "health"),
                Some(level),
                "{finish} {prompt} {completion}"
            );
        }
    }
}

/// OpenAI may make old images smaller: then a low count is neither learnt nor taken for a cut of the prompt.
#[tokio::test]
async fn a_count_with_images_that_the_server_made_smaller_tells_nothing() {
    for (mode, has_images, is_learnt) in [
        (json!({"context_compression": "enabled"}), true, false),
        (json!({"context_compression": "enabled"}), false, true),
        (json!({"context_compression": "disabled"}), true, true),
        (Value::Null, true, true),
    ] {
        let answered = mode.clone();
        let up = ScriptedProvider::start_answering(move |_| {
            let text = json!({"type": "output_text", "text": "h\u{e9}", "annotations": []});
            let output = json!([{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [text]}]);
            let body = json!({"id": "resp_1", "object": "response", "status": "completed", "model": "m",
                "image": answered, "output": output, "error": null, "incomplete_details": null,
                "usage": {"input_tokens": CAP, "output_tokens": 2, "total_tokens": CAP + 2}});
            vec![answer("200 OK", "", body.to_string())]
        })
        .await;
        let settings = ModelConfig {
            context_length: Some(200_000),
            ..ModelConfig::default()
        };
        let proxy = up.proxy().model("m", settings).start().await;
        let mut agent = ResponsesAgent::new(&proxy);
        if has_images {
            let url = "https://ships.example/hull.png";
            let images = (0..4).map(|_| json!({"type": "input_image", "image_url": url}));
            let content: Vec<Value> = images.collect();
            agent.push([json!({"type": "message", "role": "user", "content": content})]);
        }
        let mut told = Vec::new();
        for nth in 0..4 {
            let text = growing_message(nth)["content"].as_str().unwrap().repeat(24);
            agent.push([user_entry(&text)]);
            told.push(agent.step().await.answer.headers["x-plimsoll-actions"].clone());
        }
        let found = told
            .iter()
            .any(|actions| actions.to_str().unwrap().contains("provider-truncated"));
        assert_eq!(found, is_learnt, "{mode} {told:?}");
    }
}
