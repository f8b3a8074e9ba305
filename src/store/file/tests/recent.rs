//! What is known without reading says what the file says, or nothing.

use super::*;
use crate::store::file::{
    read::StateHit,
    recent_states::{BatchChanges, RecentStates},
    row::{GenerationHead, KeyPlace, hash_prefix_group, key_place},
};

/// A save of that session, with a state of so many bytes.
fn sized(id: u8, number: u64, bytes: usize) -> StateToSave {
    let mut saved = saved(tenant("a"), session(id), number);
    saved.state = Bytes::from(vec![id; bytes]);
    saved
}

fn circle_of(saved: &StateToSave) -> u64 {
    hash_prefix_group(&saved.tenant, saved.opening)
}

fn place(saved: &StateToSave) -> KeyPlace {
    key_place(circle_of(saved), &saved.keys.exact)
}

/// As the writer tells it.
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

/// Where the exact key is found: `None` where only the file can tell.
fn known(recent: &RecentStates, saved: &StateToSave) -> Option<Option<Bytes>> {
    let keys = [saved.keys.exact];
    let found = recent.find_state(&saved.tenant, circle_of(saved), &keys, 0);
    found.ok().map(|hit| hit.map(|hit| hit.found.state))
}

/// A read that begins now and finds nothing; gives back what ends it.
fn miss<'r>(recent: &'r RecentStates, saved: &'r StateToSave) -> impl FnOnce() + use<'r> {
    let keys = [saved.keys.exact];
    let since = recent.find_state(&saved.tenant, circle_of(saved), &keys, 0);
    let since = since.unwrap_err();
    move || recent.learn_absent(since, vec![place(saved)])
}

#[test]
fn what_was_looked_for_in_vain_is_not_looked_for_again() {
    let recent = RecentStates::default();
    let saved = sized(1, 10, 5);
    assert_eq!(known(&recent, &saved), None);
    miss(&recent, &saved)();
    assert_eq!(known(&recent, &saved), Some(None));
    let others = sized(1, 500, 5);
    commit(&recent, &others);
    assert_eq!(known(&recent, &saved), Some(None));
    // It comes after all.
    commit(&recent, &saved);
    assert_eq!(known(&recent, &saved), Some(Some(saved.state.clone())));
    // The first of several that is there.
    let keys = [7, 10].map(key);
    let absent = vec![key_place(circle_of(&saved), &keys[0])];
    let find = || recent.find_state(&saved.tenant, circle_of(&saved), &keys, 0);
    recent.learn_absent(find().unwrap_err(), absent);
    assert_eq!(find().unwrap().unwrap().found.at, 1);
}

#[test]
fn a_read_from_before_a_change_is_not_taken_over() {
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
fn nothing_is_said_of_it_from_before_the_commit_until_after_it() {
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
            // Read just before, or just after.
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

/// Nobody knows what of it stands in the file.
#[test]
fn what_could_not_be_committed_is_forgotten() {
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
fn what_is_removed_or_changes_with_its_session_is_forgotten() {
    let recent = RecentStates::default();
    let (saved, neighbour) = (sized(1, 10, 5), sized(2, 20, 5));
    commit(&recent, &neighbour);
    // Orders are rare: all that is known is forgotten for them.
    for removed in [true, false] {
        commit(&recent, &saved);
        let mut changes = BatchChanges::default();
        match removed {
            true => changes.add_keys(&GenerationHead::from_saved(&saved, false)),
            false => {
                // Also where it was saved to in the same transaction.
                add(&mut changes, &saved);
                changes.add_commands();
            }
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
fn what_is_old_or_another_tenants_only_the_file_can_tell() {
    let recent = RecentStates::default();
    let saved = sized(1, 10, 5);
    commit(&recent, &saved);
    let find = |tenant: &str, horizon| {
        let keys = [saved.keys.exact];
        recent.find_state(&self::tenant(tenant), circle_of(&saved), &keys, horizon)
    };
    assert!(find("a", 100).unwrap().is_some());
    assert!(find("a", 101).is_err() && find("b", 0).is_err());
}

#[test]
fn it_takes_no_more_than_it_may() {
    let recent = RecentStates::default();
    for id in 0..200 {
        let saved = sized(id, u64::from(id) * 10, 100_000);
        commit(&recent, &saved);
        assert!(recent.bytes() <= 8 << 20, "{}", recent.bytes());
        assert!(matches!(known(&recent, &saved), Some(Some(_))));
    }
    assert!(recent.bytes() > 4 << 20);
    // What takes the place of another one is counted once.
    let before = recent.bytes();
    commit(&recent, &sized(199, 1_990, 100_000));
    assert_eq!(recent.bytes(), before);
}

#[tokio::test]
async fn what_was_just_saved_needs_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let one = saved(tenant("a"), session(1), 10);
    store.save_state(one.clone()).await.unwrap();
    let known = |saved: &StateToSave| known(store.readers.recent(), saved);
    assert_eq!(known(&one), Some(Some(one.state.clone())));
    // Orders come along.
    let orders = Bytes::from_static(b"orders");
    store
        .put_commands(None, session(1), orders.clone())
        .await
        .unwrap();
    assert_eq!(known(&one), None);
    let keys = [one.keys.exact];
    for _ in 0..2 {
        let found = store
            .find_state(&one.tenant, one.opening, &keys)
            .await
            .unwrap();
        assert_eq!(found.unwrap().commands, orders);
        store.save_state(one.clone()).await.unwrap();
        assert_eq!(known(&one), Some(Some(one.state.clone())));
    }
    // Nor does what is not there.
    let absent = saved(tenant("a"), session(1), 500);
    assert!(found(&store, &one.tenant, &[500]).await.is_none());
    assert_eq!(known(&absent), Some(None));
}

#[tokio::test]
async fn a_clock_that_goes_back_makes_all_of_a_session_older() {
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

/// A session from a time that is yet to come is made older, also where it is known.
#[tokio::test]
async fn a_clock_that_goes_back_makes_what_is_known_older_at_a_tick() {
    let directory = tempfile::tempdir().unwrap();
    let (store, now) = clocked(&LIMITS, &directory);
    let one = saved(tenant("a"), session(1), 10);
    now.fetch_add(50_000, Ordering::SeqCst);
    store.save_state(one.clone()).await.unwrap();
    now.fetch_sub(50_000, Ordering::SeqCst);
    store.run_job(JobKind::Tick).await.unwrap();
    // The next job is done after what the first set off.
    store.run_job(JobKind::Tick).await.unwrap();
    now.fetch_add(LIMITS.max_age.as_secs() + 1, Ordering::SeqCst);
    assert!(found(&store, &one.tenant, &[10]).await.is_none());
}
