//! Outputs that come long after their calls.

use http::Method;
use serde_json::{Value, json};

use super::{of_type, response, said, step};
use crate::support::{
    RunningProxy, ScriptedProvider, answer, full_body, model_with_window, strict, user_entry,
};

/// Sends a conversation; gives the entries that the provider got, and the actions.
async fn send(
    proxy: &RunningProxy,
    up: &ScriptedProvider,
    input: &[Value],
) -> (Vec<Value>, String) {
    let tools =
        json!([{"type": "function", "name": "read_file", "parameters": {"type": "object"}}]);
    let body = json!({"model": "m", "store": false, "tools": tools, "input": input}).to_string();
    let client = proxy.client();
    let request = client
        .request(Method::POST, "/v1/responses")
        .header("content-type", "application/json");
    let got = client
        .send(request.body(full_body(body.clone())).unwrap())
        .await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = up.last_request().body;
    assert_eq!(
        strict::responses::find_broken_rules_apart(body.as_bytes(), &sent),
        []
    );
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let actions = got.headers["x-plimsoll-actions"].to_str().unwrap();
    (
        sent["input"].as_array().unwrap().clone(),
        actions.to_owned(),
    )
}

#[tokio::test]
async fn an_output_that_comes_after_a_cut_finds_its_call() {
    let up = ScriptedProvider::start_answering(|request| {
        let tokens = (request.body.len() / 4) as u32;
        vec![answer("200 OK", "", response(&[said("Done.")], tokens))]
    })
    .await;
    let proxy = up
        .proxy()
        .model("m", model_with_window(8_192))
        .start()
        .await;
    let mut input = vec![
        user_entry("Mend the ship."),
        user_entry("Begin with the keel."),
    ];
    let [mut call, output] = step("slow", &"It leaks here. ".repeat(60));
    call["async"] = true.into();
    input.extend([call, said("I look meanwhile.")]);
    let has = |sent: &[Value], kind: &str| of_type(sent, kind).any(|it| it["call_id"] == "slow");
    let (mut cuts, mut goes) = (0, None);
    for turn in 0..90 {
        input.push(user_entry(&format!("And leak {turn}?")));
        if turn == 45 {
            assert!(cuts > 0, "nothing was cut before");
            input.push(output.clone());
        }
        let (sent, actions) = send(&proxy, &up, &input).await;
        cuts += usize::from(actions.contains("dropped="));
        let (called, answered) = (
            has(&sent, "function_call"),
            has(&sent, "function_call_output"),
        );
        match turn {
            0..45 => assert!(called && !answered, "{turn}: {actions}"),
            45 => assert!(called && answered, "{actions}"),
            _ => {
                assert_eq!(called, answered, "{turn}: {actions}");
                goes = goes.or((!called).then_some(turn));
            }
        }
        input.extend(step(&format!("c{turn}"), &"a plank and a nail ".repeat(60)));
        let (_, actions) = send(&proxy, &up, &input).await;
        cuts += usize::from(actions.contains("dropped="));
        input.push(said(&format!("Leak {turn} is mended.")));
    }
    assert!(
        goes.is_some(),
        "once it is there, the pair goes like any other"
    );
}

/// An output of a call that has no id: nothing tells what it belongs to, so it stays where it is.
#[tokio::test]
async fn an_output_without_an_id_stays_and_stops_no_cut() {
    let up = ScriptedProvider::start_answering(|request| {
        let tokens = (request.body.len() / 4) as u32;
        vec![answer("200 OK", "", response(&[said("Done.")], tokens))]
    })
    .await;
    let proxy = up
        .proxy()
        .model("m", model_with_window(8_192))
        .start()
        .await;
    let unnamed =
        json!({"type": "function_call_output", "call_id": null, "output": "The tide turns."});
    let mut input = vec![
        user_entry("Mend the ship."),
        said("I wait for the tide."),
        unnamed.clone(),
    ];
    let mut cuts = 0;
    for turn in 0..60 {
        input.push(user_entry(&format!("And leak {turn}?")));
        input.extend(step(&format!("c{turn}"), &"a plank and a nail ".repeat(60)));
        let (sent, actions) = send(&proxy, &up, &input).await;
        cuts += usize::from(actions.contains("dropped="));
        assert!(sent.contains(&unnamed), "{turn}: {actions}");
        input.push(said(&format!("Leak {turn} is mended.")));
    }
    assert!(cuts > 0);
}

/// The system prompt as opencode and pi send it to GPT-6.2.
#[tokio::test]
async fn leading_developer_entries_are_the_system_prompt() {
    let up = ScriptedProvider::start_answering(|request| {
        let tokens = (request.body.len() / 4) as u32;
        vec![answer("200 OK", "", response(&[said("Done.")], tokens))]
    })
    .await;
    let proxy = up
        .proxy()
        .model("m", model_with_window(8_192))
        .start()
        .await;
    let prompt = |role: &str| json!({"type": "message", "role": role, "content": "You mend ships. ".repeat(20)});
    let start = [
        prompt("developer"),
        prompt("system"),
        user_entry("Mend the ship."),
    ];
    let mut input = start.to_vec();
    let mut cuts = 0;
    for turn in 0..60 {
        input.extend(step(&format!("c{turn}"), &"a plank and a nail ".repeat(60)));
        let (sent, actions) = send(&proxy, &up, &input).await;
        cuts += usize::from(actions.contains("dropped="));
        assert_eq!(sent[..3], start, "{turn}: {actions}");
    }
    assert!(cuts > 0);
}
