//! Recovery in the session API.

use http::Method;
use serde_json::Value;

use super::{agent_past_optimal, first_prompted, injected_texts, obliging_model, pair, words};
use crate::support::{Agent, AgentGeneration, RunningModel};

async fn clear(agent: &Agent, generation: &AgentGeneration) {
    let id = generation.header("session").unwrap();
    let answer = agent
        .api(Method::POST, &format!("sessions/{id}/clear"))
        .await;
    assert!(answer.status.is_success(), "{}", answer.text());
}

async fn newest_request(up: &RunningModel) -> Value {
    up.bodies().await.pop().unwrap()
}

#[tokio::test]
async fn the_api_shows_reminders_and_prompts() {
    let (proxy, _up) = pair(obliging_model).await;
    let mut agent = agent_past_optimal(&proxy);
    let generation = first_prompted(&mut agent).await;
    let shown = agent.session(&generation).await.to_string();
    assert!(shown.contains("go on after request 1"), "{shown}");
    assert!(
        shown.contains("add_reminder"),
        "the prompt is there to be read: {shown}"
    );
}

#[tokio::test]
async fn a_clear_by_the_api_begins_a_course_at_the_next_request() {
    for stream in [false, true] {
        let (proxy, up) = pair(obliging_model).await;
        let mut agent = agent_past_optimal(&proxy).set("stream", stream);
        agent.result = |nth| words(40, nth);
        agent.steps(4).await;
        // In the middle of a tool loop: a result is the last message.
        let generation = agent.step().await;
        assert_eq!(agent.messages.last().unwrap()["role"], "tool");
        clear(&agent, &generation).await;
        let cleared = agent.step().await;
        assert_eq!(cleared.action("course"), Some("2"));
        let sent = newest_request(&up).await;
        assert_eq!(injected_texts(&sent), 0, "{sent:#}");
        assert!(
            sent.to_string().contains("go on after request 1"),
            "reminders go over"
        );
        let last = sent["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["role"], "tool");
        // The clear happens once.
        let next = agent.step().await;
        assert_eq!((next.action("course"), next.course()), (None, 2));
        up.assert_no_faults();
    }
}

#[tokio::test]
async fn a_clear_with_no_reminders_carries_facts() {
    let (proxy, up) = pair(super::work).await;
    let mut agent = Agent::new(&proxy).says("The datum is in fathoms, mind you.");
    agent.result = |nth| words(400, nth);
    agent.steps(20).await;
    let generation = agent.step().await;
    clear(&agent, &generation).await;
    let cleared = agent.step().await;
    assert_eq!(cleared.action("course"), Some("2"));
    let sent = newest_request(&up).await.to_string();
    assert!(sent.contains("fathoms"), "what the user said: {sent}");
    up.assert_no_faults();
}

#[tokio::test]
async fn what_the_user_asked_last_stands_in_a_course() {
    let (proxy, up) = pair(super::work).await;
    let mut agent = Agent::new(&proxy);
    agent.result = |nth| words(400, nth);
    agent.steps(9).await;
    let mut agent = agent.says("Write the changelog.");
    let generation = agent.steps(20).await.pop().unwrap();
    clear(&agent, &generation).await;
    assert_eq!(agent.step().await.action("course"), Some("2"));
    for _ in 0..4 {
        let sent = newest_request(&up).await;
        let messages = sent["messages"].as_array().unwrap();
        let asked = |it: &&Value| it["role"] == "user" && it["content"] == "Write the changelog.";
        assert_eq!(messages.iter().filter(asked).count(), 1, "{sent:#}");
        assert!(messages.len() < 24, "{sent:#}");
        agent.step().await;
    }
    up.assert_no_faults();
}

#[tokio::test]
async fn a_session_of_another_client_cannot_be_cleared() {
    let (proxy, _up) = pair(obliging_model).await;
    let mut agent = agent_past_optimal(&proxy).with("authorization", "Bearer sk-secret-a");
    let generation = agent.step().await;
    let id = generation.header("session").unwrap();
    let thief = Agent::bare(&proxy).with("authorization", "Bearer sk-secret-b");
    let answer = thief
        .api(Method::POST, &format!("sessions/{id}/clear"))
        .await;
    answer.is_error(404, "session_not_found");
    assert_eq!(agent.step().await.action("course"), None);
}
