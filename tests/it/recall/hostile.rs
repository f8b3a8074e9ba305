//! Arguments and clients that nobody wishes for.

use plimsoll::config::RecallMode;
use serde_json::{Value, json};

use super::{message_by, named_ids, numbered_lines, request_of, spoken_text, start_model, step};
use crate::support::{
    ModelCall, ModelReply, ModelSetup, RunningModel, RunningProxy, model_with_window,
};

fn begun() -> Vec<Value> {
    let mut messages = vec![message_by("system", "Be brief."), message_by("user", "go")];
    messages.extend(step("call_1", &numbered_lines(4_000)));
    messages
}

async fn start_proxy(model: &RunningModel) -> RunningProxy {
    let proxy = model.provider.proxy();
    let proxy = proxy.set(|config| {
        config.models.insert("m".into(), model_with_window(128_000));
    });
    proxy.start().await
}

/// What the model reads for these arguments, which need not be JSON.
async fn knowledge_with(arguments: &str) -> String {
    let arguments = arguments.to_owned();
    let setup = ModelSetup {
        fragment: 400_000,
        ..ModelSetup::new(128_000)
    };
    let model = setup
        .start(move |heard| {
            let Some(text) = super::recalled_text(heard.body) else {
                return ModelReply::calls([ModelCall {
                    id: Some("rc_1".to_owned()),
                    name: "recall".to_owned(),
                    arguments: arguments.clone(),
                }]);
            };
            ModelReply::text(text)
        })
        .await;
    let proxy = start_proxy(&model).await;
    let text = spoken_text(&proxy.chat(request_of(&begun(), false).to_string()).await);
    model.assert_no_faults();
    text
}

#[tokio::test]
async fn bad_arguments_are_answered_with_what_is_wrong() {
    let long = format!(r#"{{"id":"m3","pattern":"{}"}}"#, "a".repeat(20_000));
    let huge = format!(r#"{{"id":"m3","pattern":"{}"}}"#, "a".repeat(300_000));
    for (arguments, expected) in [
        ("", "Error: id is missing"),
        ("not json", "Error: the arguments are no JSON"),
        ("[1]", "Error: the arguments are no JSON object"),
        (r#"{"pattern":"a"}"#, "Error: id is missing"),
        (
            r#"{"id":"m99"}"#,
            "Error: there is no message of that id. There are m1 to m3, and earlier",
        ),
        (
            r#"{"id":"../../etc/passwd"}"#,
            "Error: there is no message of that id.",
        ),
        (r#"{"id":-1}"#, "Error: there is no message of that id."),
        (r#"{"id":"m0"}"#, "Error: there is no message of that id."),
        (
            r#"{"id":"earlier"}"#,
            "earlier (no message was left out as a whole so far) holds no text.",
        ),
        (
            r#"{"id":"m3","pattern":"("}"#,
            "Error: the pattern is no regular expression: ",
        ),
        (r#"{"id":"m3","pattern":7}"#, "Error: pattern is no string."),
        (
            r#"{"id":"m3","pattern":"(\\w{500}){99}"}"#,
            "Error: the pattern is too large",
        ),
        (&*long, "Error: the pattern is too long"),
        (&*huge, "Error: the arguments were too long"),
        (r#"{"id":"m3","lines":"all"}"#, "Error: lines is no range."),
        (
            r#"{"id":"m3","lines":"9000-9100"}"#,
            "Error: m3, result of read_file has only 4000 lines.",
        ),
        (
            r#"{"id":"m3","pattern":"no such thing"}"#,
            "m3, result of read_file, 4000 lines in all. Nothing in it matches the pattern.",
        ),
    ] {
        let text = knowledge_with(arguments).await;
        let shown = &arguments[..arguments.len().min(60)];
        assert!(text.starts_with(expected), "{shown}: {text}");
    }
}

#[tokio::test]
async fn odd_arguments_are_understood() {
    for (arguments, expected) in [
        (
            r#"{"id":"m3","lines":"12-10"}"#,
            "[lines 10-12]\nplank 10 is",
        ),
        (r#"{"id":3,"lines":10}"#, "[line 10]\nplank 10 is"),
        (
            r#"{"id":"M3","lines":[10,12],"pattern":null}"#,
            "[lines 10-12]\nplank 10 is",
        ),
        (
            r#""{\"id\":\"m3\",\"lines\":\"10\"}""#,
            "[line 10]\nplank 10 is",
        ),
        (
            r#"{"id":"m3","lines":"3999-","pattern":""}"#,
            "[lines 3999-4000]\nplank 3999 is",
        ),
        (
            r#"{"id":"m3","lines":"1-10","pattern":"PLANK 9 |plank 9 "}"#,
            "1 line matches.",
        ),
        // Catastrophic where an engine goes back.
        (
            r#"{"id":"m3","pattern":"(p+)+(.*)*( .*)*value-70$"}"#,
            "1 line matches.",
        ),
        (
            r#"{"id":"m3","pattern":"plank 25.. "}"#,
            "100 lines match. Not shown: ",
        ),
        // What a client's own message says can be asked for as well.
        (
            r#"{"id":"m2"}"#,
            "call of read_file: {\"path\":\"deck.rs\"}",
        ),
    ] {
        let text = knowledge_with(arguments).await;
        assert!(text.contains(expected), "{arguments}: {text}");
        assert!(text.chars().count() <= 8_000, "{arguments}");
    }
}

#[tokio::test]
async fn a_client_with_a_tool_of_that_name_keeps_its_own() {
    let model = start_model(128_000, json!({})).await;
    let proxy = start_proxy(&model).await;
    for name in ["recall", "rec\\u0061ll"] {
        let request = request_of(&begun(), false).to_string();
        let request = request.replace(
            r#""name":"read_file","parameters"#,
            &format!(r#""name":"{name}","parameters"#),
        );
        let before = model.count();
        let answer = proxy.chat(request).await;
        let bodies = model.bodies_from(before).await;
        let [seen] = &bodies[..] else {
            panic!("{} requests", bodies.len());
        };
        let tools = seen["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 1, "{tools:?}");
        assert!(named_ids(seen).is_empty());
        assert!(answer.text().contains("not in sight"));
    }
}

#[tokio::test]
async fn switched_off_it_changes_no_byte() {
    let model = start_model(128_000, json!({})).await;
    let proxy = model.provider.proxy();
    let proxy = proxy.set(|config| {
        config.models.insert("m".into(), model_with_window(128_000));
        config.guard.recall = RecallMode::Off;
    });
    let proxy = proxy.start().await;
    let request = request_of(&begun(), false);
    proxy.chat(request.to_string()).await;
    let seen = &model.bodies().await[0];
    assert_eq!(seen["tools"], request["tools"]);
    let text = seen["messages"][3]["content"].as_str().unwrap();
    assert!(text.contains(" characters truncated] ...\n"), "{text}");
    assert!(!seen.to_string().contains("recall"));
}

#[tokio::test]
async fn a_model_that_only_recalls_comes_to_an_end() {
    for stream in [false, true] {
        let model = ModelSetup::new(128_000)
            .start(|heard| {
                let arguments = json!({"id": "m3", "lines": format!("{}-", heard.nth * 100)});
                let id = format!("rc_{}", heard.nth);
                ModelReply::calls([ModelCall::new(&id, "recall", &arguments)])
            })
            .await;
        let proxy = start_proxy(&model).await;
        let answer = proxy.chat(request_of(&begun(), stream).to_string()).await;
        assert!(answer.whole && answer.status == 200, "{}", answer.text());
        assert!(!answer.text().contains("rc_"));
        assert_eq!(model.count(), 9, "eight rounds");
        model.assert_no_faults();
    }
}
