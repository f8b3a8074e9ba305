//! The store with real servers, which these tests start.

use std::{sync::Arc, time::Duration};

use super::*;
use crate::{
    config::{StorePlace, secret::Secret},
    store::{
        StoreError,
        tests::{self as suite, found, key, saved, session, tenant},
    },
};

mod down;
mod model;
#[path = "../../../tests/it/support/redis.rs"]
#[allow(dead_code, reason = "the integration tests use other parts of it")]
mod server;
mod trips;

use server::{Cluster, PASSWORD, Redis, wait_until};

/// Makes empty stores in one server.
struct Place {
    server: RedisConfig,
    /// Long enough for a busy machine.
    timeout: Duration,
    made: AtomicU64,
}

impl Place {
    fn new(urls: &[String]) -> Self {
        let server = RedisConfig {
            nodes: urls.iter().map(Secret::new).collect(),
            cluster: urls.len() > 1,
            password: None,
            prefix: "mine:".into(),
            ca_file: None,
        };
        Self {
            server,
            timeout: Duration::from_secs(10),
            made: AtomicU64::new(0),
        }
    }

    fn of(redis: &Redis) -> Self {
        Self::new(&[redis.url()])
    }

    /// With the default timeout of the proxy.
    fn with_default_timeout(self) -> Self {
        Self {
            timeout: StoreConfig::default().timeout,
            ..self
        }
    }

    fn of_cluster(cluster: &Cluster) -> Self {
        let urls: Vec<_> = cluster.nodes.iter().map(Redis::url).collect();
        Self::new(&urls)
    }

    fn fresh(&self) -> RedisStore {
        self.limited(100, Duration::from_secs(3_600))
    }

    fn limited(&self, max_sessions: usize, max_age: Duration) -> RedisStore {
        let number = self.made.fetch_add(1, Relaxed);
        let server = RedisConfig {
            prefix: format!("mine:{number}:"),
            ..self.server.clone()
        };
        let config = StoreConfig {
            place: StorePlace::Redis(Box::new(server.clone())),
            max_sessions,
            max_bytes: 1 << 20,
            max_age,
            timeout: self.timeout,
            encrypt_key: None,
        };
        RedisStore::open(&config, &server).unwrap()
    }
}

async fn check(place: &Place) {
    suite::check(|| Arc::new(connected(place.fresh()))).await;
}

/// Waits for the connection: on a busy machine the first attempt may fail, and calls fail at once
/// meanwhile.
fn connected(store: RedisStore) -> RedisStore {
    let one = tenant("nobody");
    let wait = async {
        while store
            .find_state(&one, 1, &[StateKey::from_bytes([0; 16])])
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let wait = async { tokio::time::timeout(Duration::from_secs(20), wait).await };
    let waited = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(wait));
    waited.expect("the server is there");
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_guarantees_of_every_store() {
    for program in server::programs() {
        check(&Place::of(&Redis::with(program, &[]))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_guarantees_with_tls_user_and_database() {
    for program in server::programs() {
        let redis = Redis::with_tls(program);
        let url = format!("rediss://plimsoll@127.0.0.1:{}/3", redis.port());
        let mut place = Place::new(&[url]);
        place.server.password = Some(Secret::new(PASSWORD));
        place.server.ca_file = Some(redis.ca_file());
        check(&place).await;
        // The password may stand in the address too.
        let password: String =
            percent_encoding::utf8_percent_encode(PASSWORD, percent_encoding::NON_ALPHANUMERIC)
                .collect();
        let url = format!("rediss://plimsoll:{password}@localhost:{}/3", redis.port());
        let inside = Place::new(&[url]);
        let server = RedisConfig {
            ca_file: Some(redis.ca_file()),
            ..inside.server.clone()
        };
        let inside = Place { server, ..inside }.fresh();
        inside
            .save_state(saved(tenant("a"), session(1), 10))
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_guarantees_in_a_cluster() {
    for program in server::programs() {
        let cluster = Cluster::start(program).await;
        let place = Place::of_cluster(&cluster);
        check(&place).await;
        let store = connected(place.fresh());
        for number in 0..40 {
            let one = tenant(&number.to_string());
            store
                .save_state(saved(one, session(number), 10))
                .await
                .unwrap();
            assert_eq!(found(&store, &one, &[10]).await, Some((0, 10)));
        }
        let page = Page { skip: 0, take: 99 };
        assert_eq!(store.list_sessions(None, page).await.unwrap().len(), 40);
        for node in &cluster.nodes {
            assert!(
                node.run_command(&["dbsize"]) != "0",
                "all three nodes have keys"
            );
        }
    }
}

#[tokio::test]
async fn an_idle_session_expires_as_a_whole() {
    let redis = Redis::start();
    let store = Place::of(&redis).limited(100, Duration::from_millis(600));
    let one = tenant("a");
    for number in [10, 20, 30] {
        store
            .save_state(saved(one, session(1), number))
            .await
            .unwrap();
    }
    store.save_state(saved(one, session(2), 500)).await.unwrap();
    let begun = std::time::Instant::now();
    wait_until(|| redis.run_command(&["exists", "nothing"]) == "0").await;
    // A use of the newest state keeps its ancestors too.
    while begun.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(found(&store, &one, &[30]).await, Some((0, 30)));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(found(&store, &one, &[500, 501, 502]).await, None);
    assert_eq!(found(&store, &one, &[12]).await, Some((0, 10)));
    let account = one.account();
    assert!(
        store
            .load_session(Some(&account), session(2))
            .await
            .unwrap()
            .is_none()
    );
    let rows = store.list_sessions(Some(&account), Page { skip: 0, take: 9 });
    assert!(rows.await.unwrap().len() <= 1);
    wait_until(|| {
        let left = redis.run_command(&["keys", "*"]);
        left.lines().all(|name| name.ends_with("}p"))
    })
    .await;
}

#[tokio::test]
async fn every_key_expires() {
    let redis = Redis::start();
    let store = Place::of(&redis).limited(3, Duration::from_secs(1_000));
    for number in 1..=9 {
        let one = tenant(if number % 2 == 0 { "a" } else { "b" });
        store
            .save_state(saved(one, session(number), u64::from(number) * 10))
            .await
            .unwrap();
        store.publish_shared(&[number], "x".into()).await.unwrap();
    }
    let names = redis.run_command(&["eval", TIMES, "0"]);
    assert!(names.lines().count() > 40, "{names}");
    for line in names.lines() {
        let (time, name) = line.split_once(' ').unwrap();
        let time: i64 = time.parse().unwrap();
        assert!(time > 0 && time <= 1_125_000, "{line}");
        assert!(name == "mine:0:{", "{line}");
    }
    // The lists are bounded by count too.
    let page = Page { skip: 0, take: 9 };
    assert_eq!(store.list_sessions(None, page).await.unwrap().len(), 3);
    let account = tenant("a").account();
    assert_eq!(
        store
            .list_sessions(Some(&account), page)
            .await
            .unwrap()
            .len(),
        3
    );
    assert!(
        store
            .load_session(None, session(1))
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        store
            .load_session(None, session(9))
            .await
            .unwrap()
            .is_some()
    );
    assert!(found(&store, &tenant("b"), &[10]).await.is_some());
}

/// The time to live (ms) of each key, and the start of its name.
const TIMES: &str = "local all = {}
    for _, name in ipairs(redis.call('KEYS', '*')) do
      all[#all + 1] = redis.call('PTTL', name) .. ' ' .. string.sub(name, 1, 8)
    end
    return table.concat(all, '\\n')";

#[tokio::test]
async fn a_session_is_bounded_in_bytes() {
    let redis = Redis::start();
    let store = Place::of(&redis).fresh();
    let one = tenant("a");
    for number in 1..=60 {
        let mut large = saved(one, session(1), number * 10);
        large.opening = number / 4;
        large.state = Bytes::from(vec![7; 128 << 10]);
        store.save_state(large).await.unwrap();
    }
    let there = |number: u64| {
        let key = [key(number * 10)];
        let (store, one) = (&store, &one);
        async move { store.find_state(one, 1, &key).await.unwrap().is_some() }
    };
    assert!(there(60).await && there(30).await);
    assert!(!there(28).await && !there(1).await);
}

/// Remaining keys of an evicted session lead to no other state.
#[tokio::test]
async fn an_evicted_session_is_never_found_as_another() {
    let redis = Redis::start();
    let store = Place::of(&redis).fresh();
    let one = tenant("a");
    for number in [10, 20] {
        store
            .save_state(saved(one, session(1), number))
            .await
            .unwrap();
    }
    let push = "for _, name in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', name) end";
    redis.run_command(&["eval", push, "0", "*}s*"]);
    assert_eq!(found(&store, &one, &[10, 11, 12, 20]).await, None);
    store.save_state(saved(one, session(1), 30)).await.unwrap();
    assert_eq!(found(&store, &one, &[10, 11, 12, 20]).await, None);
    assert_eq!(found(&store, &one, &[32]).await, Some((0, 30)));
}

#[tokio::test]
async fn an_unexpected_reply_is_damage() {
    let redis = Redis::start();
    let store = Place::of(&redis).fresh();
    let one = tenant("a");
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    let spoil = "for _, name in ipairs(redis.call('KEYS', '*}o')) do
        redis.call('HSET', name, string.rep('\\1', 16), 'short') end";
    redis.run_command(&["eval", spoil, "0"]);
    let damaged = store.load_session(None, session(1)).await;
    assert!(matches!(damaged, Err(StoreError::Damaged)), "{damaged:?}");
}

#[tokio::test]
async fn a_cancelled_save_is_atomic() {
    let redis = Redis::start();
    let store = Place::of(&redis).fresh();
    let one = tenant("a");
    // The server learns the scripts.
    store.save_state(saved(one, session(1), 1)).await.unwrap();
    found(&store, &one, &[1]).await;
    let (mut landed, mut lost) = (0, 0);
    for number in 1..=200_u64 {
        let wait = Duration::from_micros(number * 2 % 400);
        let saving = store.save_state(saved(one, session(number as u8), number * 10));
        let _ = tokio::time::timeout(wait, saving).await;
        let mut there = Vec::new();
        for key in [0, 1, 2] {
            there.push(found(&store, &one, &[number * 10 + key]).await);
        }
        let whole = there.iter().all(Option::is_some);
        assert!(whole || there.iter().all(Option::is_none), "{there:?}");
        *if whole { &mut landed } else { &mut lost } += 1;
    }
    println!("{landed} landed, {lost} did not");
}

#[test]
fn errors_of_addresses_never_repeat_the_password() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let open = |url: &str, ca: Option<&std::path::Path>| {
        let mut place = Place::new(&[url.to_owned()]);
        place.server.ca_file = ca.map(Into::into);
        let error = address::parse_address(&place.server)
            .err()
            .unwrap()
            .to_string();
        assert!(!error.contains("sk-secret"), "{error}");
        error
    };
    let secure = "rediss://:sk-secret@localhost";
    assert!(open(secure, Some(&path)).contains("ca.pem"));
    for text in [
        "",
        "no certificate",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        std::fs::write(&path, text).unwrap();
        assert!(open(secure, Some(&path)).contains("ca.pem holds no certificates"));
    }
    assert!(open("redis://:sk-secret@localhost", Some(&path)).contains("rediss://"));
    assert!(open("redis://:sk-secret@0.0.0.0", None).contains("store.url"));
}

#[tokio::test]
async fn each_account_has_one_slot() {
    let store = Place::new(&["redis://127.0.0.1:1".to_owned()]).fresh();
    let account = tenant("a").account();
    let tag = hex::encode(account.as_bytes());
    assert_eq!(
        store.key_name(Some(&account), ""),
        format!("mine:0:{{{tag}}}")
    );
    assert_eq!(store.key_name(None, "v"), "mine:0:{all}v");
}

#[tokio::test]
async fn an_older_version_never_replaces_a_newer_one() {
    let store = Place::new(&["redis://127.0.0.1:1".to_owned()]).fresh();
    store.note_version(5);
    store.note_version(3);
    assert_eq!(store.shared_version(), 5);
}
