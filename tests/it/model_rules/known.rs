//! Agents at providers whose models' names tell what they refuse: nothing is refused, even where the agent forgets.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{Demand, Host, WINDOW, start_proxy};
use crate::support::{
    Agent, ProviderStep, ReceivedRequest, ResponsesAgent, ScriptedProvider, answer, words,
};

const STEPS: usize = 100;
/// At this step the agent forgets what came with the calls so far.
const FORGETS_AT: usize = 30;

#[tokio::test]
async fn an_agent_is_never_refused_in_chat_completions() {
    for (profile, model, demand) in [
        ("openai", "kimi-k3", Demand::OnEvery),
        ("openai", "deepseek-v4-flash", Demand::OnEveryWorded),
        ("openai", "mimo-v2.6-pro", Demand::OnEveryWorded),
        ("openai", "kimi-for-coding", Demand::OnEveryWorded),
        ("openrouter", "moonshotai/kimi-k2.6", Demand::OnEveryWorded),
        ("openai", "gemini-3.8-flash", Demand::Signed),
    ] {
        let host = Host::new("home", demand, None);
        let up = host.start().await;
        let proxy = start_proxy(&up, (profile, model), None).await;
        let mut agent = Agent::new(&proxy).set("model", model);
        agent.result = |nth| words(500, nth);
        let mut cuts = 0;
        for step in 0..STEPS {
            if step == FORGETS_AT {
                for message in &mut agent.messages {
                    message.as_object_mut().unwrap().remove("reasoning_content");
                    if message["tool_calls"].is_array() {
                        let call = message["tool_calls"][0].as_object_mut().unwrap();
                        call.remove("extra_content");
                    }
                }
            }
            let got = agent.step().await;
            assert_eq!(got.header("attempts"), Some("1"), "{model}: step {step}");
            cuts += usize::from(got.action("cleared").is_some());
        }
        assert!(cuts > 0, "{model}");
        assert_eq!(host.refused.load(Ordering::Relaxed), 0, "{model}");
        let kept = agent.messages.iter().filter(|it| match demand {
            Demand::Signed => it["tool_calls"][0]["extra_content"].is_object(),
            _ => it["reasoning_content"].is_string(),
        });
        assert!(kept.count() > STEPS / 3, "{model} gives no reasoning");
    }
}

/// As the client of a model that thought nothing may send it; DeepSeek takes it for missing.
#[tokio::test]
async fn an_empty_reasoning_is_replaced_once_it_is_refused() {
    let model = "deepseek-v4-flash";
    let up = Host::new("home", Demand::OnEveryWorded, None).start().await;
    let proxy = start_proxy(&up, ("openai", model), None).await;
    let mut agent = Agent::new(&proxy).set("model", model);
    agent.steps(5).await;
    let mut attempts = Vec::new();
    for _ in 0..3 {
        for message in &mut agent.messages {
            if message["reasoning_content"].is_string() {
                message["reasoning_content"] = "".into();
            }
        }
        let got = agent.step().await;
        attempts.push(got.header("attempts").unwrap().to_owned());
    }
    assert_eq!(attempts, ["2", "1", "1"]);
}

/// DeepSeek in Responses: each call needs reasoning before it, in its own answer.
fn answer_response(request: &ReceivedRequest) -> Vec<ProviderStep> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let input = body["input"].as_array().unwrap();
    let mut is_reasoned = false;
    let lacks = |item: &Value| {
        match item["type"].as_str().unwrap() {
            "reasoning" => is_reasoned |= item["content"][0]["text"] != "",
            "function_call" => return !is_reasoned,
            _ if item["role"] == "assistant" => {}
            _ => is_reasoned = false,
        }
        false
    };
    let tokens = request.body.len() / 4;
    let refusal = if input.iter().any(lacks) {
        "The `reasoning_text` in the thinking mode must be passed back to the API."
    } else if tokens > WINDOW as usize {
        "Your input exceeds the context window of this model."
    } else {
        let nth = input.len();
        let arguments = json!({"path": format!("src/{nth}.rs")}).to_string();
        let output = json!([
            {"type": "reasoning", "id": format!("rs_{nth}"), "summary": [],
                "content": [{"type": "reasoning_text", "text": words(60, nth)}]},
            {"type": "function_call", "id": format!("fc_{nth}"), "call_id": format!("call_{nth}"),
                "name": "read_file", "arguments": arguments, "status": "completed"},
        ]);
        let response = json!({"id": "r", "object": "response", "status": "completed", "model": body["model"],
            "output": output,
            "usage": {"input_tokens": tokens, "output_tokens": 90, "total_tokens": tokens + 90}});
        return vec![answer("200 OK", "", response.to_string())];
    };
    let error = json!({"error": {"message": refusal, "type": "invalid_request_error"}});
    vec![answer("400 Bad Request", "", error.to_string())]
}

#[tokio::test]
async fn an_agent_is_never_refused_in_responses() {
    let model = "deepseek-v4-flash";
    let up = ScriptedProvider::start_forgetful(answer_response).await;
    let proxy = start_proxy(&up, ("openai", model), None).await;
    let mut agent = ResponsesAgent::new(&proxy).set("model", model);
    agent.result = 500;
    let mut cuts = 0;
    for step in 0..STEPS {
        if step == FORGETS_AT {
            let input = agent.fields["input"].as_array_mut().unwrap();
            input.retain(|item: &Value| item["type"] != "reasoning");
        }
        let got = agent.step().await;
        assert_eq!(got.header("attempts"), Some("1"), "step {step}");
        cuts += usize::from(got.action("cleared").is_some());
    }
    assert!(cuts > 0);
}
