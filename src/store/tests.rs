//! The guarantees of every store, as one set of checks.
//!
//! Each check needs a fresh store that keeps at least a hundred sessions for an hour.

use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use super::{
    Account, Page, SessionId, StateKey, StateKeys, StateToSave, Store, StoreError, Tenant,
};

mod commands;
mod loose_keys;
mod monotonic_reads;
mod shared;

/// Runs all checks, each on a store of its own.
pub(crate) async fn check(fresh: impl Fn() -> Arc<dyn Store>) {
    the_first_present_key_is_found(&*fresh()).await;
    tenants_never_find_each_others_states(&*fresh()).await;
    a_key_moves_to_the_newest_state(&*fresh()).await;
    a_second_answer_makes_the_bare_key_ambiguous(&*fresh()).await;
    a_repeated_answer_keeps_the_bare_key_valid(&*fresh()).await;
    sessions_are_listed_newest_first(&*fresh()).await;
    a_session_is_written_by_one_tenant(&*fresh()).await;
    the_newest_ancestors_are_kept(&*fresh()).await;
    grouped_conversations_keep_their_own_ancestors(&*fresh()).await;
    shared::the_newest_value_of_a_name_is_read(&*fresh()).await;
    shared::sizes_and_counts_are_bounded(&*fresh()).await;
    commands::survive_later_saves(&*fresh()).await;
    commands::reach_only_sessions_of_the_account(&*fresh()).await;
    loose_keys::lead_to_the_newest_state_of_one_session(&*fresh()).await;
    loose_keys::of_two_sessions_are_ambiguous(&*fresh()).await;
    loose_keys::go_with_their_generation(&*fresh()).await;
    monotonic_reads::never_goes_back(fresh()).await;
    concurrent_saves_are_found(fresh()).await;
}

pub(crate) fn tenant(name: &str) -> Tenant {
    end_user(name, "")
}

/// A tenant of the account of that name.
pub(crate) fn end_user(account: &str, user: &str) -> Tenant {
    let digest = |text: &str| xxh3_128(text.as_bytes()).to_le_bytes();
    let id = digest(&format!("{account}/{user}"));
    Tenant::from_parts(id, Account::from_bytes(digest(account)))
}

pub(crate) fn key(number: u64) -> StateKey {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    StateKey::from_bytes(bytes)
}

pub(crate) fn session(number: u8) -> SessionId {
    SessionId::from_bytes([number; 16])
}

/// A generation whose three keys are `number` to `number + 2`, and its state the number.
pub(crate) fn saved(tenant: Tenant, session: SessionId, number: u64) -> StateToSave {
    StateToSave {
        tenant,
        session,
        opening: 1,
        keys: StateKeys {
            exact: key(number),
            gap: Some(key(number + 1)),
            bare: key(number + 2),
        },
        answer: u128::from(number),
        state: Bytes::copy_from_slice(&number.to_le_bytes()),
    }
}

/// The index of the found key, and the number in its state.
pub(crate) async fn found(
    store: &dyn Store,
    tenant: &Tenant,
    keys: &[u64],
) -> Option<(usize, u64)> {
    let keys: Vec<StateKey> = keys.iter().map(|number| key(*number)).collect();
    found_of(store, tenant, 1, &keys).await
}

/// As [`found`], for conversations with another opening.
pub(crate) async fn found_of(
    store: &dyn Store,
    tenant: &Tenant,
    opening: u64,
    keys: &[StateKey],
) -> Option<(usize, u64)> {
    let found = store.find_state(tenant, opening, keys).await.unwrap()?;
    let state = found.state.as_ref().try_into().unwrap();
    Some((found.at, u64::from_le_bytes(state)))
}

async fn the_first_present_key_is_found(store: &dyn Store) {
    let one = tenant("a");
    assert_eq!(found(store, &one, &[10, 11]).await, None);
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    store.save_state(saved(one, session(1), 20)).await.unwrap();
    assert_eq!(found(store, &one, &[]).await, None);
    assert_eq!(found(store, &one, &[5, 12, 20]).await, Some((1, 10)));
    assert_eq!(found(store, &one, &[21, 10]).await, Some((0, 20)));
    for number in [10, 11, 12] {
        assert_eq!(found(store, &one, &[number]).await, Some((0, 10)));
    }
}

async fn tenants_never_find_each_others_states(store: &dyn Store) {
    let (one, other) = (tenant("a"), tenant("b"));
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    assert_eq!(found(store, &other, &[10, 11, 12]).await, None);
    let row = store
        .load_session(Some(&other.account()), session(1))
        .await
        .unwrap();
    assert_eq!(row, None);
    let page = Page { skip: 0, take: 10 };
    let listed = store
        .list_sessions(Some(&other.account()), page)
        .await
        .unwrap();
    assert!(listed.is_empty());
    // The same keys of another tenant are different keys.
    let mut same = saved(other, session(2), 10);
    same.state = Bytes::copy_from_slice(&99_u64.to_le_bytes());
    store.save_state(same).await.unwrap();
    assert_eq!(found(store, &one, &[10]).await, Some((0, 10)));
    assert_eq!(found(store, &other, &[10]).await, Some((0, 99)));
}

async fn a_key_moves_to_the_newest_state(store: &dyn Store) {
    let one = tenant("a");
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    let mut again = saved(one, session(2), 10);
    again.state = Bytes::copy_from_slice(&77_u64.to_le_bytes());
    store.save_state(again).await.unwrap();
    for number in [10, 11, 12] {
        assert_eq!(found(store, &one, &[number]).await, Some((0, 77)));
    }
}

async fn a_second_answer_makes_the_bare_key_ambiguous(store: &dyn Store) {
    let one = tenant("a");
    let bare = key(500);
    for (number, expected) in [(10, Some((0, 10))), (20, None), (10, None), (30, None)] {
        let mut saved = saved(one, session(1), number);
        saved.keys.bare = bare;
        store.save_state(saved).await.unwrap();
        assert_eq!(found(store, &one, &[500]).await, expected);
        assert_eq!(
            found(store, &one, &[500, number]).await.unwrap(),
            match expected {
                Some(_) => (0, number),
                None => (1, number),
            }
        );
    }
    // Answers in different sessions count too.
    for (id, expected) in [(2, Some((0, 40))), (3, None)] {
        let mut saved = saved(one, session(id), 40);
        saved.keys = StateKeys {
            exact: key(600 + u64::from(id)),
            gap: None,
            bare: key(601),
        };
        saved.keys.bare = key(700);
        saved.answer = u128::from(id);
        store.save_state(saved).await.unwrap();
        assert_eq!(found(store, &one, &[700]).await, expected);
    }
}

async fn a_repeated_answer_keeps_the_bare_key_valid(store: &dyn Store) {
    let one = tenant("a");
    for _ in 0..40 {
        store.save_state(saved(one, session(1), 10)).await.unwrap();
        assert_eq!(found(store, &one, &[12]).await, Some((0, 10)));
    }
    let page = Page { skip: 0, take: 10 };
    let listed = store.list_sessions(None, page).await.unwrap();
    assert_eq!(listed.len(), 1);
}

async fn sessions_are_listed_newest_first(store: &dyn Store) {
    let (one, other) = (tenant("a"), tenant("b"));
    for number in 1..=5 {
        let owner = if number == 3 { other } else { one };
        let saved = saved(owner, session(number), u64::from(number) * 10);
        store.save_state(saved).await.unwrap();
    }
    store.save_state(saved(one, session(2), 100)).await.unwrap();
    let listed = async |account, skip, take| -> Vec<SessionId> {
        let rows = store
            .list_sessions(account, Page { skip, take })
            .await
            .unwrap();
        rows.iter().map(|row| row.session).collect()
    };
    let mine = Some(one.account());
    let expected = [2, 5, 4, 1].map(session);
    assert_eq!(listed(mine.as_ref(), 0, 10).await, expected);
    assert_eq!(listed(mine.as_ref(), 1, 2).await, expected[1..3]);
    assert_eq!(listed(mine.as_ref(), 4, 2).await, []);
    assert_eq!(listed(None, 0, usize::MAX).await.len(), 5);
    let count =
        async |account: Option<Account>| store.count_sessions(account.as_ref()).await.unwrap();
    assert_eq!(count(mine).await, 4);
    assert_eq!(count(Some(other.account())).await, 1);
    assert_eq!(count(Some(tenant("nobody").account())).await, 0);
    assert_eq!(count(None).await, 5);
    let row = store
        .load_session(Some(&one.account()), session(2))
        .await
        .unwrap();
    let row = row.unwrap();
    assert_eq!((row.tenant, row.session), (one, session(2)));
    assert_eq!(row.state, &100_u64.to_le_bytes()[..]);
}

/// The account reads the sessions of both end users; neither writes into the other's.
async fn a_session_is_written_by_one_tenant(store: &dyn Store) {
    let (one, other) = (end_user("a", "1"), end_user("a", "2"));
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    let refused = store.save_state(saved(other, session(1), 20)).await;
    assert!(matches!(refused, Err(StoreError::Foreign)));
    assert_eq!(found(store, &other, &[20]).await, None);
    let row = store
        .load_session(Some(&other.account()), session(1))
        .await
        .unwrap();
    assert_eq!(row.unwrap().tenant, one);
}

async fn the_newest_ancestors_are_kept(store: &dyn Store) {
    let one = tenant("a");
    for number in 1..=100 {
        store
            .save_state(saved(one, session(1), number * 10))
            .await
            .unwrap();
    }
    for number in 97..=100 {
        let number = number * 10;
        for key in [number, number + 1, number + 2] {
            assert_eq!(found(store, &one, &[key]).await, Some((0, number)));
        }
    }
    for number in 10..840 {
        assert_eq!(found(store, &one, &[number]).await, None);
    }
}

async fn grouped_conversations_keep_their_own_ancestors(store: &dyn Store) {
    let one = tenant("a");
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    for number in 2..=60 {
        let mut child = saved(one, session(1), number * 10);
        child.opening = 2;
        store.save_state(child).await.unwrap();
    }
    assert_eq!(found(store, &one, &[10]).await, Some((0, 10)));
}

async fn concurrent_saves_are_found(store: Arc<dyn Store>) {
    let mut running = tokio::task::JoinSet::new();
    for number in 0..8_u8 {
        let store = Arc::clone(&store);
        running.spawn(async move {
            let one = tenant(if number % 2 == 0 { "a" } else { "b" });
            for turn in 1..=50_u64 {
                let at = u64::from(number) * 10_000 + turn * 10;
                store
                    .save_state(saved(one, session(number), at))
                    .await
                    .unwrap();
                assert_eq!(found(&*store, &one, &[at]).await, Some((0, at)));
                // All tasks save under one bare key too.
                let mut shared = saved(one, session(number), at + 3);
                shared.keys.gap = None;
                shared.keys.bare = key(5);
                store.save_state(shared).await.unwrap();
                found(&*store, &one, &[5]).await;
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    for name in ["a", "b"] {
        assert_eq!(found(&*store, &tenant(name), &[5]).await, None);
    }
}
