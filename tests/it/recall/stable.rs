//! What is named, added and recalled stays the same: from request to request, on any replica, after a restart.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    message_by, named_ids, numbered_lines, recalled_text, request_of, spoken_text, start_model,
    step,
};
use crate::support::{
    ModelCall, ModelReply, ModelSetup, ProxyBuilder, RunningModel, RunningProxy, memory_store,
    model_with_window,
};

fn builder(model: &RunningModel) -> ProxyBuilder {
    model.provider.proxy().set(|config| {
        config.models.insert("m".into(), model_with_window(128_000));
    })
}

fn begun() -> Vec<Value> {
    let mut messages = vec![message_by("system", "Be brief."), message_by("user", "go")];
    messages.extend(step("call_1", &numbered_lines(4_000)));
    messages
}

/// A model that recalls beside the client's tool, and in a round of its own, two at once.
async fn start_mixing_model() -> RunningModel {
    let setup = ModelSetup {
        fragment: 4_000,
        ..ModelSetup::new(128_000)
    };
    let recall = |nth: usize, line: usize| {
        let arguments = json!({"id": "m3", "lines": line.to_string()});
        ModelCall::new(&format!("rc_{nth}_{line}"), "recall", &arguments)
    };
    setup
        .start(move |heard| {
            let last = heard.messages().last().unwrap();
            match last["content"].as_str().unwrap() {
                "beside" => {
                    let theirs = ModelCall::new("theirs_1", "read_file", &json!({"path": "a"}));
                    ModelReply::calls([recall(1, 11), theirs, recall(1, 12)])
                }
                "round" => {
                    let note = json!({"content": "a note"});
                    let note = ModelCall::new("note_1", "add_reminder", &note);
                    ModelReply::calls([recall(2, 13), note, recall(2, 14)])
                }
                _ => ModelReply::text("Done."),
            }
        })
        .await
}

/// One session: a recall beside the client's call, a round with several, and what follows. Each request goes to the
/// next proxy.
async fn play(proxies: &[&RunningProxy], stream: bool) {
    let mut messages = begun();
    let mut proxies = proxies.iter().cycle();
    messages.extend([
        message_by("assistant", "Read."),
        message_by("user", "beside"),
    ]);
    let ask = async |proxy: &RunningProxy, messages: &[Value]| {
        proxy.chat(request_of(messages, stream).to_string()).await
    };
    let answer = ask(proxies.next().unwrap(), &messages).await;
    assert!(answer.text().contains("theirs_1") && !answer.text().contains("rc_1"));
    messages.extend(step("theirs_1", "ordinary"));
    messages[6]["tool_calls"][0]["function"]["arguments"] = r#"{"path":"a"}"#.into();
    for said in ["", "round", "thanks"] {
        if !said.is_empty() {
            messages.push(message_by("user", said));
        }
        let answer = ask(proxies.next().unwrap(), &messages).await;
        let text = spoken_text(&answer);
        assert_eq!(text, "Done.");
        messages.push(message_by("assistant", &text));
    }
}

/// All upstream requests of a session.
async fn session(replicas: usize, stream: bool) -> Vec<Value> {
    let model = start_mixing_model().await;
    let (store, data) = (memory_store(), tempfile::tempdir().unwrap());
    let mut proxies = Vec::new();
    for _ in 0..replicas {
        let proxy = builder(&model).store(Arc::clone(&store));
        let proxy = proxy.set(|config| config.server.data_dir = data.path().into());
        proxies.push(proxy.start().await);
    }
    play(&proxies.iter().collect::<Vec<_>>(), stream).await;
    model.assert_no_faults();
    model.bodies().await
}

/// The result of each recall in a request.
fn recalled(body: &Value) -> Vec<(&str, &str)> {
    let messages = body["messages"].as_array().unwrap().iter();
    let results = messages.filter_map(|message| {
        let id = message["tool_call_id"].as_str()?;
        Some((id, message["content"].as_str()?))
    });
    results.filter(|(id, _)| id.starts_with("rc_")).collect()
}

#[tokio::test]
async fn rounds_and_calls_beside_the_clients_are_kept_as_they_were() {
    for stream in [false, true] {
        let bodies = session(1, stream).await;
        assert_eq!(bodies.len(), 5, "one round");
        for (at, count) in [(0, 0), (1, 2), (2, 2), (3, 4), (4, 4)] {
            let found = recalled(&bodies[at]);
            assert_eq!(found.len(), count, "request {at}");
            for (id, text) in found {
                let line: usize = id.rsplit('_').next().unwrap().parse().unwrap();
                assert!(
                    text.contains(&format!("plank {line} is \"sound\" \\")),
                    "{text}"
                );
            }
        }
        for (before, after) in bodies.iter().zip(&bodies[1..]) {
            assert_eq!(before["tools"], after["tools"]);
            let before = before["messages"].as_array().unwrap();
            let after = after["messages"].as_array().unwrap();
            assert_eq!(before[..], after[..before.len()], "the prefix stays");
        }
    }
}

#[tokio::test]
async fn replicas_and_restarts_send_the_same() {
    for stream in [false, true] {
        let one = session(1, stream).await;
        for count in [2, 3] {
            assert_eq!(session(count, stream).await, one, "{count} replicas");
        }
    }
}

#[tokio::test]
async fn a_proxy_without_any_state_names_and_finds_the_same() {
    let model = start_model(128_000, json!({"lines": "2500"})).await;
    let mut messages = begun();
    let known = builder(&model).start().await;
    let first = spoken_text(&known.chat(request_of(&messages, false).to_string()).await);
    messages.push(message_by("assistant", &first));
    messages.push(message_by("user", "And again?"));
    let fresh = builder(&model).start().await;
    let again = spoken_text(&fresh.chat(request_of(&messages, false).to_string()).await);
    assert_eq!(first, again);
    let bodies = model.bodies().await;
    assert_eq!(bodies[0]["tools"], bodies[2]["tools"]);
    let prefix = bodies[0]["messages"].as_array().unwrap();
    let after = bodies[2]["messages"].as_array().unwrap();
    assert_eq!(prefix[..], after[..prefix.len()]);
}

#[tokio::test]
async fn ids_do_not_move_when_system_messages_come_and_go() {
    let model = start_model(128_000, json!({"lines": "2500"})).await;
    let proxy = builder(&model).start().await;
    let system = message_by("system", "It is noon.");
    let plain = begun();
    let mut more = plain.clone();
    more.insert(0, system.clone());
    more.insert(2, message_by("developer", "It rains."));
    let mut none = plain.clone();
    none.remove(0);
    let mut texts = Vec::new();
    for messages in [plain, more, none] {
        let answer = proxy.chat(request_of(&messages, false).to_string()).await;
        texts.push(spoken_text(&answer));
    }
    assert!(
        texts
            .iter()
            .all(|text| *text == texts[0] && text.contains("plank 2500"))
    );
    for body in model.bodies().await {
        assert_eq!(named_ids(&body)[0], "m3");
    }
}

#[tokio::test]
async fn the_tools_stay_once_they_were_added() {
    let model = start_mixing_model().await;
    let proxy = builder(&model).start().await;
    let mut messages = begun();
    proxy.chat(request_of(&messages, false).to_string()).await;
    // Another branch of the same session, whose request has nothing that is cut.
    messages.push(message_by("assistant", "Done."));
    messages[3]["content"] = numbered_lines(4_000).into();
    messages.push(message_by("user", "thanks"));
    proxy.chat(request_of(&messages, false).to_string()).await;
    let bodies = model.bodies().await;
    let names = |body: &Value| -> Vec<String> {
        let tools = body["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["function"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let expected = [
        "read_file",
        "add_reminder",
        "update_reminder",
        "delete_reminder",
        "clear_mind",
        "recall",
    ];
    assert_eq!(names(&bodies[0]), expected);
    assert_eq!(names(&bodies[1]), expected);
    assert!(recalled_text(&bodies[1]).is_none());
}
