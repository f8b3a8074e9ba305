//! A long session with repeated summaries; the requests are golden files
//! `tests/data/compaction/NAME.golden`, rewritten by `UPDATE_GOLDEN=1`.

use serde_json::{Value, json};

use super::{
    Pair, WINDOW, agent_past_threshold, begin_summary, busy_agent, carries_summary, completion,
    good_summary, held_summary, newest_request, past_steps, sections, summary_key,
    wait_for_summary, words,
};
use crate::{
    recovery::{story::is_kept_in, tale::Tale},
    support::{ModelReply, ModelRequest, ModelSetup},
};

const GENERATIONS: usize = 60;

/// The request with its random key replaced.
fn without_keys(mut body: Value) -> Value {
    let Some(key) = summary_key(&body) else {
        return body;
    };
    let text = body.to_string().replace(&key, "KEY");
    body = serde_json::from_str(&text).unwrap();
    body
}

async fn play_session(stream: bool) {
    let pair = Pair::new(good_summary).await;
    let proxy = pair.proxy().start().await;
    let mut agent = busy_agent(&proxy).set("stream", stream);
    let (mut tale, mut kept) = (Tale::default(), Vec::<Value>::new());
    let mut made = 0;
    for nth in 1..=GENERATIONS {
        let (before, sent) = (pair.up.count(), agent.messages.clone());
        let generation = agent.step().await;
        let session = wait_for_summary(&agent, &generation).await;
        let upstream = pair.up.bodies_from(before).await;
        let asked = &upstream[0];
        let messages = asked["messages"].as_array().unwrap().clone();
        if generation.has_action("compacted") {
            assert!(carries_summary(asked, made - 1), "{asked:#}");
            assert!(
                made < 2 || !carries_summary(asked, made - 2),
                "two summaries at once"
            );
            // The pinned start is kept, with the summary at its end.
            assert_eq!(messages[0], kept[0]);
            let task = messages[1]["content"].as_str().unwrap();
            assert!(task.starts_with(sent[1]["content"].as_str().unwrap()));
        } else {
            assert!(messages.starts_with(&kept), "the prefix changed at {nth}");
        }
        kept = messages;
        // After the answer, and in one request.
        let summaries = upstream.len() - 1;
        assert_eq!(
            summaries,
            usize::from(generation.has_action("compacting")),
            "{nth}"
        );
        made += summaries;
        assert_eq!(session["summaries"], made);
        let told = upstream.into_iter().map(without_keys).collect::<Vec<_>>();
        tale.generation(nth, &sent, &told, &generation);
    }
    assert!(made >= 3, "{made} summaries");
    assert_eq!(pair.up.overflows(), 0);
    pair.up.assert_no_faults();
    let mode = if stream { "stream" } else { "whole" };
    is_kept_in("compaction", &format!("story.{mode}"), &tale.text);
}

#[tokio::test]
async fn a_long_session_is_summarised_again_and_again() {
    play_session(false).await;
    play_session(true).await;
}

#[tokio::test]
async fn nobody_waits_for_a_summary() {
    for stream in [false, true] {
        let pair = Pair::new(held_summary).await;
        let proxy = pair.proxy().start().await;
        let mut agent = busy_agent(&proxy).set("stream", stream);
        // The answer is complete, and the summary has not begun.
        let generation = begin_summary(&mut agent).await;
        let asked = pair.up.count() + 1 - pair.summary_requests();
        pair.up.provider.requests(asked).await;
        assert_eq!(agent.session(&generation).await["compacting"], true);
        // The next request does not wait either, and no second summary is asked for.
        let next = agent.step().await;
        assert!(next.has_action("compacting") && !next.has_action("compacted"));
        assert_eq!(pair.summary_requests(), 1);
        pair.up.provider.release_stalled();
        wait_for_summary(&agent, &next).await;
        let after = agent.step().await;
        assert!(
            after.has_action("compacted") && !after.has_action("compacting"),
            "{after:?}"
        );
        assert!(carries_summary(&newest_request(&pair.up).await, 0));
        // Messages that came during the summary are sent unchanged.
        let again = agent.step().await;
        assert!(!again.has_action("compacted"), "once is once");
        assert!(carries_summary(&newest_request(&pair.up).await, 0));
        pair.up.assert_no_faults();
    }
}

#[tokio::test]
async fn without_usage_a_conversation_is_summarised_by_the_estimate() {
    for stream in [false, true] {
        let model = ModelSetup {
            reports_usage: false,
            ..ModelSetup::new(WINDOW)
        };
        let pair = Pair::with_model(model, Box::new(good_summary)).await;
        let proxy = pair.proxy().start().await;
        let mut agent = busy_agent(&proxy).set("stream", stream);
        let generation = begin_summary(&mut agent).await;
        // Before any cut; the level stays unknown.
        assert!(generation.action("dropped").is_none(), "{generation:?}");
        assert_eq!(generation.header("health"), Some("unknown"));
        wait_for_summary(&agent, &generation).await;
        let next = agent.step().await;
        assert!(next.has_action("compacted"), "{next:?}");
        assert_eq!(next.header("health"), Some("unknown"));
        assert!(carries_summary(&newest_request(&pair.up).await, 0));
        pair.up.assert_no_faults();
    }
}

#[tokio::test]
async fn a_later_summary_folds_the_earlier_in() {
    let pair = Pair::new(good_summary).await;
    let proxy = pair.proxy().start().await;
    let mut agent = busy_agent(&proxy);
    for nth in 0..3 {
        let generation = begin_summary(&mut agent).await;
        wait_for_summary(&agent, &generation).await;
        let request = newest_request(&pair.up).await;
        assert!(summary_key(&request).is_some());
        assert_eq!(nth > 0 && carries_summary(&request, nth - 1), nth > 0);
    }
}

#[tokio::test]
async fn an_edited_history_continues_from_its_earlier_state() {
    let pair = Pair::new(good_summary).await;
    let proxy = pair.proxy().start().await;
    let mut agent = busy_agent(&proxy);
    let generation = begin_summary(&mut agent).await;
    wait_for_summary(&agent, &generation).await;
    let steps = agent.steps(3).await;
    assert!(steps[0].has_action("compacted"));
    // After the boundary: the summary still covers what precedes it.
    let mut messages = agent.messages.clone();
    let last = messages.len() - 1;
    messages[last]["content"] = "Otherwise, after all.".into();
    let mut after = agent.branch(&proxy, &messages);
    after.step().await;
    assert!(carries_summary(&newest_request(&pair.up).await, 0));
    // Before the boundary, a result: the client may clear its own, and the conversation is the same.
    let mut messages = agent.messages.clone();
    messages[3]["content"] = "[cleared]".into();
    let mut cleared = agent.branch(&proxy, &messages);
    cleared.step().await;
    assert!(carries_summary(&newest_request(&pair.up).await, 0));
    // Before the boundary, what the model said: another conversation, without a summary.
    let mut messages = agent.messages.clone();
    let answers = messages.iter_mut().filter(|it| it["role"] == "assistant");
    answers.for_each(|answer| answer["content"] = "Otherwise, from the start.".into());
    let mut other = agent.branch(&proxy, &messages);
    let generation = other.step().await;
    let bodies = pair.up.bodies_from(pair.up.count() - 1).await;
    assert!(bodies.iter().all(|body| !carries_summary(body, 0)));
    assert!(!generation.has_action("compacted"));
    pair.up.assert_no_faults();
}

/// A summary that names the newest step of its request.
fn of_its_branch(heard: &ModelRequest<'_>, _nth: usize) -> ModelReply {
    let text = heard.body["messages"].to_string();
    let nth = if text.contains("larboard") { 1 } else { 2 };
    ModelReply::text(&sections(&summary_key(heard.body).unwrap(), nth))
}

#[tokio::test]
async fn every_branch_has_its_own_summary() {
    let pair = Pair::new(of_its_branch).await;
    let proxy = pair.proxy().start().await;
    let trunk = busy_agent(&proxy);
    let mut agents = ["larboard", "starboard"].map(|side| {
        let mut messages = trunk.messages.clone();
        messages.extend(past_steps(10));
        messages.push(json!({"role": "user", "content": format!("Now the {side} side.")}));
        let mut agent = trunk.branch(&proxy, &messages).with("x-session-id", "one");
        agent.result = |nth| words(500, nth + 50);
        agent
    });
    for (agent, nth) in agents.iter_mut().zip([1, 2]) {
        let generation = begin_summary(agent).await;
        wait_for_summary(agent, &generation).await;
        assert_eq!(pair.summary_requests(), nth);
    }
    for (agent, nth) in agents.iter_mut().zip([1, 2]) {
        assert!(agent.step().await.has_action("compacted"));
        let body = newest_request(&pair.up).await;
        assert!(carries_summary(&body, nth) && !carries_summary(&body, 3 - nth));
    }
}

#[tokio::test]
async fn an_answer_given_twice_is_summarised_once() {
    let pair = Pair::new(held_summary).await;
    let proxy = pair.proxy().start().await;
    let mut agent = agent_past_threshold(&proxy);
    for _ in 0..3 {
        assert!(agent.ask().await.has_action("compacting"));
    }
    let generation = agent.step().await;
    pair.up.provider.requests(5).await;
    assert_eq!(pair.summary_requests(), 1);
    pair.up.provider.release_stalled();
    wait_for_summary(&agent, &generation).await;
    assert!(agent.step().await.has_action("compacted"));
    assert_eq!(pair.summary_requests(), 1);
}

#[tokio::test]
async fn a_configured_model_summarises() {
    let pair = Pair::new(|_, _| ModelReply::text("not asked")).await;
    let fast = Pair::new(good_summary).await;
    let proxy = pair
        .proxy()
        .provider("fast", &fast.up.provider)
        .set(|config| {
            config.compaction.model = Some("fast/tiny".into());
            config.default_provider = Some("up".into());
            let fast = config.providers.get_mut("fast").unwrap();
            // The operator pays for it.
            let key = plimsoll::config::secret::Secret::new("sk-secret-fast");
            fast.auth = plimsoll::config::Auth::Key(key, "KEY".into());
        });
    let proxy = proxy.start().await;
    let mut agent = busy_agent(&proxy).with("authorization", "Bearer sk-secret-own");
    // Known to its provider only.
    agent
        .headers
        .insert("x-own-token", "sk-secret-too".parse().unwrap());
    let generation = begin_summary(&mut agent).await;
    wait_for_summary(&agent, &generation).await;
    assert!(agent.step().await.has_action("compacted"));
    assert_eq!((pair.summary_requests(), fast.summary_requests()), (0, 1));
    assert!(
        pair.up
            .provider
            .last_request()
            .header("x-own-token")
            .is_some()
    );
    let seen = fast.up.provider.last_request();
    assert_eq!(seen.header("x-own-token"), None);
    assert_eq!(seen.header("authorization"), Some("Bearer sk-secret-fast"));
    let body = newest_request(&fast.up).await;
    assert_eq!(body["model"], "tiny");
    assert!(body.get("tools").is_none());
    pair.up.assert_no_faults();
    fast.up.assert_no_faults();
}

#[tokio::test]
async fn client_credentials_go_to_their_provider_only() {
    let pair = Pair::new(good_summary).await;
    let fast = Pair::new(|_, _| ModelReply::text(&completion("not asked"))).await;
    let proxy = pair.proxy().provider("fast", &fast.up.provider);
    let proxy = proxy.set(|config| {
        config.compaction.model = Some("fast/tiny".into());
        config.default_provider = Some("up".into());
    });
    let proxy = proxy.start().await;
    let mut agent = busy_agent(&proxy).with("authorization", "Bearer sk-secret-own");
    let generation = begin_summary(&mut agent).await;
    wait_for_summary(&agent, &generation).await;
    assert!(agent.step().await.has_action("compacted"));
    assert_eq!((pair.summary_requests(), fast.up.count()), (1, 0));
}
