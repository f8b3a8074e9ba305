//! Providers that count more or fewer tokens than estimated, and refuse what exceeds their window:
//! after the first answer of a session no request is refused.

use std::{ops::RangeInclusive, sync::Arc};

use super::{completion, proxy_before};
use crate::support::{
    ReceivedRequest, ScriptedProvider, answer,
    count::TokenCounter,
    data,
    drive::{GuardedSession, TokenMeter, make_policy, settings},
    generate::{ConversationSize, Recipe, Session, Shape},
    strict,
};
use plimsoll::{format::chat, guard::profile::find_profile};
use serde_json::{Map, Value, json};

const REFUSED: &str = r#"{"error":{"message":"This model's maximum context length is exceeded","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#;

/// Counts by a tokenizer times `factor`, and refuses what leaves no room for the answer.
async fn counting_provider(
    counter: &Arc<TokenCounter>,
    factor: f64,
    window: u64,
) -> ScriptedProvider {
    let counter = Arc::clone(counter);
    ScriptedProvider::start_answering(move |seen: &ReceivedRequest| {
        let tokens = (counter.request(&seen.body) as f64 * factor) as u64;
        if tokens + answer_cap(&seen.body).min(window / 2) > window {
            return vec![answer("400 Bad Request", "", REFUSED)];
        }
        let used = u32::try_from(tokens).unwrap();
        let body = completion(&json!({"content": "as it was said"}), Some(used));
        vec![answer("200 OK", "", body)]
    })
    .await
}

fn answer_cap(body: &[u8]) -> u64 {
    let conversation = chat::index_body(body.to_vec().into()).unwrap();
    conversation.max_answer_tokens().unwrap_or(0)
}

/// Whether no guard could fit it: what must be kept exceeds the window.
fn is_hopeless(counter: &TokenCounter, factor: f64, window: u32, body: Vec<u8>) -> bool {
    let settings = settings();
    let drive = GuardedSession {
        policy: make_policy(find_profile("openai").unwrap(), window, &settings),
        meter: TokenMeter::Foreign(counter),
        counter,
        keeps: true,
    };
    let limit = u64::from(window) - answer_cap(&body).min(u64::from(window / 2));
    let conversation = chat::index_body(body.into()).unwrap();
    drive.is_hopeless(&conversation, (limit as f64 / factor) as u64)
}

/// Drives a session; returns the numbers of the refused requests that could have been fitted.
async fn drive_refusals(
    session: &Session,
    counter: &Arc<TokenCounter>,
    factor: f64,
    window: u32,
) -> Vec<usize> {
    let up = counting_provider(counter, factor, window.into()).await;
    let proxy = proxy_before(&up, window).start().await;
    let client = proxy.client();
    let mut refused = Vec::new();
    for (number, body) in session.steps().enumerate() {
        let mut value: Map<String, Value> = serde_json::from_slice(&body).unwrap();
        value.insert("model".into(), "m".into());
        value.remove("stream");
        let body = serde_json::to_vec(&value).unwrap();
        let got = client.chat(body.clone()).await;
        let sent = up.last_request().body;
        let broken = strict::find_broken_rules(&body, &sent, find_profile("openai").unwrap());
        assert_eq!(broken, [], "request {number}");
        if got.status != 200 {
            assert_eq!(got.text(), REFUSED);
            if !is_hopeless(counter, factor, window, body) {
                refused.push(number);
            }
        }
    }
    refused
}

/// Nothing is known of the provider's count at the first request.
async fn never_refused(name: &str, session: &Session) {
    let counter = Arc::new(TokenCounter::o200k());
    for window in [16_384, 32_768] {
        for factor in [0.8, 1.0, 1.2, 1.4] {
            let refused = drive_refusals(session, &counter, factor, window).await;
            let later = refused.iter().filter(|&&number| number > 0).count();
            let requests = session.requests();
            assert_eq!(
                later, 0,
                "{name} at {window}, counted {factor} times: {refused:?} of {requests}"
            );
        }
    }
}

async fn generated_sessions(seeds: RangeInclusive<u64>, shape: Shape) {
    for seed in seeds {
        let session = Session::new(seed, Recipe::new(shape), ConversationSize::Messages(160));
        never_refused(&format!("{shape:?} {seed}"), &session).await;
    }
}

#[tokio::test]
async fn a_foreign_count_of_an_agent_session_is_survived() {
    generated_sessions(1..=2, Shape::Agent).await;
}

#[tokio::test]
async fn a_foreign_count_of_a_long_task_is_survived() {
    generated_sessions(3..=4, Shape::OneTurn).await;
}

#[tokio::test]
async fn a_foreign_count_of_chats_is_survived() {
    generated_sessions(2..=2, Shape::Chat).await;
    generated_sessions(5..=5, Shape::TextOnly).await;
}

/// Where light text is replaced by dense text at once, the difference says nothing about the count.
#[tokio::test]
async fn a_foreign_count_of_every_density_is_survived() {
    generated_sessions(12..=12, Shape::Mixed).await;
    generated_sessions(23..=23, Shape::Chinese).await;
}

#[tokio::test]
async fn a_foreign_count_of_recorded_sessions_is_survived() {
    for name in [
        "coding-pi-899-messages",
        "service-tau-airline-52",
        "zh-stitched-long",
    ] {
        let Some(body) = data::request(name) else {
            return;
        };
        let session = Session::from_recorded(&body).unwrap().thinned(80);
        never_refused(name, &session).await;
    }
}
