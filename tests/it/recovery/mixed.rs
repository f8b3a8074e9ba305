//! Proxy-executed calls beside client calls: in both orders, in parallel, in fragments.

use serde_json::{Value, json};

use super::{Shape, WINDOW, agent_past_optimal, first_prompted, proxy_before, work};
use crate::support::{
    AgentGeneration, ModelCall, ModelReply, ModelRequest, ModelSetup, RunningModel,
};

/// Ids and names.
type Calls = &'static [(&'static str, &'static str)];

fn is_asked_for_notes(heard: &ModelRequest<'_>) -> bool {
    heard.notice.as_ref().is_some_and(|it| it.notes) && heard.offers_tool("add_reminder")
}

fn call(id: &str, name: &str) -> ModelCall {
    let arguments = match name {
        "read_file" => json!({"path": format!("{id}.rs")}),
        "clear_mind" => json!({"reminder_content": format!("the last of {id} \u{1f6a2}")}),
        _ => json!({"content": format!("note {id}: \"quoted\", ünïcode, 顺风")}),
    };
    ModelCall::new(id, name, &arguments)
}

/// The result of a prompt that was answered with these calls.
struct Answered {
    up: RunningModel,
    generation: AgentGeneration,
    /// Upstream bodies of the generation.
    took: Vec<Value>,
    /// The first upstream body of the next generation.
    next: Value,
    after: AgentGeneration,
}

async fn answer_prompt(calls: Calls, stream: bool, fragment: usize) -> Answered {
    let mut model = ModelSetup::new(WINDOW);
    model.fragment = fragment;
    model.byte_by_byte = fragment == 1;
    let up = model
        .start(move |heard| {
            if is_asked_for_notes(heard) {
                ModelReply::Says(
                    "Let me see.".to_owned(),
                    calls.iter().map(|(id, name)| call(id, name)).collect(),
                )
            } else {
                work(heard)
            }
        })
        .await;
    let proxy = proxy_before(&up, &Shape::default()).start().await;
    let mut agent = agent_past_optimal(&proxy).set("stream", stream);
    agent.step().await;
    let start = up.count();
    let generation = first_prompted(&mut agent).await;
    let end = up.count();
    let after = agent.step().await;
    let mut bodies = up.bodies().await;
    up.assert_no_faults();
    let next = bodies[end].clone();
    let took = bodies.drain(start..end).collect();
    Answered {
        up,
        generation,
        took,
        next,
        after,
    }
}

/// Whether a conversation has this call and its result.
fn has_call_with_result(body: &Value, id: &str) -> bool {
    let messages = body["messages"].as_array().unwrap();
    let called = |it: &Value| {
        let calls = it["tool_calls"].as_array().into_iter().flatten();
        calls.into_iter().any(|call| call["id"] == id)
    };
    messages.iter().any(called) && messages.iter().any(|it| it["tool_call_id"] == id)
}

#[tokio::test]
async fn proxy_executed_calls_are_removed_from_between_client_calls() {
    const MIXES: &[(Calls, &[&str])] = &[
        (&[("o1", "add_reminder"), ("t1", "read_file")], &["t1"]),
        (&[("t1", "read_file"), ("o1", "add_reminder")], &["t1"]),
        (
            &[
                ("t1", "read_file"),
                ("o1", "add_reminder"),
                ("t2", "read_file"),
                ("o2", "add_reminder"),
            ],
            &["t1", "t2"],
        ),
    ];
    for (calls, theirs) in MIXES {
        for (stream, fragment) in [(false, 5), (true, 1), (true, 5), (true, 1_000)] {
            let answered = answer_prompt(calls, stream, fragment).await;
            assert_eq!(
                answered.took.len(),
                1,
                "the client's calls are the client's to answer"
            );
            let listed = answered.generation.message["tool_calls"]
                .as_array()
                .unwrap();
            let ids: Vec<&Value> = listed.iter().map(|call| &call["id"]).collect();
            assert_eq!(ids, *theirs);
            assert_eq!(answered.generation.finish, "tool_calls");
            assert_eq!(answered.generation.text(), "Let me see.");
            for one in listed {
                let arguments = one["function"]["arguments"].as_str().unwrap();
                let path = format!("{}.rs", one["id"].as_str().unwrap());
                assert_eq!(
                    serde_json::from_str::<Value>(arguments).unwrap(),
                    json!({"path": path})
                );
            }
            // The model finds its calls again, in their order.
            for (id, _) in *calls {
                assert!(
                    has_call_with_result(&answered.next, id),
                    "{id} is missing in {:#}",
                    answered.next
                );
            }
            let messages = answered.next["messages"].as_array().unwrap();
            let echoed = messages.iter().find(|it| {
                it["tool_calls"]
                    .as_array()
                    .is_some_and(|it| it.len() == calls.len())
            });
            let order: Vec<&Value> = echoed.unwrap()["tool_calls"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| &it["id"])
                .collect();
            let made: Vec<&str> = calls.iter().map(|(id, _)| *id).collect();
            assert_eq!(order, made);
            assert_eq!(answered.after.called(), ["read_file"]);
        }
    }
}

#[tokio::test]
async fn proxy_executed_calls_alone_continue_within_the_request() {
    for (stream, fragment) in [(false, 5), (true, 1), (true, 3), (true, 1_000)] {
        for calls in [
            &[("o1", "add_reminder")][..],
            &[
                ("o1", "add_reminder"),
                ("o2", "add_reminder"),
                ("o3", "add_reminder"),
            ],
        ] {
            let answered = answer_prompt(calls, stream, fragment).await;
            assert_eq!(answered.took.len(), 2);
            assert_eq!(answered.generation.called(), ["read_file"]);
            assert_eq!(answered.generation.finish, "tool_calls");
            // Text beside the calls reached the client once.
            assert_eq!(answered.generation.text(), "Let me see.");
            for body in [&answered.took[1], &answered.next] {
                for (id, _) in calls {
                    assert!(
                        has_call_with_result(body, id),
                        "{id} is missing in {body:#}"
                    );
                }
            }
            let said = answered.next.to_string().matches("Let me see.").count();
            assert_eq!(said, 1, "{:#}", answered.next);
            assert_eq!(answered.after.number("reminders"), Some(calls.len() as u32));
        }
    }
}

#[tokio::test]
async fn clear_mind_alone_continues_in_the_new_course() {
    for stream in [false, true] {
        let answered = answer_prompt(&[("c1", "clear_mind")], stream, 5).await;
        assert_eq!(answered.took.len(), 2);
        assert_eq!(answered.generation.called(), ["read_file"]);
        // The course keeps what the user asked last, which is long here: the next generation has a prompt again.
        assert_eq!(answered.generation.action("course"), Some("2"));
        let fresh = answered.took[1].to_string();
        assert!(
            fresh.contains("the last of c1"),
            "the reminder went over: {fresh}"
        );
        assert!(!has_call_with_result(&answered.next, "c1"));
        assert!(answered.up.overflows() == 0);
    }
}

#[tokio::test]
async fn clear_mind_beside_a_client_call_waits_for_its_result() {
    for stream in [false, true] {
        for calls in [
            &[("t1", "read_file"), ("c1", "clear_mind")],
            &[("c1", "clear_mind"), ("t1", "read_file")],
        ] {
            let answered = answer_prompt(calls, stream, 5).await;
            assert_eq!(answered.took.len(), 1);
            assert_eq!(answered.generation.called(), ["read_file"]);
            assert_eq!(answered.after.action("course"), Some("2"));
            assert!(
                has_call_with_result(&answered.next, "t1"),
                "the step that is under way stays"
            );
        }
    }
}

/// The result of a call, as the model reads it.
fn result<'a>(body: &'a Value, id: &str) -> &'a str {
    let mut messages = body["messages"].as_array().unwrap().iter();
    let result = messages.find(|it| it["tool_call_id"] == id);
    result.unwrap()["content"].as_str().unwrap()
}

#[tokio::test]
async fn clear_mind_beside_a_failed_reminder_call_clears_nothing() {
    // It deletes a reminder without its id.
    const ALONE: [Calls; 2] = [
        &[("d1", "delete_reminder"), ("c1", "clear_mind")],
        &[("c1", "clear_mind"), ("d1", "delete_reminder")],
    ];
    const BESIDE: [Calls; 2] = [
        &[
            ("d1", "delete_reminder"),
            ("t1", "read_file"),
            ("c1", "clear_mind"),
        ],
        &[
            ("c1", "clear_mind"),
            ("t1", "read_file"),
            ("d1", "delete_reminder"),
        ],
    ];
    for stream in [false, true] {
        for calls in [ALONE, BESIDE].concat() {
            let answered = answer_prompt(calls, stream, 5).await;
            let alone = calls.len() == 2;
            assert_eq!(answered.took.len(), if alone { 2 } else { 1 });
            assert_eq!(answered.generation.called(), ["read_file"]);
            let told = if alone {
                &answered.took[1]
            } else {
                &answered.next
            };
            assert!(result(told, "d1").starts_with("Error: "), "{told:#}");
            let cleared = result(told, "c1");
            assert!(
                cleared.contains("clear_mind was not carried out"),
                "{cleared}"
            );
            for generation in [&answered.generation, &answered.after] {
                assert_eq!(
                    (generation.course(), generation.action("course")),
                    (1, None)
                );
            }
            assert_eq!(answered.after.number("reminders").unwrap_or(0), 0);
        }
    }
}
