use std::{sync::Arc, time::Duration};

use fixture::{answer_digest, assistant, conversation, system, user, with_fields};
use http::HeaderMap;
use serde_json::Value;

use super::{installation_secret::InstallationSecret, *};
use crate::{config::StoreConfig, store::memory::MemoryStore};

mod broken;
mod commands;
mod echo;
mod edited;
mod encrypted;
pub(super) mod fixture;
mod generated;
mod hints;
mod newer;
mod places;

const WITHIN: Duration = Duration::from_millis(50);

fn sessions_in(store: Arc<dyn Store>) -> Sessions {
    configured(store, &StoreConfig::default())
}

fn configured(store: Arc<dyn Store>, config: &StoreConfig) -> Sessions {
    let tenants = Tenants::new(InstallationSecret::from_bytes([5; 32]));
    Sessions::new(store, tenants, config, Arc::default()).unwrap()
}

fn sessions() -> Sessions {
    sessions_in(Arc::new(MemoryStore::new(&StoreConfig {
        max_sessions: 1_000,
        max_bytes: 64 << 20,
        max_age: Duration::from_secs(3_600),
        ..StoreConfig::default()
    })))
}

fn tenant(sessions: &Sessions, name: &str) -> Tenant {
    let client = ClientIdentity::Named(name);
    sessions
        .tenants
        .derive_tenant(client, &HeaderMap::new(), None)
}

async fn find(sessions: &Sessions, messages: &[Value]) -> InheritedSession {
    let tenant = tenant(sessions, "a");
    let conversation = conversation(messages);
    sessions.inherit_session(&conversation, &tenant, None).await
}

/// Stores the state after an answer to this request; returns whether it was stored.
async fn save(
    sessions: &Sessions,
    inherited: &InheritedSession,
    state: &SessionState,
    answer: &Value,
) -> bool {
    let (lineage, digest) = (&inherited.lineage, answer_digest(answer));
    sessions
        .save_state(lineage, digest, None, state, WITHIN)
        .await
}

/// One request of client `a` and its answer, from lookup to storing: the state of its generation.
async fn generate(sessions: &Sessions, messages: &[Value], answer: &Value) -> SessionState {
    generate_as(sessions, "a", None, messages, answer).await
}

async fn generate_as(
    sessions: &Sessions,
    name: &str,
    hint: Option<&SessionHint>,
    messages: &[Value],
    answer: &Value,
) -> SessionState {
    let tenant = tenant(sessions, name);
    let conversation = conversation(messages);
    let inherited = sessions.inherit_session(&conversation, &tenant, hint).await;
    let mut state = inherited.begin_generation();
    // Marks the state with its answer.
    state.model = format!("{answer}").into();
    assert!(save(sessions, &inherited, &state, answer).await);
    state
}

/// The generation that a request would continue.
async fn continued(sessions: &Sessions, messages: &[Value]) -> Option<SessionState> {
    find(sessions, messages).await.state
}

/// A request in a conversation of user turns, each answered: `u0 a0 u1 a1 … u(n)`.
fn turns(count: usize) -> Vec<Value> {
    let mut messages = vec![system("s"), user("0")];
    for turn in 1..=count {
        messages.push(assistant(&format!("answer {}", turn - 1)));
        messages.push(user(&format!("{turn}")));
    }
    messages
}

/// Plays a conversation of so many turns; returns all of its states.
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
    // A retry with another answer as well.
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
    let ancestor = continued(&sessions, &branch).await;
    assert_eq!(ancestor.as_ref(), Some(&states[2]));
    let first = generate(&sessions, &branch, &assistant("branched")).await;
    assert_eq!((first.generations, first.session), (4, states[0].session));
    // Each branch continues from its last state.
    let mut grown = branch.clone();
    grown.extend([assistant("branched"), user("more")]);
    assert_eq!(continued(&sessions, &grown).await.as_ref(), Some(&first));
    let ancestor = continued(&sessions, &turns(5)).await;
    assert_eq!(ancestor.as_ref(), Some(&states[4]));
    // Two answers to one request: the echoed one counts.
    let messages = turns(5);
    let one = generate(&sessions, &messages, &assistant("one")).await;
    let two = generate(&sessions, &messages, &assistant("two")).await;
    for (answer, state) in [("one", one), ("two", two)] {
        let grown = [&messages[..], &[assistant(answer), user("next")]].concat();
        assert_eq!(continued(&sessions, &grown).await, Some(state));
    }
    // A third answer may be either of them in another form, so the generation before counts.
    let grown = [&messages[..], &[assistant("three"), user("next")]].concat();
    let ancestor = continued(&sessions, &grown).await;
    assert_eq!(ancestor.as_ref(), Some(&states[4]));
}

#[tokio::test]
async fn tenants_with_the_same_conversation_have_separate_sessions() {
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
    let mut messages = [turns(0), turns(0)];
    for turn in 1..=10 {
        for (side, messages) in messages.iter_mut().enumerate() {
            let state = generate(&sessions, messages, &answers[side]).await;
            assert_eq!(state.generations, turn);
            messages.extend([answers[side].clone(), user("the same")]);
        }
    }
    let [left, right] = [
        continued(&sessions, &messages[0]).await.unwrap(),
        continued(&sessions, &messages[1]).await.unwrap(),
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
    let state = inherited.begin_generation();
    assert!(!save(&sessions, &inherited, &state, &assistant("a")).await);
    let account = tenant.account();
    let view = sessions.view_session(Some(&account), state.session).await;
    assert_eq!(view.unwrap(), None);
}

#[tokio::test]
async fn the_api_reads_sessions_of_the_account_only() {
    let sessions = sessions();
    let state = generate(&sessions, &[user("task")], &assistant("1")).await;
    let tenants = &sessions.tenants;
    let [account, other] =
        ["a", "b"].map(|name| tenants.derive_account(ClientIdentity::Named(name)));
    let id = state.session;
    let view = sessions.view_session(Some(&account), id).await.unwrap();
    let expected = SessionView {
        name: SessionName::default(),
        account,
        client: tenants.label_account(&account).into(),
        state,
        clear_pending: false,
        compact_pending: false,
        auto_compact: None,
    };
    assert_eq!(view, Some(expected));
    let foreign = sessions.view_session(Some(&other), id).await.unwrap();
    assert_eq!(foreign, None);
}

#[test]
fn ids_are_unique_and_random() {
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
async fn concurrent_conversations_stay_apart() {
    let sessions = sessions();
    let mut running = tokio::task::JoinSet::new();
    for number in 0..16 {
        let sessions = sessions.clone();
        running.spawn(async move {
            let mut messages = vec![user("the same task")];
            for turn in 1..=25 {
                let answer = assistant(&format!("{number}: {turn}"));
                let state = generate(&sessions, &messages, &answer).await;
                assert_eq!(state.generations, turn);
                messages.extend([answer, user("go on")]);
            }
            continued(&sessions, &messages).await.unwrap().session
        });
    }
    let mut all = running.join_all().await;
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 16);
}
