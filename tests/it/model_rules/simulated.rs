//! Agents at the simulated provider, whose models refuse what the real ones do, by the same table.

use serde_json::Value;

use crate::support::{Agent, ProxyBuilder, ResponsesAgent, words};

const STEPS: usize = 100;
/// At this step the agent forgets what came with the calls so far.
const FORGETS_AT: usize = 30;

#[tokio::test]
async fn an_agent_is_never_refused_in_chat_completions() {
    for model in [
        "kimi-k3-32k",
        "deepseek-v4-flash-32k",
        "gemini-3.8-flash-32k",
    ] {
        let proxy = ProxyBuilder::new().start().await;
        let mut agent = Agent::new(&proxy).set("model", format!("simulated/{model}"));
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
        let kept = agent.messages.iter().filter(|it| match model {
            "gemini-3.8-flash-32k" => it["tool_calls"][0]["extra_content"].is_object(),
            _ => it["reasoning_content"].is_string(),
        });
        assert!(kept.count() > STEPS / 3, "{model} gives no reasoning");
    }
}

/// As the client of a model that thought nothing may send it; DeepSeek takes it for missing.
#[tokio::test]
async fn an_empty_reasoning_is_replaced_once_it_is_refused() {
    let proxy = ProxyBuilder::new().start().await;
    let mut agent = Agent::new(&proxy).set("model", "simulated/deepseek-v4-flash-32k");
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

#[tokio::test]
async fn an_agent_is_never_refused_in_responses() {
    let proxy = ProxyBuilder::new().start().await;
    let mut agent = ResponsesAgent::new(&proxy).set("model", "simulated/deepseek-v4-flash-32k");
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
