//! A client that has the provider summarise its conversation: from then on every request begins with the provider's block.
//! The guard cuts behind it.

use serde_json::{Value, json};

use super::{AgentSession, BOUND, UNBOUND};
use crate::support::bound_provider::BoundLog;

const BEFORE: usize = 3;
const AFTER: usize = 60;

/// `bound`: of a model that binds its thinking.
async fn start_session(seed: u64, bound: bool) -> AgentSession {
    let model = if bound { BOUND } else { UNBOUND };
    let session = AgentSession::start(seed, model, 5, |proxy| proxy).await;
    AgentSession {
        agent: session.agent.with("anthropic-beta", "compact-2026-09-04"),
        ..session
    }
}

impl AgentSession {
    fn entries(&mut self) -> &mut Vec<Value> {
        self.agent.fields["messages"].as_array_mut().unwrap()
    }

    /// Has the messages of the last request summarised; its answer and what follows stay. Returns the block's entry.
    async fn summarize(&mut self) -> Value {
        let tail = self.entries().len() - 2;
        let kept = self.entries().split_off(tail);
        self.agent.fields["compaction"] = json!({"type": "summarize"});
        let stream = self.agent.fields["stream"].take();
        let answer = self.agent.ask().await;
        assert_eq!(answer.finish, "compaction");
        self.agent.fields["stream"] = stream;
        self.agent
            .fields
            .as_object_mut()
            .unwrap()
            .remove("compaction");
        let entry = json!({"role": "assistant", "content": answer.message["content"]});
        *self.entries() = vec![entry.clone()];
        self.entries().extend(kept);
        entry
    }

    /// So many steps, each of which begins with `summary`. Returns how many requests were cut.
    async fn go_on(&mut self, steps: usize, summary: &Value) -> usize {
        let (mut cuts, first) = (0, self.log.lock().unwrap().exchanges.len());
        for step in 0..steps {
            let generation = self.agent.step().await;
            cuts += usize::from(
                ["cleared", "dropped"]
                    .iter()
                    .any(|word| generation.action(word).is_some()),
            );
            assert!(!generation.has_action("left-to-provider"), "{step}");
        }
        let log = self.log.lock().unwrap();
        for (nth, (body, _)) in log.exchanges[first..].iter().enumerate() {
            assert_eq!(body["messages"][0], *summary, "request {nth}");
        }
        cuts
    }

    fn check(&self, context: &str) -> BoundLog {
        let log = self.take_log();
        assert_eq!(log.broken, Vec::<String>::new(), "{context}");
        assert_eq!(log.refused, Vec::<String>::new(), "{context}");
        assert_eq!((log.too_long, log.stale), (0, 0), "{context}");
        log
    }
}

fn count_thinking(body: &Value) -> usize {
    let entries = body["messages"].as_array().unwrap().iter();
    let blocks = entries.filter_map(|entry| entry["content"].as_array());
    let kinds = blocks.flatten().filter_map(|block| block["type"].as_str());
    kinds.filter(|kind| kind.ends_with("thinking")).count()
}

/// Also the thinking of the answer behind the block stays, as the summary was made of the request that it answers.
#[tokio::test]
async fn a_session_that_begins_with_a_summary_is_cut_behind_it() {
    let mut kept = 0;
    for (seed, bound) in [(0, true), (1, true), (2, true), (4, false), (5, false)] {
        let mut session = start_session(seed, bound).await;
        session.agent.fields["stream"] = seed.is_multiple_of(2).into();
        session.agent.steps(BEFORE).await;
        let summary = session.summarize().await;
        assert_eq!(summary["content"][0]["type"], "compaction");
        let first = session.log.lock().unwrap().exchanges.len();
        let sent = count_thinking(&session.agent.fields);
        let cuts = session.go_on(AFTER, &summary).await;
        let log = session.check(&format!("seed {seed}"));
        assert!(cuts > 0, "seed {seed}");
        assert_eq!(count_thinking(&log.exchanges[first].0), sent, "seed {seed}");
        kept += sent;
    }
    assert!(kept > 0, "no answer had thinking");
}

/// The request for a summary of a session with cuts fits too: what was cut is read whole, but for the middle of results.
/// The thinking behind it was made under the cuts, so that the provider may refuse it once.
#[tokio::test]
async fn a_session_with_cuts_is_summarised_again_and_again() {
    for (seed, bound) in [(0, true), (1, true), (4, false)] {
        let mut session = start_session(seed, bound).await;
        session.agent.result = 500;
        session.agent.steps(10).await;
        for round in 0..3 {
            let context = format!("seed {seed}, summary {round}");
            let summary = session.summarize().await;
            session.go_on(10, &summary).await;
            let log = session.take_log();
            assert_eq!(log.broken, Vec::<String>::new(), "{context}");
            assert!(
                log.refused.len() <= usize::from(bound),
                "{context}: {:?}",
                log.refused
            );
        }
    }
}
