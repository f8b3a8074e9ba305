//! Prompts, reminder tools, rounds in one answer, new courses, and the look-up of what was cut.

use plimsoll::config::{AddTools, RecallMode};
use serde_json::{Value, json};

use super::{WINDOW, message, proxy_before, step};
use crate::{
    recall::{named_ids, numbered_lines, recall_once},
    support::{
        AgentGeneration, MessagesAgent, Mixing, ModelCall, ModelReply, ModelSetup, NoticeManner,
        RunningModel, Worker, answer, model_with_courses, model_with_window, words,
    },
};

struct PlayedSession {
    up: RunningModel,
    generations: Vec<AgentGeneration>,
}

async fn play_session(mixing: Mixing, stream: bool, fields: Value) -> PlayedSession {
    play_worker(Worker::new(NoticeManner::Follows, mixing), stream, fields).await
}

async fn play_worker(worker: Worker, stream: bool, fields: Value) -> PlayedSession {
    let up = ModelSetup::new(WINDOW)
        .start(move |heard| worker.compose_reply(heard))
        .await;
    let proxy = proxy_before(&up, WINDOW)
        .set(|config| {
            // Clearing would keep this session from filling up.
            config.guard.clear.enabled = false;
            config.guard.recall = RecallMode::Off;
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
async fn thinking_is_kept_byte_for_byte_and_stands_alone_in_its_answer() {
    let thinking = json!({"thinking": {"type": "enabled", "budget_tokens": 1_024}});
    for (stream, manner, mixing) in [
        (false, NoticeManner::Follows, Mixing::Never),
        (true, NoticeManner::Follows, Mixing::Never),
        (false, NoticeManner::Follows, Mixing::After),
        (false, NoticeManner::HalfFollows, Mixing::Never),
    ] {
        let worker = Worker::new(manner, mixing);
        let played = play_worker(worker, stream, thinking.clone()).await;
        let mut count = 0;
        for body in played.up.bodies().await {
            for entry in body["messages"].as_array().unwrap() {
                let blocks = entry["content"].as_array().into_iter().flatten();
                let thoughts: Vec<_> = blocks.filter(|it| it["type"] == "thinking").collect();
                // The model thinks once in each of its answers.
                assert!(thoughts.len() <= 1, "{manner:?} {mixing:?}: {entry}");
                for block in thoughts {
                    count += 1;
                    let nth = block["signature"].as_str().unwrap();
                    let nth = nth.trim_start_matches("sig-").trim_end_matches("==");
                    assert_eq!(block["thinking"], format!("thought {nth} \u{fc}\u{2192}"));
                }
            }
        }
        assert!(count > 70);
    }
}

#[tokio::test]
async fn a_round_before_the_first_kept_answer_leaves_no_thinking_in_it() {
    let up = ModelSetup::new(WINDOW)
        .start(|heard| {
            let name = if heard.follows_proxy_call() {
                "read_file"
            } else {
                "add_reminder"
            };
            let arguments = json!({"content": "note", "path": "a"});
            ModelReply::calls([ModelCall::new(
                &format!("toolu_{}", heard.nth),
                name,
                &arguments,
            )])
        })
        .await;
    let proxy = proxy_before(&up, WINDOW)
        .set(|config| {
            config.recovery.tools = AddTools::Always;
            config.guard.clear.enabled = false;
        })
        .model("m", model_with_window(WINDOW))
        .start()
        .await;
    let thinking = json!({"type": "enabled", "budget_tokens": 1_024});
    let mut agent = MessagesAgent::new(&proxy).set("thinking", thinking);
    agent.result = 700;
    let generations = agent.steps(30).await;
    up.assert_no_faults();
    assert!(generations.iter().all(|it| it.course() == 1));
    let mut first_answers = Vec::new();
    for body in up.bodies().await {
        let entries = body["messages"].as_array().unwrap().iter();
        let mut answers = entries.filter(|entry| entry["role"] == "assistant");
        let Some(first) = answers.next() else {
            continue;
        };
        for answer in std::iter::once(first).chain(answers) {
            let blocks = answer["content"].as_array().unwrap().iter();
            let thoughts = blocks.filter(|block| block["type"] == "thinking");
            assert_eq!(thoughts.count(), 1, "{answer}");
        }
        first_answers.push(first["content"].clone());
    }
    first_answers.dedup();
    assert!((3..9).contains(&first_answers.len()), "{first_answers:?}");
}

/// A model thinks, speaks and calls the tools of one line in each answer, or fails with the status there. Gives the blocks of the assistant entries in
/// the request after them, in words.
async fn play_calls(calls: &'static str, stream: bool) -> String {
    let count = calls.lines().count();
    let up = ModelSetup::new(WINDOW)
        .start(move |heard| {
            let calls = calls.lines().nth(heard.nth).unwrap_or_default();
            if let Ok(status) = calls.parse() {
                return ModelReply::Fails(status, "api_error");
            }
            let calls = calls.split_whitespace().enumerate().map(|(at, name)| {
                let note = json!({"content": "note", "reminder_content": "note", "path": "a"});
                ModelCall::new(&format!("toolu_{}_{at}", heard.nth), name, &note)
            });
            ModelReply::Says(format!("Text {}.", heard.nth), calls.collect())
        })
        .await;
    let proxy = proxy_before(&up, WINDOW)
        .set(|config| {
            config.recovery.tools = AddTools::Always;
            config.guard.recall = RecallMode::Off;
        })
        .start()
        .await;
    let thinking = json!({"type": "enabled", "budget_tokens": 1_024});
    let mut agent = MessagesAgent::new(&proxy)
        .set("stream", stream)
        .set("thinking", thinking);
    while up.count() <= count {
        agent.step().await;
    }
    up.assert_no_faults();
    let bodies = up.bodies().await;
    let entries = bodies[count]["messages"].as_array().unwrap().iter();
    let answers = entries.filter(|entry| entry["role"] == "assistant");
    let describe = |entry: &Value| {
        let blocks = entry["content"].as_array().unwrap().iter();
        let words = blocks.flat_map(|block| ["thinking", "text", "name"].map(|key| &block[key]));
        let words: Vec<_> = words.filter_map(Value::as_str).collect();
        words.join(" ")
    };
    answers.map(describe).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn rounds_that_are_no_longer_sent_leave_nothing_in_the_answer() {
    for stream in [false, true] {
        for (calls, expected) in [
            // The answer follows the clear.
            (
                "add_reminder\nclear_mind\nread_file",
                "thought 2 \u{fc}\u{2192} Text 2. read_file",
            ),
            // So do a round and the answer.
            (
                "add_reminder\nclear_mind\nadd_reminder\nread_file",
                "thought 2 \u{fc}\u{2192} Text 2. add_reminder\n\
                 thought 3 \u{fc}\u{2192} Text 3. read_file",
            ),
            // The course begins with the next request.
            (
                "add_reminder\nclear_mind read_file",
                "thought 1 \u{fc}\u{2192} Text 1. read_file",
            ),
            // A round fails, and the request is sent without the one before it.
            (
                "add_reminder\n500\nread_file",
                "thought 2 \u{fc}\u{2192} Text 2. read_file",
            ),
            // A round fails, and the request is sent without that of the answer before it.
            (
                "add_reminder\nread_file\nadd_reminder\n500",
                "thought 1 \u{fc}\u{2192} Text 1. read_file",
            ),
            // The provider refuses a round, and the session goes on with all others.
            (
                "add_reminder\n400\nread_file\nread_file",
                "thought 2 \u{fc}\u{2192} Text 2. read_file\n\
                 thought 3 \u{fc}\u{2192} Text 3. read_file",
            ),
            (
                "add_reminder\nread_file\nadd_reminder\n400\nread_file\nread_file",
                "thought 0 \u{fc}\u{2192} Text 0. add_reminder\n\
                 thought 1 \u{fc}\u{2192} Text 1. read_file\n\
                 thought 4 \u{fc}\u{2192} Text 4. read_file\n\
                 thought 5 \u{fc}\u{2192} Text 5. read_file",
            ),
            // Another request follows, and the first answer is as before.
            (
                "add_reminder\nclear_mind\nread_file\nread_file",
                "thought 2 \u{fc}\u{2192} Text 2. read_file\n\
                 thought 3 \u{fc}\u{2192} Text 3. read_file",
            ),
        ] {
            assert_eq!(play_calls(calls, stream).await, expected, "{calls:?}");
        }
    }
}

/// A model gives `round`, and then `answer` to each request. Gives the assistant entries of the second request of the
/// client.
async fn play_round(round: ModelReply, answer: ModelReply, stream: bool) -> Vec<Value> {
    let up = ModelSetup::new(WINDOW)
        .start(move |heard| match heard.nth {
            0 => round.clone(),
            _ => answer.clone(),
        })
        .await;
    let proxy = proxy_before(&up, WINDOW)
        .set(|config| config.recovery.tools = AddTools::Always)
        .start()
        .await;
    let thinking = json!({"type": "enabled", "budget_tokens": 1_024});
    let mut agent = MessagesAgent::new(&proxy)
        .set("stream", stream)
        .set("thinking", thinking);
    agent.steps(2).await;
    up.assert_no_faults();
    let bodies = up.bodies().await;
    assert_eq!(bodies.len(), 3);
    let entries = bodies[2]["messages"].as_array().unwrap().iter();
    let answers = entries.filter(|entry| entry["role"] == "assistant");
    answers.cloned().collect()
}

/// The reply that has a text of so many tokens and calls a tool with another one.
fn long_reply(text: usize, tool: &str, argument: usize) -> ModelReply {
    let arguments = json!({"content": words(argument, 0)});
    let call = ModelCall::new(&format!("toolu_{tool}"), tool, &arguments);
    ModelReply::Says(words(text, 0), vec![call])
}

fn assert_answer_alone(answers: &[Value]) {
    let [answer] = answers else {
        panic!("{answers:?}")
    };
    let [thinking, text, call] = &answer["content"].as_array().unwrap()[..] else {
        panic!("{answer}")
    };
    assert_eq!(thinking["thinking"], "thought 1 \u{fc}\u{2192}");
    assert!(text["text"].as_str().unwrap().starts_with("part 0:"));
    assert_eq!(call["name"], "read_file");
}

#[tokio::test]
async fn a_round_that_is_over_the_budget_leaves_nothing_in_the_answer() {
    for stream in [false, true] {
        let round = || long_reply(10, "add_reminder", 2_500);
        let answers = play_round(round(), long_reply(10, "read_file", 10), stream).await;
        assert_eq!(answers.len(), 2, "the round and the answer");
        let answers = play_round(round(), long_reply(12_000, "read_file", 2_500), stream).await;
        assert_answer_alone(&answers);
    }
}

#[tokio::test]
async fn a_round_that_is_too_long_to_be_kept_leaves_nothing_in_the_answer() {
    let thinking =
        json!({"type": "thinking", "thinking": "I ponder. ".repeat(6_000), "signature": "sig"});
    let call = json!({"type": "tool_use", "id": "toolu_own", "name": "add_reminder",
        "input": {"content": "note"}});
    let round = message(&[thinking, call], "tool_use", 7);
    let round = ModelReply::Raw(vec![answer("200 OK", "", round)]);
    assert_answer_alone(&play_round(round, long_reply(10, "read_file", 10), false).await);
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
