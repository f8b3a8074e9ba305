use std::{sync::Arc, time::Duration};

use fixture::{answer_digest, assistant, conversation, system, user, with_fields};
use http::HeaderMap;
use serde_json::Value;

use super::{installation_secret::InstallationSecret, *};
use crate::{config::StoreConfig, store::memory::MemoryStore};

mod any;
mod broken;
mod echo;
pub(super) mod fixture;
mod hints;
mod orders;
mod places;
mod sealed;

const WITHIN: Duration = Duration::from_millis(50);

fn over(store: Arc<dyn Store>) -> Sessions {
    let tenants = Tenants::new(InstallationSecret::from_bytes([5; 32]));
    Sessions::new(store, tenants).unwrap()
}

fn sessions() -> Sessions {
    over(Arc::new(MemoryStore::new(&StoreConfig {
        max_sessions: 1_000,
        max_bytes: 64 << 20,
        max_age: Duration::from_secs(3_600),
        ..StoreConfig::default()
    })))
}

fn tenant(sessions: &Sessions, name: &str) -> Tenant {
    let client = ClientIdentity::Named(name);
    sessions
        .tenants()
        .derive_tenant(client, &HeaderMap::new(), None)
}

/// One request of client `a` and its answer, from look-up to filing: the generation it was.
async fn generate(sessions: &Sessions, said: &[Value], answer: &Value) -> SessionState {
    generate_as(sessions, "a", None, said, answer).await
}

async fn generate_as(
    sessions: &Sessions,
    name: &str,
    hint: Option<&SessionHint>,
    said: &[Value],
    answer: &Value,
) -> SessionState {
    let tenant = tenant(sessions, name);
    let inherited = sessions
        .inherit_session(&conversation(said), &tenant, hint)
        .await;
    let mut state = inherited.next_state();
    // Marks the state with what it was made from.
    state.model = format!("{answer}").into();
    let answer = answer_digest(answer);
    assert!(
        sessions
            .save_state(&inherited.lineage, answer, &state, WITHIN)
            .await
    );
    state
}

/// The generation that a request would continue.
async fn continued(sessions: &Sessions, said: &[Value]) -> Option<SessionState> {
    let tenant = tenant(sessions, "a");
    let inherited = sessions
        .inherit_session(&conversation(said), &tenant, None)
        .await;
    inherited.state
}

/// A request in a conversation of user turns, each answered: `u0 a0 u1 a1 … u(n)`.
fn turns(count: usize) -> Vec<Value> {
    let mut said = vec![system("s"), user("0")];
    for turn in 1..=count {
        said.push(assistant(&format!("answer {}", turn - 1)));
        said.push(user(&format!("{turn}")));
    }
    said
}

/// Plays a conversation of so many turns; gives back all of its states.
async fn play(sessions: &Sessions, count: usize) -> Vec<SessionState> {
    let mut states = Vec::new();
    for turn in 0..count {
        let answer = assistant(&format!("answer {turn}"));
        states.push(generate(sessions, &turns(turn), &answer).await);
    }
    states
}

#[tokio::test]
async fn a_growing_conversation_finds_its_last_state() {
    let sessions = sessions();
    let states = play(&sessions, 20).await;
    for (turn, state) in states.iter().enumerate() {
        assert_eq!(state.generations as usize, turn + 1);
        assert_eq!(state.messages as usize, 2 * turn + 1);
        assert_eq!(state.session, states[0].session);
    }
}

#[tokio::test]
async fn a_retry_counts_once() {
    let sessions = sessions();
    play(&sessions, 3).await;
    for _ in 0..3 {
        let again = generate(&sessions, &turns(3), &assistant("answer 3")).await;
        assert_eq!(again.generations, 4);
    }
    // One that was answered otherwise as well.
    let other = generate(&sessions, &turns(3), &assistant("otherwise")).await;
    assert_eq!(other.generations, 4);
    let next = generate(&sessions, &turns(4), &assistant("answer 4")).await;
    assert_eq!(next.generations, 5);
}

#[tokio::test]
async fn regenerating_editing_and_branching_find_the_right_ancestor() {
    let sessions = sessions();
    let states = play(&sessions, 5).await;
    let mut branch = turns(3);
    *branch.last_mut().unwrap() = user("edited");
    assert_eq!(
        continued(&sessions, &branch).await.as_ref(),
        Some(&states[2])
    );
    let first = generate(&sessions, &branch, &assistant("branched")).await;
    assert_eq!((first.generations, first.session), (4, states[0].session));
    // Both branches go on, each from its own state.
    let mut grown = branch.clone();
    grown.extend([assistant("branched"), user("more")]);
    assert_eq!(continued(&sessions, &grown).await.as_ref(), Some(&first));
    assert_eq!(
        continued(&sessions, &turns(5)).await.as_ref(),
        Some(&states[4])
    );
    // Two answers to one request: the one that is echoed counts.
    let said = turns(5);
    let one = generate(&sessions, &said, &assistant("one")).await;
    let two = generate(&sessions, &said, &assistant("two")).await;
    for (answer, state) in [("one", one), ("two", two)] {
        let grown = [&said[..], &[assistant(answer), user("next")]].concat();
        assert_eq!(continued(&sessions, &grown).await, Some(state));
    }
    // An answer of neither: which of both was re-spelt cannot be known, so the one before counts.
    let grown = [&said[..], &[assistant("three"), user("next")]].concat();
    assert_eq!(
        continued(&sessions, &grown).await.as_ref(),
        Some(&states[4])
    );
}

#[tokio::test]
async fn tenants_with_the_same_conversation_never_meet() {
    let sessions = sessions();
    for turn in 0..3 {
        let answer = assistant(&format!("answer {turn}"));
        let mine = generate_as(&sessions, "a", None, &turns(turn), &answer).await;
        let other = generate_as(&sessions, "b", None, &turns(turn), &answer).await;
        assert_ne!(mine.session, other.session);
        assert_eq!(mine.generations, other.generations);
    }
    let late = sessions
        .inherit_session(&conversation(&turns(2)), &tenant(&sessions, "c"), None)
        .await;
    assert_eq!(late.state, None);
}

#[tokio::test]
async fn parallel_conversations_with_equal_openings_stay_apart() {
    let sessions = sessions();
    let answers = ["left", "right"].map(assistant);
    let mut said = [turns(0), turns(0)];
    for turn in 1..=10 {
        for (side, said) in said.iter_mut().enumerate() {
            let state = generate(&sessions, said, &answers[side]).await;
            assert_eq!(state.generations, turn);
            said.extend([answers[side].clone(), user("the same")]);
        }
    }
    let [left, right] = [
        continued(&sessions, &said[0]).await.unwrap(),
        continued(&sessions, &said[1]).await.unwrap(),
    ];
    assert_ne!(left.session, right.session);
    assert!(left.model.contains("left") && right.model.contains("right"));
}

#[tokio::test]
async fn auxiliary_requests_write_nothing() {
    let sessions = sessions();
    let tenant = tenant(&sessions, "a");
    let title = with_fields(&[("max_tokens", "20")]);
    let inherited = sessions.inherit_session(&title, &tenant, None).await;
    let state = inherited.next_state();
    assert!(
        !sessions
            .save_state(&inherited.lineage, 1, &state, WITHIN)
            .await
    );
    let account = tenant.account();
    let found = sessions
        .view_session(Some(&account), state.session)
        .await
        .unwrap();
    assert_eq!(found, None);
}

#[tokio::test]
async fn the_api_reads_its_own_account_only() {
    let sessions = sessions();
    let state = generate(&sessions, &[user("task")], &assistant("1")).await;
    let [own, other] = ["a", "b"].map(|name| {
        sessions
            .tenants()
            .derive_account(ClientIdentity::Named(name))
    });
    let found = sessions
        .view_session(Some(&own), state.session)
        .await
        .unwrap();
    let known = SessionView {
        account: found.as_ref().unwrap().account,
        state: state.clone(),
        clear_pending: false,
        compact_pending: false,
        auto_compact: None,
    };
    assert_eq!(found, Some(known));
    assert_eq!(
        sessions
            .view_session(Some(&other), state.session)
            .await
            .unwrap(),
        None
    );
}

#[test]
fn ids_differ_and_tell_nothing_of_each_other() {
    let (one, other) = (IdGenerator::new().unwrap(), IdGenerator::new().unwrap());
    let mut all: Vec<_> = (0..5_000)
        .flat_map(|_| [one.next_bytes::<16>(), other.next_bytes()])
        .collect();
    // Every bit is set about half the time.
    for bit in 0..128 {
        let set = |id: &&[u8; 16]| id[bit / 8] >> (bit % 8) & 1 == 1;
        let share = all.iter().filter(set).count();
        assert!((4_600..5_400).contains(&share), "bit {bit}: {share}");
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 10_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_conversations_at_once() {
    let sessions = sessions();
    let mut running = tokio::task::JoinSet::new();
    for number in 0..16 {
        let sessions = sessions.clone();
        running.spawn(async move {
            let mut said = vec![user("the same task")];
            for turn in 1..=25 {
                let answer = assistant(&format!("{number}: {turn}"));
                let state = generate(&sessions, &said, &answer).await;
                assert_eq!(state.generations, turn);
                said.extend([answer, user("go on")]);
            }
            continued(&sessions, &said).await.unwrap().session
        });
    }
    let mut all = running.join_all().await;
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 16);
}
