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
async fn a_hint_groups_and_inherits_nothing() {
    let sessions = sessions();
    let chat = hint("x-session-id", "chat-1");
    let parent = generate_as(
        &sessions,
        "a",
        Some(&chat),
        &[user("task")],
        &assistant("1"),
    )
    .await;
    let child = generate_as(
        &sessions,
        "a",
        Some(&chat),
        &[user("part")],
        &assistant("2"),
    )
    .await;
    assert_eq!(parent.session, child.session);
    assert_eq!((parent.generations, child.generations), (1, 1));
    let other = generate_as(
        &sessions,
        "b",
        Some(&chat),
        &[user("task")],
        &assistant("1"),
    )
    .await;
    assert_ne!(parent.session, other.session);
    // The long work of a child does not cost the parent its state.
    let mut said = vec![user("part")];
    for step in 0..60 {
        said.extend([assistant(&format!("{}", step + 2)), user("go on")]);
        let answer = assistant(&format!("{}", step + 3));
        let state = generate_as(&sessions, "a", Some(&chat), &said, &answer).await;
        assert_eq!(state.generations, step + 2);
    }
    let next = [user("task"), assistant("1"), user("well")];
    assert_eq!(continued(&sessions, &next).await, Some(parent));
}

#[tokio::test]
async fn an_id_of_ours_is_kept_where_it_belongs() {
    let sessions = sessions();
    let first = generate(&sessions, &[user("task")], &assistant("1")).await;
    let own = hint("x-plimsoll-session", &first.session.to_string());
    let again = generate_as(&sessions, "a", Some(&own), &[user("new")], &assistant("1")).await;
    assert_eq!(again.session, first.session);
    assert_eq!(again.generations, 1);
    // To anyone else it is a word like any other.
    let other = generate_as(&sessions, "b", Some(&own), &[user("new")], &assistant("1")).await;
    assert_ne!(other.session, first.session);
    let made_up = hint("x-plimsoll-session", &"0f".repeat(16));
    let named = generate_as(
        &sessions,
        "a",
        Some(&made_up),
        &[user("n")],
        &assistant("1"),
    )
    .await;
    assert_ne!(named.session.to_string(), "0f".repeat(16));
}
