//! Where recovery fails, the client gets what it would have got without the proxy.

use serde_json::Value;

use super::{agent_past_optimal, obliging_model, pair, words, work};
use crate::support::{Agent, ModelReply, PROXY_TOOLS};

#[tokio::test]
async fn a_provider_that_refuses_the_injected_tools_is_asked_without_them() {
    for stream in [false, true] {
        let (proxy, up) = pair(|heard| {
            if heard.offers_tool("add_reminder") {
                ModelReply::Fails(400, "invalid_value")
            } else {
                work(heard)
            }
        })
        .await;
        let mut agent = agent_past_optimal(&proxy).set("stream", stream);
        for generation in agent.steps(6).await {
            assert_eq!(generation.called(), ["read_file"]);
        }
        // Tools that were refused are not sent again every time.
        let refused = up.bodies().await;
        let refused = refused.iter().filter(|body| {
            let tools = body["tools"].as_array().unwrap();
            tools.iter().any(|tool| {
                PROXY_TOOLS
                    .iter()
                    .any(|name| tool["function"]["name"] == *name)
            })
        });
        assert!(refused.count() <= 2);
        up.assert_no_faults();
    }
}

#[tokio::test]
async fn a_request_too_long_with_the_injected_text_is_sent_without_it() {
    for stream in [false, true] {
        // The window is smaller than configured, once.
        let (proxy, up) = pair(|heard| {
            if heard.offers_tool("add_reminder") && heard.nth < 3 {
                ModelReply::Fails(400, "context_length_exceeded")
            } else {
                obliging_model(heard)
            }
        })
        .await;
        let mut agent = agent_past_optimal(&proxy).set("stream", stream);
        let generations = agent.steps(6).await;
        assert_eq!(up.overflows(), 0);
        let healed = generations
            .iter()
            .find(|it| it.action("refitted").is_some());
        assert_eq!(healed.and_then(|it| it.number("attempts")), Some(3));
        // The error names no window, and most of the request had been answered before.
        let last = generations.last().and_then(|it| it.number("context-limit"));
        assert_eq!(last, generations[0].number("context-limit"));
        up.assert_no_faults();
    }
}

#[tokio::test]
async fn a_request_that_fails_either_way_gets_the_providers_error() {
    let (proxy, up) = pair(|heard| match heard.nth {
        0 => work(heard),
        _ => ModelReply::Fails(400, "of_its_own"),
    })
    .await;
    let mut agent = agent_past_optimal(&proxy);
    agent.step().await;
    let answer = agent.send().await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["code"], "of_its_own");
    assert!(up.count() <= 4);
}

#[tokio::test]
async fn a_failed_tool_round_falls_back_to_the_request() {
    for stream in [false, true] {
        for status in [400, 429, 500, 503] {
            let (proxy, up) = pair(move |heard| {
                if heard.follows_proxy_call() {
                    ModelReply::Fails(status, "no_more")
                } else {
                    obliging_model(heard)
                }
            })
            .await;
            let mut agent = agent_past_optimal(&proxy).set("stream", stream);
            for generation in agent.steps(5).await {
                let said = !generation.called().is_empty() || !generation.text().is_empty();
                assert!(said || stream, "{status}: {:?}", generation.message);
            }
            assert!(up.count() <= 20, "{} requests", up.count());
            up.assert_no_faults();
        }
    }
}

#[tokio::test]
async fn errors_before_any_answer_pass_unchanged() {
    for status in [401, 429, 500] {
        let (proxy, up) = pair(move |heard| match heard.nth {
            0 => work(heard),
            _ => ModelReply::Fails(status, "theirs"),
        })
        .await;
        let mut agent = agent_past_optimal(&proxy);
        agent.step().await;
        let answer = agent.send().await;
        assert_eq!(answer.status, status);
        let body: Value = answer.json();
        assert_eq!(body["error"]["code"], "theirs");
        assert_eq!(up.count(), 2, "nothing else is a matter of our tools");
    }
}

/// A system prompt that nearly fills the window, so that any injection exceeds it.
#[tokio::test]
async fn a_request_that_fits_without_prompts_passes_in_a_nearly_full_window() {
    let mut close = 0;
    for tokens in (16_000..18_000).step_by(150) {
        let (proxy, up) = pair(obliging_model).await;
        let mut agent = Agent::new(&proxy).set("max_tokens", 2_000);
        agent.messages[0]["content"] = words(tokens, 0).into();
        if agent.send().await.status != 200 || up.tokens()[0] > 17_700 {
            continue;
        }
        close += usize::from(up.tokens()[0] > 17_300);
        // `step` fails without an answer.
        agent.steps(8).await;
        assert_eq!(up.overflows(), 0, "a system prompt of {tokens}");
        up.assert_no_faults();
    }
    assert!(close > 0, "none came near the limit");
}
