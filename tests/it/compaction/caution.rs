//! Recovery with compaction: a caution prompt waits for a summary that may make it unnecessary.

use std::time::Duration;

use super::{
    Pair, before, begin_summary, busy_agent, good_summary, held_summary, past_steps,
    wait_for_summary,
};
use crate::support::{AgentGeneration, ModelReply, PROXY_TOOLS, RunningProxy};

/// A proxy with automatic compaction and recovery.
async fn with_recovery(pair: &Pair) -> RunningProxy {
    let proxy = before(&pair.up, |config| {
        config.compaction.auto = true;
        config.recovery.enabled = true;
        // It would bring the tools for reminders along.
        config.guard.recall = plimsoll::config::RecallMode::Off;
    });
    proxy.start().await
}

#[tokio::test]
async fn a_caution_prompt_and_a_summary_do_not_come_in_one_generation() {
    for stream in [false, true] {
        let pair = Pair::new(good_summary).await;
        let proxy = with_recovery(&pair).await;
        let mut agent = busy_agent(&proxy).set("stream", stream);
        for nth in 0..40 {
            let generation = agent.step().await;
            wait_for_summary(&agent, &generation).await;
            assert_eq!(generation.injected(), None, "{nth}");
        }
        assert!(pair.summary_requests() >= 2, "{}", pair.summary_requests());
        // Nor are the tools for an answer to a prompt injected.
        for body in pair.up.bodies().await {
            let tools = body["tools"].to_string();
            assert!(
                PROXY_TOOLS.iter().all(|name| !tools.contains(name)),
                "{tools}"
            );
        }
        pair.up.assert_no_faults();
    }
}

#[tokio::test]
async fn a_caution_prompt_goes_out_after_its_summary_failed() {
    let pair = Pair::new(|_, _| ModelReply::Fails(500, "internal_error")).await;
    let proxy = with_recovery(&pair).await;
    let mut agent = busy_agent(&proxy);
    let generation = begin_summary(&mut agent).await;
    wait_for_summary(&agent, &generation).await;
    assert_eq!(agent.step().await.injected(), Some("caution"));
    pair.up.assert_no_faults();
}

#[tokio::test]
async fn a_caution_prompt_waits_no_longer_than_a_summary_may_take() {
    let pair = Pair::new(held_summary).await;
    let proxy = with_recovery(&pair).await;
    let mut agent = busy_agent(&proxy);
    begin_summary(&mut agent).await;
    let waits = agent.step().await;
    assert!(waits.has_action("compacting") && waits.injected().is_none());
    assert_eq!(waits.header("health"), Some("caution"));
    // The summary is still running, under the settings it began with.
    proxy.reload(|config| config.compaction.timeout = Duration::ZERO);
    let late = agent.step().await;
    assert!(late.has_action("compacting"));
    assert_eq!(late.injected(), Some("caution"));
}

#[tokio::test]
async fn a_critical_prompt_waits_for_no_summary() {
    let pair = Pair::new(held_summary).await;
    let proxy = with_recovery(&pair).await;
    let mut agent = busy_agent(&proxy);
    begin_summary(&mut agent).await;
    // Near the level, and within the budget.
    agent.messages.extend(past_steps(4));
    let critical = |it: &AgentGeneration| it.header("health") == Some("critical");
    let critical = agent.until(6, critical).await;
    assert_eq!(critical.header("countdown"), Some("5"));
    let next = agent.step().await;
    assert!(next.has_action("compacting"));
    assert_eq!(next.injected(), Some("critical"));
}

#[tokio::test]
async fn without_compaction_a_caution_prompt_waits_for_nothing() {
    let pair = Pair::new(good_summary).await;
    let proxy = before(&pair.up, |config| config.recovery.enabled = true);
    let proxy = proxy.start().await;
    let mut agent = busy_agent(&proxy);
    let cautious = |it: &AgentGeneration| it.header("health") == Some("caution");
    agent.until(40, cautious).await;
    assert_eq!(agent.step().await.injected(), Some("caution"));
}
