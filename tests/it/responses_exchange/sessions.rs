//! Which session a request belongs to, and what of it outlasts a process.

use std::sync::Arc;

use serde_json::json;

use super::{WINDOW, entries, proxy_before};
use crate::support::{
    Mixing, ModelReply, ModelSetup, NoticeManner, ResponsesAgent, Worker, memory_store,
    model_with_courses, user_entry,
};

#[tokio::test]
async fn codexs_headers_name_sessions() {
    let up = ModelSetup::new(WINDOW)
        .start(|heard| ModelReply::text(&format!("fine {}", heard.nth)))
        .await;
    let proxy = proxy_before(&up, WINDOW).start().await;
    let session = async |question: &str, id: Option<&str>| {
        let mut agent = ResponsesAgent::new(&proxy).with("user-agent", "codex_exec/0.150");
        if let Some(id) = id {
            agent = agent.with("session-id", id);
        }
        agent.fields["input"] = json!([user_entry(question)]);
        let generation = agent.ask().await;
        generation.header("session").unwrap().to_owned()
    };
    let main = session("first", Some("s1")).await;
    assert_eq!(session("second", Some("s1")).await, main);
    assert_ne!(session("third", Some("s2")).await, main);
    assert_ne!(session("fourth", None).await, main);
}

#[tokio::test]
async fn a_session_goes_on_after_a_restart() {
    for stream in [false, true] {
        let worker = Worker::new(NoticeManner::Follows, Mixing::Never);
        let up = ModelSetup::new(WINDOW)
            .start(move |heard| worker.compose_reply(heard))
            .await;
        let (store, data) = (memory_store(), tempfile::tempdir().unwrap());
        let start = async || {
            let proxy = proxy_before(&up, WINDOW).model("m", model_with_courses(WINDOW));
            let proxy = proxy.set(|config| config.server.data_dir = data.path().into());
            proxy.store(Arc::clone(&store)).start().await
        };
        let mut proxy = start().await;
        let mut agent = ResponsesAgent::new(&proxy)
            .set("stream", stream)
            .set("reasoning", json!({"effort": "high"}));
        agent.result = 500;
        let before = agent.steps(30).await.pop().unwrap();
        assert!(before.number("reminders") > Some(0));
        proxy.stop();
        proxy.wait_until_gone().await;
        let proxy = start().await;
        agent.client = proxy.client();
        let old = up.bodies().await.pop().unwrap();
        let asked = up.count();
        let after = agent.step().await;
        assert_eq!(after.header("session"), before.header("session"));
        assert!(after.number("reminders") >= before.number("reminders"));
        assert!(after.course() >= before.course());
        let new = up.bodies_from(asked).await.remove(0);
        // What was added and cut stays as it was.
        assert!(entries(&new).starts_with(entries(&old)), "{new}");
        agent.steps(10).await;
        up.assert_no_faults();
    }
}
