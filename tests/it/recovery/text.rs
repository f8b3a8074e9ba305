//! Requests without tools: reminder blocks in the answer.

use serde_json::json;

use super::{Shape, WINDOW, injected_texts, proxy_before, words};
use crate::support::{Agent, ModelReply, ModelSetup, RunningModel, RunningProxy};

const PLAIN: &str = "The plan holds. 顺风 < 5 knots; a <continuation is no tag.";

/// A model that writes a block on request: `before`, `after`, or alone.
async fn pair(text: [&'static str; 2], fragment: usize) -> (RunningProxy, RunningModel) {
    let mut model = ModelSetup::new(WINDOW);
    model.fragment = fragment;
    let up = model
        .start(move |heard| {
            let nth = heard.nth;
            let asked = heard.notice.as_ref().is_some_and(|it| it.block);
            if asked {
                ModelReply::text(&format!(
                    "{}<continuation_package>\nfirst: go on after {nth}\n</continuation_package>{}",
                    text[0], text[1]
                ))
            } else {
                ModelReply::text(PLAIN)
            }
        })
        .await;
    (proxy_before(&up, &Shape::default()).start().await, up)
}

fn chat(proxy: &RunningProxy) -> Agent {
    let agent = Agent::bare(proxy).says("Mend the ship.");
    let mut agent = agent.says(&words(10_500, 0));
    agent.user = |nth| format!("And then? {nth}");
    agent
}

#[tokio::test]
async fn a_reminder_block_is_removed_from_the_answer() {
    for (stream, fragment) in [(false, 7), (true, 1), (true, 3), (true, 7), (true, 1_000)] {
        for text in [[PLAIN, ""], ["", PLAIN], ["One. ", " Two."]] {
            let (proxy, up) = pair(text, fragment).await;
            let mut agent = chat(&proxy).set("stream", stream);
            assert_eq!(agent.step().await.text(), PLAIN);
            let asked = agent.step().await;
            assert_eq!(asked.injected(), Some("caution"));
            let seen: String = asked.text().split_whitespace().collect();
            let said: String = text.concat().split_whitespace().collect();
            assert_eq!(seen, said);
            assert_eq!(asked.finish, "stop");
            // The model finds its block again, and is not asked for another.
            let next = agent.step().await;
            assert_eq!(next.number("reminders").unwrap_or(0), 1);
            let sent = up.bodies().await.pop().unwrap();
            assert!(
                sent.to_string().contains("first: go on after 1"),
                "{sent:#}"
            );
            assert_eq!(up.count(), 3);
            up.assert_no_faults();
        }
    }
}

#[tokio::test]
async fn an_answer_of_a_reminder_block_alone_is_continued() {
    for stream in [false, true] {
        let (proxy, up) = pair(["", ""], 5).await;
        let mut agent = chat(&proxy).set("stream", stream);
        agent.step().await;
        let asked = agent.step().await;
        assert_eq!(asked.text().trim(), PLAIN);
        assert_eq!(up.count(), 3);
        up.assert_no_faults();
    }
}

#[tokio::test]
async fn a_reminder_block_is_not_asked_for_with_a_response_format() {
    let fields = [
        ("response_format", json!({"type": "json_object"})),
        ("n", json!(2)),
        ("stop", json!(["END"])),
        ("stop", json!("END")),
        ("logprobs", json!(true)),
    ];
    for (name, value) in fields {
        let (proxy, up) = pair([PLAIN, ""], 5).await;
        let mut agent = chat(&proxy).set(name, value);
        for generation in agent.steps(4).await {
            assert_eq!(generation.injected(), None, "{name}");
        }
        assert!(
            up.bodies()
                .await
                .iter()
                .all(|body| injected_texts(body) == 0),
            "{name}"
        );
    }
    // Nor where the answer's beginning is given.
    let (proxy, up) = pair([PLAIN, ""], 5).await;
    let mut agent = chat(&proxy);
    agent.step().await;
    agent
        .messages
        .push(json!({"role": "assistant", "content": "So I"}));
    agent.ask().await;
    assert_eq!(injected_texts(&up.bodies().await.pop().unwrap()), 0);
}

#[tokio::test]
async fn reminder_blocks_survive_into_a_second_course() {
    for stream in [false, true] {
        let (proxy, up) = pair([PLAIN, ""], 5).await;
        let mut agent = chat(&proxy).set("stream", stream);
        agent.user = |nth| words(120, nth);
        let generations = agent.steps(80).await;
        let began = generations
            .iter()
            .position(|it| it.action("course").is_some());
        let began = began.expect("a second course begins");
        let down = generations[..began]
            .iter()
            .filter(|it| it.injected() == Some("critical"));
        assert_eq!(down.count(), 5);
        assert!(generations[began].number("reminders") > Some(0));
        up.assert_no_faults();
        assert_eq!(up.overflows(), 0);
    }
}
