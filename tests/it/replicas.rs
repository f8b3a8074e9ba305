//! Several proxies over one store: the provider gets the same bytes as from one proxy, whichever
//! replica gets a request.

mod balanced;
mod story;

use std::sync::Arc;

use serde_json::json;

use self::story::{CLAIMED, STORIES, Story};
use crate::support::{
    Agent, ModelReply, ModelSetup, ProxyBuilder, RunningModel, RunningProxy, memory_store,
    model_with_early_levels,
};

/// `count` proxies with one store and one secret.
async fn replicas(
    count: usize,
    up: &RunningModel,
    story: &Story,
) -> (Vec<RunningProxy>, tempfile::TempDir) {
    let (store, data) = (memory_store(), tempfile::tempdir().unwrap());
    let mut running = Vec::new();
    for _ in 0..count {
        let proxy = ProxyBuilder::new()
            .provider(story.name, &up.provider)
            .set(|config| {
                config.models.insert(
                    format!("{}/m", story.name),
                    model_with_early_levels(story.claimed),
                );
                // Clearing would keep these sessions from filling up.
                config.guard.clear.enabled = false;
                config.server.data_dir = data.path().into();
            });
        running.push(proxy.store(Arc::clone(&store)).start().await);
    }
    (running, data)
}

/// Plays a story over that many replicas in turn; returns all upstream requests.
async fn play_story(story: &Story, count: usize) -> Vec<Vec<u8>> {
    let up = story.start_model().await;
    let (proxies, _data) = replicas(count, &up, story).await;
    let mut agent = story.agent(&proxies[0]);
    let mut clients: Vec<_> = proxies[1..].iter().map(RunningProxy::client).collect();
    for _ in 0..story.generations {
        agent.step().await;
        if let Some(next) = clients.first_mut() {
            std::mem::swap(&mut agent.client, next);
            clients.rotate_left(1);
        }
    }
    story.is_told(&up).await;
    up.provider
        .requests(0)
        .await
        .into_iter()
        .map(|seen| seen.body)
        .collect()
}

#[tokio::test]
async fn several_replicas_answer_every_story_like_one() {
    for story in &STORIES {
        let one = play_story(story, 1).await;
        for count in [2, 3] {
            let several = play_story(story, count).await;
            let differs = one
                .iter()
                .zip(&several)
                .position(|(one, other)| one != other);
            assert_eq!(differs, None, "{} by {count}", story.name);
            assert_eq!(one.len(), several.len(), "{} by {count}", story.name);
        }
    }
}

/// The first upstream request of a new session at the last proxy, after other sessions, which agree, taught the
/// first proxy the tokens of such text.
async fn first_request_after(proxies: &[RunningProxy], up: &RunningModel) -> Vec<u8> {
    let ask = async |proxy: &RunningProxy, from: usize, turns: usize| {
        let mut agent = Agent::bare(proxy).set("model", format!("{}/m", STORIES[0].name));
        for turn in from..from + turns {
            // Fewer tokens than such text usually has, but more than half of them.
            let said = "the file of a test; ".repeat(120);
            agent = agent.says(&format!("{turn}: {said}{}", "-".repeat(700)));
            let answer = json!({"role": "assistant", "content": format!("Well, {turn}.")});
            agent.messages.push(answer);
        }
        agent.says("Go on.").ask().await;
        up.provider.last_request().body
    };
    for from in [0, 10, 20] {
        ask(&proxies[0], from, 6).await;
    }
    ask(&proxies[proxies.len() - 1], 100, 60).await
}

#[tokio::test]
async fn a_new_session_uses_the_window_another_replica_learnt() {
    let story = &STORIES[0];
    let up = ModelSetup::new(1_000_000)
        .start(|_| ModelReply::text("Well."))
        .await;
    let mut all = Vec::new();
    for count in [1, 2] {
        let (proxies, _data) = replicas(count, &up, story).await;
        all.push(first_request_after(&proxies, &up).await);
    }
    assert!(all[0] == all[1]);
    // A proxy that was not taught cuts elsewhere.
    let (taught, _data) = replicas(1, &up, story).await;
    let (apart, _other) = replicas(1, &up, story).await;
    let apart: Vec<_> = taught.into_iter().chain(apart).collect();
    let apart = first_request_after(&apart, &up).await;
    assert!(apart.len() < all[0].len());
}

#[tokio::test]
async fn damaged_shared_records_fail_no_request() {
    let story = STORIES
        .iter()
        .find(|story| story.claimed == CLAIMED)
        .unwrap();
    let up = story.start_model().await;
    let store = memory_store();
    for name in ["", "w", "r", "w12345678\0\0", "r12345678\u{7f}\u{7f}\u{7f}"] {
        for value in ["", "\u{1}", "\u{1}aaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\u{2}"] {
            store
                .publish_shared(name.as_bytes(), value.into())
                .await
                .unwrap();
        }
    }
    let proxy = ProxyBuilder::new().provider(story.name, &up.provider);
    let proxy = proxy.store(store).start().await;
    story.agent(&proxy).step().await;
    let metrics = proxy.client().get("/metrics").await;
    let line = "plimsoll_store_errors_total{operation=\"share\"} 0";
    assert!(metrics.text().contains(line));
}
