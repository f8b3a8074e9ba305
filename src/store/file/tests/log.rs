//! The length of the log under steady saves.

use tokio::task::JoinSet;

use super::*;

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
