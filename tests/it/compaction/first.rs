//! Waiting within a request: before a request is cut, its summary is made.

use std::time::Duration;

use bytes::BytesMut;
use http_body_util::BodyExt;
use serde_json::Value;

use super::{
    Pair, WINDOW, agent_past_threshold, before, begin_summary, busy_agent, carries_summary,
    completion, good_summary, held_summary, newest_request, past_steps, sections, summary_key,
    wait_for_summary, words,
};
use crate::support::{
    Agent, ModelReply, ModelSetup, ProviderStep, ProxyBuilder, RunningProxy, SOON, answer,
    model_with_early_levels, next, within_time,
};

const LONG: Duration = Duration::from_secs(15);

/// A proxy with this `wait`.
fn waiting_proxy(pair: &Pair, wait: Duration) -> ProxyBuilder {
    pair.proxy()
        .set(move |config| config.compaction.wait = wait)
}

/// An agent whose next request is over its budget.
fn agent_over_budget(proxy: &RunningProxy) -> Agent {
    let mut agent = busy_agent(proxy);
    agent.messages.extend(past_steps(24));
    agent
}

fn has_wait_comment(body: &[u8]) -> bool {
    std::str::from_utf8(body)
        .unwrap()
        .contains(": plimsoll compacting\n\n")
}

#[tokio::test]
async fn a_request_over_its_budget_goes_out_with_its_summary() {
    for stream in [false, true] {
        let pair = Pair::new(good_summary).await;
        let proxy = waiting_proxy(&pair, LONG).start().await;
        let mut agent = agent_over_budget(&proxy).set("stream", stream);
        let generation = agent.step().await;
        assert!(generation.has_action("compacted"), "{generation:?}");
        assert!(!generation.has_action("compacting"));
        assert_eq!(has_wait_comment(&generation.answer.body), stream);
        let body = newest_request(&pair.up).await;
        assert!(carries_summary(&body, 0), "{body:#}");
        // From here on the session has it.
        let next = agent.step().await;
        assert!(!next.has_action("compacted"));
        assert!(carries_summary(&newest_request(&pair.up).await, 0));
        assert_eq!(pair.summary_requests(), 1);
        assert_eq!(agent.session(&next).await["summaries"], 1);
        pair.up.assert_no_faults();
        assert_eq!(pair.up.overflows(), 0);
    }
}

#[tokio::test]
async fn a_stream_has_its_head_and_comments_at_once() {
    let pair = Pair::new(held_summary).await;
    let proxy = waiting_proxy(&pair, LONG).start().await;
    let mut agent = agent_over_budget(&proxy).set("stream", true);
    agent.headers.insert("te", "trailers".parse().unwrap());
    let mut request = agent.client.chat_request(agent.body());
    request.headers_mut().extend(agent.headers.clone());
    let answer = agent.client.begin(request).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    assert_eq!(answer.headers()["x-plimsoll-actions"], "compacting");
    assert!(answer.headers().contains_key("x-plimsoll-session"));
    let mut body = answer.into_body();
    assert_eq!(next(&mut body).await, ": plimsoll compacting\n\n");
    // Up to now only the summary model was asked.
    pair.up.provider.requests(1).await;
    assert_eq!(pair.summary_requests(), 1);
    pair.up.provider.release_stalled();
    let (mut text, mut trailers) = (BytesMut::new(), None);
    while let Some(frame) = within_time(body.frame()).await {
        match frame.unwrap().into_data() {
            Ok(data) => text.extend_from_slice(&data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    assert!(text.ends_with(b"data: [DONE]\n\n"), "{text:?}");
    let trailers = trailers.unwrap();
    let actions = trailers["x-plimsoll-actions"].to_str().unwrap();
    assert!(actions.contains("compacted"), "{actions}");
    assert_eq!(trailers["x-plimsoll-health-from"], "response");
}

#[tokio::test]
async fn a_failed_summary_leaves_the_request_to_be_trimmed() {
    for stream in [false, true] {
        let pair = Pair::new(|_, _| ModelReply::Fails(500, "internal_error")).await;
        let proxy = waiting_proxy(&pair, LONG).start().await;
        let mut agent = agent_over_budget(&proxy).set("stream", stream);
        let generation = agent.step().await;
        assert!(!generation.has_action("compacted") && !generation.has_action("compacting"));
        assert!(generation.action("dropped").is_some(), "{generation:?}");
        // No second one is asked for after the answer, or by the next request.
        agent.steps(3).await;
        assert_eq!(pair.summary_requests(), 1);
        assert_eq!(agent.session(&generation).await["summary_failures"], 1);
        pair.up.assert_no_faults();
    }
}

#[tokio::test]
async fn a_late_summary_is_used_by_a_later_request() {
    for stream in [false, true] {
        let pair = Pair::new(held_summary).await;
        let proxy = waiting_proxy(&pair, SOON).start().await;
        let mut agent = busy_agent(&proxy).set("stream", stream);
        agent.step().await;
        agent.messages.extend(past_steps(26));
        let generation = agent.step().await;
        assert!(generation.has_action("compacting") && !generation.has_action("compacted"));
        assert!(generation.action("dropped").is_some());
        pair.up.provider.release_stalled();
        wait_for_summary(&agent, &generation).await;
        assert!(agent.step().await.has_action("compacted"));
        assert_eq!(pair.summary_requests(), 1);
        pair.up.assert_no_faults();
    }
}

#[tokio::test]
async fn a_running_summary_is_waited_for() {
    let pair = Pair::new(held_summary).await;
    let proxy = waiting_proxy(&pair, SOON).start().await;
    let mut agent = agent_past_threshold(&proxy);
    assert!(agent.step().await.has_action("compacting"));
    proxy.reload(|config| {
        config.compaction.wait = LONG;
        // What is left beside the summary is not due for another.
        config.compaction.threshold = 0.9;
    });
    // The next request would be cut, and is not with the summary, should that be ready before it.
    agent.messages.extend(past_steps(45).split_off(60));
    let release = async {
        pair.up.provider.requests(2).await;
        pair.up.provider.release_stalled();
    };
    let (generation, ()) = tokio::join!(agent.step(), release);
    assert!(generation.has_action("compacted"), "{generation:?}");
    assert_eq!(pair.summary_requests(), 1);
}

#[tokio::test]
async fn a_client_that_disconnects_finds_its_summary_at_the_next_request() {
    let pair = Pair::new(held_summary).await;
    let proxy = waiting_proxy(&pair, LONG).start().await;
    let mut agent = agent_over_budget(&proxy).set("stream", true);
    let answer = agent
        .client
        .begin(agent.client.chat_request(agent.body()))
        .await;
    let mut body = answer.into_body();
    assert!(has_wait_comment(&next(&mut body).await));
    pair.up.provider.requests(1).await;
    drop(body);
    drop(std::mem::replace(&mut agent.client, proxy.client()));
    pair.up.provider.release_stalled();
    let generation = agent.step().await;
    assert!(generation.has_action("compacted"));
    // One for the summary, one for the answer: the first request was never sent.
    assert_eq!((pair.summary_requests(), pair.up.count()), (1, 2));
}

/// The provider's answer to every request but those for summaries.
async fn refusing(stream: bool) -> (Vec<u8>, bool, u16) {
    let up = crate::support::ScriptedProvider::start_answering(|seen| {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        match summary_key(&body) {
            Some(key) => vec![answer("200 OK", "", completion(&sections(&key, 0)))],
            None => vec![
                answer(
                    "403 No",
                    "",
                    r#"{"error":{"message":"Not for you.","type":"x","code":"denied"}}"#,
                ),
                ProviderStep::Close,
            ],
        }
    })
    .await;
    let proxy = up.proxy().set(|config| {
        config
            .models
            .insert("m".into(), model_with_early_levels(WINDOW));
        config.recovery.enabled = false;
        // Otherwise clearing alone makes it fit, and it does not wait.
        config.guard.clear.enabled = false;
        config.compaction.auto = true;
        config.compaction.wait = LONG;
        config.compaction.max_summary_tokens = 1_000;
    });
    let proxy = proxy.start().await;
    let answer = agent_over_budget(&proxy).set("stream", stream).send().await;
    (answer.body.to_vec(), answer.whole, answer.status.as_u16())
}

#[tokio::test]
async fn an_error_after_the_head_is_an_event_and_an_abnormal_end() {
    let (body, whole, status) = refusing(true).await;
    let text = String::from_utf8(body).unwrap();
    assert_eq!((status, whole), (200, false), "{text}");
    let event = text
        .split("\n\n")
        .find_map(|event| event.strip_prefix("data: "));
    let event: Value = serde_json::from_str(event.unwrap()).unwrap();
    assert_eq!(event["error"]["message"], "Not for you.");
    assert!(!text.contains("[DONE]"));
    // Without a stream the error is the usual one.
    let (body, whole, status) = refusing(false).await;
    assert_eq!((status, whole), (403, true));
    assert!(String::from_utf8(body).unwrap().contains("Not for you."));
}

#[tokio::test]
async fn a_provider_that_disconnects_after_the_head_is_an_error_event() {
    let pair = Pair::new(good_summary).await;
    // Only requests for summaries are answered.
    let proxy = before(&pair.up, |config| {
        config.compaction.auto = true;
        config.compaction.wait = LONG;
        config.compaction.model = Some("up/m".into());
        let up = config.providers["up"].clone();
        let nobody = plimsoll::config::ProviderConfig {
            base_url: Some("http://127.0.0.1:9/v1".into()),
            ..up
        };
        config.providers.insert("nobody".into(), nobody);
        for provider in config.providers.values_mut() {
            provider.auth = plimsoll::config::Auth::None;
        }
        let model = config.models["m"].clone();
        config.models.insert("nobody/m".into(), model);
    });
    let proxy = proxy.start().await;
    let agent = agent_over_budget(&proxy)
        .set("stream", true)
        .set("model", "nobody/m");
    let answer = agent.send().await;
    assert_eq!((answer.status.as_u16(), answer.whole), (200, false));
    assert!(
        answer.text().contains("provider_unreachable"),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn the_same_request_sent_again_has_the_same_summary() {
    let pair = Pair::new(good_summary).await;
    let proxy = waiting_proxy(&pair, LONG).start().await;
    let agent = agent_over_budget(&proxy);
    for _ in 0..4 {
        assert!(agent.ask().await.has_action("compacted"));
    }
    assert_eq!(pair.summary_requests(), 1);
}

#[tokio::test]
async fn a_summary_that_ends_during_an_answer_starts_no_second() {
    for stream in [false, true] {
        let pair = Pair::new(held_summary).await;
        let proxy = waiting_proxy(&pair, SOON).start().await;
        let mut agent = busy_agent(&proxy).set("stream", stream);
        // Two steps exceed the tenth of the budget that is worth a summary.
        agent.result = |nth| words(1_250, nth);
        begin_summary(&mut agent).await;
        let running = agent.step().await;
        assert!(running.has_action("compacting"), "{running:?}");
        pair.up.provider.release_stalled();
        wait_for_summary(&agent, &running).await;
        let next = agent.step().await;
        assert!(
            next.has_action("compacted") && !next.has_action("compacting"),
            "{next:?}"
        );
        assert!(carries_summary(&newest_request(&pair.up).await, 0));
        assert_eq!(pair.summary_requests(), 1);
        pair.up.assert_no_faults();
    }
}

#[tokio::test]
async fn a_request_past_the_threshold_waits_before_it_would_be_cut() {
    for (stream, reports) in [(false, true), (true, true), (false, false), (true, false)] {
        let model = ModelSetup {
            reports_usage: reports,
            ..ModelSetup::new(WINDOW)
        };
        let pair = Pair::with_model(model, Box::new(good_summary)).await;
        let proxy = waiting_proxy(&pair, LONG).start().await;
        // Past the threshold, and within the budget.
        let mut agent = agent_past_threshold(&proxy).set("stream", stream);
        let generation = agent.step().await;
        assert!(generation.has_action("compacted"), "{generation:?}");
        assert!(carries_summary(&newest_request(&pair.up).await, 0));
        let sent = pair.up.tokens();
        assert!(sent.last() < Some(&9_000), "{sent:?}");
        agent.steps(2).await;
        assert_eq!(pair.summary_requests(), 1);
        pair.up.assert_no_faults();
    }
}

#[tokio::test]
async fn below_the_budget_a_late_summary_is_not_waited_for_again() {
    let pair = Pair::new(held_summary).await;
    let proxy = waiting_proxy(&pair, SOON).start().await;
    let mut agent = agent_past_threshold(&proxy).set("stream", true);
    let first = agent.step().await;
    assert!(has_wait_comment(&first.answer.body) && first.action("dropped").is_none());
    let second = agent.step().await;
    assert!(second.has_action("compacting") && !has_wait_comment(&second.answer.body));
    // What is left beside the summary is not due for another.
    proxy.reload(|config| config.compaction.threshold = 0.9);
    // Over the budget it waits.
    agent.messages.extend(past_steps(40).split_off(40));
    let third = agent.step().await;
    assert!(has_wait_comment(&third.answer.body) && third.action("dropped").is_some());
    pair.up.provider.release_stalled();
    wait_for_summary(&agent, &third).await;
    assert!(agent.step().await.has_action("compacted"));
    assert_eq!(pair.summary_requests(), 1);
}
