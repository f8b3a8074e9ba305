use std::time::Duration;

use async_trait::async_trait;
use http::HeaderMap;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    fixture::{answer_digest, assistant, call, conversation, result, system, user, with_fields},
    secret::InstallationSecret,
    *,
};
use crate::{
    config::StoreConfig,
    store::{Key, Page, Row, memory::MemoryStore},
};

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
    })))
}

fn tenant(sessions: &Sessions, name: &str) -> Tenant {
    let client = Client::Named(name);
    sessions.tenants().tenant(client, &HeaderMap::new(), None)
}

/// One request of client `a` and its answer, from look-up to filing: the generation it was.
async fn generate(sessions: &Sessions, said: &[Value], answer: &Value) -> State {
    generate_as(sessions, "a", None, said, answer).await
}

async fn generate_as(
    sessions: &Sessions,
    name: &str,
    hint: Option<&Hint>,
    said: &[Value],
    answer: &Value,
) -> State {
    let tenant = tenant(sessions, name);
    let inherited = sessions.find(&conversation(said), &tenant, hint).await;
    let mut state = inherited.successor();
    // Marks the state with what it was made from.
    state.model = format!("{answer}").into();
    let answer = answer_digest(answer);
    assert!(
        sessions
            .save(&inherited.lineage, answer, &state, WITHIN)
            .await
    );
    state
}

/// The generation that a request would continue.
async fn continued(sessions: &Sessions, said: &[Value]) -> Option<State> {
    let tenant = tenant(sessions, "a");
    let inherited = sessions.find(&conversation(said), &tenant, None).await;
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
async fn play(sessions: &Sessions, count: usize) -> Vec<State> {
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
        assert_eq!(state.messages as usize, 2 * turn + 2);
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
        .find(&conversation(&turns(2)), &tenant(&sessions, "c"), None)
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

/// What clients do to what they echo; the next request must find its state all the same.
async fn check_echo(given: Value, echoed: Value) {
    let sessions = sessions();
    let said = [system("s"), user("task")];
    let state = generate(&sessions, &said, &given).await;
    let next = [&said[..], &[echoed.clone(), result("c1", "out")]].concat();
    assert_eq!(continued(&sessions, &next).await, Some(state), "{echoed}");
    // The chain of all that follows holds the echo, and stays sound.
    let state = generate(&sessions, &next, &assistant("done")).await;
    let last = [&next[..], &[assistant("done"), user("more")]].concat();
    assert_eq!(continued(&sessions, &last).await, Some(state), "{echoed}");
}

#[tokio::test]
async fn echoed_answers_may_be_spelt_otherwise() {
    let given = call("c1", r#"{"path":"a","line":1}"#);
    check_echo(given.clone(), call("c1", r#"{ "line": 1, "path": "a" }"#)).await;
    let mut parts = assistant("text");
    parts["content"] = json!([{ "type": "text", "text": "text" }]);
    check_echo(assistant("text"), parts).await;
    let mut reasoned = given.clone();
    reasoned["reasoning_content"] = json!("hm");
    reasoned["content"] = json!("");
    check_echo(given.clone(), reasoned).await;
    // Text that was trimmed, a call id that was made anew: only the key without the answer helps.
    check_echo(assistant(" text\n"), assistant("text")).await;
    check_echo(given, call("fc_1", r#"{"path":"a","line":1}"#)).await;
}

#[tokio::test]
async fn a_split_answer_is_found() {
    let sessions = sessions();
    let said = [user("task")];
    let mut given = call("c1", "{}");
    given["content"] = json!("I look.");
    let state = generate(&sessions, &said, &given).await;
    let echoed = [assistant("I look."), call("c1", "{}"), result("c1", "out")];
    let next = [&said[..], &echoed].concat();
    assert_eq!(continued(&sessions, &next).await, Some(state));
}

#[tokio::test]
async fn a_prefilled_answer_is_found() {
    let sessions = sessions();
    let said = [user("task"), assistant("It is")];
    let state = generate(&sessions, &said, &assistant(" done.")).await;
    let next = [&said[..], &[assistant(" done."), user("more")]].concat();
    assert_eq!(continued(&sessions, &next).await, Some(state));
}

#[tokio::test]
async fn a_remark_may_be_put_in_and_taken_out() {
    let sessions = sessions();
    let mut said = vec![user("task")];
    for step in 0..6 {
        let answer = call(&format!("c{step}"), "{}");
        let remarked = [&said[..], &[user(&format!("reminder: step {step}"))]].concat();
        // At the start there is no answer before which the remark could be passed over.
        let sent = if step == 0 { &said } else { &remarked };
        let state = generate(&sessions, sent, &answer).await;
        assert_eq!(state.generations, step + 1);
        said.extend([answer, result(&format!("c{step}"), "out")]);
    }
    // A remark inside the last message itself.
    let mut inside = said.clone();
    inside.last_mut().unwrap()["content"] = json!("out\n<reminder>hurry</reminder>");
    let state = generate(&sessions, &inside, &assistant("done")).await;
    said.extend([assistant("done"), user("next")]);
    assert_eq!(continued(&sessions, &said).await, Some(state));
}

#[tokio::test]
async fn what_is_not_said_does_not_count() {
    let sessions = sessions();
    let said = [system("It is 10:00."), user("task")];
    let answer = assistant("ok");
    let state = generate(&sessions, &said, &answer).await;
    let marked = json!({
        "content": [{ "text": "task", "type": "text", "cache_control": { "type": "ephemeral" } }],
        "role": "user",
    });
    let mut reasoned = answer;
    reasoned["reasoning_content"] = json!("thinking");
    let developer = json!({ "role": "developer", "content": "be brief" });
    for start in [
        vec![system("It is 10:05.")],
        vec![],
        vec![system("a"), developer],
    ] {
        let next = [&start[..], &[marked.clone(), reasoned.clone(), user("2")]].concat();
        assert_eq!(continued(&sessions, &next).await.as_ref(), Some(&state));
    }
}

#[tokio::test]
async fn auxiliary_requests_write_nothing() {
    let sessions = sessions();
    let tenant = tenant(&sessions, "a");
    let title = with_fields(&[("max_tokens", "20")]);
    let inherited = sessions.find(&title, &tenant, None).await;
    let state = inherited.successor();
    assert!(!sessions.save(&inherited.lineage, 1, &state, WITHIN).await);
    let account = tenant.account();
    let found = sessions.session(&account, state.session).await.unwrap();
    assert_eq!(found, None);
}

fn hint(name: &'static str, value: &str) -> Hint {
    let headers = [(name.parse().unwrap(), value.parse().unwrap())];
    Hint::of(&headers.into_iter().collect(), None).unwrap()
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

#[tokio::test]
async fn the_api_reads_its_own_account_only() {
    let sessions = sessions();
    let state = generate(&sessions, &[user("task")], &assistant("1")).await;
    let [own, other] = ["a", "b"].map(|name| sessions.tenants().account(Client::Named(name)));
    let found = sessions.session(&own, state.session).await.unwrap();
    assert_eq!(found.as_ref(), Some(&state));
    assert_eq!(sessions.session(&other, state.session).await.unwrap(), None);
}

#[test]
fn ids_differ_and_tell_nothing_of_each_other() {
    let (one, other) = (Ids::new().unwrap(), Ids::new().unwrap());
    let mut all: Vec<_> = (0..5_000)
        .flat_map(|_| [one.next(), other.next()])
        .collect();
    // Every bit is set about half the time.
    for bit in 0..128 {
        let set = |id: &&SessionId| id.bytes()[bit / 8] >> (bit % 8) & 1 == 1;
        let share = all.iter().filter(set).count();
        assert!((4_600..5_400).contains(&share), "bit {bit}: {share}");
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 10_000);
}

/// A store that is down, never answers, or answers with something else.
#[derive(Clone, Copy)]
enum Broken {
    Down,
    Silent,
    Garbage,
}

impl Broken {
    async fn fail<T>(self) -> Result<T, StoreError> {
        match self {
            Self::Silent => std::future::pending().await,
            _ => Err(StoreError::Unreachable(
                std::io::ErrorKind::NotConnected.into(),
            )),
        }
    }
}

#[async_trait]
impl Store for Broken {
    async fn find(&self, _: &Tenant, _: &[Key]) -> Result<Option<(usize, Bytes)>, StoreError> {
        match self {
            Self::Garbage => Ok(Some((0, Bytes::from_static(b"\x01garbage")))),
            _ => self.fail().await,
        }
    }
    async fn save(&self, _: Saved) -> Result<(), StoreError> {
        self.fail().await
    }
    async fn session(&self, _: &Account, _: SessionId) -> Result<Option<Row>, StoreError> {
        self.fail().await
    }
    async fn sessions(&self, _: Option<&Account>, _: Page) -> Result<Vec<Row>, StoreError> {
        self.fail().await
    }
}

#[tokio::test]
async fn without_a_store_the_request_goes_on() {
    for broken in [Broken::Down, Broken::Silent, Broken::Garbage] {
        let mut sessions = over(Arc::new(broken));
        sessions.find_within = Duration::from_millis(5);
        let own = hint("x-plimsoll-session", &"0f".repeat(16));
        let tenant = tenant(&sessions, "a");
        for hint in [None, Some(&own)] {
            let inherited = sessions.find(&conversation(&turns(2)), &tenant, hint).await;
            assert!(inherited.lost && inherited.state.is_none());
            let state = inherited.successor();
            assert_eq!(state.health, crate::health::Level::Unknown);
            assert!(!sessions.save(&inherited.lineage, 1, &state, WITHIN).await);
        }
    }
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

/// One message of a made-up conversation.
fn message() -> impl Strategy<Value = Value> {
    let text = "[a-c]{0,2}";
    prop_oneof![
        text.prop_map(|text| user(&text)),
        text.prop_map(|text| user(&text)),
        text.prop_map(|text| assistant(&text)),
        text.prop_map(|text| system(&text)),
        ("[xy]", text).prop_map(|(id, text)| call(&id, &text)),
        ("[xy]", text).prop_map(|(id, text)| result(&id, &text)),
    ]
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever was said: the request that echoes the answer finds the state, whatever follows;
    /// a retry finds what the first try found; another tenant finds nothing.
    #[test]
    fn any_conversation_is_found_again(
        said in prop::collection::vec(message(), 1..20),
        more in prop::collection::vec(message(), 0..4),
    ) {
        block_on(async {
            let sessions = sessions();
            let heard = said.iter().any(|one| one["role"] != "system");
            prop_assume!(heard);
            let before = continued(&sessions, &said).await;
            // Unlike any message, so that nothing else in the conversation can be taken for it.
            let answer = assistant("the answer");
            let state = generate(&sessions, &said, &answer).await;
            prop_assert_eq!(continued(&sessions, &said).await, before);
            let mut next = said.clone();
            next.push(answer);
            prop_assert_eq!(continued(&sessions, &next).await, Some(state.clone()));
            next.extend(more);
            prop_assert_eq!(continued(&sessions, &next).await, Some(state.clone()));
            let other = tenant(&sessions, "b");
            let foreign = sessions.find(&conversation(&next), &other, None).await;
            prop_assert!(foreign.state.is_none());
            Ok(())
        })?;
    }

    /// Generations count along every branch, however the branches are taken.
    #[test]
    fn every_branch_counts_its_own(picks in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8), 1..14)) {
        block_on(async {
            let sessions = sessions();
            // Requests that may be sent, with the answers on the way to them.
            let mut open = vec![(vec![user("task")], 0)];
            for (at, text) in picks {
                let (said, answers): (Vec<Value>, u32) = open[at.index(open.len())].clone();
                let answer = assistant(&format!("answer {text}"));
                let state = generate(&sessions, &said, &answer).await;
                prop_assert_eq!(state.generations, answers + 1);
                let next = [&said[..], &[answer, user("go on")]].concat();
                open.push((next, answers + 1));
            }
            Ok(())
        })?;
    }
}
