//! Questions whose answers were cut.

use serde_json::{Value, json};

use super::{message_by, named_ids, numbered_lines, request_of, spoken_text, start_model, step};
use crate::support::{RunningModel, RunningProxy, model_with_window};

async fn start_proxy(model: &RunningModel, window: u32) -> RunningProxy {
    let proxy = model.provider.proxy();
    let proxy = proxy.set(|config| {
        config.models.insert("m".into(), model_with_window(window));
    });
    proxy.start().await
}

/// A question about a line in the middle of a large result.
fn truncated() -> Vec<Value> {
    let mut messages = vec![message_by("system", "Be brief."), message_by("user", "go")];
    messages.extend(step("call_1", &numbered_lines(4_000)));
    messages
}

#[tokio::test]
async fn a_line_of_a_truncated_result_is_looked_up() {
    for stream in [false, true] {
        for arguments in [json!({"pattern": "plank 2500 "}), json!({"lines": "2500"})] {
            let model = start_model(128_000, arguments).await;
            let proxy = start_proxy(&model, 128_000).await;
            let answer = proxy
                .chat(request_of(&truncated(), stream).to_string())
                .await;
            let text = spoken_text(&answer);
            assert!(
                text.contains("plank 2500 is \"sound\" \\ value-17500"),
                "{text}"
            );
            assert!(text.contains("4000 lines"), "{text}");
            model.assert_no_faults();
            let [first, second] = &model.bodies().await[..] else {
                panic!("{} requests", model.count());
            };
            assert_eq!(named_ids(first), ["m3"]);
            assert_eq!(first["tools"], second["tools"]);
        }
    }
}

/// A file in the task is shortened as soon as the window needs it; the words around it stay, and the rest is looked up.
#[tokio::test]
async fn a_line_of_a_file_in_the_task_is_looked_up() {
    let file = numbered_lines(1_500);
    let task = format!("Mend the deck, board by board.\n```\n{file}\n```\nThen say so.");
    let messages = [message_by("system", "Be brief."), message_by("user", &task)];
    let model = start_model(8_192, json!({"pattern": "plank 700 "})).await;
    let proxy = start_proxy(&model, 8_192).await;
    let mut grown = messages.to_vec();
    for at in 0..4 {
        let answer = proxy
            .chat(request_of(&grown, at % 2 == 1).to_string())
            .await;
        let text = spoken_text(&answer);
        assert!(
            text.contains("plank 700 is \"sound\" \\ value-4900"),
            "{text}"
        );
        grown.extend(step(&format!("call_{at}"), &numbered_lines(80)));
    }
    model.assert_no_faults();
    for body in model.bodies().await {
        let task = body["messages"][1]["content"].as_str().unwrap();
        let (beginning, end) = (
            "Mend the deck, board by board.\n```\nplank 1 ",
            "value-10500\n```\nThen say so.",
        );
        assert!(task.starts_with(beginning) && task.contains(end), "{task}");
        assert_eq!(named_ids(&body)[0], "m1");
    }
}

/// A long talk with an early decision, which no window of 8,192 tokens holds.
fn folded() -> Vec<Value> {
    let mut messages = vec![
        message_by("system", "Be brief."),
        message_by("user", "Mend the ship."),
    ];
    for turn in 0..40 {
        let said = match turn {
            2 => "We caulk with tarred oakum only, as agreed.".to_owned(),
            _ => format!(
                "Board {turn} is looked at. {}",
                "The wood is dry and firm. ".repeat(60)
            ),
        };
        messages.push(message_by("assistant", &said));
        messages.push(message_by("user", "Go on with the next board, please."));
    }
    messages
}

#[tokio::test]
async fn an_early_decision_of_a_folded_message_is_looked_up() {
    for stream in [false, true] {
        let arguments = json!({"id": "earlier", "pattern": "OAKUM|oakum"});
        let model = start_model(8_192, arguments).await;
        let proxy = start_proxy(&model, 8_192).await;
        let answer = proxy.chat(request_of(&folded(), stream).to_string()).await;
        let text = spoken_text(&answer);
        assert!(text.contains("[m6, assistant: line "), "{text}");
        assert!(text.contains("tarred oakum only"), "{text}");
        model.assert_no_faults();
        let bodies = model.bodies().await;
        assert_eq!(named_ids(&bodies[0]), ["earlier"]);
    }
}

/// Many results, of which the oldest are cleared in a window of 16,384 tokens.
fn cleared() -> Vec<Value> {
    let mut messages = vec![message_by("system", "Be brief."), message_by("user", "go")];
    for nth in 0..40 {
        let text = format!(
            "hold {nth}\n{}seam {nth} leaks\n",
            "dry planks here\n".repeat(100)
        );
        messages.extend(step(&format!("call_{nth}"), &text));
    }
    messages
}

#[tokio::test]
async fn a_cleared_result_is_looked_up() {
    for stream in [false, true] {
        let model = start_model(16_384, json!({"pattern": "leaks"})).await;
        let proxy = start_proxy(&model, 16_384).await;
        let answer = proxy.chat(request_of(&cleared(), stream).to_string()).await;
        let text = spoken_text(&answer);
        let first = &model.bodies().await[0];
        let ids = named_ids(first);
        let cleared = ids.iter().find(|id| *id != "earlier").unwrap();
        // m2 is the first step's call, m3 its result.
        let nth = (cleared[1..].parse::<usize>().unwrap() - 3) / 2;
        assert!(
            first["messages"]
                .to_string()
                .contains("An old tool result was left out")
        );
        if ids[0] == *cleared {
            assert!(text.contains(&format!("seam {nth} leaks")), "{text}");
            assert!(text.contains("[lines 100-102]"), "{text}");
        }
        model.assert_no_faults();
    }
}

#[tokio::test]
async fn everything_fits_where_little_was_cut() {
    let model = start_model(128_000, json!({})).await;
    let proxy = start_proxy(&model, 128_000).await;
    let text = spoken_text(
        &proxy
            .chat(request_of(&truncated(), false).to_string())
            .await,
    );
    // The beginning and the end, and what is between them.
    assert!(
        text.contains("plank 1 is") && text.contains("plank 4000 is"),
        "{text}"
    );
    assert!(text.contains("Not shown: lines "), "{text}");
    assert!(
        text.chars().count() <= 8_000 + 20,
        "{}",
        text.chars().count()
    );
}

#[tokio::test]
async fn nothing_is_added_where_nothing_is_cut() {
    let model = start_model(128_000, json!({})).await;
    let proxy = start_proxy(&model, 128_000).await;
    let mut messages = truncated();
    messages[3]["content"] = "short".into();
    let request = request_of(&messages, false);
    let text = spoken_text(&proxy.chat(request.to_string()).await);
    assert_eq!(text, "It is not in sight.");
    let seen = &model.bodies().await[0];
    assert_eq!(
        (&seen["tools"], &seen["messages"]),
        (&request["tools"], &request["messages"])
    );
    // Without tools there is a marker as before, and no tool.
    let mut request = request_of(&truncated(), false);
    request.as_object_mut().unwrap().remove("tools");
    proxy.chat(request.to_string()).await;
    let seen = &model.bodies().await[1];
    assert!(seen.get("tools").is_none());
    assert!(
        seen["messages"]
            .to_string()
            .contains("characters truncated] ...")
    );
}
