//! Who decides on automatic compaction: the request, then its session, then the settings; and the
//! effect of an order through the API.

use std::time::Duration;

use http::Method;
use plimsoll::config::ModelConfig;
use serde_json::json;

use super::{
    Pair, agent_past_threshold, before, begin_summary, busy_agent, carries_summary, good_summary,
    newest_request, past_steps, wait_for_summary,
};
use crate::support::{Agent, AgentGeneration, RunningProxy, full_body};

/// Sets the switch of the session of an answer.
pub(super) async fn switch(agent: &Agent, generation: &AgentGeneration, to: &str) {
    let id = generation.header("session").unwrap();
    let path = format!("/plimsoll/api/sessions/{id}");
    let body = json!({ "auto_compact": to }).to_string();
    let request = agent
        .client
        .request(Method::PATCH, &path)
        .body(full_body(body))
        .unwrap();
    let answer = agent.client.send(request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["auto_compact"], to);
}

async fn order_summary(agent: &Agent, generation: &AgentGeneration) {
    let id = generation.header("session").unwrap();
    let path = format!("sessions/{id}/compact");
    let answer = agent.api(Method::POST, &path).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["compact_pending"], true);
}

fn switched_on(word: &str) -> Option<bool> {
    match word {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

#[tokio::test]
async fn the_request_overrides_the_session_and_the_session_the_settings() {
    let pair = Pair::new(good_summary).await;
    for setting in [true, false] {
        let proxy = before(&pair.up, |config| config.compaction.auto = setting);
        let proxy = proxy.start().await;
        for session in ["on", "off", "follow"] {
            for request in ["on", "off", ""] {
                let case = format!("settings {setting}, session {session}, request {request:?}");
                let mut agent = busy_agent(&proxy);
                agent.messages[1]["content"] = case.clone().into();
                let generation = agent.step().await;
                switch(&agent, &generation, session).await;
                if !request.is_empty() {
                    agent = agent.with("x-plimsoll-auto-compact", request);
                }
                agent.messages.extend(past_steps(20));
                let generation = agent.step().await;
                let expected = switched_on(request)
                    .or(switched_on(session))
                    .unwrap_or(setting);
                assert_eq!(generation.has_action("compacting"), expected, "{case}");
                let known = wait_for_summary(&agent, &generation).await;
                assert_eq!(known["auto_compact"], session, "{case}");
                assert_eq!(known["auto_compact_off"], json!(null), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn with_an_unknown_window_summaries_need_a_switch() {
    let pair = Pair::new(good_summary).await;
    let proxy = pair.proxy().set(|config| {
        config.models.insert("m".into(), ModelConfig::default());
        // Gives the assumed window something to summarise.
        config.guard.max_prompt_tokens = Some(15_000);
    });
    let proxy = proxy.start().await;
    let mut agent = agent_past_threshold(&proxy).with("x-plimsoll-auto-compact", "on");
    let generation = agent.step().await;
    assert!(!generation.has_action("compacting"));
    let session = agent.session(&generation).await;
    assert_eq!(session["auto_compact_off"], "window_unknown");
    assert_eq!(pair.summary_requests(), 0);
    order_summary(&agent, &generation).await;
    let generation = agent.step().await;
    assert!(generation.has_action("compacting"), "{generation:?}");
    wait_for_summary(&agent, &generation).await;
    assert!(agent.step().await.has_action("compacted"));
}

#[tokio::test]
async fn an_order_is_carried_out_once() {
    let pair = Pair::new(good_summary).await;
    let proxy = before(&pair.up, |_| {}).start().await;
    let mut agent = busy_agent(&proxy);
    agent.messages.extend(past_steps(8));
    let generation = agent.step().await;
    order_summary(&agent, &generation).await;
    order_summary(&agent, &generation).await;
    // After the answer, whatever the switches say and far below the threshold.
    let mut agent = agent.with("x-plimsoll-auto-compact", "off");
    let generation = agent.step().await;
    assert!(generation.has_action("compacting") && !generation.has_action("compacted"));
    let session = wait_for_summary(&agent, &generation).await;
    assert_eq!(session["compact_pending"], false);
    assert!(agent.step().await.has_action("compacted"));
    assert!(carries_summary(&newest_request(&pair.up).await, 0));
    agent.steps(3).await;
    assert_eq!(pair.summary_requests(), 1);
}

#[tokio::test]
async fn an_order_is_carried_out_before_a_waiting_request() {
    for stream in [false, true] {
        let pair = Pair::new(good_summary).await;
        let proxy = before(&pair.up, |config| {
            config.compaction.wait = Duration::from_secs(15);
        });
        let proxy = proxy.start().await;
        let mut agent = busy_agent(&proxy).set("stream", stream);
        agent.messages.extend(past_steps(8));
        let generation = agent.step().await;
        order_summary(&agent, &generation).await;
        let generation = agent.step().await;
        assert!(generation.has_action("compacted"), "{generation:?}");
        assert!(carries_summary(&newest_request(&pair.up).await, 0));
        assert_eq!(agent.session(&generation).await["compact_pending"], false);
        assert_eq!(pair.summary_requests(), 1);
    }
}

#[tokio::test]
async fn an_order_with_too_little_to_summarise_does_nothing() {
    let pair = Pair::new(good_summary).await;
    let proxy = before(&pair.up, |_| {}).start().await;
    let mut agent = Agent::new(&proxy);
    let generation = agent.step().await;
    order_summary(&agent, &generation).await;
    let generation = agent.step().await;
    assert!(!generation.has_action("compacting"));
    assert_eq!(agent.session(&generation).await["compact_pending"], false);
    assert_eq!(pair.summary_requests(), 0);
}

/// A generation that starts no summary, whatever is switched on.
async fn begins_nothing(pair: &Pair, agent: &mut Agent, why: &str) {
    let answer = agent.send().await;
    assert_eq!(answer.status, 200, "{why}");
    let actions = answer.headers["x-plimsoll-actions"].to_str().unwrap();
    assert!(!actions.contains("compact"), "{why}: {actions}");
    assert_eq!(pair.summary_requests(), 0, "{why}");
}

#[tokio::test]
async fn unguarded_requests_are_not_summarised() {
    let pair = Pair::new(good_summary).await;
    let proxy: RunningProxy = pair.proxy().start().await;
    for wish in ["off", "dry-run"] {
        let mut agent = agent_past_threshold(&proxy).with("x-plimsoll-guard", wish);
        begins_nothing(&pair, &mut agent, wish).await;
    }
    let mut title = agent_past_threshold(&proxy).set("max_tokens", 20);
    title.fields.as_object_mut().unwrap().remove("tools");
    begins_nothing(&pair, &mut title, "auxiliary").await;
    let mut theirs = agent_past_threshold(&proxy).set("truncation", "auto");
    begins_nothing(&pair, &mut theirs, "left to the provider").await;
}

#[tokio::test]
async fn summaries_beyond_max_running_wait() {
    let pair = Pair::new(super::held_summary).await;
    let proxy = pair.proxy().set(|config| config.compaction.max_running = 1);
    let proxy = proxy.start().await;
    let mut first = agent_past_threshold(&proxy);
    assert!(first.step().await.has_action("compacting"));
    let mut second = agent_past_threshold(&proxy);
    second.messages[1]["content"] = "Another ship.".into();
    let generation = second.step().await;
    assert!(!generation.has_action("compacting"));
    pair.up.provider.requests(3).await;
    pair.up.provider.release_stalled();
    let generation = first.step().await;
    wait_for_summary(&first, &generation).await;
    pair.up.provider.release_stalled();
    assert!(second.step().await.has_action("compacting"));
}

#[tokio::test]
async fn a_rewritten_history_is_not_summarised_for_ever() {
    for wait in [Duration::ZERO, Duration::from_secs(10)] {
        let pair = Pair::new(good_summary).await;
        let proxy = pair.proxy();
        let proxy = proxy.set(move |config| config.compaction.wait = wait);
        let proxy = proxy.start().await;
        for nth in 0..20 {
            let mut agent = agent_past_threshold(&proxy);
            if !wait.is_zero() {
                // Over the budget, with one summary still running.
                agent.messages.extend(past_steps(24).split_off(40));
            }
            agent.messages[1]["content"] = format!("It is {nth} o'clock. Caulk her.").into();
            let generation = agent.step().await;
            wait_for_summary(&agent, &generation).await;
        }
        assert_eq!(pair.summary_requests(), 8, "{wait:?}");
        // A request that continues one of its generations has its summary.
        let mut agent = busy_agent(&proxy);
        if wait.is_zero() {
            let generation = begin_summary(&mut agent).await;
            wait_for_summary(&agent, &generation).await;
        }
        // Where requests wait, the one that passes the threshold has the summary.
        agent.until(40, |it| it.has_action("compacted")).await;
        assert_eq!(pair.summary_requests(), 9);
        pair.up.assert_no_faults();
    }
}
