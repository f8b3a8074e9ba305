//! A model that reads the reasoning of the running turn only tells so in each answer (Responses): that is no loss.

use serde_json::{Value, json};

use super::read_metric;
use crate::support::{
    ResponsesAgent, ScriptedProvider, answer,
    bound::{BoundApi, BoundModel},
    bound_provider::{BoundSettings, start_scripted_bound_provider},
    model_with_window,
};

const TURNS: usize = 12;

/// The reasoning of all turns does not fit into the window. Each answer names all older entries again.
#[tokio::test]
async fn reasoning_that_is_forgotten_by_rule_is_counted_once_and_weighs_nothing() {
    for asks_for_all in [false, true] {
        let settings = BoundSettings {
            seed: 0,
            api: BoundApi::Responses,
            model: BoundModel::default(),
            window: 16_000,
            proxy_calls: 0,
        };
        let think = |_: &Value, _: usize| {
            let thinking = json!({"type": "thinking", "thinking": "ponder ".repeat(900)});
            vec![thinking, json!({"type": "text", "text": "Done."})]
        };
        let (up, log) = start_scripted_bound_provider(settings, think).await;
        let proxy = up.proxy().model("*", model_with_window(16_000));
        let proxy = proxy.start().await;
        let mut agent = ResponsesAgent::new(&proxy).set("model", "up/gpt-6.1-sol");
        if asks_for_all {
            agent.fields["reasoning"] = json!({"context": "all_turns"});
        }
        let mut cut = 0;
        for turn in 0..TURNS {
            let input = agent.fields["input"].clone();
            let came = agent.step().await;
            cut += usize::from(came.answer.headers["x-plimsoll-actions"] != "none");
            let log = log.lock().unwrap();
            let forgotten = if asks_for_all { 0 } else { turn };
            assert_eq!(log.forgotten, forgotten);
            let sent = &log.exchanges.last().unwrap().0["input"];
            assert!(asks_for_all || *sent == input, "{turn}");
        }
        // What the model is asked to read weighs.
        assert_eq!(cut > 0, asks_for_all, "{cut}");
        let log = std::mem::take(&mut *log.lock().unwrap());
        assert_eq!((log.stale, log.refused.len(), log.broken.len()), (0, 0, 0));
        let counter = r#"plimsoll_input_transformations_total{change="forgotten",provider="up",reason="turn_boundary"}"#;
        if !asks_for_all {
            let counted = read_metric(&proxy, counter).await;
            assert_eq!(counted, TURNS as u32 - 1);
        }
    }
}

fn reasoning(nth: usize) -> Value {
    json!({"type": "reasoning", "id": format!("rs_{nth}"), "summary": [],
        "encrypted_content": "gAAAAABo".repeat(2_000)})
}

fn message(role: &str, text: &str) -> Value {
    let kind = if role == "user" {
        "input_text"
    } else {
        "output_text"
    };
    json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})
}

#[tokio::test]
async fn sealed_reasoning_that_is_forgotten_by_rule_weighs_nothing() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .model("*", model_with_window(16_000))
        .start()
        .await;
    let client = proxy.client();
    let mut input = vec![message("user", "Mend the first leak.")];
    for turn in 0..TURNS {
        // The list names all older items again and again.
        let removed: Vec<Value> = (0..turn)
            .map(|nth| {
                json!({"type": "reasoning", "action": "removed", "id": format!("rs_{nth}"),
                    "reason": "turn_boundary"})
            })
            .collect();
        let output = [reasoning(turn), message("assistant", "Done.")];
        let response = json!({"id": format!("resp_{turn}"), "object": "response", "status": "completed",
            "model": "m", "output": output, "input_transformations": removed,
            "usage": {"input_tokens": 60 + 20 * turn, "output_tokens": 3_000}});
        up.script_next([answer("200 OK", "", response.to_string())]);
        let body = json!({"model": "up/gpt-6-sol", "input": input}).to_string();
        let request = client.request(http::Method::POST, "/v1/responses");
        let got = client.send_with(request, body.clone()).await;
        assert_eq!(got.headers["x-plimsoll-actions"], "none", "{turn}");
        // 12 items of 16 kB do not fit into 16,000 tokens, and none of them is read.
        let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
        assert_eq!(sent["input"], json!(input), "{turn}");
        input.extend(output);
        input.push(message("user", &format!("Mend leak {turn}.")));
    }
    let changes = |change, reason| {
        format!(
            r#"plimsoll_input_transformations_total{{change="{change}",provider="up",reason="{reason}"}}"#
        )
    };
    let forgotten = read_metric(&proxy, &changes("forgotten", "turn_boundary")).await;
    assert_eq!(forgotten, TURNS as u32 - 1);
}
