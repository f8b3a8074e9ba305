use std::time::UNIX_EPOCH;

use super::{
    row::{RATIO, WINDOW},
    *,
};
use crate::{
    config::{Config, StoreConfig},
    provider::{
        learnt_windows::{Lessons, RefusedPrompt},
        overflow::Overflow,
    },
    store::{SessionId, memory::MemoryStore},
    unix_time::unix_ms_now,
};

const WITHIN: Duration = Duration::from_millis(50);
/// Digest of the built-in provider's address.
const HERE: u64 = 0x2d06_8005_38d3_94c2;

/// One process.
struct Replica {
    registry: Registry,
    ratios: Arc<TokenRatios>,
    replica_sync: ReplicaSync,
}

impl Replica {
    fn new(store: &Arc<MemoryStore>) -> Self {
        let ratios = Arc::<TokenRatios>::default();
        Self {
            registry: Registry::new(&Config::default()).unwrap(),
            ratios: Arc::clone(&ratios),
            replica_sync: ReplicaSync::new(
                Arc::clone(store) as Arc<dyn Store>,
                Arc::default(),
                ratios,
                StoreConfig::default().timeout,
            ),
        }
    }

    async fn publish(&self) {
        self.replica_sync.mark_changed(&self.target());
        self.replica_sync.publish(&self.registry, WITHIN).await;
    }

    async fn pull(&self) -> bool {
        self.replica_sync.pull(&self.registry, true).await
    }

    fn target(&self) -> Target {
        self.registry.resolve_target("simulated/m", None).unwrap()
    }

    fn refuse(&self, window: u32) {
        let mut target = self.target();
        target.window.tokens = 100_000;
        let refused = RefusedPrompt {
            overflow: Overflow {
                window: Some(window),
                ..Overflow::default()
            },
            claimed: target.window,
            expected: 90_000,
            answer: 0,
            reserve: 0,
            answered: 0,
            by_one_host: false,
        };
        self.registry.learn_from_refusal(&target, &refused);
    }

    /// Three sessions have this many tokens for 10,000 raw ones.
    fn agree_on(&self, reported: u32) {
        for number in 1..=3 {
            let session = SessionId::from_bytes([number; 16]);
            self.ratios
                .learn_ratio("simulated", "m", session, 10_000, reported);
        }
    }

    fn accept(&self, tokens: u32) {
        let learnt = &self.registry.learnt;
        learnt.record_accepted_prompt(&self.target().lesson_key(), tokens, SystemTime::now());
    }

    fn endpoint(&self) -> Arc<str> {
        Arc::clone(&self.registry.find_provider("simulated").unwrap().endpoint)
    }

    fn window(&self) -> Option<u32> {
        let learnt = &self.registry.learnt;
        learnt
            .find_bounds(&self.target().lesson_key(), 0, SystemTime::now())
            .window
    }

    fn ratio(&self) -> Option<f64> {
        self.ratios.known_ratio("simulated", "m")
    }
}

/// The name of a row about the model `m`.
fn name(kind: u8, address_digest: u64, provider: &str) -> Bytes {
    let name = RowName {
        kind,
        address_digest,
        provider: provider.into(),
        model: "m".into(),
        scope: LessonScope::default(),
    };
    name.to_bytes()
}

fn stamped(at_ms: u64, learnt: SharedFact) -> Bytes {
    StampedFact { at_ms, learnt }.to_bytes()
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(&StoreConfig::default()))
}

fn pair() -> (Arc<MemoryStore>, Replica, Replica) {
    let store = store();
    let (one, other) = (Replica::new(&store), Replica::new(&store));
    (store, one, other)
}

#[tokio::test]
async fn lessons_reach_other_replicas() {
    let (_, one, other) = pair();
    one.refuse(16_000);
    one.agree_on(13_000);
    one.publish().await;
    assert!(other.pull().await);
    assert_eq!((other.window(), other.ratio()), (Some(16_000), Some(1.3)));
    // Nothing new: nothing is read.
    assert!(!other.pull().await);
    // A lesson that two replicas have is published once.
    let version = other.replica_sync.store.shared_version();
    other.publish().await;
    one.publish().await;
    assert_eq!(other.replica_sync.store.shared_version(), version);
}

#[tokio::test]
async fn lessons_outlive_the_process() {
    let store = store();
    let before = Replica::new(&store);
    before.refuse(16_000);
    before.publish().await;
    drop(before);
    let after = Replica::new(&store);
    assert!(after.pull().await);
    assert_eq!(after.window(), Some(16_000));
}

#[tokio::test]
async fn lessons_return_with_a_provider_that_is_configured_again() {
    let (_, one, other) = pair();
    one.refuse(16_000);
    one.publish().await;
    other.pull().await;
    other
        .registry
        .learnt
        .forget_lessons(&other.endpoint(), None);
    assert!(!other.pull().await);
    other.replica_sync.pull_again();
    assert!(other.pull().await);
    assert_eq!(other.window(), Some(16_000));
}

#[tokio::test]
async fn disproved_lessons_are_dropped_by_all_replicas() {
    let (_, one, other) = pair();
    one.refuse(16_000);
    one.publish().await;
    other.pull().await;
    other.accept(30_000);
    assert_eq!(other.window(), None);
    other.publish().await;
    assert!(one.pull().await);
    assert_eq!(one.window(), None);
    // A replica whose provider has just disproved it ignores it too.
    let third = Replica::new(&store());
    third.accept(30_000);
    let at_ms = unix_ms_now() - 1_000;
    let lessons = Lessons {
        window: Some(crate::provider::learnt_windows::DatedTokens {
            tokens: 16_000,
            since_ms: at_ms,
            max_age_ms: 3_600_000,
        }),
        ..Lessons::default()
    };
    let value = stamped(at_ms, SharedFact::Window(lessons));
    let name = name(WINDOW, HERE, "simulated");
    let store = Arc::clone(&third.replica_sync.store);
    store.publish_shared(&name, value).await.unwrap();
    assert!(third.pull().await);
    assert_eq!(third.window(), None);
    // Its next answer publishes that.
    let version = store.shared_version();
    third.replica_sync.publish(&third.registry, WITHIN).await;
    assert!(store.shared_version() > version);
}

/// The lessons of an account reach that account at other replicas, and leave room in the store for those of others.
#[tokio::test]
async fn each_account_has_its_lessons_and_a_part_of_the_store() {
    let (store, one, other) = pair();
    let of = |account: u8, model: usize| {
        let mut target = one.target();
        target.model = format!("m{model}");
        target.scope.account = Some(crate::store::Account::from_bytes([account; 16]));
        target
    };
    let learn = async |target: &Target| {
        let (learnt, key) = (&one.registry.learnt, target.lesson_key());
        learnt.record_truncation(&key, 4_096, SystemTime::now());
        one.replica_sync.mark_changed(target);
        one.replica_sync.publish(&one.registry, WITHIN * 100).await;
    };
    for model in 0..MAX_ROWS_OF_ACCOUNT + 5 {
        learn(&of(1, model)).await;
    }
    learn(&of(2, 7)).await;
    let shared = store.read_shared().await.unwrap().all;
    assert_eq!(shared.len(), MAX_ROWS_OF_ACCOUNT + 1);
    assert!(other.pull().await);
    let input = |target: Target| {
        let (learnt, key) = (&other.registry.learnt, target.lesson_key());
        learnt.find_bounds(&key, 0, SystemTime::now()).input
    };
    assert_eq!(input(of(1, 0)), Some(4_096));
    assert_eq!(input(of(2, 7)), Some(4_096));
    assert_eq!((input(of(2, 0)), input(one.target())), (None, None));
}

#[tokio::test]
async fn a_ratio_is_published_when_it_moved() {
    let (_, one, other) = pair();
    for (reported, expected) in [(12_000, 1.2), (12_020, 1.2), (16_000, 1.28)] {
        one.agree_on(reported);
        one.publish().await;
        other.pull().await;
        let pulled = other.ratio().unwrap();
        assert!((pulled - expected).abs() < 0.001, "{pulled} for {expected}");
    }
}

/// Lessons are dated in milliseconds: two of one millisecond cannot be told apart.
fn let_the_clock_move() {
    let begun = unix_ms_now();
    while unix_ms_now() < begun + 3 {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn the_newest_lesson_wins_whatever_the_clocks_say() {
    let (store, one, other) = pair();
    one.refuse(16_000);
    one.publish().await;
    other.pull().await;
    let name = name(WINDOW, HERE, "simulated");
    // A clock that is behind does not keep it from being pulled.
    let behind = UNIX_EPOCH + Duration::from_millis(5);
    let nothing = SharedFact::Window(Lessons::default());
    let known = other
        .replica_sync
        .state
        .lock()
        .published
        .peek(&name)
        .copied();
    let stamp = StampedFact::stamp_after(known.as_ref(), nothing, behind);
    store.publish_shared(&name, stamp.to_bytes()).await.unwrap();
    one.pull().await;
    assert_eq!(one.replica_sync.state.lock().published.len(), 1);
    assert_eq!(one.window(), None);
    // A value older than the known one makes the replica publish again.
    let_the_clock_move();
    one.refuse(12_000);
    one.publish().await;
    let older = stamped(7, nothing);
    store.publish_shared(&name, older).await.unwrap();
    assert!(one.pull().await);
    assert_eq!(one.window(), Some(12_000));
    one.replica_sync.publish(&one.registry, WITHIN).await;
    other.pull().await;
    assert_eq!(other.window(), Some(12_000));
}

#[tokio::test]
async fn unreadable_values_are_ignored() {
    let (store, one, _) = pair();
    let window = name(WINDOW, HERE, "simulated");
    let ahead = stamped(u64::MAX, SharedFact::Ratio(1.5));
    let gone = name(RATIO, HERE, "renamed");
    let elsewhere = name(RATIO, HERE + 1, "simulated");
    let fine = stamped(7, SharedFact::Ratio(1.5));
    let ratio = name(RATIO, HERE, "simulated");
    for (name, value) in [
        (&b""[..], Bytes::new()),
        (b"x", b"\x01"[..].into()),
        (b"w12345678\xff\xffa", b"\x01"[..].into()),
        (&elsewhere, fine.clone()),
        (&window, Bytes::new()),
        (&window, b"\x02later"[..].into()),
        (&window, vec![0xff; 200].into()),
        (&ratio, ahead),
        (&gone, fine.clone()),
    ] {
        store.publish_shared(name, value).await.unwrap();
        assert!(one.pull().await);
    }
    assert_eq!((one.window(), one.ratio()), (None, None));
    assert_eq!(one.ratios.known_ratio("renamed", "m"), None);
    store.publish_shared(&ratio, fine).await.unwrap();
    one.pull().await;
    assert_eq!(one.ratio(), Some(1.5));
}

#[tokio::test]
async fn unpublished_lessons_are_published_later() {
    let store = store();
    let one = Replica::new(&store);
    one.refuse(16_000);
    one.replica_sync.mark_changed(&one.target());
    // Dropped before it is done.
    drop(one.replica_sync.publish(&one.registry, WITHIN));
    let long = "m".repeat(MAX_SHARED_NAME_BYTES);
    let session = SessionId::from_bytes([1; 16]);
    one.ratios
        .learn_ratio("simulated", &long, session, 10_000, 13_000);
    let long = Target {
        model: long,
        ..one.target()
    };
    one.replica_sync.mark_changed(&long);
    one.replica_sync.publish(&one.registry, WITHIN).await;
    assert_eq!(store.read_shared().await.unwrap().all.len(), 1);
    assert!(one.replica_sync.state.lock().changed.is_empty());
}
