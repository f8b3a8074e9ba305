//! Sessions named by headers.

use super::{continued, generate, generate_as, sessions};
use crate::session::{
    SessionHint,
    tests::fixture::{assistant, user},
};

pub(super) fn hint(name: &'static str, value: &str) -> SessionHint {
    let headers = [(name.parse().unwrap(), value.parse().unwrap())];
    SessionHint::from_request(&headers.into_iter().collect(), None).unwrap()
}

#[tokio::test]
async fn a_hint_groups_conversations_that_inherit_nothing() {
    let sessions = sessions();
    let chat = hint("x-session-id", "chat-1");
    let first = async |name, task: &str, answer: &str| {
        let messages = [user(task)];
        generate_as(&sessions, name, Some(&chat), &messages, &assistant(answer)).await
    };
    let parent = first("a", "task", "1").await;
    let child = first("a", "part", "2").await;
    assert_eq!(parent.session, child.session);
    assert_eq!((parent.generations, child.generations), (1, 1));
    let other = first("b", "task", "1").await;
    assert_ne!(parent.session, other.session);
    // Many states of the child do not evict the parent's.
    let mut messages = vec![user("part")];
    for step in 0..60 {
        messages.extend([assistant(&format!("{}", step + 2)), user("go on")]);
        let answer = assistant(&format!("{}", step + 3));
        let state = generate_as(&sessions, "a", Some(&chat), &messages, &answer).await;
        assert_eq!(state.generations, step + 2);
    }
    let next = [user("task"), assistant("1"), user("well")];
    assert_eq!(continued(&sessions, &next).await, Some(parent));
}

#[tokio::test]
async fn a_session_id_is_kept_for_its_tenant_only() {
    let sessions = sessions();
    let first = generate(&sessions, &[user("task")], &assistant("1")).await;
    let with_id = async |name, id: &str| {
        let hint = hint("x-plimsoll-session", id);
        generate_as(
            &sessions,
            name,
            Some(&hint),
            &[user("new")],
            &assistant("1"),
        )
        .await
    };
    let id = first.session.to_string();
    let again = with_id("a", &id).await;
    assert_eq!(again.session, first.session);
    assert_eq!(again.generations, 1);
    // Other tenants and unknown ids get another session.
    assert_ne!(with_id("b", &id).await.session, first.session);
    let unknown = "0f".repeat(16);
    assert_ne!(with_id("a", &unknown).await.session.to_string(), unknown);
}
