use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::*;
use crate::{
    config::StorePlace,
    store::{
        StateKeys, retention,
        tests::{self as suite, found, key, saved, session, tenant},
    },
};

const LIMITS: StoreConfig = StoreConfig {
    max_sessions: 100,
    max_bytes: 1 << 20,
    max_age: Duration::from_secs(3_600),
    timeout: Duration::from_millis(250),
    place: StorePlace::Memory,
    encrypt_key: None,
};

impl MemoryStore {
    /// Sessions in memory, including expired ones that no write has removed.
    fn len(&self) -> usize {
        self.sessions.lock().records.len()
    }
}

/// A store with a clock that the test moves.
fn clocked(config: &StoreConfig) -> (MemoryStore, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(1_000));
    let clock = {
        let now = Arc::clone(&now);
        Arc::new(move || now.load(Ordering::SeqCst))
    };
    (
        MemoryStore::with_limits(StoreLimits::with_clock(config, clock)),
        now,
    )
}

/// Checks that every pointer leads to a key and that the bytes are counted correctly.
fn check_consistent(store: &MemoryStore) {
    let table = store.sessions.lock();
    let (mut bytes, mut generations) = (0, 0);
    for (_, record) in table.records.iter() {
        assert!(!record.generations.is_empty());
        let account = record.tenant.account();
        let (_, named) = table
            .find_record(Some(&account), record.session, 0)
            .unwrap();
        assert!(std::ptr::eq(named, record));
        bytes += session_table::session_cost(record.commands.len());
        for generation in &record.generations {
            generations += 1;
            bytes += session_table::generation_cost(generation.state.len());
        }
    }
    assert_eq!(table.bytes, bytes);
    assert!(table.keys.len() <= 3 * generations);
    for pointer in &table.keys {
        assert!(table.is_current(*pointer));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_guarantees_of_every_store() {
    suite::check(|| Arc::new(MemoryStore::new(&LIMITS))).await;
}

#[tokio::test]
async fn the_least_recently_used_session_is_evicted_first() {
    let config = StoreConfig {
        max_sessions: 3,
        ..LIMITS
    };
    let (store, _) = clocked(&config);
    let one = tenant("a");
    for number in 1..=3 {
        store
            .save_state(saved(one, session(number), u64::from(number) * 10))
            .await
            .unwrap();
    }
    // A find of the oldest counts as a use.
    assert!(found(&store, &one, &[10]).await.is_some());
    store.save_state(saved(one, session(4), 40)).await.unwrap();
    assert_eq!(store.len(), 3);
    assert!(found(&store, &one, &[20, 21, 22]).await.is_none());
    for number in [10, 30, 40] {
        assert!(found(&store, &one, &[number]).await.is_some());
    }
    check_consistent(&store);
}

#[tokio::test]
async fn bytes_are_bounded() {
    let config = StoreConfig {
        max_bytes: 100_000,
        ..LIMITS
    };
    let (store, _) = clocked(&config);
    let one = tenant("a");
    for number in 0..200_u8 {
        let mut large = saved(one, session(number), u64::from(number) * 10);
        large.state = Bytes::from(vec![0; 1_000 * (1 + usize::from(number) % 20)]);
        store.save_state(large).await.unwrap();
        assert!(store.held_bytes() <= config.max_bytes);
    }
    assert!(store.len() > 2);
    check_consistent(&store);
    // A session over the limit is removed completely.
    let mut huge = saved(one, session(255), 9_990);
    huge.state = Bytes::from(vec![0; 200_000]);
    store.save_state(huge).await.unwrap();
    assert_eq!((store.len(), store.held_bytes()), (0, 0));
    assert!(store.sessions.lock().keys.is_empty());
}

#[tokio::test]
async fn expired_sessions_are_not_found_and_are_removed() {
    let (store, now) = clocked(&LIMITS);
    let one = tenant("a");
    for number in 1..=50 {
        store
            .save_state(saved(one, session(number), u64::from(number) * 10))
            .await
            .unwrap();
    }
    now.fetch_add(3_600, Ordering::SeqCst);
    assert!(found(&store, &one, &[10]).await.is_some());
    now.fetch_add(1, Ordering::SeqCst);
    // The find a second ago was a use of the first session only.
    assert!(found(&store, &one, &[10]).await.is_some());
    assert!(found(&store, &one, &[20]).await.is_none());
    let row = store
        .load_session(Some(&one.account()), session(2))
        .await
        .unwrap();
    assert!(row.is_none());
    let page = Page { skip: 0, take: 99 };
    assert_eq!(store.list_sessions(None, page).await.unwrap().len(), 1);
    // One write removes some expired sessions, the next write the rest.
    assert_eq!(store.len(), 50);
    store
        .save_state(saved(one, session(60), 600))
        .await
        .unwrap();
    assert_eq!(store.len(), 50 - session_table::MAX_EXPIRED_PER_WRITE + 1);
    store
        .save_state(saved(one, session(61), 610))
        .await
        .unwrap();
    assert_eq!(store.len(), 3);
    check_consistent(&store);
}

#[tokio::test]
async fn commands_expire_with_their_session_and_count_as_bytes() {
    let (store, now) = clocked(&LIMITS);
    let one = tenant("a");
    let account = one.account();
    let put = async |bytes: usize| {
        let commands = Bytes::from(vec![0; bytes]);
        store
            .put_commands(Some(&account), session(1), commands)
            .await
    };
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    let before = store.held_bytes();
    assert!(put(100).await.unwrap());
    assert_eq!(store.held_bytes(), before + 100);
    check_consistent(&store);
    assert!(put(0).await.unwrap());
    assert_eq!(store.held_bytes(), before);
    // Commands are no use of the session, so it expires at the same time.
    now.fetch_add(3_600, Ordering::SeqCst);
    assert!(put(100).await.unwrap());
    now.fetch_add(1, Ordering::SeqCst);
    assert!(!put(100).await.unwrap());
    store.save_state(saved(one, session(2), 20)).await.unwrap();
    assert_eq!((store.len(), store.held_bytes()), (1, before));
    // A new session with the same id has no commands.
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    let found = store
        .find_state(&one, 1, &[key(10)])
        .await
        .unwrap()
        .unwrap();
    assert!(found.commands.is_empty());
    check_consistent(&store);
}

#[tokio::test]
async fn a_clock_that_goes_back_loses_nothing() {
    let (store, now) = clocked(&LIMITS);
    store
        .save_state(saved(tenant("a"), session(1), 10))
        .await
        .unwrap();
    now.store(5, Ordering::SeqCst);
    assert!(found(&store, &tenant("a"), &[10]).await.is_some());
}

#[tokio::test]
async fn an_idle_session_costs_under_5_kb() {
    let (store, _) = clocked(&LIMITS);
    // The length of an ordinary encoded state.
    let state = Bytes::from(vec![0; 128]);
    for number in 1..=300 {
        let mut next = saved(tenant("a"), session(1), number * 10);
        next.state = state.clone();
        store.save_state(next).await.unwrap();
    }
    // Longer than the proxy's own commands.
    let commands = Bytes::from(vec![0; 32]);
    assert!(
        store
            .put_commands(None, session(1), commands)
            .await
            .unwrap()
    );
    assert_eq!(store.len(), 1);
    assert!(store.held_bytes() < 5_120, "{}", store.held_bytes());
    let kept = store
        .sessions
        .lock()
        .records
        .iter()
        .next()
        .unwrap()
        .1
        .generations
        .len();
    assert!(kept >= 12, "{kept}");
    check_consistent(&store);
}

#[tokio::test]
async fn conversations_grouped_in_a_session_are_bounded() {
    let (store, _) = clocked(&LIMITS);
    for number in 0..100 {
        let mut next = saved(tenant("a"), session(1), number * 10);
        next.opening = number;
        store.save_state(next).await.unwrap();
    }
    let table = store.sessions.lock();
    let (_, record) = table.records.iter().next().unwrap();
    assert_eq!(record.generations.len(), retention::MAX_CONVERSATIONS);
    drop(table);
    check_consistent(&store);
}

mod soundness {
    use proptest::prelude::*;

    use super::*;

    fn steps() -> impl Strategy<Value = Vec<(u8, u8, u64, u64, u8, u16)>> {
        prop::collection::vec(
            (0..3_u8, 0..6_u8, 0..12_u64, 0..3_u64, 0..4_u8, 0..1_500_u16),
            1..120,
        )
    }

    proptest! {
        #[test]
        fn any_sequence_of_saves_keeps_the_table_consistent(steps in steps()) {
            let config = StoreConfig { max_sessions: 5, max_bytes: 20_000, ..LIMITS };
            let (store, now) = clocked(&config);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                for (who, id, number, opening, answer, wait) in steps {
                    let one = tenant(["a", "b", "c"][usize::from(who)]);
                    let saved = StateToSave {
                        opening,
                        keys: StateKeys {
                            exact: key(1_000 + number * 8 + u64::from(answer)),
                            gap: (number % 2 == 0).then(|| key(2_000 + number)),
                            bare: key(3_000 + number),
                        },
                        answer: answer.into(),
                        state: Bytes::from(vec![0; usize::from(wait)]),
                        ..saved(one, session(id), 0)
                    };
                    let account = saved.tenant.account();
                    store.save_state(saved).await.unwrap();
                    let commands = Bytes::from(vec![0; usize::from(wait) % 99]);
                    store.put_commands(Some(&account), session(answer), commands).await.unwrap();
                    assert!(store.len() <= 5 && store.held_bytes() <= 20_000);
                    now.fetch_add(wait.into(), Ordering::SeqCst);
                    check_consistent(&store);
                }
            });
        }
    }
}
