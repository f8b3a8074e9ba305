//! Threads: the provider holds the conversation, and the client sends what is new.

use std::time::Duration;

use plimsoll::config::{Auth, Config, ModelConfig, Threads};
use serde_json::{Value, json};

use super::{WINDOW, text};
use crate::support::{
    MessagesAgent, ProviderStep, ProxyBuilder, ReceivedRequest, RunningProxy, ScriptedProvider,
    answer, model_with_early_levels, send_bytes, stream_head,
    threads::{THREADS_BETA, ThreadServer, thread_error},
    words,
};

/// Before model `m` of `up`, with retries, a fallback and a larger model at `other`.
fn proxy_with_others(up: &ScriptedProvider, other: &ScriptedProvider) -> ProxyBuilder {
    let proxy = up.proxy().provider("other", other);
    let proxy = proxy.providers(|provider| provider.auth = Auth::None);
    let proxy = proxy.model("other/larger", model_with_early_levels(10 * WINDOW));
    let model = ModelConfig {
        provider: Some("up".into()),
        fallback: vec!["other/m".into()],
        larger: Some("other/larger".into()),
        ..model_with_early_levels(WINDOW)
    };
    proxy.model("m", model).set(|config: &mut Config| {
        config.retry.max_retries = 2;
        config.retry.base_delay = Duration::from_millis(1);
    })
}

fn agent(proxy: &RunningProxy) -> MessagesAgent {
    MessagesAgent::new(proxy).with("anthropic-beta", THREADS_BETA)
}

/// Makes the agent's next request the first one of a thread, with all that it has said.
fn create(agent: &mut MessagesAgent) {
    agent.fields["thread"] = json!({"type": "create"});
}

/// Makes it go on from the answer of this id, with a new message.
fn go_on(agent: &mut MessagesAgent, id: &str, said: &str) {
    let fields = agent.fields.as_object_mut().unwrap();
    fields.retain(|name, _| !["system", "tools"].contains(&&**name));
    agent.fields["thread"] = json!({"type": "continue", "previous_message_id": id});
    agent.fields["messages"] = json!([{"role": "user", "content": said}]);
}

fn id_of(message: &Value) -> String {
    message["id"].as_str().unwrap().to_owned()
}

async fn counter(proxy: &RunningProxy, name: &str) -> usize {
    let got = proxy.client().get("/metrics").await;
    let line = got.text().lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

#[tokio::test]
async fn a_thread_is_one_session_whose_health_is_by_usage() {
    for stream in [false, true] {
        let up = ThreadServer::start().await;
        let other = ScriptedProvider::start().await;
        let proxy = proxy_with_others(&up.provider, &other).start().await;
        let mut agent = agent(&proxy).set("stream", stream);
        create(&mut agent);
        let first = agent.ask().await;
        let (mut id, mut levels) = (id_of(&first.message), Vec::new());
        for nth in 0..12 {
            go_on(&mut agent, &id, &words(1_500, nth));
            let next = agent.ask().await;
            assert_eq!(next.header("session"), first.header("session"), "{nth}");
            assert_eq!(next.header("actions"), Some("left-to-provider"));
            let sent = up.provider.last_request().body;
            assert_eq!(sent, agent.fields.to_string().as_bytes());
            levels.push(next.header("health").unwrap().to_owned());
            id = id_of(&next.message);
        }
        assert_eq!(levels[0], "healthy");
        assert!(levels.contains(&"caution".to_owned()), "{levels:?}");
        assert_eq!(levels[11], "critical");
        assert_eq!(up.provider.count_requests(), 13);
        assert_eq!(other.count_requests(), 0);
        up.assert_no_faults();
        let listed = proxy.client().get("/plimsoll/api/sessions").await.json();
        assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn the_same_words_in_other_threads_are_other_sessions() {
    let up = ThreadServer::start().await;
    let other = ScriptedProvider::start().await;
    let proxy = proxy_with_others(&up.provider, &other).start().await;
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let mut agent = agent(&proxy);
        create(&mut agent);
        let first = agent.ask().await;
        go_on(&mut agent, &id_of(&first.message), "And then?");
        let next = agent.ask().await;
        assert_eq!(next.header("session"), first.header("session"));
        sessions.push((next.header("session").unwrap().to_owned(), next));
    }
    // A conversation that begins as a thread went on.
    let mut plain = agent(&proxy);
    plain.fields["messages"] = json!([{"role": "user", "content": "And then?"}]);
    plain.push("assistant", sessions[0].1.message["content"].clone());
    plain.push("user", "And then?");
    let plain = plain.ask().await;
    let mut ids = [
        &*sessions[0].0,
        &*sessions[1].0,
        plain.header("session").unwrap(),
    ];
    ids.sort_unstable();
    assert!(ids[0] != ids[1] && ids[1] != ids[2], "{ids:?}");
    // An id that nobody knows.
    let mut stranger = agent(&proxy);
    go_on(&mut stranger, "msg_x", "And then?");
    assert_eq!(stranger.send().await.status, 404);
}

/// The counts of a thread are not those of what was sent.
#[tokio::test]
async fn a_thread_teaches_nothing_of_how_the_model_counts() {
    let up = ThreadServer::start().await;
    let other = ScriptedProvider::start().await;
    let proxy = proxy_with_others(&up.provider, &other).start().await;
    for nth in 0..6 {
        let mut agent = agent(&proxy);
        agent.push("assistant", "Where?");
        agent.push("user", words(9_000, nth));
        create(&mut agent);
        let mut id = id_of(&agent.ask().await.message);
        for _ in 0..4 {
            go_on(&mut agent, &id, "And then?");
            id = id_of(&agent.ask().await.message);
        }
    }
    let mut plain = agent(&proxy);
    plain.push("assistant", "Where?");
    plain.push("user", words(9_000, 99));
    let generation = plain.ask().await;
    assert_eq!(generation.header("actions"), Some("none"));
}

#[tokio::test]
async fn what_continues_a_thread_goes_out_once() {
    let cut = [
        stream_head(),
        send_bytes("event: ping\n"),
        ProviderStep::Close,
    ];
    let overloaded =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let long = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#;
    let cases: [(&str, Vec<ProviderStep>); 8] = [
        ("closed", vec![ProviderStep::Close]),
        ("reset", vec![ProviderStep::Reset]),
        ("silent", vec![ProviderStep::Stall]),
        ("cut off", cut.into()),
        ("failed", vec![answer("500 No", "", "oh")]),
        ("overloaded", vec![answer("529 No", "", overloaded)]),
        (
            "busy",
            vec![answer("429 No", "retry-after: 0\r\n", overloaded)],
        ),
        ("long", vec![answer("400 No", "", long)]),
    ];
    for (name, steps) in cases {
        let up = ThreadServer::start().await;
        let other = ScriptedProvider::start().await;
        let proxy = proxy_with_others(&up.provider, &other)
            .providers(|it| it.first_byte_timeout = Duration::from_millis(300))
            .start()
            .await;
        let mut agent = agent(&proxy);
        create(&mut agent);
        let first = agent.ask().await;
        up.lose_next(steps);
        let id = id_of(&first.message);
        go_on(&mut agent, &id, "And then?");
        let lost = agent.send().await;
        assert!(lost.status != 200 || !lost.whole, "{name}");
        assert_eq!(up.provider.count_requests(), 2, "{name}");
        // The client tries again, and learns that the provider has it.
        let refused = agent.send().await;
        let code = "thread_already_continued";
        let body = thread_error(400, code, "Each response can be continued once.");
        assert_eq!(
            (refused.status.as_u16(), refused.text()),
            (400, &*body),
            "{name}"
        );
        // It begins anew with all that it knows.
        let mut anew = MessagesAgent::new(&proxy).with("anthropic-beta", THREADS_BETA);
        anew.push("assistant", first.message["content"].clone());
        anew.push("user", "And then?");
        create(&mut anew);
        let again = anew.ask().await;
        assert_eq!(again.header("session"), first.header("session"), "{name}");
        assert_eq!(up.provider.count_requests(), 4, "{name}");
        assert_eq!(other.count_requests(), 0, "{name}");
        up.assert_no_faults();
    }
}

/// The client goes back to whole histories: what was cut before the thread is cut so still.
#[tokio::test]
async fn a_thread_leaves_the_cuts_of_its_session_alone() {
    let up = ThreadServer::start().await;
    let model = ModelConfig {
        provider: Some("up".into()),
        ..model_with_early_levels(WINDOW)
    };
    let proxy = up.provider.proxy().model("m", model);
    let proxy = proxy.set(|config: &mut Config| config.recovery.enabled = false);
    let proxy = proxy.start().await;
    let mut agent = agent(&proxy);
    let sent = || {
        let body: Value = serde_json::from_slice(&up.provider.last_request().body).unwrap();
        body["messages"].as_array().unwrap().clone()
    };
    let mut first = agent.ask().await;
    for nth in 0..40 {
        if first.action("dropped").is_some() {
            break;
        }
        agent.push("assistant", first.message["content"].clone());
        agent.push("user", words(1_500, nth));
        first = agent.ask().await;
    }
    assert!(first.action("dropped").is_some(), "nothing was cut");
    let before = sent();
    agent.push("assistant", first.message["content"].clone());
    agent.push("user", "Go on.");
    create(&mut agent);
    let created = agent.ask().await;
    let mut whole = agent.fields.clone();
    go_on(&mut agent, &id_of(&created.message), "And then?");
    let continued = agent.ask().await;
    whole.as_object_mut().unwrap().remove("thread");
    agent.fields = whole;
    for (answer, said) in [(created, "And then?"), (continued, "And now?")] {
        agent.push("assistant", answer.message["content"].clone());
        agent.push("user", said);
    }
    let back = agent.ask().await;
    assert_eq!(back.header("session"), first.header("session"));
    assert_eq!(sent()[..before.len()], before[..]);
    up.assert_no_faults();
}

#[tokio::test]
async fn what_cannot_have_arrived_is_tried_again_at_the_same_provider() {
    let up = ScriptedProvider::start().await;
    let other = ScriptedProvider::start().await;
    let gone = "http://127.0.0.1:1/v1";
    let proxy = proxy_with_others(&up, &other)
        .set(|config| config.providers.get_mut("up").unwrap().base_url = Some(gone.into()))
        .start()
        .await;
    let mut agent = agent(&proxy);
    go_on(&mut agent, "msg_1", "And then?");
    assert_eq!(agent.send().await.status, 502);
    assert_eq!(
        counter(&proxy, "plimsoll_retries_total{provider=\"up\"}").await,
        2
    );
    assert_eq!(other.count_requests(), 0);
}

#[tokio::test]
async fn a_thread_stays_at_the_provider_that_began_it() {
    let busy = |_: &ReceivedRequest| vec![answer("503 No", "", "oh")];
    let up = ScriptedProvider::start_answering(busy).await;
    let other = ThreadServer::start().await;
    let proxy = proxy_with_others(&up, &other.provider).start().await;
    let mut agent = agent(&proxy);
    create(&mut agent);
    let first = agent.ask().await;
    let asked = up.count_requests();
    assert!(asked > 0);
    let mut id = id_of(&first.message);
    for nth in 0..3 {
        go_on(&mut agent, &id, "And then?");
        id = id_of(&agent.ask().await.message);
        assert_eq!(other.provider.count_requests(), nth + 2);
    }
    other.lose_next(vec![answer("503 No", "", "oh")]);
    go_on(&mut agent, &id, "And then?");
    assert_eq!(agent.send().await.status, 503);
    assert_eq!(other.provider.count_requests(), 5);
    assert_eq!(up.count_requests(), asked);
    other.assert_no_faults();
}

#[tokio::test]
async fn a_thread_that_is_over_is_the_clients_to_begin_anew() {
    let up = ThreadServer::start().await;
    let other = ScriptedProvider::start().await;
    let proxy = proxy_with_others(&up.provider, &other).start().await;
    let mut agent = agent(&proxy);
    create(&mut agent);
    let id = id_of(&agent.ask().await.message);
    up.pass_time(301);
    go_on(&mut agent, &id, "And then?");
    let refused = agent.send().await;
    let body = thread_error(404, "thread_not_found", "No usable thread was found.");
    assert_eq!((refused.status.as_u16(), refused.text()), (404, &*body));
    assert_eq!(up.provider.count_requests(), 2);
}

#[tokio::test]
async fn errors_of_threads_pass_as_they_came() {
    let cases = [
        (404, "thread_not_found", "No usable thread state was found."),
        (
            400,
            "thread_already_continued",
            "`previous_message_id` was already continued.",
        ),
        (
            400,
            "thread_continue_in_flight",
            "Another request is still continuing.",
        ),
        (
            409,
            "thread_continue_in_flight",
            "Another request is still continuing.",
        ),
        (
            400,
            "thread_fingerprint_mismatch",
            "`thinking` differs from the thread's: a `thinking` block cannot be modified, and a different conversation follows.",
        ),
        (
            400,
            "thread_unsupported_request",
            "`thread` cannot be combined with `thinking`, `cache_control` or context_management: the prompt is too long.",
        ),
        (
            400,
            "thread_code_of_tomorrow",
            "messages: Extra inputs are not permitted",
        ),
    ];
    for (status, code, message) in cases {
        for creates in [false, true] {
            let up = ScriptedProvider::start().await;
            let other = ScriptedProvider::start().await;
            let proxy = proxy_with_others(&up, &other).start().await;
            let mut agent = agent(&proxy);
            if creates {
                create(&mut agent)
            } else {
                go_on(&mut agent, "msg_0", "And then?")
            }
            let body = thread_error(status, code, message);
            for _ in 0..2 {
                up.script_next([answer(&format!("{status} No"), "", &body)]);
            }
            let refused = agent.send().await;
            assert_eq!(refused.text(), body, "{code}");
            assert_eq!(refused.status.as_u16(), status);
            assert_eq!(up.count_requests(), 1, "{code}, creates: {creates}");
            assert_eq!(other.count_requests(), 0);
        }
    }
}

#[tokio::test]
async fn threads_may_be_refused_so_that_the_guard_works() {
    let up = ThreadServer::start().await;
    let other = ScriptedProvider::start().await;
    let proxy = proxy_with_others(&up.provider, &other)
        .providers(|it| it.threads = Threads::Refuse)
        .set(|config| config.models.get_mut("m").unwrap().larger = None)
        .start()
        .await;
    for creates in [false, true] {
        let mut agent = agent(&proxy);
        if creates {
            create(&mut agent)
        } else {
            go_on(&mut agent, "msg_0", "And then?")
        }
        let refused = agent.send().await;
        assert_eq!(refused.status, 400);
        let error = &refused.json()["error"];
        assert_eq!(error["type"], "invalid_request_error");
        let details =
            json!({"error_code": "thread_unsupported_request", "unsupported": ["inference_hooks"]});
        assert_eq!(error["details"], details);
        assert_eq!(
            refused.headers["x-plimsoll-error"],
            "thread_unsupported_request"
        );
        assert_eq!(up.provider.count_requests(), 0);
    }
    // Without the member, the guard fits the conversation.
    let mut whole = agent(&proxy);
    for nth in 0..30 {
        whole.push("assistant", json!([text("Where?")]));
        whole.push("user", words(1_500, nth));
    }
    let fitted = whole.ask().await;
    assert!(
        fitted.action("dropped").is_some(),
        "{:?}",
        fitted.header("actions")
    );
    // Where there is no guard, the provider holds it.
    let mut off = agent(&proxy).with("x-plimsoll-guard", "off");
    create(&mut off);
    let id = id_of(&off.ask().await.message);
    go_on(&mut off, &id, "And then?");
    assert_eq!(off.ask().await.header("actions"), Some("guard-off"));
    up.assert_no_faults();
}
