//! The cache agrees with the file.

use super::*;
use crate::store::file::{
    read::StateHit,
    recent_states::{BatchChanges, RecentStates},
    row::{GenerationHead, KeyPlace, hash_prefix_group, key_place},
};

/// A save with a state of this size.
fn sized(id: u8, number: u64, bytes: usize) -> StateToSave {
    let mut saved = saved(tenant("a"), session(id), number);
    saved.state = Bytes::from(vec![id; bytes]);
    saved
}

fn prefix_group_of(saved: &StateToSave) -> u64 {
    hash_prefix_group(&saved.tenant, saved.opening)
}

fn place(saved: &StateToSave) -> KeyPlace {
    key_place(prefix_group_of(saved), &saved.keys.exact)
}

/// Adds a save as the writer does.
fn add(changes: &mut BatchChanges, saved: &StateToSave) {
    let found = FoundState {
        at: 0,
        state: saved.state.clone(),
        commands: Bytes::new(),
    };
    let hit = StateHit {
        found,
        session: saved.session.as_bytes()[0].into(),
        used_s: 100,
    };
    changes.add_saved(saved.tenant, &GenerationHead::from_saved(saved, false), hit);
}

fn commit(recent: &RecentStates, saved: &StateToSave) {
    let mut changes = BatchChanges::default();
    add(&mut changes, saved);
    recent.commit_changes(changes, || Ok(())).unwrap();
}

/// The cached state of the exact key; `None` if the file must be read.
fn known(recent: &RecentStates, saved: &StateToSave) -> Option<Option<Bytes>> {
    let keys = [saved.keys.exact];
    let found = recent.find_state(&saved.tenant, prefix_group_of(saved), &keys, 0);
    found.ok().map(|hit| hit.map(|hit| hit.found.state))
}

/// Begins a read that finds nothing; the result ends it.
fn miss<'r>(recent: &'r RecentStates, saved: &'r StateToSave) -> impl FnOnce() + use<'r> {
    let keys = [saved.keys.exact];
    let since = recent.find_state(&saved.tenant, prefix_group_of(saved), &keys, 0);
    let since = since.unwrap_err();
    move || recent.learn_absent(since, vec![place(saved)])
}

#[test]
fn absent_keys_are_remembered() {
    let recent = RecentStates::default();
    let saved = sized(1, 10, 5);
    assert_eq!(known(&recent, &saved), None);
    miss(&recent, &saved)();
    assert_eq!(known(&recent, &saved), Some(None));
    let others = sized(1, 500, 5);
    commit(&recent, &others);
    assert_eq!(known(&recent, &saved), Some(None));
    // The key is saved.
    commit(&recent, &saved);
    assert_eq!(known(&recent, &saved), Some(Some(saved.state.clone())));
    // The first present key of several.
    let keys = [7, 10].map(key);
    let absent = vec![key_place(prefix_group_of(&saved), &keys[0])];
    let find = || recent.find_state(&saved.tenant, prefix_group_of(&saved), &keys, 0);
    recent.learn_absent(find().unwrap_err(), absent);
    assert_eq!(find().unwrap().unwrap().found.at, 1);
}

#[test]
fn absent_keys_of_a_read_before_a_change_are_ignored() {
    let recent = RecentStates::default();
    let saved = sized(1, 10, 5);
    let read = miss(&recent, &saved);
    commit(&recent, &saved);
    read();
    assert_eq!(known(&recent, &saved), Some(Some(saved.state.clone())));
    let other = sized(1, 20, 5);
    let read = miss(&recent, &other);
    recent.clear();
    read();
    assert_eq!(known(&recent, &other), None);
}

#[test]
fn changed_keys_need_the_file_during_a_commit() {
    let recent = RecentStates::default();
    let (saved, neighbour) = (sized(1, 10, 5), sized(2, 500, 5));
    commit(&recent, &saved);
    commit(&recent, &neighbour);
    let gap = StateToSave {
        keys: crate::store::StateKeys {
            exact: saved.keys.gap.unwrap(),
            ..saved.keys
        },
        ..saved.clone()
    };
    miss(&recent, &gap)();
    let later = sized(1, 10, 7);
    let mut changes = BatchChanges::default();
    add(&mut changes, &sized(1, 10, 6));
    add(&mut changes, &later);
    let asked = || {
        for saved in [&saved, &gap] {
            assert_eq!(known(&recent, saved), None);
            // A read during the commit.
            miss(&recent, saved)();
            assert_eq!(known(&recent, saved), None);
        }
        let unchanged = Some(Some(neighbour.state.clone()));
        assert_eq!(known(&recent, &neighbour), unchanged);
        Ok(())
    };
    recent.commit_changes(changes, asked).unwrap();
    assert_eq!(known(&recent, &saved), Some(Some(later.state)));
    assert_eq!(known(&recent, &gap), None);
}

/// The content of the file is unknown then.
#[test]
fn a_failed_commit_removes_its_states() {
    let recent = RecentStates::default();
    let saved = sized(1, 10, 5);
    commit(&recent, &saved);
    let mut changes = BatchChanges::default();
    add(&mut changes, &sized(1, 10, 7));
    let failed = || Err(rusqlite::Error::InvalidQuery);
    recent.commit_changes(changes, failed).unwrap_err();
    assert_eq!((known(&recent, &saved), recent.bytes()), (None, 0));
    miss(&recent, &saved)();
    assert_eq!(known(&recent, &saved), Some(None));
}

#[test]
fn removed_states_and_changed_commands_leave_the_cache() {
    let recent = RecentStates::default();
    let (saved, neighbour) = (sized(1, 10, 5), sized(2, 20, 5));
    commit(&recent, &neighbour);
    // Changed commands clear all states.
    for removed in [true, false] {
        commit(&recent, &saved);
        let mut changes = BatchChanges::default();
        if removed {
            changes.add_keys(&GenerationHead::from_saved(&saved, false))
        } else {
            // In a transaction with a save of the session.
            add(&mut changes, &saved);
            changes.add_commands();
        }
        let asked = || {
            assert_eq!(known(&recent, &saved), None);
            Ok(())
        };
        recent.commit_changes(changes, asked).unwrap();
        assert_eq!(known(&recent, &saved), None);
        assert_eq!(known(&recent, &neighbour).is_some(), removed);
    }
}

#[test]
fn expired_states_and_other_tenants_need_the_file() {
    let recent = RecentStates::default();
    let saved = sized(1, 10, 5);
    commit(&recent, &saved);
    let find = |tenant: &str, horizon| {
        let keys = [saved.keys.exact];
        recent.find_state(
            &self::tenant(tenant),
            prefix_group_of(&saved),
            &keys,
            horizon,
        )
    };
    assert!(find("a", 100).unwrap().is_some());
    assert!(find("a", 101).is_err() && find("b", 0).is_err());
}

#[test]
fn the_cache_is_bounded() {
    let recent = RecentStates::default();
    for id in 0..200 {
        let saved = sized(id, u64::from(id) * 10, 100_000);
        commit(&recent, &saved);
        assert!(recent.bytes() <= 8 << 20, "{}", recent.bytes());
        assert!(matches!(known(&recent, &saved), Some(Some(_))));
    }
    assert!(recent.bytes() > 4 << 20);
    // A replaced state is counted once.
    let before = recent.bytes();
    commit(&recent, &sized(199, 1_990, 100_000));
    assert_eq!(recent.bytes(), before);
}

#[tokio::test]
async fn saved_states_and_absent_keys_are_cached() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let one = saved(tenant("a"), session(1), 10);
    store.save_state(one.clone()).await.unwrap();
    let known = |saved: &StateToSave| known(&store.readers.recent, saved);
    assert_eq!(known(&one), Some(Some(one.state.clone())));
    // The commands are cached too.
    let commands = Bytes::from_static(b"orders");
    store
        .put_commands(None, session(1), commands.clone())
        .await
        .unwrap();
    assert_eq!(known(&one), None);
    let keys = [one.keys.exact];
    for _ in 0..2 {
        let found = store
            .find_state(&one.tenant, one.opening, &keys)
            .await
            .unwrap();
        assert_eq!(found.unwrap().commands, commands);
        store.save_state(one.clone()).await.unwrap();
        assert_eq!(known(&one), Some(Some(one.state.clone())));
    }
    // Absent keys are cached too.
    let absent = saved(tenant("a"), session(1), 500);
    assert!(found(&store, &one.tenant, &[500]).await.is_none());
    assert_eq!(known(&absent), Some(None));
}

#[tokio::test]
async fn a_clock_that_goes_back_expires_cached_states_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let (store, now) = clocked(&LIMITS, &directory);
    let one = tenant("a");
    now.fetch_add(5_000, Ordering::SeqCst);
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    now.fetch_sub(5_000, Ordering::SeqCst);
    store.save_state(saved(one, session(1), 20)).await.unwrap();
    now.fetch_add(LIMITS.max_age.as_secs() + 1, Ordering::SeqCst);
    for number in [10, 20] {
        assert!(found(&store, &one, &[number]).await.is_none(), "{number}");
    }
}

#[tokio::test]
async fn a_tick_backdates_cached_sessions_from_the_future() {
    let directory = tempfile::tempdir().unwrap();
    let (store, now) = clocked(&LIMITS, &directory);
    let one = saved(tenant("a"), session(1), 10);
    now.fetch_add(50_000, Ordering::SeqCst);
    store.save_state(one.clone()).await.unwrap();
    now.fetch_sub(50_000, Ordering::SeqCst);
    tick(&store).await;
    // The second job waits for the expiry after the first.
    tick(&store).await;
    now.fetch_add(LIMITS.max_age.as_secs() + 1, Ordering::SeqCst);
    assert!(found(&store, &one.tenant, &[10]).await.is_none());
}
