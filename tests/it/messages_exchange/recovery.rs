//! Prompts, reminder tools, rounds in one answer, new courses, and the look-up of what was cut.

use serde_json::{Value, json};

use super::{WINDOW, proxy_before, step};
use crate::{
    recall::{named_ids, numbered_lines, recall_once},
    support::{
        AgentGeneration, MessagesAgent, Mixing, ModelSetup, NoticeManner, RunningModel, Worker,
        model_with_courses, words,
    },
};

struct PlayedSession {
    up: RunningModel,
    generations: Vec<AgentGeneration>,
}

async fn play_session(mixing: Mixing, stream: bool, fields: Value) -> PlayedSession {
    let worker = Worker::new(NoticeManner::Follows, mixing);
    let up = ModelSetup::new(WINDOW)
        .start(move |heard| worker.compose_reply(heard))
        .await;
    let proxy = proxy_before(&up, WINDOW)
        .set(|config| {
            // Clearing would keep this session from filling up.
            config.guard.clear.enabled = false;
            config.guard.recall = plimsoll::config::RecallMode::Off;
        })
        .model("m", model_with_courses(WINDOW))
        .start()
        .await;
    let mut agent = MessagesAgent::new(&proxy).set("stream", stream);
    for (key, value) in fields.as_object().unwrap() {
        agent.fields[key] = value.clone();
    }
    agent.fields["system"][0]["text"] = words(6_000, 0).into();
    agent.result = 170;
    let generations = agent.steps(70).await;
    up.assert_no_faults();
    assert_eq!(up.overflows(), 0);
    PlayedSession { up, generations }
}

fn tool_names(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_session_is_prompted_and_goes_on_in_a_new_course() {
    for stream in [false, true] {
        let played = play_session(Mixing::Never, stream, json!({})).await;
        let generations = played.generations.iter();
        let injected: Vec<_> = generations.map(AgentGeneration::injected).collect();
        assert!(injected.contains(&Some("caution")), "{injected:?}");
        assert!(injected.contains(&Some("critical")), "{injected:?}");
        let last = played.generations.last().unwrap();
        assert!(last.course() >= 2 && last.number("reminders") > Some(0));
        let bodies = played.up.bodies().await;
        assert!(bodies.len() > played.generations.len(), "rounds");
        assert_eq!(tool_names(&bodies[0]), ["read_file"]);
        let newest = bodies.last().unwrap();
        assert!(tool_names(newest).contains(&"clear_mind"));
        let said = newest["messages"].to_string();
        assert!(said.contains("go on after step"), "the reminders are kept");
    }
}

#[tokio::test]
async fn calls_beside_the_clients_are_taken_out() {
    for mixing in [Mixing::Before, Mixing::After] {
        for stream in [false, true] {
            let played = play_session(mixing, stream, json!({})).await;
            assert!(played.generations.iter().any(|it| it.course() >= 2));
            let bodies = played.up.bodies().await;
            let mut bodies = bodies.iter().map(|body| body["messages"].to_string());
            assert!(bodies.any(|body| body.contains("Saved as")), "put back");
        }
    }
}

#[tokio::test]
async fn thinking_is_kept_byte_for_byte() {
    for stream in [false, true] {
        let thinking = json!({"thinking": {"type": "enabled", "budget_tokens": 1_024}});
        let played = play_session(Mixing::Never, stream, thinking).await;
        let mut count = 0;
        for body in played.up.bodies().await {
            let entries = body["messages"].as_array().unwrap().iter();
            let blocks = entries.flat_map(|it| it["content"].as_array().into_iter().flatten());
            for block in blocks.filter(|block| block["type"] == "thinking") {
                count += 1;
                let nth = block["signature"].as_str().unwrap();
                let nth = nth.trim_start_matches("sig-").trim_end_matches("==");
                assert_eq!(block["thinking"], format!("thought {nth} \u{fc}\u{2192}"));
            }
        }
        assert!(count > 70);
    }
}

#[tokio::test]
async fn a_model_looks_up_what_was_truncated() {
    for stream in [false, true] {
        let arguments = json!({"pattern": "plank 3000 "});
        let setup = ModelSetup {
            fragment: 4_000,
            ..ModelSetup::new(60_000)
        };
        let up = setup
            .start(move |heard| recall_once(heard, &arguments))
            .await;
        let proxy = proxy_before(&up, 60_000).start().await;
        let mut agent = MessagesAgent::new(&proxy).set("stream", stream);
        let [call, result] = step("toolu_1", &numbered_lines(6_000));
        agent.push("assistant", call["content"].clone());
        agent.push("user", result["content"].clone());
        let generation = agent.ask().await;
        let said = generation.message["content"].as_array().unwrap();
        assert_eq!(said.len(), 1);
        let said = said[0]["text"].as_str().unwrap();
        assert!(said.contains("value-21000"), "{said}");
        let bodies = up.bodies().await;
        assert_eq!(bodies.len(), 2);
        assert!(!named_ids(&bodies[0]).is_empty());
        up.assert_no_faults();
    }
}
