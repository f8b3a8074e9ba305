//! Servers that are down, slow, full or read-only: calls fail at once, and work again once the server does.

use std::time::Instant;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
};

use super::*;

async fn save(store: &RedisStore, number: u64) -> Result<(), StoreError> {
    store
        .save_state(saved(tenant("a"), session(1), number))
        .await
}

/// Waits until the store accepts a save.
async fn back(store: &RedisStore, number: u64) {
    let wait = async {
        while save(store, number).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .unwrap();
    let one = tenant("a");
    assert_eq!(found(store, &one, &[number]).await, Some((0, number)));
}

/// Checks that a call fails; returns how long it took.
async fn fails(store: &RedisStore) -> Duration {
    let begun = Instant::now();
    let failed = store.find_state(&tenant("a"), 1, &[key(1)]).await;
    assert!(
        matches!(failed, Err(StoreError::Down | StoreError::TooSlow(_))),
        "{failed:?}"
    );
    begun.elapsed()
}

/// Checks that many calls in a row fail without waiting.
async fn hundred_calls_fail_at_once(store: &RedisStore) {
    let mut waited = Duration::ZERO;
    for _ in 0..100 {
        waited += fails(store).await;
    }
    assert!(waited < Duration::from_secs(2), "{waited:?}");
}

#[tokio::test]
async fn calls_fail_at_once_until_a_killed_server_is_back() {
    let mut redis = Redis::start();
    let store = Place::of(&redis).with_default_timeout().fresh();
    for round in 1..=3 {
        back(&store, round * 10).await;
        redis.kill();
        fails(&store).await;
        hundred_calls_fail_at_once(&store).await;
        // The server has lost all data and scripts.
        redis.restart();
    }
    back(&store, 50).await;
    assert_eq!(found(&store, &tenant("a"), &[10, 20, 30]).await, None);
}

#[tokio::test]
async fn calls_fail_at_once_after_a_few_timeouts_of_a_stalled_server() {
    let redis = Redis::start();
    let store = Place::of(&redis).with_default_timeout().fresh();
    back(&store, 10).await;
    redis.stall();
    // Concurrent calls wait at the same time.
    let waiting = (0..50).map(|_| fails(&store));
    let longest = futures_util::future::join_all(waiting)
        .await
        .into_iter()
        .max();
    assert!(longest < Some(Duration::from_secs(2)), "{longest:?}");
    hundred_calls_fail_at_once(&store).await;
    redis.resume();
    back(&store, 20).await;
    assert_eq!(found(&store, &tenant("a"), &[10]).await, Some((0, 10)));
}

/// A request waits less time for a save than the store. A cancelled save counts too.
#[tokio::test]
async fn timeouts_of_cancelled_saves_take_the_store_down() {
    let redis = Redis::start();
    let store = Place::of(&redis).with_default_timeout().fresh();
    back(&store, 10).await;
    redis.stall();
    for _ in 0..3 {
        let within = Duration::from_millis(50);
        assert!(
            tokio::time::timeout(within, save(&store, 20))
                .await
                .is_err()
        );
    }
    assert!(matches!(save(&store, 30).await, Err(StoreError::Down)));
    redis.resume();
    back(&store, 40).await;
}

/// The round-trip time of a distant server that answers in time.
const DISTANCE: Duration = Duration::from_millis(80);

/// A port that forwards to the server with this delay while the tasks run.
async fn far_away(port: u16) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let local_port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else {
                continue;
            };
            let ((near, to_near), (far, to_far)) = (near.into_split(), far.into_split());
            for (mut from, mut to) in [(near, to_far), (far, to_near)] {
                let (passed, mut arriving) = mpsc::unbounded_channel();
                open.spawn(async move {
                    let mut some = vec![0; 65_536];
                    while let Ok(size @ 1..) = from.read(&mut some).await {
                        let due = tokio::time::Instant::now() + DISTANCE / 2;
                        let _ = passed.send((due, some[..size].to_vec()));
                    }
                });
                open.spawn(async move {
                    while let Some((due, some)) = arriving.recv().await {
                        tokio::time::sleep_until(due).await;
                        let _ = to.write_all(&some).await;
                    }
                });
            }
        }
    });
    (local_port, tasks)
}

/// The server is slower than requests wait for a save, and faster than the timeout of a call. All saves succeed.
#[tokio::test]
async fn a_distant_server_is_used() {
    let redis = Redis::start();
    let (port, _tasks) = far_away(redis.port()).await;
    let store = Place::new(&[format!("redis://127.0.0.1:{port}")]);
    let store = store.with_default_timeout().fresh();
    back(&store, 10).await;
    for round in 2..6_u64 {
        let within = Duration::from_millis(50);
        let unwaited =
            (0..8).map(|n| tokio::time::timeout(within, save(&store, round * 100 + n * 10)));
        let waited = futures_util::future::join_all(unwaited).await;
        assert!(waited.iter().all(Result::is_err));
        let newest = round * 100 + 70;
        let one = tenant("a");
        let landed = async { while found(&store, &one, &[newest]).await.is_none() {} };
        tokio::time::timeout(Duration::from_secs(20), landed)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_server_that_starts_later_is_found() {
    let mut redis = Redis::start();
    redis.kill();
    let store = Place::of(&redis).with_default_timeout().fresh();
    fails(&store).await;
    hundred_calls_fail_at_once(&store).await;
    redis.restart();
    back(&store, 10).await;
    // A server that accepts connections and does not answer.
    redis.stall();
    let silent = Place::of(&redis).with_default_timeout().fresh();
    assert!(fails(&silent).await < Duration::from_secs(2));
    hundred_calls_fail_at_once(&silent).await;
    redis.resume();
    back(&silent, 20).await;
}

#[tokio::test]
async fn a_full_server_refuses_saves_and_serves_finds() {
    let redis = Redis::start();
    let store = Place::of(&redis).with_default_timeout().fresh();
    let one = tenant("a");
    back(&store, 10).await;
    assert_eq!(
        redis.run_command(&["config", "set", "maxmemory", "1"]),
        "OK"
    );
    for _ in 0..5 {
        assert!(matches!(save(&store, 20).await, Err(StoreError::Down)));
        assert_eq!(found(&store, &one, &[20, 21, 22]).await, None);
        assert_eq!(found(&store, &one, &[10]).await, Some((0, 10)));
    }
    assert_eq!(
        redis.run_command(&["config", "set", "maxmemory", "0"]),
        "OK"
    );
    save(&store, 20).await.unwrap();
    assert_eq!(found(&store, &one, &[22]).await, Some((0, 20)));
}

#[tokio::test]
async fn a_read_only_replica_takes_the_store_down() {
    let redis = Redis::start();
    let store = Place::of(&redis).with_default_timeout().fresh();
    back(&store, 10).await;
    assert_eq!(redis.run_command(&["replicaof", "127.0.0.1", "1"]), "OK");
    assert!(save(&store, 20).await.is_err());
    hundred_calls_fail_at_once(&store).await;
    assert_eq!(redis.run_command(&["replicaof", "no", "one"]), "OK");
    back(&store, 30).await;
}

#[tokio::test]
async fn a_wrong_password_takes_the_store_down_until_it_is_accepted() {
    let redis = Redis::with("redis-server", &["--requirepass", "first"]);
    let place = Place::of(&redis).with_default_timeout();
    let without = place.fresh();
    let mut other = Place::of(&redis).with_default_timeout();
    other.server.password = Some(Secret::new("second"));
    let wrong = other.fresh();
    for store in [&without, &wrong] {
        fails(store).await;
        hundred_calls_fail_at_once(store).await;
    }
    let reply = redis.run_command(&[
        "-a",
        "first",
        "--no-auth-warning",
        "config",
        "set",
        "requirepass",
        "second",
    ]);
    assert_eq!(reply, "OK");
    back(&wrong, 10).await;
    fails(&without).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_cluster_is_used_again() {
    let mut cluster = Cluster::start("redis-server").await;
    let store = Place::of_cluster(&cluster).with_default_timeout().fresh();
    back(&store, 10).await;
    for node in &mut cluster.nodes {
        node.kill();
    }
    fails(&store).await;
    hundred_calls_fail_at_once(&store).await;
    for node in &mut cluster.nodes {
        node.restart();
    }
    back(&store, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_slot_is_found() {
    let cluster = Cluster::start("redis-server").await;
    let store = Place::of_cluster(&cluster).with_default_timeout().fresh();
    back(&store, 10).await;
    let base = store.key_name(Some(&tenant("a").account()), "");
    let slot = cluster.nodes[0].run_command(&["cluster", "keyslot", &base]);
    let tell = |at: usize, words: &[&str]| cluster.nodes[at].run_command(words);
    let from = (0..3).find(|at| tell(*at, &["cluster", "countkeysinslot", &slot]) != "0");
    let from = from.unwrap();
    let to = (from + 1) % 3;
    let target = tell(to, &["cluster", "myid"]);
    // An empty slot is simple to move.
    tell(from, &["flushall"]);
    for at in [to, from] {
        assert_eq!(
            tell(at, &["cluster", "setslot", &slot, "node", &target]),
            "OK"
        );
    }
    save(&store, 20).await.unwrap();
    assert_eq!(found(&store, &tenant("a"), &[20]).await, Some((0, 20)));
    assert_ne!(tell(to, &["cluster", "countkeysinslot", &slot]), "0");
}
