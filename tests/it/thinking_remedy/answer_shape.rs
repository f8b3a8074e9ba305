//! Answers whose thinking is not as it was made: a turn that must begin with thinking and does not, and in Responses an
//! item whose reasoning, or reasoning whose item, is missing.

use serde_json::{Value, json};

use super::{body, host, proxy_before, read_metric};
use crate::support::{
    MessagesAgent, ProviderStep, ReceivedRequest, ResponsesAgent, ScriptedProvider, answer,
    user_entry,
};

const EXPECTED: &str = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. \
    When `thinking` is enabled, a final `assistant` message must start with a thinking block.";

fn call(id: &str) -> Value {
    json!([{"type": "tool_use", "id": id, "name": "read_file", "input": {"path": "a"}}])
}

fn result(id: &str) -> Value {
    json!([{"type": "tool_result", "tool_use_id": id, "content": "One leak."}])
}

/// A provider of a model whose turns begin with thinking.
async fn start_older_model() -> ScriptedProvider {
    ScriptedProvider::start_answering(|request: &ReceivedRequest| {
        let sent = body(request);
        let entries = sent["messages"].as_array().unwrap();
        let returns_results = entries.last().unwrap()["content"][0]["type"] == "tool_result";
        if sent["thinking"]["type"] == "enabled" && returns_results {
            host::refusal(EXPECTED)
        } else {
            host::write_message(sent["stream"] == true, None)
        }
    })
    .await
}

#[tokio::test]
async fn a_turn_without_its_thinking_is_answered_with_thinking_off_until_it_ends() {
    for streams in [false, true] {
        let up = start_older_model().await;
        let proxy = proxy_before(&up).start().await;
        let thinking = json!({"type": "enabled", "budget_tokens": 1_024});
        let agent = MessagesAgent::new(&proxy).set("thinking", thinking.clone());
        let mut agent = agent
            .set("stream", streams)
            .set("model", "claude-haiku-4-5");
        agent.push("assistant", call("toolu_1"));
        agent.push("user", result("toolu_1"));
        agent.ask().await;
        assert_eq!(up.count_requests(), 2);
        let sent = |request: ReceivedRequest| body(&request)["thinking"].clone();
        assert_eq!(sent(up.last_request()), json!({"type": "disabled"}));
        let switched = r#"plimsoll_thinking_refusals_total{provider="up",result="switched_off"}"#;
        assert_eq!(read_metric(&proxy, switched).await, 1);
        // The session knows it, as long as the turn lasts.
        agent.push(
            "assistant",
            json!([{"type": "text", "text": "Done."}, call("toolu_2")[0]]),
        );
        agent.push("user", result("toolu_2"));
        agent.ask().await;
        assert_eq!(up.count_requests(), 3);
        assert_eq!(sent(up.last_request()), json!({"type": "disabled"}));
        agent.push("assistant", json!([{"type": "text", "text": "Done."}]));
        agent.push("user", "Now the bow.");
        agent.ask().await;
        assert_eq!(up.count_requests(), 4);
        assert_eq!(sent(up.last_request()), thinking);
    }
}

#[tokio::test]
async fn a_turn_that_need_not_begin_with_thinking_goes_without_the_thinking_that_is_refused() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up).start().await;
    let changed = "messages.1.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot \
         be modified. These blocks must remain as they were in the original response.";
    up.script_next(host::refusal(changed));
    up.script_next(host::write_message(false, None));
    let agent = super::agent_with_thinking(&proxy, "altered-1");
    let agent = agent.set("thinking", json!({"type": "adaptive"}));
    let generation = agent.ask().await;
    assert_eq!(generation.header("actions"), Some("thinking-left-out=1"));
    assert!(!String::from_utf8_lossy(&up.last_request().body).contains("altered-1"));
}

/// A provider of Responses that wants an item directly behind its reasoning, and the reasoning of an item with an id.
fn check_pairs(request: &ReceivedRequest) -> Vec<ProviderStep> {
    let sent = body(request);
    let input = sent["input"].as_array().unwrap();
    let is_reasoning = |item: &Value| item["type"] == "reasoning";
    let has_id = |item: &Value| item["id"].is_string();
    let refuse = |message: String| {
        let error = json!({"message": message, "type": "invalid_request_error", "param": "input", "code": null});
        vec![answer(
            "400 Bad Request",
            "",
            json!({"error": error}).to_string(),
        )]
    };
    for (at, item) in input.iter().enumerate() {
        let id = item["id"].as_str().unwrap_or_default();
        if is_reasoning(item) && input.get(at + 1).is_none_or(|next| !has_id(next)) {
            return refuse(format!(
                "Item '{id}' of type 'reasoning' was provided without its required following item."
            ));
        }
        if id == "msg_1" && !is_reasoning(&input[at - 1]) {
            return refuse(format!(
                "Item '{id}' of type 'message' was provided without its required 'reasoning' item: 'rs_1'."
            ));
        }
    }
    let text = json!({"type": "output_text", "text": "Done.", "annotations": []});
    let message = json!({"type": "message", "id": "msg_9", "role": "assistant", "status": "completed", "content": [text]});
    let usage = json!({"input_tokens": 90, "output_tokens": 3, "total_tokens": 93,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}});
    let response = json!({"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-6.2-sol",
        "output": [message], "usage": usage});
    vec![answer("200 OK", "", response.to_string())]
}

#[tokio::test]
async fn an_item_of_responses_without_its_reasoning_is_sent_without_its_id() {
    let reasoning =
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"});
    let said = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "One leak.", "annotations": []}]});
    for answer in [vec![reasoning.clone()], vec![said.clone()]] {
        let up =
            ScriptedProvider::start_answering(|request: &ReceivedRequest| check_pairs(request))
                .await;
        let proxy = up.proxy().start().await;
        let mut agent = ResponsesAgent::new(&proxy).set("model", "gpt-6.2-sol");
        agent.keeps_ids = true;
        agent.push(answer);
        agent.push([user_entry("Go on.")]);
        agent.step().await;
        assert_eq!(up.count_requests(), 2);
        let sent = body(&up.last_request());
        let input = sent["input"].as_array().unwrap();
        assert_eq!(input.len(), 3);
        assert!(input[1]["content"][0]["text"].is_string(), "{sent}");
        assert!(input.iter().all(|item| item["id"].is_null()), "{sent}");
        // What was left out stays out.
        agent.ask().await;
        assert_eq!(up.count_requests(), 3);
    }
}
