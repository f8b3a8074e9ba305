//! Which session a request belongs to, and which requests have none.

use serde_json::json;

use super::{WINDOW, proxy_before};
use crate::support::{MessagesAgent, Mixing, ModelReply, ModelSetup, NoticeManner, Worker, words};

#[tokio::test]
async fn claude_codes_ids_name_sessions() {
    let up = ModelSetup::new(WINDOW)
        .start(|heard| ModelReply::text(&format!("fine {}", heard.nth)))
        .await;
    let proxy = proxy_before(&up, WINDOW).start().await;
    let session = async |question: &str, ids: &[&str]| {
        let names = ["x-claude-code-session-id", "x-claude-code-agent-id"];
        let mut agent = MessagesAgent::new(&proxy);
        for (name, id) in names.into_iter().zip(ids) {
            agent = agent.with(name, id);
        }
        agent.fields["messages"][0]["content"] = question.into();
        let generation = agent.ask().await;
        generation.header("session").unwrap().to_owned()
    };
    let main = session("first", &["s1"]).await;
    assert_eq!(session("second", &["s1"]).await, main);
    assert_ne!(session("third", &["s2"]).await, main);
    let helper = session("fourth", &["s1", "a1"]).await;
    assert_ne!(helper, main);
    assert_eq!(session("fifth", &["s1", "a1"]).await, helper);
    assert_ne!(session("sixth", &[]).await, main);
}

#[tokio::test]
async fn a_moved_marker_keeps_the_session() {
    let worker = Worker::new(NoticeManner::Ignores, Mixing::Never);
    let up = ModelSetup::new(WINDOW)
        .start(move |heard| worker.compose_reply(heard))
        .await;
    let proxy = proxy_before(&up, WINDOW).start().await;
    let mut agent = MessagesAgent::new(&proxy);
    let first = agent.step().await.header("session").unwrap().to_owned();
    assert_eq!(agent.step().await.header("session"), Some(&*first));
    agent.fields["messages"][2]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
    agent.fields["system"][0]["text"] = "You mend ships. It is noon.".into();
    assert_eq!(agent.step().await.header("session"), Some(&*first));
}

#[tokio::test]
async fn auxiliary_requests_are_untouched_and_leave_no_state() {
    let up = ModelSetup::new(200_000)
        .start(|_| ModelReply::text("fine"))
        .await;
    let proxy = proxy_before(&up, WINDOW)
        .set(|config| config.recovery.tools = plimsoll::config::AddTools::Always)
        .start()
        .await;
    for cap in [0, 1] {
        let mut agent = MessagesAgent::new(&proxy).set("max_tokens", cap);
        agent.fields.as_object_mut().unwrap().remove("tools");
        agent.push("assistant", "Where?");
        agent.push("user", words(8_000, 0));
        let generation = agent.ask().await;
        assert_eq!(generation.injected(), None);
        let sent = up.provider.last_request().body;
        assert_eq!(sent, agent.fields.to_string().as_bytes());
    }
    let listed = proxy.client().get("/plimsoll/api/sessions").await.json();
    assert_eq!(listed["sessions"], json!([]), "{listed}");
}
