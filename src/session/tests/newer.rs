//! States and commands of a newer release, as when replicas of two releases share a store.

use bytes::Bytes;
use tracing::Level;

use super::{hints::hint, *};
use crate::{
    store::{Page, SessionRow},
    support::{log::ThreadLog, store::memory_store},
};

/// The same bytes with the next version.
fn as_newer(bytes: &[u8]) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[0] += 1;
    bytes.into()
}

async fn row(sessions: &Sessions, id: SessionId) -> SessionRow {
    let row = sessions.store.load_session(None, id).await.unwrap();
    row.expect("the session is stored")
}

/// A session of one turn, whose state was written by a newer release.
async fn begun_by_newer(sessions: &Sessions) -> SessionId {
    let inherited = find(sessions, &turns(0)).await;
    let state = inherited.begin_generation();
    let answer = answer_digest(&assistant("answer 0"));
    let record = StateToSave {
        tenant: inherited.lineage.tenant,
        session: state.session,
        opening: inherited.lineage.opening,
        keys: inherited.lineage.state_keys(answer).unwrap(),
        answer,
        state: as_newer(&state.encode_bounded().unwrap().bytes),
    };
    sessions.store.save_state(record).await.unwrap();
    state.session
}

#[tokio::test]
async fn a_state_of_a_newer_release_is_left_alone_and_the_log_says_so_once() {
    let log = ThreadLog::begin(Level::WARN);
    let sessions = sessions_in(memory_store());
    let id = begun_by_newer(&sessions).await;
    let before = row(&sessions, id).await;
    let named = hint("x-plimsoll-session", &id.to_string());
    let (tenant, conversation) = (tenant(&sessions, "a"), conversation(&turns(1)));
    for hint in [None, Some(&named), None] {
        let inherited = sessions.inherit_session(&conversation, &tenant, hint).await;
        assert!(inherited.store_failed && inherited.state.is_none());
        let state = inherited.begin_generation();
        assert!(!save(&sessions, &inherited, &state, &assistant("answer 1")).await);
        let clear = sessions.add_command(None, id, SessionCommand::Clear);
        assert!(clear.await.is_err());
    }
    assert_eq!(row(&sessions, id).await, before);
    let page = Page { skip: 0, take: 9 };
    let all = sessions.store.list_sessions(None, page).await.unwrap();
    assert_eq!(all, [before]);
    // What was not stored is no failure of the store: other sessions go on.
    assert!(!find(&sessions, &[user("else")]).await.save_failed);
    let log = log.text();
    assert_eq!(log.lines().count(), 1, "{log}");
    let why = "it has version 15 of a newer release";
    assert!(log.contains(why), "{log}");
}

#[tokio::test]
async fn commands_of_a_newer_release_are_left_alone() {
    let sessions = sessions_in(memory_store());
    let state = generate(&sessions, &turns(0), &assistant("answer 0")).await;
    let id = state.session;
    let clear = || sessions.add_command(None, id, SessionCommand::Clear);
    assert!(clear().await.unwrap().unwrap().clear_pending);
    let newer = as_newer(&row(&sessions, id).await.commands);
    let put = sessions.store.put_commands(None, id, newer.clone());
    assert!(put.await.unwrap());
    assert!(clear().await.is_err());
    assert_eq!(row(&sessions, id).await.commands, newer);
    // The state beside them waits for that release too.
    let next = find(&sessions, &turns(1)).await;
    assert!(next.store_failed && next.state.is_none() && !next.lineage.stores);
}
