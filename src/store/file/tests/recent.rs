//! What is known without reading says what the file says, or nothing.

use super::*;
use crate::store::{
    file::{
        read::Read,
        recent::{Change, Generation, Recent},
        row::{Head, Place, circle, key_place},
        step::Step,
    },
    key::KeyKind,
};

/// A save of that session, as the writer tells it.
fn change(id: u8, number: u64, bytes: usize) -> (Saved, Change) {
    let mut saved = saved(tenant("a"), session(id), number);
    saved.state = Bytes::from(vec![id; bytes]);
    let generation = Generation {
        tenant: saved.tenant,
        head: Head::of(&saved, false),
        state: saved.state.clone(),
        orders: Bytes::new(),
        used_s: 100,
    };
    let place = Place((i64::from(id) << 24) + number as i64);
    let change = Change::Saved(place, Arc::new(generation));
    (saved, change)
}

fn circle_of(saved: &Saved) -> u64 {
    circle(&saved.tenant, saved.opening)
}

/// Where the exact key is found: `None` where only the file can tell.
fn known(recent: &Recent, saved: &Saved) -> Option<Option<Bytes>> {
    let keys = [saved.keys.exact];
    let found = recent.find(&saved.tenant, circle_of(saved), &keys, 0);
    found.map(|hit| hit.map(|hit| hit.found.state))
}

/// All of an empty file's circle.
const NOTHING: Read = Read {
    hit: None,
    near: Some(Vec::new()),
    absent: Vec::new(),
};

#[test]
fn a_read_from_before_a_change_is_not_taken_over() {
    let recent = Recent::default();
    let (saved, change) = change(1, 10, 5);
    let since = recent.since();
    recent.apply(vec![change]);
    recent.learn(since, &saved.tenant, circle_of(&saved), &NOTHING);
    assert_eq!(known(&recent, &saved), Some(Some(saved.state.clone())));
    let other = super::saved(tenant("a"), session(1), 999);
    assert_eq!(known(&recent, &other), None, "only the file knows");
}

#[test]
fn nor_one_from_before_more_changes_than_are_remembered() {
    let recent = Recent::default();
    let (first, begun) = change(1, 10, 5);
    let since = recent.since();
    recent.apply(vec![begun]);
    for number in 0..300 {
        let (mut saved, _) = change(2, number, 5);
        saved.opening = 77;
        let head = Head::of(&saved, false);
        recent.apply(vec![Change::Gone(Place(1), head)]);
    }
    recent.learn(since, &first.tenant, circle_of(&first), &NOTHING);
    assert_eq!(known(&recent, &first), Some(Some(first.state.clone())));
}

#[test]
fn nor_one_from_before_orders_whatever_was_saved_since() {
    let recent = Recent::default();
    let elsewhere = |number| {
        let (mut saved, _) = change(2, number, 5);
        saved.opening = 77;
        Change::Gone(Place(1), Head::of(&saved, false))
    };
    recent.apply((0..300).map(elsewhere).collect());
    let (saved, _) = change(1, 10, 5);
    let since = recent.since();
    recent.apply(vec![Change::Ordered(1, Bytes::from_static(b"new"))]);
    recent.apply(vec![elsewhere(300)]);
    recent.learn(since, &saved.tenant, circle_of(&saved), &NOTHING);
    assert_eq!(known(&recent, &saved), None);
}

#[test]
fn nor_one_from_another_file() {
    let recent = Recent::default();
    let (saved, _) = change(1, 10, 5);
    let since = recent.since();
    recent.clear();
    recent.learn(since, &saved.tenant, circle_of(&saved), &NOTHING);
    assert_eq!(known(&recent, &saved), None);
    let since = recent.since();
    recent.learn(since, &saved.tenant, circle_of(&saved), &NOTHING);
    assert_eq!(known(&recent, &saved), Some(None), "nothing is stored");
}

/// Another may have read it in the file already.
#[test]
fn what_is_just_being_committed_only_the_file_can_tell() {
    let gone = |change: &Change| match change {
        Change::Saved(place, generation) => Change::Gone(*place, generation.head),
        _ => unreachable!(),
    };
    for nth in 0..5 {
        let recent = Recent::default();
        let (saved, begun) = change(1, 10, 5);
        let landing = match nth {
            0 => change(1, 10, 7).1,
            1 => gone(&begun),
            2 => Change::Used(1, 7),
            3 => Change::Ordered(1, Bytes::from_static(b"new")),
            _ => Change::Unreadable,
        };
        let (neighbour, other) = change(2, 500, 5);
        recent.apply(vec![begun, other]);
        let changes = vec![landing];
        recent.lands(&changes);
        assert_eq!(known(&recent, &saved), None, "{nth}");
        // Whoever asks for others need not care.
        let unchanged = (nth < 4).then(|| Some(neighbour.state.clone()));
        assert_eq!(known(&recent, &neighbour), unchanged, "{nth}");
        // Not what is read meanwhile either, which may be from before.
        if nth < 2 {
            let since = recent.since();
            recent.learn(since, &saved.tenant, circle_of(&saved), &NOTHING);
            assert_eq!(known(&recent, &saved), None, "{nth}");
        }
        recent.apply(changes);
        if nth == 0 {
            assert_eq!(known(&recent, &saved), Some(Some(vec![1; 7].into())));
        }
    }
}

/// Nobody knows what of it stands in the file.
#[test]
fn what_could_not_be_committed_is_forgotten() {
    let file = rusqlite::Connection::open_in_memory().unwrap();
    let pragma = "PRAGMA foreign_keys = ON; CREATE TABLE a (n PRIMARY KEY); CREATE TABLE b (n \
                  REFERENCES a DEFERRABLE INITIALLY DEFERRED);";
    file.execute_batch(pragma).unwrap();
    let recent = Recent::default();
    let (saved, begun) = change(1, 10, 5);
    recent.apply(vec![begun]);
    // What is known of others too: which of them the file has is for it to say.
    let (mut other, _) = change(2, 20, 5);
    other.opening = 77;
    recent.learn(recent.since(), &other.tenant, circle_of(&other), &NOTHING);
    let before = recent.since();
    let step = Step::begin(&file).unwrap();
    step.execute("INSERT INTO b VALUES (1)", []).unwrap();
    let changes = vec![change(1, 10, 7).1];
    recent.commit(changes, || step.commit()).unwrap_err();
    assert!(file.is_autocommit(), "it was undone");
    assert_eq!(
        (known(&recent, &saved), known(&recent, &other)),
        (None, None)
    );
    assert_eq!(recent.bytes(), 0);
    recent.learn(before, &other.tenant, circle_of(&other), &NOTHING);
    assert_eq!(known(&recent, &other), None);
    let step = Step::begin(&file).unwrap();
    let changes = vec![change(1, 10, 7).1];
    recent.commit(changes, || step.commit()).unwrap();
    assert_eq!(known(&recent, &saved), Some(Some(vec![1; 7].into())));
}

#[test]
fn nothing_is_said_of_it_from_before_the_commit_on() {
    let recent = Recent::default();
    let (saved, begun) = change(1, 10, 5);
    recent.apply(vec![begun]);
    let asked = || {
        assert_eq!(known(&recent, &saved), None);
        // Read just before, or just after: it is the same once all is told.
        recent.learn(recent.since(), &saved.tenant, circle_of(&saved), &NOTHING);
        assert_eq!(known(&recent, &saved), None);
        Ok(())
    };
    let changes = vec![change(1, 10, 6).1, change(1, 10, 7).1];
    recent.commit(changes, asked).unwrap();
    assert_eq!(known(&recent, &saved), Some(Some(vec![1; 7].into())));
}

/// Conversations of which many begin alike: more than are known at one time.
#[test]
fn what_was_looked_for_in_vain_is_not_looked_for_again() {
    let recent = Recent::default();
    let all: Vec<_> = (0..300).map(|number| change(1, number * 10, 5)).collect();
    let (first, last) = (all[0].0.clone(), all[299].0.clone());
    let stranger = saved(tenant("a"), session(1), 7_777);
    let place = key_place(circle_of(&stranger), &stranger.keys.exact);
    let read = Read {
        hit: None,
        near: None,
        absent: vec![place],
    };
    recent.learn(
        recent.since(),
        &stranger.tenant,
        circle_of(&stranger),
        &read,
    );
    assert_eq!(known(&recent, &stranger), Some(None));
    for (_, change) in all {
        recent.apply(vec![change]);
        assert!(recent.bytes() < 64 << 10, "{}", recent.bytes());
    }
    assert_eq!(known(&recent, &stranger), Some(None));
    assert_eq!(known(&recent, &first), None, "only the file knows");
    assert_eq!(known(&recent, &last), Some(Some(last.state.clone())));
    // It comes after all.
    let (saved, begun) = change(1, 7_777, 9);
    recent.apply(vec![begun]);
    assert_eq!(known(&recent, &saved), Some(Some(saved.state.clone())));
    let (_, Change::Saved(place, generation)) = change(1, 7_777, 9) else {
        unreachable!()
    };
    recent.apply(vec![Change::Gone(place, generation.head)]);
    assert_eq!(known(&recent, &saved), None);
}

#[test]
fn of_many_keys_in_vain_the_newest_are_known() {
    let recent = Recent::default();
    let all = |from: u64| (from..from + 700).map(|number| saved(tenant("a"), session(1), number));
    let circle = circle_of(&saved(tenant("a"), session(1), 1));
    for from in [0, 10_000, 20_000] {
        let absent = all(from).map(|saved| key_place(circle, &saved.keys.exact));
        let read = Read {
            hit: None,
            near: None,
            absent: absent.collect(),
        };
        recent.learn(recent.since(), &tenant("a"), circle, &read);
        assert!(all(from).all(|saved| known(&recent, &saved) == Some(None)));
        assert!(recent.bytes() < 64 << 10, "{}", recent.bytes());
    }
    let first = all(0)
        .map(|saved| known(&recent, &saved))
        .collect::<Vec<_>>();
    assert_eq!(first, vec![None; 700]);
    // Once all are known, none of them has to be told apart.
    recent.learn(recent.since(), &tenant("a"), circle, &NOTHING);
    assert!(all(0).all(|saved| known(&recent, &saved) == Some(None)));
}

/// Half of a key is its place; the rest is compared.
#[test]
fn keys_that_share_their_place_are_told_apart() {
    let recent = Recent::default();
    let (saved, begun) = change(1, 10, 5);
    recent.apply(vec![begun]);
    let mut other = saved.clone();
    let mut bytes = *saved.keys.exact.bytes();
    bytes[15] = 1;
    other.keys.exact = Key::from_bytes(bytes);
    assert!(known(&recent, &other).is_none_or(|hit| hit.is_none()));
}

/// What is learnt and what is told of sessions counts as well.
#[test]
fn all_that_it_takes_is_counted() {
    let recent = Recent::default();
    for id in 1..=250_u8 {
        let (mut saved, begun) = change(id, 10, 60_000);
        saved.opening = id.into();
        let Change::Saved(place, generation) = begun else {
            unreachable!()
        };
        let head = Head::of(&saved, false);
        let hit = Hit {
            found: Found {
                at: 0,
                state: generation.state.clone(),
                orders: Bytes::new(),
            },
            place,
            kind: KeyKind::Exact,
            head,
            used_s: 100,
        };
        let read = Read {
            hit: Some(hit),
            ..NOTHING
        };
        recent.learn(recent.since(), &saved.tenant, circle_of(&saved), &read);
        assert!(recent.bytes() <= 8 << 20, "{}", recent.bytes());
    }
    let before = recent.bytes();
    assert!(before > 4 << 20);
    recent.apply(vec![Change::Ordered(250, Bytes::from(vec![0; 60_000]))]);
    assert!(recent.bytes() > before || before + 60_000 > 8 << 20);
    for id in 1..=250 {
        recent.apply(vec![Change::Ordered(id, Bytes::from(vec![0; 60_000]))]);
        assert!(recent.bytes() <= 8 << 20, "{}", recent.bytes());
    }
}

#[test]
fn what_is_gone_is_not_found() {
    let recent = Recent::default();
    let (saved, begun) = change(1, 10, 5);
    let Change::Saved(place, generation) = &begun else {
        unreachable!()
    };
    let gone = Change::Gone(*place, generation.head);
    recent.apply(vec![begun, gone]);
    assert_eq!(known(&recent, &saved), None);
    let (_, again) = change(1, 10, 5);
    recent.apply(vec![again, Change::Unreadable]);
    assert_eq!(known(&recent, &saved), None);
}

#[test]
fn another_tenant_finds_nothing_even_in_the_same_circle() {
    let recent = Recent::default();
    let (saved, begun) = change(1, 10, 5);
    recent.apply(vec![begun]);
    let keys = [saved.keys.exact];
    let found = recent.find(&tenant("b"), circle_of(&saved), &keys, 0);
    assert!(found.is_none_or(|hit| hit.is_none()));
}

#[test]
fn it_takes_no_more_than_it_may() {
    let recent = Recent::default();
    let mut last = None;
    for id in 0..200 {
        let (mut saved, _) = change(id, u64::from(id) * 10, 1);
        saved.opening = id.into();
        let generation = Generation {
            tenant: saved.tenant,
            head: Head::of(&saved, false),
            state: Bytes::from(vec![id; 100_000]),
            orders: Bytes::new(),
            used_s: 100,
        };
        let place = Place(i64::from(id) << 24);
        recent.apply(vec![Change::Saved(place, Arc::new(generation))]);
        assert!(recent.bytes() <= 8 << 20, "{}", recent.bytes());
        last = Some(saved);
    }
    assert!(matches!(known(&recent, &last.unwrap()), Some(Some(_))));
    assert!(recent.bytes() > 4 << 20);
}

#[tokio::test]
async fn what_was_just_saved_or_read_needs_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let one = saved(tenant("a"), session(1), 10);
    store.save(one.clone()).await.unwrap();
    let known = |store: &FileStore| known(store.readers.recent(), &one);
    assert_eq!(known(&store), Some(Some(one.state.clone())));
    store.readers.recent().clear();
    assert_eq!(known(&store), None);
    let keys = [one.keys.exact];
    let found = store.find(&one.tenant, one.opening, &keys).await.unwrap();
    assert_eq!(found.unwrap().state, one.state);
    assert_eq!(known(&store), Some(Some(one.state.clone())));
    // Orders come along.
    let orders = Bytes::from_static(b"orders");
    store.order(None, session(1), orders.clone()).await.unwrap();
    let found = store.find(&one.tenant, one.opening, &keys).await.unwrap();
    assert_eq!(found.unwrap().orders, orders);
}

#[tokio::test]
async fn a_clock_that_goes_back_makes_all_of_a_session_older() {
    let directory = tempfile::tempdir().unwrap();
    let (store, now) = clocked(&LIMITS, &directory);
    let one = tenant("a");
    now.fetch_add(5_000, Ordering::SeqCst);
    store.save(saved(one, session(1), 10)).await.unwrap();
    now.fetch_sub(5_000, Ordering::SeqCst);
    store.save(saved(one, session(1), 20)).await.unwrap();
    now.fetch_add(LIMITS.max_age.as_secs() + 1, Ordering::SeqCst);
    for number in [10, 20] {
        assert!(found(&store, &one, &[number]).await.is_none(), "{number}");
    }
}

#[tokio::test]
async fn what_a_tool_from_outside_changed_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let one = saved(tenant("a"), session(1), 10);
    store.save(one.clone()).await.unwrap();
    for what in [What::Tick, What::Carry, What::Tick] {
        store.ask(what).await.unwrap();
        assert!(
            known(store.readers.recent(), &one).is_some(),
            "ours are no others"
        );
    }
    let outside = rusqlite::Connection::open(directory.path().join("sessions.db")).unwrap();
    let tables = ["keys", "generations", "sessions"];
    let all = tables.map(|table| format!("DELETE FROM {table};")).concat();
    outside.execute_batch(&all).unwrap();
    store.ask(What::Tick).await.unwrap();
    assert!(found(&store, &one.tenant, &[10]).await.is_none());
}

/// A session from a time that is yet to come is made older, also where it is known.
#[tokio::test]
async fn a_clock_that_goes_back_makes_what_is_known_older_at_a_tick() {
    let directory = tempfile::tempdir().unwrap();
    let (store, now) = clocked(&LIMITS, &directory);
    let one = saved(tenant("a"), session(1), 10);
    now.fetch_add(50_000, Ordering::SeqCst);
    store.save(one.clone()).await.unwrap();
    now.fetch_sub(50_000, Ordering::SeqCst);
    store.ask(What::Tick).await.unwrap();
    // The next job is done after what the first set off.
    store.ask(What::Tick).await.unwrap();
    assert!(known(store.readers.recent(), &one).is_some());
    let horizon = now.load(Ordering::SeqCst) + 1;
    let keys = [one.keys.exact];
    let recent = store.readers.recent();
    let hit = recent.find(&one.tenant, circle_of(&one), &keys, horizon);
    assert!(hit.is_none(), "it was used in the past");
}

/// Also where it is met first by a save: what is sound is not set aside, and nothing expires for what is
/// gone.
#[tokio::test]
async fn sessions_that_a_tool_brought_or_took_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        max_sessions: 7,
        ..LIMITS
    };
    let (store, _) = clocked(&config, &directory);
    let one = tenant("a");
    for number in 1..=4 {
        let saved = saved(one, session(number), u64::from(number) * 10);
        store.save(saved).await.unwrap();
    }
    let outside = rusqlite::Connection::open(directory.path().join("sessions.db")).unwrap();
    let brought = "INSERT INTO sessions SELECT number + 4, account, x'00', tenant, saved_s, used, orders \
                   FROM sessions WHERE number < 3";
    outside.execute(brought, []).unwrap();
    store.save(saved(one, session(5), 50)).await.unwrap();
    assert_eq!(
        files(&directory, "sessions.db.damaged"),
        Vec::<String>::new()
    );
    assert_eq!(found(&store, &one, &[50]).await, Some((0, 50)));
    outside.execute("DELETE FROM sessions WHERE number > 3 AND session <> x'05050505050505050505050505050505'", []).unwrap();
    for number in [6, 7] {
        let saved = saved(one, session(number), u64::from(number) * 10);
        store.save(saved).await.unwrap();
    }
    for _ in 0..2 {
        store.ask(What::Tick).await.unwrap();
    }
    for number in [10, 20, 30, 50, 60, 70] {
        assert!(found(&store, &one, &[number]).await.is_some(), "{number}");
    }
}

#[test]
fn what_was_absent_just_before_the_commit_is_found_after_it() {
    let recent = Recent::default();
    let (saved, begun) = change(1, 10, 5);
    let absent = Read {
        hit: None,
        near: None,
        absent: vec![key_place(circle_of(&saved), &saved.keys.exact)],
    };
    let read = || {
        recent.learn(recent.since(), &saved.tenant, circle_of(&saved), &absent);
        Ok(())
    };
    recent.commit(vec![begun], read).unwrap();
    assert_eq!(known(&recent, &saved), Some(Some(saved.state.clone())));
}
