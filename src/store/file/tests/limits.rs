//! Expiry and the limits of count and bytes.

use std::{collections::HashSet, io::Read as _};

use tokio::task::JoinSet;

use super::*;

/// Waits until the writer removes no more sessions; returns how many are left.
async fn wait_for_expiry(store: &FileStore) -> usize {
    let wait = async {
        loop {
            let page = Page { skip: 0, take: 200 };
            tick(store).await;
            let left = store.list_sessions(None, page).await.unwrap().len();
            tick(store).await;
            if store.list_sessions(None, page).await.unwrap().len() == left {
                return left;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .unwrap()
}

#[tokio::test]
async fn the_least_recently_used_session_is_evicted_first() {
    let directory = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        max_sessions: 3,
        ..LIMITS
    };
    let (store, now) = clocked(&config, &directory);
    let one = tenant("a");
    for number in 1..=3 {
        let saved = saved(one, session(number), u64::from(number) * 10);
        store.save_state(saved).await.unwrap();
    }
    // A find of the oldest counts as a use after a part of its age.
    now.fetch_add(LIMITS.max_age.as_secs() / 64 + 1, Ordering::SeqCst);
    assert!(found(&store, &one, &[10]).await.is_some());
    store.save_state(saved(one, session(4), 40)).await.unwrap();
    assert_eq!(wait_for_expiry(&store).await, 3);
    assert!(found(&store, &one, &[20, 21, 22]).await.is_none());
    for number in [10, 30, 40] {
        assert!(found(&store, &one, &[number]).await.is_some());
    }
}

/// When the file says that its first session was last used.
async fn stored_use(store: &FileStore) -> i64 {
    let sql = "SELECT used FROM sessions ORDER BY number LIMIT 1";
    let read = store.run_read(move |file| file.query_row(sql, [], |row| row.get(0)));
    read.await.unwrap()
}

/// The sessions of a list, newest first.
async fn list_ids(store: &FileStore) -> Vec<SessionId> {
    let page = Page { skip: 0, take: 200 };
    let rows = store.list_sessions(None, page).await.unwrap();
    rows.into_iter().map(|row| row.session).collect()
}

#[tokio::test]
async fn a_use_soon_after_another_waits_until_a_list_or_the_end_needs_it() {
    let directory = tempfile::tempdir().unwrap();
    let (store, now) = clocked(&LIMITS, &directory);
    let one = tenant("a");
    let save = async |number: u8, at| {
        let saved = saved(one, session(number), at);
        store.save_state(saved).await.unwrap();
    };
    save(1, 10).await;
    save(2, 20).await;
    let first = stored_use(&store).await;
    save(1, 11).await;
    assert_eq!(stored_use(&store).await, first);
    assert_eq!(list_ids(&store).await, [session(1), session(2)]);
    let second = stored_use(&store).await;
    assert!(second > first);
    now.fetch_add(60, Ordering::SeqCst);
    save(1, 12).await;
    let third = stored_use(&store).await;
    assert!(third > second, "after a minute it is written at once");
    save(1, 13).await;
    assert_eq!(stored_use(&store).await, third);
    store.close().await;
    drop(store);
    assert!(stored_use(&open(&directory)).await > third);
}

#[tokio::test]
async fn a_use_that_waits_keeps_its_session_from_removal() {
    let directory = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        max_sessions: 3,
        ..LIMITS
    };
    let (store, _) = clocked(&config, &directory);
    let one = tenant("a");
    for (number, at) in [(1, 10), (2, 20), (3, 30), (1, 11), (4, 40)] {
        store
            .save_state(saved(one, session(number), at))
            .await
            .unwrap();
    }
    assert_eq!(wait_for_expiry(&store).await, 3);
    assert_eq!(list_ids(&store).await, [4, 1, 3].map(session));
}

#[tokio::test]
async fn uses_that_wait_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = clocked(&LIMITS, &directory);
    for round in 0..2 {
        for number in 0..batch::MAX_UNWRITTEN {
            let mut saved = saved(tenant("a"), session(0), 10 * number as u64 + round);
            saved.session = SessionId::from_bytes((number as u128 + 1).to_be_bytes());
            store.save_state(saved).await.unwrap();
        }
    }
    // They are written before the next job.
    tick(&store).await;
    assert!(!store.readers.uses_wait.load(Relaxed));
}

#[tokio::test]
async fn expired_sessions_are_not_found_and_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, now) = clocked(&LIMITS, &directory);
    let one = tenant("a");
    for number in 1..=50 {
        let saved = saved(one, session(number), u64::from(number) * 10);
        store.save_state(saved).await.unwrap();
    }
    now.fetch_add(LIMITS.max_age.as_secs(), Ordering::SeqCst);
    assert!(found(&store, &one, &[10]).await.is_some());
    assert_eq!(wait_for_expiry(&store).await, 50);
    now.fetch_add(1, Ordering::SeqCst);
    // The find a second ago was a use of the first session only.
    assert!(found(&store, &one, &[10]).await.is_some());
    assert!(found(&store, &one, &[20]).await.is_none());
    let row = store.load_session(Some(&one.account()), session(2)).await;
    assert!(row.unwrap().is_none());
    let replaced = store
        .put_commands(Some(&one.account()), session(2), "x".into())
        .await;
    assert!(!replaced.unwrap());
    assert_eq!(wait_for_expiry(&store).await, 1);
    let left = store.run_read(|file| {
        let count = |table| format!("SELECT count(*) FROM {table}");
        let counted = ["sessions", "generations", "keys"]
            .map(|table| file.query_row(&count(table), [], |row| row.get::<_, i64>(0)));
        Ok(counted.map(Result::unwrap))
    });
    assert_eq!(left.await.unwrap(), [1, 1, 3]);
}

#[tokio::test]
async fn bytes_are_bounded_and_free_pages_are_reused() {
    let directory = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        max_bytes: 2 << 20,
        ..LIMITS
    };
    let (store, _) = clocked(&config, &directory);
    let one = tenant("a");
    let path = directory.path().join("sessions.db");
    let mut largest = 0;
    for round in 0..4_u64 {
        for number in 0..200_u8 {
            let mut large = saved(
                one,
                session(number),
                round * 10_000 + u64::from(number) * 10,
            );
            large.state = Bytes::from(vec![1; 20_000]);
            store.save_state(large).await.unwrap();
        }
        let left = wait_for_expiry(&store).await;
        assert!((50..110).contains(&left), "{left}");
        let used = store.run_read(batch::used_bytes).await.unwrap();
        assert!((1 << 20..=2 << 20).contains(&used), "{used}");
        checkpoint(&store).await;
        let size = fs::metadata(&path).unwrap().len();
        assert!(
            round == 0 || size <= largest + (1 << 19),
            "{size} after {largest}"
        );
        largest = largest.max(size);
    }
}

#[tokio::test]
async fn the_session_limit_holds_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        max_sessions: 5,
        ..LIMITS
    };
    for round in 0..4_u8 {
        let (store, _) = clocked(&config, &directory);
        for number in 0..2 {
            let id = session(round * 2 + number);
            let saved = saved(tenant("a"), id, u64::from(round * 2 + number) * 10);
            store.save_state(saved).await.unwrap();
        }
        assert_eq!(
            wait_for_expiry(&store).await,
            usize::from(round * 2 + 2).min(5)
        );
    }
}

/// A find writes nothing soon after the last use.
#[tokio::test]
async fn finds_seldom_write() {
    let directory = tempfile::tempdir().unwrap();
    let (store, now) = clocked(&LIMITS, &directory);
    let one = tenant("a");
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    let used = async || {
        tick(&store).await;
        let used = store.run_read(|file| {
            file.query_row("SELECT used FROM sessions", [], |row| row.get::<_, i64>(0))
        });
        row::stamp_second(used.await.unwrap())
    };
    let share = LIMITS.max_age.as_secs() / 64;
    for (later, expected) in [(0, 100_000), (share, 100_000), (1, 100_001 + share)] {
        now.fetch_add(later, Ordering::SeqCst);
        assert!(found(&store, &one, &[10]).await.is_some());
        assert_eq!(used().await, expected);
    }
}

#[tokio::test]
async fn checkpoints_keep_the_log_short() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let one = tenant("a");
    for number in 0..300_u64 {
        let mut next = saved(one, session(1), number * 10);
        next.state = Bytes::from(vec![3; 60_000]);
        store.save_state(next).await.unwrap();
        if number % 50 == 49 {
            checkpoint(&store).await;
        }
    }
    let log = fs::metadata(directory.path().join("sessions.db-wal"))
        .unwrap()
        .len();
    assert!(log < 8 << 20, "{log}");
}

/// The log starts over although reads and writes never pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_starts_over_under_steady_load() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&directory));
    let mut load = JoinSet::new();
    for _ in 0..8 {
        let store = Arc::clone(&store);
        load.spawn(async move {
            let page = Page { skip: 0, take: 200 };
            while store.list_sessions(None, page).await.is_ok() {}
        });
    }
    for writer in 0..16_u8 {
        let store = Arc::clone(&store);
        load.spawn(async move {
            for number in 0.. {
                let at = u64::from(writer) * 1_000_000 + number * 10;
                let mut next = saved(tenant("a"), session(writer), at);
                next.state = Bytes::from(vec![3; 60_000]);
                store.save_state(next).await.unwrap();
            }
        });
    }
    // Each start of the log has another salt.
    let log = directory.path().join("sessions.db-wal");
    let salt = || {
        let mut head = [0; 24];
        let read = fs::File::open(&log).and_then(|mut log| log.read_exact(&mut head));
        read.map_or([0; 8], |()| head[16..].try_into().unwrap())
    };
    let mut salts = HashSet::new();
    let ended = async {
        while salts.len() < 3 {
            salts.insert(salt());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // On a busy machine, a start takes up to a minute.
    tokio::time::timeout(Duration::from_secs(300), ended)
        .await
        .expect("the log starts over");
    load.shutdown().await;
}

/// After the clock went back, the store still removes the least recently used session.
#[tokio::test]
async fn a_clock_that_goes_back_does_not_expire_new_sessions() {
    let directory = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        max_sessions: 3,
        ..LIMITS
    };
    let one = tenant("a");
    let save = async |store: &FileStore, number: u8| {
        let saved = saved(one, session(number), u64::from(number) * 10);
        store.save_state(saved).await.unwrap();
    };
    let (store, now) = clocked(&config, &directory);
    for number in 1..=3 {
        save(&store, number).await;
    }
    now.fetch_sub(5_000, Ordering::SeqCst);
    for number in 4..=5 {
        save(&store, number).await;
        assert_eq!(wait_for_expiry(&store).await, 3);
        assert!(
            found(&store, &one, &[u64::from(number) * 10])
                .await
                .is_some()
        );
    }
    // The clock may also go back while the store is closed.
    store.close().await;
    let (store, now) = clocked(&config, &directory);
    now.fetch_sub(5_000, Ordering::SeqCst);
    save(&store, 6).await;
    assert_eq!(wait_for_expiry(&store).await, 3);
    for number in 4..=6 {
        assert!(found(&store, &one, &[number * 10]).await.is_some());
    }
}
