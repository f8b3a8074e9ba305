//! Requests that store no state begin no summary: no request would find it.

use std::time::Duration;

use super::{Pair, agent_past_threshold, good_summary};
use crate::support::{Agent, AgentGeneration};

const CLASS: &str = "x-claude-code-request-class";

/// Asks for an answer to the same conversation, in one of the ways that store nothing.
async fn ask_aside(agent: &mut Agent, is_repeat: bool) -> AgentGeneration {
    if is_repeat {
        agent.fields["max_tokens"] = 1.into();
    } else {
        agent.headers.insert(CLASS, "auxiliary".parse().unwrap());
    }
    let generation = agent.ask().await;
    agent.fields.as_object_mut().unwrap().remove("max_tokens");
    agent.headers.remove(CLASS);
    generation
}

/// Neither in the background nor by waiting for it.
#[tokio::test]
async fn a_request_that_stores_nothing_begins_no_summary() {
    for wait_s in [0, 30] {
        for is_repeat in [false, true] {
            let pair = Pair::new(good_summary).await;
            let proxy = pair.proxy().set(|config| {
                config.compaction.wait = Duration::from_secs(wait_s);
            });
            let proxy = proxy.start().await;
            let mut agent = agent_past_threshold(&proxy);
            // The request that is repeated begins none itself.
            let switch = "x-plimsoll-auto-compact";
            agent.headers.insert(switch, "off".parse().unwrap());
            agent.ask().await;
            agent.headers.remove(switch);
            let context = format!("waits {wait_s} s, a repeat: {is_repeat}");
            for _ in 0..2 {
                let aside = ask_aside(&mut agent, is_repeat).await;
                for word in ["compacting", "compacted"] {
                    assert!(
                        !aside.has_action(word),
                        "{context}: {:?}",
                        aside.header("actions")
                    );
                }
            }
            assert_eq!(pair.summary_requests(), 0, "{context}");
            // A turn does begin one.
            let turn = agent.ask().await;
            let begun = ["compacting", "compacted"]
                .iter()
                .any(|word| turn.has_action(word));
            assert!(begun, "{context}: {:?}", turn.header("actions"));
        }
    }
}
