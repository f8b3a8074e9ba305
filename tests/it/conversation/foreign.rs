//! Providers that count by themselves, more or less than we expect, and refuse what is over their
//! window: a growing session is never refused once its first answer taught how they count.

use std::sync::Arc;

use plimsoll::{guard::profile::named, wire::chat};
use serde_json::json;

use super::{before, completion, header};
use crate::support::{
    count::Counter,
    data,
    generate::{Recipe, Session, Shape, Size},
    provider::{Provider, Seen, answer},
    strict,
};

const REFUSED: &str = r#"{"error":{"message":"This model's maximum context length is exceeded","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#;

/// Counts by a tokenizer times `factor`, and refuses what leaves no room for the answer.
async fn counting(counter: &Arc<Counter>, factor: f64, window: u64) -> Provider {
    let counter = Arc::clone(counter);
    Provider::answering(move |seen: &Seen| {
        let tokens = (counter.request(&seen.body) as f64 * factor) as u64;
        if tokens + asked(&seen.body).min(window / 2) > window {
            return vec![answer("400 Bad Request", "", REFUSED)];
        }
        let used = u32::try_from(tokens).unwrap();
        let body = completion(&json!({"content": "as it was said"}), Some(used));
        vec![answer("200 OK", "", body)]
    })
    .await
}

fn asked(body: &[u8]) -> u64 {
    let conversation = chat::index(body.to_vec().into()).unwrap();
    conversation.max_answer_tokens().unwrap_or(0)
}

/// Requests that were refused, by their number.
async fn refused(
    session: &Session,
    counter: &Arc<Counter>,
    factor: f64,
    window: u32,
) -> Vec<usize> {
    let up = counting(counter, factor, window.into()).await;
    let proxy =
        before(&up, window).providers(|provider| provider.profile = named("openai").unwrap());
    let proxy = proxy.start().await;
    let client = proxy.client();
    let mut refused = Vec::new();
    for (number, body) in session.steps().enumerate() {
        let mut value: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&body).unwrap();
        value.insert("model".into(), "m".into());
        value.remove("stream");
        let body = serde_json::to_vec(&value).unwrap();
        let got = client.chat(body.clone()).await;
        let sent = up.last().body;
        let broken = strict::broken(&body, &sent, named("openai").unwrap());
        assert_eq!(broken, [], "request {number}");
        if got.status != 200 {
            assert_eq!(got.text(), REFUSED);
            eprintln!(
                "request {number}: {} of {} bytes, {}",
                sent.len(),
                body.len(),
                header(&got, "actions")
            );
            refused.push(number);
        }
    }
    refused
}

async fn never_refused(name: &str, session: &Session) {
    let counter = Arc::new(Counter::o200k());
    for window in [16_384, 32_768] {
        for factor in [0.8, 1.0, 1.2, 1.4] {
            let refused = refused(session, &counter, factor, window).await;
            let later: Vec<_> = refused.iter().filter(|&&number| number > 0).collect();
            assert!(
                later.is_empty(),
                "{name} at {window}, counted {factor} times: {later:?} of {} refused",
                session.requests()
            );
        }
    }
}

/// A session of that shape whose texts are of their usual length.
fn made(seed: u64, shape: Shape) -> Session {
    Session::new(seed, Recipe::new(shape), Size::Messages(160))
}

#[tokio::test]
async fn sweep() {
    if std::env::var("SWEEP").is_err() { return; }
    let counter = Arc::new(Counter::o200k());
    for shape in [Shape::Agent, Shape::OneTurn, Shape::Chat, Shape::Mixed, Shape::Chinese, Shape::Legacy, Shape::TextOnly] {
        for seed in 10..14 {
            let session = made(seed, shape);
            for window in [16_384, 32_768] {
                for factor in [0.8, 1.0, 1.2, 1.4] {
                    let r = refused(&session, &counter, factor, window).await;
                    if !r.is_empty() { eprintln!("SWEEP {shape:?} {seed} {window} {factor}: {r:?} of {}", session.requests()); }
                }
            }
        }
    }
}

#[tokio::test]
async fn an_agent_s_session() {
    never_refused("agent", &made(1, Shape::Agent)).await;
}

#[tokio::test]
async fn a_chat() {
    never_refused("chat", &made(2, Shape::Chat)).await;
}

#[tokio::test]
async fn a_long_task() {
    never_refused("one turn", &made(3, Shape::OneTurn)).await;
}

#[tokio::test]
async fn a_recorded_session() {
    let Some(body) = data::request("coding-pi-899-messages") else {
        return;
    };
    let session = Session::recorded(&body).unwrap().thinned(120);
    never_refused("recorded", &session).await;
}
