//! The proxy under load while its Redis is killed, stalled and restarted: no request fails, and
//! sessions continue afterwards.
//!
//! `STORE_SECONDS` lengthens each phase, for meaningful figures.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use plimsoll::config::{AddTools, Config, RedisConfig, StoreConfig, StorePlace, secret::Secret};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{
    DONE, ProviderStep, Redis, ScriptedProvider, TestClient, answer, model_with_window, send_bytes,
    stream_head, within_time,
};

const CLIENTS: usize = 16;

/// Turns of a conversation before a client begins another.
const TURNS: usize = 8;

/// Counts of the clients, by phase.
#[derive(Default)]
struct Tally {
    phase: AtomicUsize,
    ended: AtomicBool,
    answers: Mutex<Vec<Met>>,
}

struct Met {
    phase: usize,
    took: Duration,
    /// Whether the answer is in the session of the previous one, if any.
    follows: Option<bool>,
}

const PHASES: [&str; 6] = ["before", "killed", "back", "stalled", "back", "restarted"];

fn stored_in(redis: &Redis) -> impl FnOnce(&mut Config) {
    let server = RedisConfig {
        nodes: vec![Secret::new(redis.url())],
        cluster: false,
        password: None,
        prefix: "plimsoll:".into(),
        ca_file: None,
    };
    |config| {
        config.store.timeout = StoreConfig::default().timeout;
        config.store.place = StorePlace::Redis(Box::new(server));
        config.models.insert("m".into(), model_with_window(100_000));
    }
}

/// A provider that answers every request, streamed where asked, with the conversation's length.
async fn provider() -> ScriptedProvider {
    ScriptedProvider::start_answering(|seen| {
        let asked: Value = serde_json::from_slice(&seen.body).unwrap();
        let said = asked["messages"].as_array().unwrap().len();
        let usage = json!({ "prompt_tokens": 1_000 + said, "completion_tokens": 1 });
        let text = format!("answer {said}");
        if asked["stream"] == true {
            let event = |chunk: Value| send_bytes(format!("data: {chunk}\n\n").as_bytes());
            let delta = json!({ "index": 0, "delta": { "role": "assistant", "content": text } });
            let end = json!({ "index": 0, "delta": {}, "finish_reason": "stop" });
            return vec![
                stream_head(),
                event(json!({ "choices": [delta] })),
                event(json!({ "choices": [end] })),
                event(json!({ "choices": [], "usage": usage })),
                send_bytes(DONE),
                ProviderStep::Close,
            ];
        }
        let message = json!({ "role": "assistant", "content": text });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
        let body = json!({ "choices": [choice], "usage": usage }).to_string();
        let head = "content-type: application/json\r\n";
        vec![answer("200 OK", head, body)]
    })
    .await
}

/// A client with conversations of a few turns, one after another, until stopped.
async fn converse(client: TestClient, number: usize, tally: Arc<Tally>) {
    let stream = number.is_multiple_of(2);
    for conversation in 0.. {
        let mut messages = Vec::new();
        let mut session = None;
        for turn in 0..TURNS {
            if tally.ended.load(Relaxed) {
                return;
            }
            let said = format!("{number}.{conversation}.{turn}");
            messages.push(json!({ "role": "user", "content": said }));
            let body = json!({ "model": "m", "stream": stream, "messages": messages });
            let phase = tally.phase.load(Relaxed);
            let begun = Instant::now();
            let got = client.chat(body.to_string()).await;
            let took = begun.elapsed();
            assert_eq!(got.status, 200, "{}", got.text());
            assert!(got.whole && !got.headers.contains_key("x-plimsoll-error"));
            let text = format!("answer {}", messages.len());
            assert!(got.text().contains(&text), "{}", got.text());
            let now = got.headers["x-plimsoll-session"].clone();
            let follows = session.replace(now.clone()).map(|before| before == now);
            messages.push(json!({ "role": "assistant", "content": text }));
            let met = Met {
                phase,
                took,
                follows,
            };
            tally.answers.lock().unwrap().push(met);
        }
    }
}

impl Tally {
    /// Runs clients for this time as one phase, or until so many of its requests were answered.
    async fn phase(&self, number: usize, least: usize) {
        self.phase.store(number, Relaxed);
        let seconds = std::env::var("STORE_SECONDS").ok();
        let seconds = seconds.and_then(|seconds| seconds.parse().ok());
        let until = Instant::now() + Duration::from_secs_f64(seconds.unwrap_or(1.0));
        within_long(async {
            while Instant::now() < until || self.count_answers(number) < least {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    fn count_answers(&self, phase: usize) -> usize {
        let answers = self.answers.lock().unwrap();
        answers.iter().filter(|met| met.phase == phase).count()
    }

    /// Waits until new turns continue their sessions again.
    async fn wait_until_followed(&self) {
        let seen = self.answers.lock().unwrap().len();
        let followed = || {
            let answers = self.answers.lock().unwrap();
            let followed = answers[seen..].iter();
            followed.filter(|met| met.follows == Some(true)).count()
        };
        within_time(async {
            while followed() <= 2 * CLIENTS {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    #[allow(
        clippy::print_stdout,
        reason = "the person who runs the test reads the figures"
    )]
    fn print(&self) {
        let answers = self.answers.lock().unwrap();
        for (number, name) in PHASES.iter().enumerate() {
            let of = || answers.iter().filter(|met| met.phase == number);
            let mut took: Vec<_> = of().map(|met| met.took).collect();
            took.sort_unstable();
            let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
            let asked = of().filter_map(|met| met.follows).count();
            let followed = of().filter(|met| met.follows == Some(true)).count();
            println!(
                "{name:>9}: {} answers, median {:.1?}, p99 {:.1?}, longest {:.1?}; {followed} of {asked} \
                 went on in their session",
                took.len(),
                at(0.5),
                at(0.99),
                at(1.0),
            );
        }
    }
}

async fn within_long<F: Future>(wait: F) -> F::Output {
    let waited = tokio::time::timeout(Duration::from_secs(180), wait).await;
    waited.expect("what was waited for came in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_the_store_is_killed_stalled_and_restarted() {
    let mut redis = Redis::start();
    let up = provider().await;
    let proxy = up.proxy().set(stored_in(&redis)).start().await;
    let tally = Arc::<Tally>::default();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(converse(proxy.client(), number, Arc::clone(&tally)));
    }
    tally.phase(0, 100).await;
    redis.kill();
    tally.phase(1, 100).await;
    redis.restart();
    tally.phase(2, 100).await;
    tally.wait_until_followed().await;
    redis.stall();
    tally.phase(3, 100).await;
    redis.resume();
    tally.phase(4, 100).await;
    tally.wait_until_followed().await;
    redis.kill();
    redis.restart();
    tally.phase(5, 100).await;
    tally.wait_until_followed().await;
    tally.ended.store(true, Relaxed);
    while let Some(done) = within_time(clients.join_next()).await {
        done.unwrap();
    }
    tally.print();
    let answers = tally.answers.lock().unwrap();
    let longest = answers.iter().map(|met| met.took).max();
    assert!(longest < Some(Duration::from_secs(5)), "{longest:?}");
}

/// The proxy starts without its store, logs that, and connects later.
#[tokio::test]
async fn a_proxy_starts_without_its_store() {
    let mut redis = Redis::start();
    redis.kill();
    let up = provider().await;
    let proxy = up.proxy().set(stored_in(&redis)).start().await;
    let first = json!({ "role": "user", "content": "x" });
    let body = json!({ "model": "m", "messages": [first] }).to_string();
    let client = proxy.client();
    let got = client.chat(body.clone()).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.headers["x-plimsoll-health"], "healthy");
    let mut next = vec![first];
    next.push(json!({ "role": "assistant", "content": "answer 1" }));
    next.push(json!({ "role": "user", "content": "y" }));
    let next = json!({ "model": "m", "stream": true, "messages": next }).to_string();
    // A stream's headers have the health of the previous answer, which is lost.
    let lost = client.chat(next.clone()).await;
    assert_eq!(lost.headers["x-plimsoll-health"], "unknown");
    redis.restart();
    within_time(async {
        loop {
            let got = client.chat(body.clone()).await;
            let after = client.chat(next.clone()).await;
            if after.headers["x-plimsoll-session"] == got.headers["x-plimsoll-session"] {
                assert_eq!(after.headers["x-plimsoll-health"], "healthy");
                return;
            }
        }
    })
    .await;
}

/// A reminder that the store cannot keep is not called saved without a word.
#[tokio::test]
async fn a_model_is_told_that_its_reminder_may_be_lost() {
    let up = ScriptedProvider::start_answering(|seen| {
        let asked: Value = serde_json::from_slice(&seen.body).unwrap();
        let messages = asked["messages"].as_array().unwrap();
        let message = if messages.last().unwrap()["role"] == "tool" {
            json!({"role": "assistant", "content": "Well."})
        } else {
            let function = json!({"name": "add_reminder", "arguments": "{\"content\":\"a\"}"});
            let call = json!({"id": "own_1", "type": "function", "function": function});
            json!({"role": "assistant", "content": null, "tool_calls": [call]})
        };
        let usage = json!({"prompt_tokens": 1_000, "completion_tokens": 1});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let body = json!({"choices": [choice], "usage": usage}).to_string();
        vec![answer("200 OK", "content-type: application/json\r\n", body)]
    })
    .await;
    let redis = Redis::start();
    let proxy = up.proxy().set(stored_in(&redis));
    let proxy = proxy.set(|config| config.recovery.tools = AddTools::Always);
    let proxy = proxy.start().await;
    let tool =
        json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let mut messages = vec![json!({"role": "user", "content": "go"})];
    let result = async |messages: &[Value]| {
        let body = json!({"model": "m", "messages": messages, "tools": [tool]}).to_string();
        let got = proxy.chat(body).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
        let messages = sent["messages"].as_array().unwrap();
        messages.last().unwrap()["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(result(&messages).await, "Saved as r1. Go on with the work.");
    drop(redis);
    for _ in 0..2 {
        messages.push(json!({"role": "assistant", "content": "Well."}));
        messages.push(json!({"role": "user", "content": "And on."}));
        let said = result(&messages).await;
        assert!(said.contains("may be lost"), "{said}");
    }
}
