//! Histories that the provider holds or cuts by itself, and inputs without a list.

use serde_json::{Value, json};

use super::{WINDOW, proxy_before, response, said, step};
use crate::support::{
    ModelReply, ModelSetup, ResponsesAgent, RunningProxy, ScriptedProvider, answer,
    model_with_early_levels, stream_of, user_entry, words,
};
use plimsoll::config::AddTools;

async fn start_provider() -> (ScriptedProvider, RunningProxy) {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().model("m", model_with_early_levels(WINDOW));
    let proxy = proxy.set(|config| config.recovery.tools = AddTools::Always);
    let proxy = proxy.start().await;
    (up, proxy)
}

/// By which the provider holds the history, or cuts it.
fn held_fields() -> [(&'static str, Value); 5] {
    [
        ("previous_response_id", "resp_0".into()),
        ("conversation", "conv_0".into()),
        ("conversation", json!({"id": "conv_0"})),
        ("truncation", "auto".into()),
        (
            "context_management",
            json!([{"type": "compaction", "compact_threshold": 9_000}]),
        ),
    ]
}

#[tokio::test]
async fn a_history_that_the_provider_holds_is_left_to_it_and_measured() {
    let (up, proxy) = start_provider().await;
    for (name, value) in held_fields() {
        let mut agent = ResponsesAgent::new(&proxy).set(name, value);
        for nth in 0..8 {
            agent.push(step(&format!("call_{nth}"), &words(4_000, nth)));
        }
        up.script_next([answer("200 OK", "", response(&[said("a")], 19_000))]);
        let generation = agent.ask().await;
        assert_eq!(generation.header("actions"), Some("left-to-provider"));
        assert_eq!(generation.header("health"), Some("critical"));
        assert_eq!(generation.injected(), None);
        let sent = up.last_request().body;
        assert_eq!(sent, agent.fields.to_string().as_bytes());
    }
}

/// What the client does not send is in the counts, which tell nothing of what it sends.
#[tokio::test]
async fn the_id_of_the_answer_before_names_the_session() {
    for stream in [false, true] {
        let (up, proxy) = start_provider().await;
        let ask = async |agent: ResponsesAgent, id: &str, tokens: u32| {
            let mut whole: Value = serde_json::from_str(&response(&[said("a")], tokens)).unwrap();
            whole["id"] = id.into();
            let end =
                json!({"type": "response.completed", "sequence_number": 0, "response": whole});
            up.script_next(if stream {
                stream_of([format!("event: response.completed\ndata: {end}\n\n")])
            } else {
                vec![answer("200 OK", "", whole.to_string())]
            });
            let got = agent.set("stream", stream).send().await;
            let told = |name: &str| got.headers[name].to_str().unwrap().to_owned();
            let health = if stream {
                got.text().to_owned()
            } else {
                format!("health={}", told("x-plimsoll-health"))
            };
            let actions = told("x-plimsoll-actions");
            (told("x-plimsoll-session"), health, actions)
        };
        let first = ResponsesAgent::new(&proxy).set("store", true);
        let (session, ..) = ask(first, "resp_0", 80).await;
        for nth in 0..8 {
            let mut agent = ResponsesAgent::new(&proxy);
            agent.fields["previous_response_id"] = format!("resp_{nth}").into();
            agent.fields["input"] = json!([user_entry("And now?")]);
            let id = format!("resp_{}", nth + 1);
            let (found, health, actions) = ask(agent, &id, 2_500 * (nth + 1)).await;
            assert_eq!(found, session, "{nth}");
            assert_eq!(actions, "left-to-provider");
            match nth {
                0 => assert!(health.contains("health=healthy"), "{health}"),
                7 => assert!(health.contains("health=critical"), "{health}"),
                _ => {}
            }
        }
        // Nobody has the answer of this id.
        let stranger = ResponsesAgent::new(&proxy).set("previous_response_id", "resp_x");
        assert_ne!(ask(stranger, "resp_y", 700).await.0, session);
        let mut plain = ResponsesAgent::new(&proxy);
        plain.push([said("Where?"), user_entry(&words(9_000, 0))]);
        let (_, _, actions) = ask(plain, "resp_z", 9_000).await;
        assert!(
            !actions.contains("dropped") && !actions.contains("truncated"),
            "{actions}"
        );
    }
}

#[tokio::test]
async fn the_tools_of_the_proxy_wait_until_the_client_sends_the_history() {
    let (up, proxy) = start_provider().await;
    let ask = async |agent: &ResponsesAgent| {
        up.script_next([answer("200 OK", "", response(&[said("a")], 700))]);
        agent.ask().await;
        let body: Value = serde_json::from_slice(&up.last_request().body).unwrap();
        body["tools"].as_array().unwrap().len()
    };
    let mut agent = ResponsesAgent::new(&proxy);
    assert!(ask(&agent).await > 1);
    // The provider stores the answer, and the client may go on from it.
    for store in [Value::Null, true.into()] {
        agent.fields["store"] = store;
        assert_eq!(ask(&agent).await, 1);
    }
    agent.push([said("a"), user_entry("And now?")]);
    assert!(ask(&agent).await > 1);
    // The client fetches the answer later.
    agent.fields["background"] = true.into();
    assert_eq!(ask(&agent).await, 1);
}

#[tokio::test]
async fn an_oversized_output_is_truncated_where_the_provider_holds_the_history() {
    let (up, proxy) = start_provider().await;
    for (name, value) in held_fields() {
        let mut agent = ResponsesAgent::new(&proxy).set(name, value);
        let [call, output] = step("call_1", &"a line of the log\n".repeat(10_000));
        // The provider may have the call.
        let has_call = !matches!(name, "previous_response_id" | "conversation");
        agent.push(has_call.then_some(call));
        agent.push([output]);
        up.script_next([answer("200 OK", "", response(&[said("a")], 7))]);
        let generation = agent.ask().await;
        assert_eq!(generation.action("truncated"), Some("1"), "{name}");
        assert!(generation.has_action("left-to-provider"), "{name}");
        let body: Value = serde_json::from_slice(&up.last_request().body).unwrap();
        let kept = body["input"].as_array().unwrap().last().unwrap();
        let kept = kept["output"].as_str().unwrap();
        assert!(kept.len() < 50_000 && kept.contains("characters truncated"));
    }
}

#[tokio::test]
async fn an_input_that_is_a_string_is_untouched_and_measured() {
    for stream in [false, true] {
        let (up, proxy) = start_provider().await;
        let mut agent = ResponsesAgent::new(&proxy).set("stream", stream);
        agent.fields["input"] = "Where is the harbour?".into();
        let whole = response(&[said("a")], 19_000);
        for _ in 0..2 {
            let end: Value = serde_json::from_str(&whole).unwrap();
            let end = json!({"type": "response.completed", "sequence_number": 0, "response": end});
            up.script_next(if stream {
                stream_of([format!("event: response.completed\ndata: {end}\n\n")])
            } else {
                vec![answer("200 OK", "", &whole)]
            });
            let got = agent.send().await;
            assert_eq!(got.status, 200);
            if stream {
                assert!(got.text().contains("health=critical prompt-tokens=19000"))
            } else {
                assert_eq!(got.headers["x-plimsoll-health"], "critical")
            }
            let sent = up.last_request().body;
            assert_eq!(sent, agent.fields.to_string().as_bytes());
        }
    }
}

#[tokio::test]
async fn a_string_may_be_followed_by_a_list() {
    let up = ModelSetup::new(WINDOW)
        .start(|heard| ModelReply::text(&format!("fine {}", heard.nth)))
        .await;
    let proxy = proxy_before(&up, WINDOW).start().await;
    let mut agent = ResponsesAgent::new(&proxy);
    let question = agent.fields["input"].take();
    agent.fields["input"] = "Find every leak and mend it.".into();
    let first = agent.ask().await;
    agent.fields["input"] = question;
    let output = first.message["output"].as_array().unwrap().clone();
    agent.push(output.into_iter().chain([user_entry("And now?")]));
    let second = agent.ask().await;
    assert_eq!(second.header("session"), first.header("session"));
}
