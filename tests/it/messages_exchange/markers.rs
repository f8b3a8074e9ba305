//! Cache markers that the proxy adds where the client sets none.

use plimsoll::config::{AddTools, CacheMarkers};
use serde_json::{Value, json};

use super::{WINDOW, message, proxy_before, text};
use crate::support::{
    MessagesAgent, Mixing, ModelReply, ModelSetup, NoticeManner, RunningProxy, ScriptedProvider,
    Worker, answer, strict, within_time,
};

const KEY: &str = "cache_control";

/// An agent that sets no markers.
fn unmarked_agent(proxy: &RunningProxy) -> MessagesAgent {
    MessagesAgent::new(proxy).set("system", "You mend ships.")
}

/// The digests of the beginnings of a request up to each marker: what the provider's cache has them under.
fn marked_beginnings(body: &Value) -> Vec<String> {
    let mut blocks: Vec<Value> = vec![body["tools"].clone()];
    let entries = body["messages"].as_array().into_iter().flatten();
    for content in std::iter::once(&body["system"]).chain(entries.map(|it| &it["content"])) {
        match content {
            Value::Array(list) => blocks.extend(list.iter().cloned()),
            content => blocks.push(json!({"type": "text", "text": content})),
        }
    }
    let (mut beginning, mut found) = (String::new(), Vec::new());
    for mut block in blocks {
        let members = block.as_object_mut();
        let is_marked = members.is_some_and(|it| it.remove(KEY).is_some());
        beginning.push_str(&block.to_string());
        if is_marked {
            found.push(beginning.clone());
        }
    }
    found
}

#[tokio::test]
async fn each_request_of_a_session_reads_what_the_one_before_wrote() {
    let worker = Worker::new(NoticeManner::HalfFollows, Mixing::Never);
    let up = ModelSetup::new(WINDOW)
        .start(move |heard| worker.compose_reply(heard))
        .await;
    let proxy = proxy_before(&up, WINDOW)
        .providers(|provider| provider.cache_markers = CacheMarkers::Auto)
        .start()
        .await;
    let mut agent = unmarked_agent(&proxy);
    agent.result = 900;
    let generations = agent.steps(120).await;
    let session = generations[0].header("session").unwrap();
    let mut last = generations.iter();
    assert!(last.all(|it| it.header("session") == Some(session)));
    assert!(generations.iter().any(|it| it.action("dropped").is_some()));
    up.assert_no_faults();
    let mut written: Vec<String> = Vec::new();
    let (mut lost, mut missed) = (0, 0);
    for body in up.bodies().await {
        assert_eq!(
            strict::messages::find_violations(body.to_string().as_bytes()),
            []
        );
        let marked = marked_beginnings(&body);
        assert!((2..=4).contains(&marked.len()), "{body}");
        let newest = body["messages"].as_array().unwrap().last().unwrap();
        assert!(newest.to_string().contains(KEY), "{newest}");
        // A cut keeps the tools, the system prompt and the task, until the proxy's tools are added.
        if let Some(before) = written.last() {
            lost += usize::from(!marked.iter().any(|it| written.contains(it)));
            missed += usize::from(!marked.contains(before));
        }
        written = marked;
    }
    assert!(lost <= 1, "the whole cache was lost {lost} times");
    assert!(missed * 5 < generations.len(), "{missed} requests missed");
}

#[tokio::test]
async fn no_marker_is_added_beside_the_clients_or_where_nothing_may_change() {
    let up = ModelSetup::new(WINDOW)
        .start(|_| ModelReply::text("fine"))
        .await;
    let proxy = proxy_before(&up, WINDOW)
        .providers(|provider| provider.cache_markers = CacheMarkers::Auto)
        .start()
        .await;
    let own = MessagesAgent::new(&proxy);
    let off = unmarked_agent(&proxy).with("x-plimsoll-guard", "off");
    let title = unmarked_agent(&proxy).set("max_tokens", 0);
    for agent in [own, off, title] {
        agent.ask().await;
        assert_eq!(
            up.provider.last_request().body,
            agent.fields.to_string().as_bytes()
        );
    }
    unmarked_agent(&proxy).ask().await;
    let mut sent = up.bodies().await.pop().unwrap();
    assert_eq!(sent.to_string().matches(KEY).count(), 2, "{sent}");
    // What fills the cache for that request has its markers.
    let title = unmarked_agent(&proxy).set("max_tokens", 0);
    title.ask().await;
    sent["max_tokens"] = 0.into();
    assert_eq!(up.bodies().await.pop().unwrap(), sent);
}

#[tokio::test]
async fn a_summary_has_markers_where_it_repeats_what_the_cache_has() {
    // A long answer leaves no room to repeat the conversation: then a transcript is sent.
    for (cache_markers, summary_tokens, is_marked) in [
        (CacheMarkers::Off, 400, false),
        (CacheMarkers::Auto, 400, true),
        (CacheMarkers::Auto, 7_000, false),
    ] {
        let worker = Worker::new(NoticeManner::Ignores, Mixing::Never);
        let up = ModelSetup::new(WINDOW)
            .start(move |heard| worker.compose_reply(heard))
            .await;
        let proxy = proxy_before(&up, WINDOW)
            .providers(|provider| provider.cache_markers = cache_markers)
            .set(|config| {
                config.compaction.auto = true;
                config.compaction.max_summary_tokens = summary_tokens;
                config.compaction.threshold = 0.78;
                config.recovery.enabled = false;
            })
            .start()
            .await;
        let mut agent = unmarked_agent(&proxy);
        agent.result = 900;
        agent.steps(20).await;
        // A summary is asked for beside the steps, and on a busy machine behind them.
        let asked = within_time(async {
            loop {
                let bodies = up.bodies().await.into_iter().map(|body| body.to_string());
                let asked: Vec<_> = bodies.filter(|it| it.contains("<next_steps>")).collect();
                if !asked.is_empty() {
                    return asked;
                }
                tokio::task::yield_now().await;
            }
        });
        let asked = asked.await;
        for body in asked {
            assert_eq!(body.contains(KEY), is_marked, "{body}");
            let repeats = body.contains("tool_result");
            assert_eq!(repeats, summary_tokens == 400, "{body}");
            assert_eq!(strict::messages::find_violations(body.as_bytes()), []);
        }
    }
}

/// Whether each request so far had markers, in their order.
async fn list_marked(up: &ScriptedProvider, count: usize) -> Vec<bool> {
    let seen = up.requests(count).await;
    let bodies = seen.iter().map(|it| String::from_utf8_lossy(&it.body));
    bodies.map(|body| body.contains(KEY)).collect()
}

#[tokio::test]
async fn refused_markers_are_taken_back_and_not_sent_again() {
    let unknown =
        r#"{"error":{"message":"system.0.cache_control: Extra inputs are not permitted"}}"#;
    let fine = || answer("200 OK", "", message(&[text("a")], "end_turn", 7));
    for refusal in [
        answer("400 Bad Request", "", unknown),
        answer("422 Unprocessable Entity", "", unknown),
        answer("400 Bad Request", "", ""),
    ] {
        let up = ScriptedProvider::start().await;
        let proxy = up
            .proxy()
            .providers(|provider| provider.cache_markers = CacheMarkers::Auto)
            .start()
            .await;
        let agent = unmarked_agent(&proxy);
        up.script_next([refusal]).script_next([fine()]);
        agent.ask().await;
        up.script_next([fine()]);
        agent.ask().await;
        assert_eq!(list_marked(&up, 3).await, [true, false, false]);
        let body = agent.fields.to_string();
        assert_eq!(up.last_request().body, body.as_bytes());
    }
}

#[tokio::test]
async fn an_error_with_and_without_markers_teaches_nothing() {
    let bad = || {
        answer(
            "400 Bad Request",
            "",
            r#"{"error":{"message":"no such image"}}"#,
        )
    };
    let fine = || answer("200 OK", "", message(&[text("a")], "end_turn", 7));
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .providers(|provider| provider.cache_markers = CacheMarkers::Auto)
        .start()
        .await;
    let agent = unmarked_agent(&proxy);
    up.script_next([bad()]).script_next([bad()]);
    assert_eq!(agent.send().await.status, 400);
    up.script_next([fine()]);
    agent.ask().await;
    // Markers are taken; a refusal has another reason from then on, and goes to the client.
    for refusal in [bad(), answer("400 Bad Request", "", "")] {
        up.script_next([refusal]);
        assert_eq!(agent.send().await.status, 400);
    }
    up.script_next([fine()]);
    agent.ask().await;
    let marked = [true, false, true, true, true, true];
    assert_eq!(list_marked(&up, 6).await, marked);
    assert_eq!(up.count_requests(), 6);
}

#[tokio::test]
async fn an_overflow_without_words_is_not_taken_for_a_refusal_of_markers() {
    let up = ScriptedProvider::start_answering(|seen| {
        let tokens = seen.body.len() as u32 / 4;
        vec![if tokens > 12_500 {
            answer("400 Bad Request", "", "")
        } else {
            answer("200 OK", "", message(&[text("a")], "end_turn", tokens))
        }]
    })
    .await;
    let proxy = up
        .proxy()
        .providers(|provider| provider.cache_markers = CacheMarkers::Auto)
        .start()
        .await;
    let mut agent = unmarked_agent(&proxy);
    for part in 0..8 {
        agent.push("user", format!("{part} {}", "tide table ".repeat(600)));
        agent.push("assistant", "Noted.");
    }
    agent.push("user", "And now?");
    // As it is, without markers, and then smaller.
    agent.ask().await;
    assert_eq!(list_marked(&up, 3).await, [true, false, false]);
    agent.ask().await;
    assert_eq!(list_marked(&up, 4).await, [true, false, false, true]);
    assert_eq!(up.count_requests(), 4);
}

#[tokio::test]
async fn a_provider_that_refuses_all_additions_is_found_out_one_by_one() {
    let up = ScriptedProvider::start_answering(|seen| {
        let body = String::from_utf8_lossy(&seen.body);
        let is_refused = body.contains(KEY) || body.contains("add_reminder");
        vec![if is_refused {
            answer("400 Bad Request", "", r#"{"error":{"message":"no"}}"#)
        } else {
            answer("200 OK", "", message(&[text("a")], "end_turn", 7))
        }]
    })
    .await;
    let proxy = up
        .proxy()
        .providers(|provider| provider.cache_markers = CacheMarkers::Auto)
        .set(|config| config.recovery.tools = AddTools::Always)
        .start()
        .await;
    let mut agent = unmarked_agent(&proxy);
    agent.steps(3).await;
    let bodies = up.requests(6).await;
    let offers = bodies
        .iter()
        .map(|it| it.body.windows(12).any(|it| it == b"add_reminder"));
    // Without markers, then without tools too; the session has no tools from there on, and the model no markers.
    let offered: Vec<_> = offers.collect();
    assert_eq!(offered, [true, true, false, false, false, false]);
    let marked = list_marked(&up, 6).await;
    assert_eq!(marked, [true, false, false, true, false, false]);
    assert_eq!(up.count_requests(), 6);
}
