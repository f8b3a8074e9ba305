//! Summaries and processes: a summary belongs to the session, whichever replica made it, and a lost
//! one is asked for again.

use std::{sync::Arc, time::Duration};

use plimsoll::store::Store;

use super::{
    Pair, agent_past_threshold, carries_summary, good_summary, held_summary, newest_request,
    past_steps, wait_for_summary, words,
};
use crate::support::{RunningProxy, TestStore, memory_store, within_time};

/// A proxy over this store, with the secret in this folder.
async fn proxy_over(pair: &Pair, store: &Arc<dyn Store>, data: &tempfile::TempDir) -> RunningProxy {
    let data_dir = data.path().to_owned();
    let proxy = pair
        .proxy()
        .set(|config| config.server.data_dir = data_dir.into());
    proxy.store(Arc::clone(store)).start().await
}

#[tokio::test]
async fn a_summary_is_shared_between_replicas() {
    let pair = Pair::new(good_summary).await;
    let (store, data) = (memory_store(), tempfile::tempdir().unwrap());
    let (one, other) = (
        proxy_over(&pair, &store, &data).await,
        proxy_over(&pair, &store, &data).await,
    );
    let mut agent = agent_past_threshold(&one);
    let generation = agent.step().await;
    assert!(generation.has_action("compacting"));
    wait_for_summary(&agent, &generation).await;
    agent.client = other.client();
    assert!(agent.step().await.has_action("compacted"));
    let there = newest_request(&pair.up).await;
    assert!(carries_summary(&there, 0));
    // Back at the first: the same bytes as without the change of replica.
    agent.client = one.client();
    assert!(!agent.step().await.has_action("compacted"));
    let back = newest_request(&pair.up).await["messages"]
        .as_array()
        .unwrap()
        .clone();
    assert!(back.starts_with(there["messages"].as_array().unwrap()));
    assert_eq!(pair.summary_requests(), 1);
}

#[tokio::test]
async fn a_summary_lost_with_its_process_is_asked_for_again() {
    let pair = Pair::new(|heard, nth| match nth {
        0 => held_summary(heard, nth),
        _ => good_summary(heard, nth),
    })
    .await;
    let (store, data) = (memory_store(), tempfile::tempdir().unwrap());
    let mut one = proxy_over(&pair, &store, &data).await;
    let mut agent = agent_past_threshold(&one);
    agent.result = |nth| words(100, nth);
    assert!(agent.step().await.has_action("compacting"));
    pair.up.provider.requests(2).await;
    // A process that ends does not wait for its summaries.
    agent.client = one.client();
    one.stop();
    one.wait_until_gone().await;
    let other = proxy_over(&pair, &store, &data).await;
    agent.client = other.client();
    let mut generations = 0;
    let again = loop {
        generations += 1;
        assert!(generations < 40);
        let generation = agent.step().await;
        if pair.summary_requests() == 2 || (generation.has_action("compacting") && generations > 8)
        {
            break generation;
        }
    };
    // Eight for the answer, and eight more after the failure.
    assert!((16..=18).contains(&generations), "{generations}");
    let session = wait_for_summary(&agent, &again).await;
    assert_eq!(
        (&session["summaries"], pair.summary_requests()),
        (&1.into(), 2)
    );
    assert!(agent.step().await.has_action("compacted"));
}

#[tokio::test]
async fn while_the_store_is_down_no_summary_begins() {
    let pair = Pair::new(good_summary).await;
    for wait in [Duration::ZERO, Duration::from_secs(10)] {
        let proxy = pair.proxy().store(Arc::new(TestStore {
            down: true,
            ..TestStore::default()
        }));
        let proxy = proxy.set(move |config| config.compaction.wait = wait);
        let proxy = proxy.start().await;
        let mut agent = agent_past_threshold(&proxy);
        // Each of them would be cut.
        agent.messages.extend(past_steps(30).split_off(40));
        for generation in agent.steps(3).await {
            assert!(!generation.has_action("compacting") && !generation.has_action("compacted"));
        }
    }
    assert_eq!(pair.summary_requests(), 0);
    pair.up.assert_no_faults();
}

#[tokio::test]
async fn a_drain_cancels_running_summaries() {
    let pair = Pair::new(held_summary).await;
    let mut proxy = pair.proxy().start().await;
    let mut agent = agent_past_threshold(&proxy);
    agent.step().await;
    let seen = pair.up.provider.requests(2).await;
    agent.client = proxy.client();
    proxy.stop();
    within_time(proxy.wait_until_gone()).await;
    // Nobody waits for that answer any more.
    pair.up.provider.closed(seen[1].connection).await;
}
