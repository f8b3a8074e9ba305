//! The length of the log under steady saves.

use std::time::Instant;

use tokio::task::JoinSet;

use super::*;

/// How long the log may take to be copied on a busy machine.
const COPIED_WITHIN: Duration = Duration::from_secs(60);

/// Concurrent tasks, and the saves of each.
const AT_ONCE: u64 = 32;
const EACH: u64 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_bounded_under_steady_saves() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&directory));
    let mut running = JoinSet::new();
    for number in 0..AT_ONCE {
        let store = Arc::clone(&store);
        running.spawn(async move {
            for turn in 0..EACH {
                // Scattered, as digests are.
                let at = (number * EACH + turn).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 4;
                let id = session((number * EACH + turn) as u8);
                let mut saved = saved(tenant("a"), id, at);
                saved.opening = at;
                saved.state = Bytes::from(vec![7; 8_000]);
                store.save_state(saved).await.unwrap();
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    let log = fs::metadata(directory.path().join("sessions.db-wal")).unwrap();
    assert!(log.len() < 192 << 20, "{}", log.len());
}

/// Waits until the file without its log has so many bytes.
async fn wait_for_file(store: &FileStore, directory: &TempDir, bytes: u64) {
    let begun = Instant::now();
    let path = directory.path().join("sessions.db");
    while fs::metadata(&path).unwrap().len() < bytes {
        assert!(begun.elapsed() < COPIED_WITHIN, "the log is not copied");
        // Of a job of the writer, too many would have the log copied.
        store.run_read(|_| Ok(())).await.unwrap();
    }
}

/// Otherwise the log of a process that is killed again and again would grow without a bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_left_in_the_log_is_copied() {
    let (directory, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let save = async |store: &FileStore, at: u64| {
        let mut saved = saved(tenant("a"), session(at as u8), at);
        saved.state = Bytes::from(vec![7; 8_000]);
        store.save_state(saved).await.unwrap();
    };
    let store = open(&directory);
    save(&store, 0).await;
    // The first job has had the log of the tables copied, and nothing copies it again.
    wait_for_file(&store, &directory, 3 * 4_096).await;
    for at in 1..200 {
        save(&store, at).await;
    }
    for name in ["sessions.db", "sessions.db-wal"] {
        fs::copy(directory.path().join(name), left.path().join(name)).unwrap();
    }
    let size = |name| fs::metadata(left.path().join(name)).unwrap().len();
    assert!(size("sessions.db") < 1 << 20 && size("sessions.db-wal") > 1 << 20);
    let store = open(&left);
    save(&store, 200).await;
    wait_for_file(&store, &left, 1 << 20).await;
}
