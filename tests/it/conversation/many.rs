//! Many sessions at once: none is mistaken for another, and memory is bounded.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::Value;

use super::{Talk, completion_of, header, proxy_before};
use crate::support::{ClientAnswer, ReceivedRequest, RunningProxy, ScriptedProvider};

const SESSIONS: usize = 200;
const REQUESTS: usize = 10;

/// The provider echoes the numbers of session and turn.
async fn echoing_provider() -> ScriptedProvider {
    ScriptedProvider::start_answering(|seen: &ReceivedRequest| {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        let messages = body["messages"].as_array().unwrap();
        let first = messages[0]["content"].as_str().unwrap();
        let number: u32 = first.rsplit(' ').next().unwrap().parse().unwrap();
        let turn = u32::try_from(messages.len()).unwrap();
        vec![completion_of(
            &format!("{first}, {turn}"),
            Some(number * 10 + turn / 2 + 1),
        )]
    })
    .await
}

/// One session from its first request to its last.
async fn run_session(proxy: &RunningProxy, number: usize) -> (String, Talk, ClientAnswer) {
    let mut talk = Talk::new(proxy);
    let (mut id, mut last) = (None, None);
    for turn in 0..REQUESTS {
        let answer = talk.say(&format!("session {number}")).await;
        let now = header(&answer, "session").to_owned();
        assert_eq!(*id.get_or_insert_with(|| now.clone()), now, "turn {turn}");
        let used = (number * 10 + turn + 1).to_string();
        assert_eq!(header(&answer, "prompt-tokens"), used);
        last = Some(answer);
    }
    (id.unwrap(), talk, last.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_sessions_never_mix() {
    let up = echoing_provider().await;
    let proxy = proxy_before(&up, 100_000).start().await;
    let all = join_all((0..SESSIONS).map(|number| run_session(&proxy, number))).await;
    let ids: HashSet<_> = all.iter().map(|(id, ..)| id).collect();
    assert_eq!(ids.len(), SESSIONS);
    for (number, (id, talk, last)) in all.iter().enumerate() {
        let shown = talk.session(last).await;
        assert_eq!(shown["id"], **id);
        assert_eq!(shown["generations"], REQUESTS);
        assert_eq!(shown["prompt_tokens"], number * 10 + REQUESTS);
    }
    assert_eq!(up.count_requests(), SESSIONS * REQUESTS);
}

#[tokio::test]
async fn remembered_sessions_are_bounded() {
    let up = echoing_provider().await;
    let proxy = proxy_before(&up, 100_000).set(|config| config.store.max_sessions = 20);
    let proxy = proxy.start().await;
    let mut known = Vec::new();
    for number in 0..60 {
        known.push(run_session(&proxy, number).await);
    }
    let mut left = Vec::new();
    for (number, (_, talk, last)) in known.iter_mut().enumerate() {
        if !talk.session(last).await.is_null() {
            left.push(number);
        }
    }
    assert_eq!(left, (40..60).collect::<Vec<_>>(), "the oldest went");
    // A forgotten session continues as a new one.
    let (id, talk, _) = &mut known[0];
    let answer = talk.say("session 0").await;
    assert_ne!(header(&answer, "session"), id);
    assert_eq!(talk.session(&answer).await["generations"], 1);
}
