//! Several rounds in one answer for the client.

use plimsoll::config::AddTools;
use serde_json::{Value, json};

use super::{WINDOW, entries, proxy_before};
use crate::support::{
    AgentGeneration, ModelCall, ModelReply, ModelSetup, ResponsesAgent, RunningModel,
};

/// A model thinks, speaks and calls the tools of one line in each answer, or fails with the status there.
async fn play_calls(calls: &'static str, stream: bool) -> (RunningModel, Vec<AgentGeneration>) {
    let count = calls.lines().count();
    let up = ModelSetup::new(WINDOW)
        .start(move |heard| {
            let calls = calls.lines().nth(heard.nth).unwrap_or_default();
            if calls == "500" {
                return ModelReply::Fails(500, "api_error");
            }
            let calls = calls.split_whitespace().enumerate().map(|(at, name)| {
                let note = json!({"content": "note", "reminder_content": "note", "path": "a"});
                ModelCall::new(&format!("call_{}_{at}", heard.nth), name, &note)
            });
            ModelReply::Says(format!("Text {}.", heard.nth), calls.collect())
        })
        .await;
    let proxy = proxy_before(&up, WINDOW)
        .set(|config| {
            config.recovery.tools = AddTools::Always;
            config.guard.clear.enabled = false;
        })
        .start()
        .await;
    let reasoning = json!({"effort": "high"});
    let mut agent = ResponsesAgent::new(&proxy)
        .set("reasoning", reasoning)
        .set("stream", stream);
    let mut generations = Vec::new();
    while up.count() <= count {
        generations.push(agent.step().await);
    }
    up.assert_no_faults();
    (up, generations)
}

/// The answers among these entries, in words; outputs end a line.
fn describe(entries: &[Value]) -> String {
    let mut words = String::new();
    for entry in entries {
        let said = ["summary", "content"].map(|key| &entry[key][0]["text"]);
        let said = said
            .iter()
            .find_map(|it| it.as_str())
            .or(entry["name"].as_str());
        if let Some(said) = said.filter(|_| entry["role"] != "user") {
            words.push_str(said);
            words.push(' ');
        } else if !words.ends_with('\n') && !words.is_empty() {
            words.push('\n');
        }
    }
    words.trim_end().replace(" \n", "\n")
}

#[tokio::test]
async fn rounds_that_are_no_longer_sent_leave_nothing_in_the_answer() {
    for stream in [false, true] {
        for (calls, expected) in [
            (
                "add_reminder\nread_file",
                "thought 0 Text 0. add_reminder\nthought 1 Text 1. read_file",
            ),
            // The answer follows the clear.
            (
                "add_reminder\nclear_mind\nread_file",
                "thought 2 Text 2. read_file",
            ),
            // So do a round and the answer.
            (
                "add_reminder\nclear_mind\nadd_reminder\nread_file",
                "thought 2 Text 2. add_reminder\nthought 3 Text 3. read_file",
            ),
            // The course begins with the next request. A call beside the client's stays: reasoning may have led to it.
            (
                "add_reminder\nclear_mind read_file",
                "thought 1 Text 1. clear_mind read_file",
            ),
            // A round fails, and the request is sent without the one before it.
            (
                "add_reminder\n500\nread_file",
                "thought 2 Text 2. read_file",
            ),
            // Another request follows, and the first answer is as before.
            (
                "add_reminder\nclear_mind\nread_file\nread_file",
                "thought 2 Text 2. read_file\nthought 3 Text 3. read_file",
            ),
        ] {
            let (up, _) = play_calls(calls, stream).await;
            let body = up.bodies().await.pop().unwrap();
            assert_eq!(describe(entries(&body)), expected, "{calls:?}");
        }
    }
}

#[tokio::test]
async fn rounds_are_one_answer_for_the_client() {
    for stream in [false, true] {
        let (up, generations) = play_calls("add_reminder\nadd_reminder\nread_file", stream).await;
        let answer = &generations[0].message;
        assert_eq!(answer["id"], "resp_0");
        let output = answer["output"].as_array().unwrap();
        let expected = "thought 0 Text 0. thought 1 Text 1. thought 2 Text 2. read_file";
        assert_eq!(describe(output), expected);
        let mut ids: Vec<_> = output.iter().map(|it| it["id"].to_string()).collect();
        ids.dedup();
        assert_eq!(ids.len(), output.len());
        let usage = &generations[0].usage;
        assert_eq!(usage["input_tokens"], up.tokens()[2]);
        assert_eq!(usage["output_tokens"], 3 * 11);
        assert_eq!(usage["total_tokens"], up.tokens()[2] + 3 * 11);
        assert_eq!(
            generations[0].number("prompt-tokens"),
            up.tokens()[2].try_into().ok()
        );
    }
}
