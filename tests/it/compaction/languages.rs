//! A model summarises its conversations again and again, in both languages, with the default settings.

use super::{Pair, good_summary, wait_for_summary};
use crate::support::{Agent, ModelSetup, model_with_window};

const WINDOW: u32 = 8_192;

async fn check(stream: bool, task: &str) {
    let pair = Pair::with_model(ModelSetup::new(WINDOW), Box::new(good_summary)).await;
    let proxy = pair.up.provider.proxy().set(|config| {
        config.compaction.auto = true;
        config.recovery.enabled = false;
    });
    let proxy = proxy.model("m", model_with_window(WINDOW)).start().await;
    let mut agent = Agent::new(&proxy).set("stream", stream);
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
            pair.up.assert_no_faults();
            assert_eq!(pair.up.overflows(), 0);
            return;
        }
    }
    panic!("{taken} summaries were used, streamed: {stream}");
}

#[tokio::test]
async fn a_session_is_summarised_in_both_languages() {
    for stream in [false, true] {
        check(stream, "Find every leak in the hull and mend it.").await;
        check(stream, "请把船底的每一个漏洞都找出来并修好。").await;
    }
}
