//! Rows 001.2 to 001.5 and 003.1: when a summary is made, of what, and how the conversation goes on.

use serde_json::{Value, json};

use super::{Meter, Program, messages_of, model_lines, said, stands_as_said, tool_step, user};
use crate::{
    compaction::{completion, past_steps, sections, wait_for_summary, work_reply},
    support::{
        Agent, ModelReply, ModelRequest, ProviderStep, answer,
        model::{
            dialect::ANSWER_TOKENS,
            notice::{message_text, summary_key},
        },
        words,
    },
};

/// Recovery and clearing have their own rows.
pub(super) const ALONE: &str = "[recovery]\nenabled = false\n";

/// A model that works, and summarises where it is asked to.
pub(super) fn work_and_summarise(heard: &ModelRequest<'_>) -> ModelReply {
    match summary_key(heard.body) {
        Some(key) => ModelReply::text(&sections(&key, 0)),
        None => work_reply(heard, heard.nth),
    }
}

/// The same, with each summary held until it is released.
pub(super) fn work_and_hold(heard: &ModelRequest<'_>) -> ModelReply {
    match summary_key(heard.body) {
        Some(key) => ModelReply::Raw(vec![
            ProviderStep::Stall,
            answer("200 OK", "", completion(&sections(&key, 0))),
        ]),
        None => work_reply(heard, heard.nth),
    }
}

/// An agent with a history of its own.
pub(super) fn agent_of(program: &Program, task: &str, steps: usize) -> Agent {
    let mut agent = program.agent();
    agent.messages[1] = user(task);
    agent.messages.extend(past_steps(steps));
    agent
}

/// Settings of a window of 20,000 tokens, 4,000 of them for the answer.
pub(super) fn small_window(compaction: &str) -> String {
    let guard = "[guard]\nreserve_tokens = 4000\nclear_tools = false\nlow_water = 0.5\n";
    model_lines(
        20_000,
        &format!("{ALONE}{guard}[compaction]\nmax_summary_tokens = 1000\n{compaction}"),
    )
}

/// The request for a summary among these; panics if there is not exactly one.
fn summary_request(bodies: &[Value]) -> &Value {
    let mut found = bodies.iter().filter(|body| summary_key(body).is_some());
    let first = found.next().expect("a summary was asked for");
    assert!(found.next().is_none(), "one summary");
    first
}

/// 001.2: summaries from a share of the window on (set: 0.8), system text counted, by usage or else by the
/// estimate.
#[tokio::test]
async fn row_001_2_threshold() {
    let meter = Meter::start(work_and_summarise).await;
    let lines = small_window("auto = true\nthreshold = 0.8\n");
    let program = Program::start(&meter.up, &lines).await;
    // (20,000 - 4,000) × 0.8, prompt and answer.
    for (tokens, begins) in [(12_799, false), (12_801, true)] {
        meter.set_tokens(tokens - ANSWER_TOKENS);
        let mut agent = agent_of(&program, &format!("At {tokens}."), 20);
        let generation = agent.step().await;
        assert_eq!(generation.has_action("compacting"), begins, "{tokens}");
        wait_for_summary(&agent, &generation).await;
    }
    // Without usage by the estimate, of which system text is a part. Nothing was learnt before.
    let program = Program::start(&meter.up, &lines).await;
    meter.set_tokens(0);
    for (system, begins) in [(100, false), (8_000, true)] {
        let mut agent = agent_of(&program, &format!("With {system}."), 18);
        agent.messages[0]["content"] = words(system, 0).into();
        let generation = agent.step().await;
        assert_eq!(generation.header("health"), Some("unknown"));
        assert_eq!(generation.has_action("compacting"), begins, "{system}");
        wait_for_summary(&agent, &generation).await;
    }
}

/// 001.3: the model makes the summary, in tagged sections: done, to do, state, key context, next steps,
/// cautions; with files, values, traps; in the conversation's language.
#[tokio::test]
async fn row_001_3_sections() {
    let meter = Meter::start(work_and_summarise).await;
    let program = Program::start(&meter.up, &small_window("auto = true\n")).await;
    for (task, asked) in [
        (
            "Find every leak.",
            ["paths", "figures", "traps", "Keep exactly"],
        ),
        (
            "请把船底的每一个漏洞都找出来并修好。",
            ["路径", "数字", "陷阱", "原样保留"],
        ),
    ] {
        meter.set_tokens(14_000);
        let before = meter.up.count_requests();
        let mut agent = agent_of(&program, task, 12);
        let generation = agent.step().await;
        assert!(generation.has_action("compacting"), "{generation:?}");
        let session = wait_for_summary(&agent, &generation).await;
        let bodies = meter.bodies().await.split_off(before);
        let request = summary_request(&bodies);
        assert_eq!(request["model"], "m");
        let prompt = messages_of(request).last().unwrap()["content"]
            .as_str()
            .unwrap();
        let made = session["summary"].as_str().unwrap();
        for section in [
            "done",
            "to_do",
            "current_state",
            "key_context",
            "next_steps",
            "cautions",
        ] {
            assert!(
                prompt.contains(&format!("<{section}>")),
                "{section}: {prompt}"
            );
            assert!(made.contains(&format!("<{section}>")), "{section}: {made}");
        }
        for word in asked {
            assert!(prompt.contains(word), "{word}: {prompt}");
        }
        meter.set_tokens(5_000);
        assert!(agent.step().await.has_action("compacted"));
        let sent = meter.last_body()["messages"].to_string();
        assert!(
            sent.contains("<next_steps>") && sent.contains("src/hull.rs, tar"),
            "{sent}"
        );
    }
}

/// 001.4: set to wait, the request waits for its summary, and goes on with system, the original question as it
/// was asked, the marked summary, and the word to go on and not to repeat.
#[tokio::test]
async fn row_001_4_waits_for_its_summary() {
    let meter = Meter::start(work_and_hold).await;
    let lines = small_window("auto = true\nwait_ms = 15000\n");
    let program = Program::start(&meter.up, &lines).await;
    let mut agent = agent_of(&program, "Find every leak, and mend it.", 24);
    let came = agent.messages.clone();
    let release = async {
        // Nothing but the summary is asked for until it is there.
        let seen = meter.up.requests(1).await;
        assert_eq!(seen.len(), 1);
        meter.up.release_stalled();
    };
    let (generation, ()) = tokio::join!(agent.step(), release);
    assert!(generation.has_action("compacted"), "{generation:?}");
    assert!(summary_key(&meter.bodies().await[0]).is_some());
    let body = meter.last_body();
    let sent = messages_of(&body);
    assert_eq!(sent[0], came[0]);
    assert!(
        stands_as_said(&sent[1], &came[1]),
        "the question: {}",
        sent[1]
    );
    assert!(sent.len() < came.len() && sent.last() == came.last());
    let note = sent[..3].iter().map(message_text).collect::<String>();
    assert!(
        note.contains("a model summarised them") && note.contains("<summary"),
        "{note}"
    );
    assert!(note.contains("Afloat, summary 0."), "{note}");
    for word in ["The work goes on", "not repeated"] {
        assert!(note.contains(word), "{word}: {note}");
    }
}

/// 001.5: truncation of results first, summaries second.
#[tokio::test]
async fn row_001_5_truncation_comes_first() {
    let meter = Meter::start(work_and_summarise).await;
    let lines = small_window("auto = true\nwait_ms = 15000\n");
    let program = Program::start(&meter.up, &lines).await;
    meter.set_tokens(4_000);
    // Past the threshold as it comes, and not once its result is truncated.
    let result = words(12_000, 0);
    let mut agent = agent_of(&program, "One long file.", 6);
    agent.messages.extend(tool_step(0, &[&result]));
    let generation = agent.step().await;
    assert_eq!(generation.header("actions"), Some("truncated=1"));
    assert_eq!(meter.up.count_requests(), 1, "no summary was asked for");
    // Where both are due, the summary is made of what is truncated.
    let mut agent = program.agent();
    agent.messages[1] = user("Long files.");
    agent.messages.extend(tool_step(0, &[&result]));
    agent.messages.extend(past_steps(24));
    let generation = agent.step().await;
    assert!(generation.has_action("compacted"), "{generation:?}");
    let bodies = meter.bodies().await.split_off(1);
    assert!(summary_key(&bodies[0]).is_some());
    let asked = bodies[0]["messages"].to_string();
    assert!(asked.contains("characters truncated"), "{asked}");
    assert!(asked.len() < result.len() * 2);
}

/// 003.1: set on, a summary begins after the answer that passes (window - 32,000) × 0.6, which is 100,800 of
/// 200,000, while the client goes on; with progress, key decisions, context, next steps; its boundary is
/// recorded, and the next requests go out with it; the client's messages and other threads are untouched, and
/// branches have their own.
#[tokio::test]
async fn row_003_1_summary_in_the_background() {
    let meter = Meter::start(work_and_hold).await;
    let guard = "[guard]\nreserve_tokens = 32000\n[compaction]\nauto = true\n";
    let program =
        Program::start(&meter.up, &model_lines(200_000, &format!("{ALONE}{guard}"))).await;
    // A chat: what clearing would remove of tool results does not count.
    let turn = |nth: usize| [said(&words(4_000, nth)), user(&format!("Part {nth}."))];
    let history: Vec<Value> = (0..25).flat_map(turn).collect();
    let begin = |task: &str| {
        let mut agent = agent_of(&program, task, 0);
        agent.messages.extend(history.clone());
        agent
    };
    meter.set_tokens(100_799 - ANSWER_TOKENS);
    let below = begin("Below it.").step().await;
    assert!(!below.has_action("compacting"), "{below:?}");
    let mut agent = begin("Past it.");
    meter.set_tokens(100_801 - ANSWER_TOKENS);
    let passing = agent.step().await;
    assert!(passing.has_action("compacting"), "{passing:?}");
    let mut branch = program.agent();
    branch.messages = agent.messages.clone();
    // The client goes on while the summary is held.
    meter.set_tokens(60_000);
    let meanwhile = agent.step().await;
    assert!(meanwhile.has_action("compacting") && !meanwhile.has_action("compacted"));
    meter.up.requests(4).await;
    let bodies = meter.bodies().await;
    let prompt = summary_request(&bodies)["messages"].to_string();
    for word in ["decided", "key_context", "next_steps", "done"] {
        assert!(prompt.contains(word), "{word}");
    }
    meter.up.release_stalled();
    wait_for_summary(&agent, &meanwhile).await;
    let own = agent.messages.clone();
    let next = agent.step().await;
    assert!(next.has_action("compacted"), "{next:?}");
    assert_eq!(
        agent.messages[..own.len()],
        own,
        "the client's own messages"
    );
    let sent = meter.last_body();
    assert!(sent["messages"].to_string().contains("Afloat, summary 0."));
    assert!(messages_of(&sent).len() < own.len());
    assert!(stands_as_said(&messages_of(&sent)[1], &own[1]));
    let session = program.session(&next.answer).await;
    assert_eq!(session["summaries"], 1);
    let boundary = session["folded_until"].as_u64().expect("its boundary");
    assert!(
        boundary > 1 && (boundary as usize) < own.len(),
        "{boundary}"
    );
    agent.step().await;
    assert!(
        meter.last_body()["messages"]
            .to_string()
            .contains("Afloat, summary 0.")
    );
    // Another thread, and a branch from before the boundary, go out as they came.
    let mut other = begin("Another thread.");
    branch.messages[2]["content"] = json!("Otherwise, from the start.");
    for agent in [&mut other, &mut branch] {
        let came = agent.messages.clone();
        let generation = agent.step().await;
        assert_eq!(generation.header("actions"), Some("none"));
        assert_eq!(messages_of(&meter.last_body()), came);
    }
    // Past it, the branch gets a summary of its own.
    meter.set_tokens(110_000);
    let before = meter.up.count_requests();
    let passing = branch.step().await;
    assert!(passing.has_action("compacting"), "{passing:?}");
    meter.up.requests(before + 2).await;
    let bodies = meter.bodies().await.split_off(before);
    let prompt = summary_request(&bodies)["messages"].to_string();
    assert!(prompt.contains("Otherwise, from the start.") && !prompt.contains("Afloat"));
    meter.up.release_stalled();
    wait_for_summary(&branch, &passing).await;
    assert!(branch.step().await.has_action("compacted"));
    assert_eq!(program.session(&next.answer).await["summaries"], 1);
}
