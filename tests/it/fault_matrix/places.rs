//! Which candidate is asked, and the request that each gets.

use plimsoll::{
    config::{Auth, Config, Deployment, ModelConfig, secret::Secret},
    guard::profile::find_profile,
};
use serde_json::{Value, json};

use super::good_answer;
use crate::support::{
    ClientAnswer, ModelReply, ModelSetup, ProxyBuilder, SECRET, ScriptedProvider, TestClient,
    answer,
};

/// A conversation of about 60,000 tokens that is valid for every template.
fn long(model: &str, streams: bool) -> String {
    let words = "some words to fill the window ".repeat(500);
    let mut messages = vec![json!({"role": "user", "content": "Tell me all."})];
    for nth in 0..16 {
        messages.push(json!({"role": "assistant", "content": format!("Part {nth}.")}));
        messages.push(json!({"role": "user", "content": format!("{nth} {words}")}));
    }
    json!({"model": model, "stream": streams, "max_tokens": 500, "messages": messages}).to_string()
}

fn model(config: &mut Config, name: &str, window: u32, set: impl FnOnce(&mut ModelConfig)) {
    let (provider, _) = name.split_once('/').unwrap_or(("up", name));
    let mut settings = ModelConfig {
        provider: Some(provider.into()),
        context_length: Some(window),
        ..ModelConfig::default()
    };
    set(&mut settings);
    config.models.insert(name.into(), settings);
}

fn pair(up: &ScriptedProvider, other: &ScriptedProvider) -> ProxyBuilder {
    let proxy = up.proxy().provider("other", other);
    proxy.providers(|provider| {
        provider.auth = Auth::None;
        provider.breaker_failures = 1;
    })
}

fn answered_by(got: &ClientAnswer) -> &str {
    got.headers["x-plimsoll-provider"].to_str().unwrap()
}

#[tokio::test]
async fn a_fallback_gets_a_request_that_fits_its_window_and_profile() {
    let template = find_profile("template").unwrap();
    for streams in [false, true] {
        let up = ScriptedProvider::start_answering(|_| vec![answer("500 No", "", "{}")]).await;
        let small = ModelSetup::new(8_192).profile(template);
        let small = small.start(|_| ModelReply::text("Well.")).await;
        let proxy = pair(&up, &small.provider).set(|config| {
            config.providers.get_mut("other").unwrap().profile = template;
            model(config, "m", 128_000, |m| {
                m.fallback = vec!["other/b".into()]
            });
            model(config, "other/b", 8_192, |_| {});
        });
        let proxy = proxy.start().await;
        let asked = long("m", streams);
        let got = proxy.chat(asked.clone()).await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert_eq!((answered_by(&got), got.whole), ("other", true));
        assert_eq!(got.headers["x-plimsoll-context-limit"], "8192");
        let actions = got.headers["x-plimsoll-actions"].to_str().unwrap();
        assert!(actions.contains("dropped="), "{actions}");
        // The first got it whole, the second got a fitted one at its first attempt.
        let first: Value = serde_json::from_slice(&up.last_request().body).unwrap();
        let sent: Value = serde_json::from_str(&asked).unwrap();
        assert_eq!(first["messages"], sent["messages"]);
        assert_eq!((small.count(), small.overflows()), (1, 0));
        assert_eq!(small.bodies().await[0]["model"], "b");
        small.assert_no_faults();
    }
}

#[tokio::test]
async fn an_overflow_that_cannot_be_fitted_goes_to_a_larger_window_only() {
    let pinned = "words that must stay ".repeat(9_000);
    let body = json!({"model": "m", "messages": [
        {"role": "system", "content": pinned},
        {"role": "user", "content": "Hello"},
    ]});
    for (window, answered) in [(8_192, false), (128_000, true)] {
        let small = ModelSetup::new(8_192)
            .start(|_| ModelReply::text("no"))
            .await;
        let other = ScriptedProvider::start_answering(|_| good_answer(false)).await;
        let proxy = pair(&small.provider, &other).set(|config| {
            model(config, "m", 8_192, |m| m.fallback = vec!["other/b".into()]);
            model(config, "other/b", window, |_| {});
        });
        let proxy = proxy.start().await;
        let client = proxy.client();
        let got = client.chat(body.to_string()).await;
        assert_eq!(super::breaker(&client, "up").await, "closed");
        assert_eq!(other.count_requests(), usize::from(answered));
        if answered {
            assert_eq!((got.status.as_u16(), answered_by(&got)), (200, "other"));
        } else {
            assert_eq!(got.status, 400);
            assert_eq!(got.json()["error"]["code"], "context_length_exceeded");
        }
    }
}

/// `m` and a larger model.
fn with_larger(config: &mut Config) {
    model(config, "m", 8_192, |m| m.larger = Some("other/big".into()));
    model(config, "other/big", 128_000, |_| {});
}

#[tokio::test]
async fn a_larger_model_answers_instead_of_a_cut() {
    let up = ScriptedProvider::start_answering(|_| good_answer(false)).await;
    let other = ScriptedProvider::start_answering(|_| good_answer(false)).await;
    let proxy = pair(&up, &other).set(with_larger).start().await;
    let got = proxy.chat(long("m", false)).await;
    assert_eq!((got.status.as_u16(), answered_by(&got)), (200, "other"));
    assert_eq!(got.headers["x-plimsoll-actions"], "none");
    assert_eq!(got.headers["x-plimsoll-context-limit"], "128000");
    assert_eq!((up.count_requests(), other.count_requests()), (0, 1));
    let sent: Value = serde_json::from_str(&long("m", false)).unwrap();
    let body: Value = serde_json::from_slice(&other.last_request().body).unwrap();
    assert_eq!(body["model"], "big");
    assert_eq!(body["messages"], sent["messages"]);
    // A request that fits stays at its model.
    let got = proxy.chat(super::ask(false)).await;
    assert_eq!(answered_by(&got), "up");
}

#[tokio::test]
async fn if_the_larger_model_fails_the_conversation_is_cut() {
    let small = ModelSetup::new(8_192)
        .start(|_| ModelReply::text("Well."))
        .await;
    // The second request finds the breaker of a failing larger model open. One that refuses the request, which it may not
    // take as the client's own model does, is asked each time.
    let unsupported = r#"{"error":{"message":"Unsupported parameter: 'stop'."}}"#;
    let missing = r#"{"error":{"message":"The model does not exist.","code":"model_not_found"}}"#;
    for (status, refusal, attempts) in [
        ("503 No", "{}", ["2", "1"]),
        ("400 No", unsupported, ["2", "2"]),
        ("404 No", missing, ["2", "2"]),
    ] {
        let other =
            ScriptedProvider::start_answering(move |_| vec![answer(status, "", refusal)]).await;
        let proxy = pair(&small.provider, &other).set(with_larger);
        let proxy = proxy.start().await;
        for attempts in attempts {
            let got = proxy.chat(long("m", false)).await;
            assert_eq!(got.status, 200, "{}", got.text());
            assert_eq!(answered_by(&got), "up");
            assert_eq!(got.headers["x-plimsoll-attempts"], attempts);
        }
        let asked = attempts.iter().filter(|it| **it == "2").count();
        assert_eq!((small.overflows(), other.count_requests()), (0, asked));
    }
    small.assert_no_faults();
}

/// Only the refusal tells that the conversation would be cut.
#[tokio::test]
async fn an_unknown_window_is_refused_once_before_the_larger_model_answers() {
    for (streams, window, fails) in [
        (false, 128_000, false),
        (true, 128_000, false),
        // Less than is assumed of the first.
        (false, 90_000, false),
        (false, 128_000, true),
    ] {
        let small = ModelSetup::new(8_192)
            .start(|_| ModelReply::text("Well."))
            .await;
        let other = ScriptedProvider::start_answering(move |_| {
            if fails {
                vec![answer("503 No", "", "")]
            } else {
                good_answer(streams)
            }
        })
        .await;
        let proxy = pair(&small.provider, &other).set(|config| {
            with_larger(config);
            config.models.get_mut("m").unwrap().context_length = None;
            model(config, "other/big", window, |_| {});
        });
        let proxy = proxy.start().await;
        let asked = long("m", streams);
        let got = proxy.chat(asked.clone()).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let (by, attempts, last) = if fails {
            ("up", "3", "1")
        } else {
            ("other", "2", "1")
        };
        let seen = (answered_by(&got), &got.headers["x-plimsoll-attempts"]);
        assert_eq!((seen.0, seen.1.to_str().unwrap()), (by, attempts));
        assert_eq!((small.overflows(), other.count_requests()), (1, 1));
        let sent: Value = serde_json::from_str(&asked).unwrap();
        let body: Value = serde_json::from_slice(&other.last_request().body).unwrap();
        assert_eq!(body["messages"], sent["messages"], "it is not cut");
        // The window is known now; a larger model that fails is passed over.
        let got = proxy.chat(asked).await;
        let seen = (answered_by(&got), &got.headers["x-plimsoll-attempts"]);
        assert_eq!((seen.0, seen.1.to_str().unwrap()), (by, last));
        assert_eq!(small.overflows(), 1);
        small.assert_no_faults();
    }
}

#[tokio::test]
async fn a_clients_credentials_reach_one_base_url_only() {
    let up = ScriptedProvider::start_answering(|_| vec![answer("500 No", "", "")]).await;
    let keyed = ModelSetup::new(8_192)
        .start(|_| ModelReply::text("Well."))
        .await;
    let far = ScriptedProvider::start_answering(|_| good_answer(false)).await;
    let ours = "our own key";
    let proxy = up
        .proxy()
        .provider("other", &keyed.provider)
        .provider("far", &far)
        .set(|config| {
            let key = Auth::Key(Secret::new(ours), "KEY".into());
            config.providers.get_mut("other").unwrap().auth = key;
            let next = ["far/c", "other/b"].map(String::from);
            model(config, "m", 128_000, |m| m.fallback = next.into());
            model(config, "other/b", 8_192, |m| {
                m.larger = Some("far/c".into())
            });
            model(config, "far/c", 128_000, |_| {});
        })
        .start()
        .await;
    let client = proxy.client();
    let mut request = client.chat_request(long("m", false));
    let key = format!("Bearer {SECRET}").parse().unwrap();
    request.headers_mut().insert("authorization", key);
    let got = client.send(request).await;
    assert_eq!(
        far.count_requests(),
        0,
        "the client's key went to a third party"
    );
    assert_eq!((got.status.as_u16(), answered_by(&got)), (200, "other"));
    let theirs = format!("Bearer {SECRET}");
    assert_eq!(up.last_request().header("authorization"), Some(&*theirs));
    let seen = keyed.provider.last_request();
    assert!(seen.header("authorization").unwrap().ends_with(ours));
}

/// Sends the next request of a session; returns the provider that answered.
async fn step(client: &TestClient, messages: &mut Vec<Value>) -> String {
    messages.push(json!({"role": "user", "content": "and now?"}));
    let body = json!({"model": "pool", "messages": messages});
    let got = client.chat(body.to_string()).await;
    messages.push(json!({"role": "assistant", "content": "hi"}));
    answered_by(&got).to_owned()
}

#[tokio::test]
async fn a_session_stays_with_one_of_several_deployments() {
    let up = ScriptedProvider::start_answering(|_| good_answer(false)).await;
    let other = ScriptedProvider::start_answering(|_| good_answer(false)).await;
    let proxy = pair(&up, &other).set(|config| {
        let place = |model: &str| Deployment {
            model: model.into(),
            weight: 1,
        };
        model(config, "pool", 100_000, |m| {
            m.provider = None;
            m.deployments = vec![place("up/m"), place("other/b")];
        });
    });
    let proxy = proxy.start().await;
    let client = proxy.client();
    for nth in 0..24 {
        let mut messages = vec![json!({"role": "system", "content": format!("{nth}")})];
        let first = step(&client, &mut messages).await;
        for _ in 0..3 {
            assert_eq!(step(&client, &mut messages).await, first);
        }
    }
    // Both are chosen within 24 fair tosses, except in one run of eight million.
    assert!(up.count_requests() > 0 && other.count_requests() > 0);
    assert_eq!(up.count_requests() + other.count_requests(), 96);
}
