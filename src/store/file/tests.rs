use std::{
    fs,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use tempfile::TempDir;

use super::*;
use crate::{
    config::StorePlace,
    store::tests::{self as suite, found, found_of, key, saved, session, tenant},
};

mod damage;
mod faults;
mod limits;
mod log;
mod model;
mod recent;

const LIMITS: StoreConfig = StoreConfig {
    max_sessions: 1_000,
    max_bytes: 64 << 20,
    max_age: Duration::from_secs(6_400),
    timeout: Duration::from_millis(250),
    place: StorePlace::File,
    encrypt_key: None,
};

fn open(directory: &TempDir) -> FileStore {
    FileStore::open(&LIMITS, directory.path()).unwrap()
}

/// A store with a clock that the test moves.
fn clocked(config: &StoreConfig, directory: &TempDir) -> (FileStore, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(100_000));
    let clock = {
        let now = Arc::clone(&now);
        Arc::new(move || now.load(Ordering::SeqCst))
    };
    let store =
        FileStore::with_limits(StoreLimits::with_clock(config, clock), directory.path()).unwrap();
    (store, now)
}

/// Runs a function on the writer's connection.
async fn run(store: &FileStore, run: fn(&Connection)) -> Result<bool, StoreError> {
    let run = move |batch: &mut Batch<'_>| {
        run(batch);
        Ok(Ok(true))
    };
    store.run_write(run).await
}

/// Lets the writer check the limits.
async fn tick(store: &FileStore) {
    // The writer checks them after some jobs, and before the next group.
    for _ in 0..=writer::CHECK_AFTER {
        run(store, |_| {}).await.unwrap();
    }
}

/// Copies the log into the file.
async fn checkpoint(store: &FileStore) {
    store.run_read(open::checkpoint).await.unwrap();
}

/// Names of the files in a directory with this prefix.
fn files(directory: &TempDir, beginning: &str) -> Vec<String> {
    let all = fs::read_dir(directory.path()).unwrap();
    let names = all.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with(beginning)).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_guarantees_of_every_store() {
    let directory = tempfile::tempdir().unwrap();
    let count = AtomicUsize::new(0);
    suite::check(|| {
        let name = count.fetch_add(1, Ordering::SeqCst).to_string();
        Arc::new(FileStore::open(&LIMITS, &directory.path().join(name)).unwrap())
    })
    .await;
}

#[tokio::test]
async fn states_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let one = tenant("a");
    for round in 0..5_u8 {
        let store = open(&directory);
        for number in 0..round {
            let at = u64::from(number) * 10;
            assert_eq!(found(&store, &one, &[at]).await, Some((0, at)));
            let hit = store
                .find_state(&one, 1, &[key(at)])
                .await
                .unwrap()
                .unwrap();
            assert_eq!(hit.commands, [number; 3].to_vec());
        }
        assert_eq!(store.shared_version(), u64::from(round));
        let at = u64::from(round) * 10;
        store
            .save_state(saved(one, session(round), at))
            .await
            .unwrap();
        let commands = Bytes::from(vec![round; 3]);
        let replaced = store.put_commands(None, session(round), commands).await;
        assert!(replaced.unwrap());
        store
            .publish_shared(&[round], "value".into())
            .await
            .unwrap();
        let shared = store.read_shared().await.unwrap();
        assert_eq!(
            (shared.version, shared.all.len()),
            (u64::from(round) + 1, usize::from(round) + 1)
        );
        // Alternates between a close and a drop.
        if round % 2 == 0 {
            store.close().await;
            assert_eq!(files(&directory, "sessions.db-"), Vec::<String>::new());
            let asked = store.find_state(&one, 1, &[key(0)]).await;
            assert!(matches!(asked, Err(StoreError::Unreachable(_))));
            assert!(store.save_state(saved(one, session(9), 90)).await.is_err());
        }
    }
}

#[tokio::test]
async fn an_ambiguous_key_stays_ambiguous_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let one = tenant("a");
    for number in [10, 20, 30, 40] {
        let store = open(&directory);
        let mut saved = saved(one, session(1), number);
        saved.keys.bare = key(500);
        store.save_state(saved).await.unwrap();
        let good = (number == 10).then_some((0, 10));
        assert_eq!(found(&store, &one, &[500]).await, good);
    }
}

/// All keys of conversations with one opening share a prefix group.
#[tokio::test]
async fn conversations_with_one_opening_are_distinguished() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let one = tenant("a");
    for number in 0..200_u8 {
        let saved = saved(one, session(number), u64::from(number) * 10);
        store.save_state(saved).await.unwrap();
    }
    for number in 0..200 {
        let keys: Vec<_> = [7_777, number * 10 + 1, number * 10].map(key).to_vec();
        assert_eq!(
            found_of(&store, &one, 1, &keys).await,
            Some((1, number * 10))
        );
        assert_eq!(found_of(&store, &one, 2, &keys).await, None);
    }
    assert_eq!(found(&store, &tenant("b"), &[10]).await, None);
    let many: Vec<_> = (0..768).map(|n| 100_000 + n).collect();
    assert_eq!(found(&store, &one, &many).await, None);
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    store
        .save_state(saved(tenant("a"), session(1), 10))
        .await
        .unwrap();
    let all = files(&directory, "sessions");
    assert_eq!(all.len(), 4, "{all:?}");
    for name in all {
        let rights = fs::metadata(directory.path().join(name))
            .unwrap()
            .permissions();
        assert_eq!(rights.mode() & 0o777, 0o600);
    }
}
