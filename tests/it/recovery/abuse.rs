//! A model that misuses the tools: it is limited, gets an error text, and the client is not
//! affected.

use serde_json::{Value, json};

use super::{
    Shape, WINDOW, agent_past_optimal, first_prompted, obliging_model, pair, proxy_before, work,
};
use crate::support::{Agent, ModelCall, ModelReply, ModelRequest, ModelSetup};

/// Upstream requests for one client request, whatever the model does.
const MOST: usize = 24;

fn own_call(heard: &ModelRequest<'_>, name: &str, arguments: &str) -> ModelReply {
    ModelReply::calls([ModelCall {
        id: Some(format!("own_{}", heard.nth)),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    }])
}

#[tokio::test]
async fn a_model_that_adds_reminders_for_ever_is_stopped() {
    for stream in [false, true] {
        let (proxy, up) = pair(|heard| {
            if heard.offers_tool("add_reminder") {
                own_call(heard, "add_reminder", r#"{"content":"again"}"#)
            } else {
                work(heard)
            }
        })
        .await;
        let mut agent = agent_past_optimal(&proxy).set("stream", stream);
        let mut before = up.count();
        for _ in 0..6 {
            agent.step().await;
            let now = up.count();
            assert!(now - before <= MOST, "{} requests", now - before);
            before = now;
        }
        // A session beyond its limit still ends in an answer that the client can use.
        assert!(agent.messages.len() > 6);
        up.assert_no_faults();
    }
}

/// A reply rule that makes this call at the first notice, and then works.
async fn check(name: &'static str, arguments: String, tells: &[&str]) {
    for stream in [false, true] {
        let arguments = arguments.clone();
        let (proxy, up) = pair(move |heard| {
            let asked = heard.notice.as_ref().is_some_and(|it| it.notes);
            if asked && heard.offers_tool(name) {
                own_call(heard, name, &arguments)
            } else {
                work(heard)
            }
        })
        .await;
        let mut agent = agent_past_optimal(&proxy).set("stream", stream);
        agent.step().await;
        let before = up.count();
        let generation = first_prompted(&mut agent).await;
        assert_eq!(generation.called(), ["read_file"]);
        let bodies = up.bodies().await.split_off(before);
        assert_eq!(bodies.len(), 2, "one round, answered and gone on from");
        let result = bodies[1]["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(result["role"], "tool");
        let told = result["content"].as_str().unwrap().to_lowercase();
        let start = told.chars().take(200).collect::<String>();
        let name = format!("{name} {}: {start}", &arguments_of(&bodies[1]));
        assert!(told.len() < 4_000, "{} bytes", told.len());
        assert!(
            tells.is_empty() || tells.iter().any(|it| told.contains(it)),
            "{name}"
        );
        let size = bodies[1].to_string().len();
        assert!(size < 400_000, "{size} bytes of it went upstream again");
        agent.steps(3).await;
        up.assert_no_faults();
    }
}

fn arguments_of(body: &Value) -> String {
    let messages = body["messages"].as_array().unwrap();
    let calls = &messages[messages.len() - 2]["tool_calls"];
    calls.to_string().chars().take(120).collect()
}

#[tokio::test]
async fn broken_arguments_get_an_error_that_names_the_fault() {
    let wrong = [
        "error", "invalid", "not", "must", "missing", "required", "expected",
    ];
    for arguments in [
        "",
        "{",
        "null",
        "[]",
        "7",
        "\"text\"",
        "{}",
        r#"{"content":null}"#,
        r#"{"content":""}"#,
        r#"{"content":"a"#,
        "\u{0}",
        r#"{"content":"\ud800"}"#,
    ] {
        check(
            "add_reminder",
            arguments.to_owned(),
            if arguments.contains("ud800") {
                &[]
            } else {
                &wrong
            },
        )
        .await;
    }
}

#[tokio::test]
async fn a_megabyte_of_reminder_is_bounded() {
    let long = json!({"content": "keel ".repeat(200_000)});
    check("add_reminder", long.to_string(), &[]).await;
    let wide = json!({"content": "龙骨".repeat(200_000)});
    check("add_reminder", wide.to_string(), &[]).await;
}

#[tokio::test]
async fn an_unknown_id_is_answered_with_an_error() {
    let wrong = ["no reminder", "unknown", "not", "error"];
    for id in [
        json!("r99"),
        json!("x"),
        json!(99),
        json!(-1),
        json!({}),
        json!("r18446744073709551616"),
    ] {
        let update = json!({"id": id, "content": "other"});
        check("update_reminder", update.to_string(), &wrong).await;
        check("delete_reminder", json!({"id": id}).to_string(), &wrong).await;
    }
}

#[tokio::test]
async fn calls_without_an_id_are_executed() {
    for stream in [false, true] {
        let model = ModelSetup::new(WINDOW);
        let up = model
            .start(|heard| {
                let asked = heard.notice.as_ref().is_some_and(|it| it.notes);
                if asked && heard.offers_tool("add_reminder") {
                    ModelReply::calls([ModelCall {
                        id: None,
                        name: "add_reminder".to_owned(),
                        arguments: r#"{"content":"nameless"}"#.to_owned(),
                    }])
                } else {
                    work(heard)
                }
            })
            .await;
        let proxy = proxy_before(&up, &Shape::default()).start().await;
        let mut agent = agent_past_optimal(&proxy).set("stream", stream);
        agent.steps(5).await;
        up.assert_no_faults();
    }
}

#[tokio::test]
async fn the_number_of_reminders_is_limited() {
    // Twenty reminders at every notice, over a whole countdown.
    let (proxy, up) = pair(|heard| {
        let asked = heard.notice.as_ref().is_some_and(|it| it.notes);
        if asked && heard.offers_tool("add_reminder") {
            ModelReply::calls(
                (0..20)
                    .map(|at| {
                        let note = json!({"content": format!("{at} {}", "long ".repeat(400))});
                        ModelCall::new(&format!("own_{}_{at}", heard.nth), "add_reminder", &note)
                    })
                    .collect::<Vec<_>>(),
            )
        } else {
            obliging_model(heard)
        }
    })
    .await;
    let mut agent: Agent = agent_past_optimal(&proxy);
    agent.result = |nth| super::words(300, nth);
    let generations = agent.steps(30).await;
    // Notes this long cause cuts before any countdown; their number stays within the limit.
    let most = generations
        .iter()
        .filter_map(|it| it.number("reminders"))
        .max();
    assert!(
        most.is_some_and(|most| (1..=32).contains(&most)),
        "{most:?}"
    );
    let largest = up.tokens().into_iter().max().unwrap();
    assert!(largest <= u64::from(WINDOW), "{largest} tokens");
    up.assert_no_faults();
}
