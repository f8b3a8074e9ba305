//! The simulated provider summarises its conversations, so compaction can be tried without a key.

use super::wait_for_summary;
use crate::support::{Agent, ProxyBuilder};

async fn check(stream: bool, task: &str) {
    let proxy = ProxyBuilder::new().set(|config| {
        config.compaction.auto = true;
        config.recovery.enabled = false;
    });
    let proxy = proxy.start().await;
    let mut agent = Agent::new(&proxy)
        .set("model", "simulated/plimsoll-8k")
        .set("stream", stream);
    agent.messages[1]["content"] = task.into();
    agent.result = |nth| format!("let leak = {nth};\n").repeat(20);
    let mut taken = 0;
    for _ in 0..120 {
        let generation = agent.step().await;
        let session = wait_for_summary(&agent, &generation).await;
        assert_eq!(session["summary_failures"], 0, "{session}");
        taken += usize::from(generation.has_action("compacted"));
        if taken == 2 {
            let summary = session["summary"].as_str().unwrap();
            assert!(summary.starts_with("<summary>") && summary.contains("<next_steps>"));
            return;
        }
    }
    panic!("{taken} summaries were used, streamed: {stream}");
}

#[tokio::test]
async fn the_simulated_provider_summarises() {
    for stream in [false, true] {
        check(stream, "Find every leak in the hull and mend it.").await;
        check(stream, "请把船底的每一个漏洞都找出来并修好。").await;
    }
}
