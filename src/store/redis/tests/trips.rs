//! The number of calls and round trips.

use super::*;

/// Commands that the server executed, by name and number.
fn asked(redis: &Redis) -> Vec<(String, u64)> {
    let stats = redis.run_command(&["info", "commandstats"]);
    let counted = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let (calls, _) = rest.split_once(',')?;
        Some((name.to_owned(), calls.parse().unwrap()))
    });
    // Without the commands within scripts and those of the test.
    let counted_names = [
        "evalsha",
        "eval",
        "get",
        "hget",
        "set",
        "ping",
        "script|load",
    ];
    let mut all: Vec<_> = counted
        .filter(|(name, _)| counted_names.contains(&name.as_str()))
        .collect();
    all.sort();
    all
}

mod relay {
    //! Passes bytes between the store and its server, and counts round trips.

    use std::sync::{Arc, Mutex};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        task::JoinSet,
    };

    /// Counts the round trips: how often the store sends after an answer.
    #[derive(Default)]
    struct Turns {
        answered: bool,
        count: usize,
        commands: Vec<String>,
    }

    pub(super) struct Relay {
        pub(super) port: u16,
        turns: Arc<Mutex<Turns>>,
        _tasks: JoinSet<()>,
    }

    impl Relay {
        pub(super) async fn before(port: u16) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let local_port = listener.local_addr().unwrap().port();
            let turns = Arc::<Mutex<Turns>>::default();
            let seen = Arc::clone(&turns);
            let mut tasks = JoinSet::new();
            tasks.spawn(async move {
                let mut running = JoinSet::new();
                loop {
                    let (near, _) = listener.accept().await.unwrap();
                    let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    running.spawn(pass(near, far, Arc::clone(&seen)));
                }
            });
            Self {
                port: local_port,
                turns,
                _tasks: tasks,
            }
        }

        /// Round trips since the last call, and their commands.
        pub(super) fn turns(&self) -> (usize, Vec<String>) {
            let turns = std::mem::take(&mut *self.turns.lock().unwrap());
            (turns.count, turns.commands)
        }
    }

    async fn pass(mut near: TcpStream, mut far: TcpStream, turns: Arc<Mutex<Turns>>) {
        let (mut up, mut down) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        loop {
            tokio::select! {
                read = near.read(&mut up) => {
                    let Some(sent) = read.ok().filter(|read| *read > 0) else { return };
                    {
                        let mut turns = turns.lock().unwrap();
                        if turns.answered || turns.count == 0 {
                            turns.count += 1;
                        }
                        turns.answered = false;
                        let text = String::from_utf8_lossy(&up[..sent]);
                        let words = text.split("\r\n").filter(|word| {
                            ["EVALSHA", "EVAL", "GET", "SET", "PING"].contains(word)
                        });
                        turns.commands.extend(words.map(str::to_owned));
                    }
                    far.write_all(&up[..sent]).await.unwrap();
                }
                read = far.read(&mut down) => {
                    let Some(sent) = read.ok().filter(|read| *read > 0) else { return };
                    turns.lock().unwrap().answered = true;
                    let _ = near.write_all(&down[..sent]).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_find_and_a_save_take_one_round_trip_each() {
    let redis = Redis::start();
    let relay = relay::Relay::before(redis.port()).await;
    let store = Place::new(&[format!("redis://127.0.0.1:{}", relay.port)]).fresh();
    let one = tenant("a");
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    assert_eq!(found(&store, &one, &[10]).await, Some((0, 10)));
    let _ = relay.turns();
    let keys: Vec<u64> = (1_000..1_767).chain([10]).collect();
    for number in [20, 30, 40] {
        store
            .save_state(saved(one, session(1), number))
            .await
            .unwrap();
        assert_eq!(relay.turns(), (1, vec!["EVALSHA".into(), "EVALSHA".into()]));
        assert_eq!(found(&store, &one, &keys).await, Some((767, 10)));
        assert_eq!(relay.turns(), (1, vec!["EVALSHA".into(), "GET".into()]));
        assert_eq!(found(&store, &one, &keys[..767]).await, None);
        assert_eq!(relay.turns(), (1, vec!["EVALSHA".into(), "GET".into()]));
    }
    // A script unknown to the server is sent once, with the next call.
    redis.run_command(&["script", "flush"]);
    assert_eq!(found(&store, &one, &[40]).await, Some((0, 40)));
    let expected = vec!["EVALSHA".into(), "GET".into(), "EVAL".into()];
    assert_eq!(relay.turns(), (2, expected));
    assert_eq!(found(&store, &one, &[40]).await, Some((0, 40)));
    assert_eq!(relay.turns().0, 1);
}

#[tokio::test]
async fn a_find_notices_values_of_other_replicas() {
    let redis = Redis::start();
    let place = Place::of(&redis);
    let (one, other) = (place.fresh(), {
        place.made.store(0, Relaxed);
        place.fresh()
    });
    assert_eq!(found(&other, &tenant("a"), &[1]).await, None);
    assert_eq!(other.shared_version(), 0);
    for value in ["1", "2"] {
        one.publish_shared(b"window", value.into()).await.unwrap();
        assert_ne!(other.shared_version(), one.shared_version());
        assert_eq!(found(&other, &tenant("a"), &[1]).await, None);
        assert_eq!(other.shared_version(), one.shared_version());
        let shared = other.read_shared().await.unwrap();
        assert_eq!(shared.all, [("window".into(), value.into())]);
    }
    // A server without data begins with a new version.
    let before = one.shared_version();
    redis.run_command(&["flushall"]);
    one.publish_shared(b"window", "3".into()).await.unwrap();
    assert!(one.shared_version() > before);
}

#[tokio::test]
async fn an_idle_store_sends_no_calls() {
    let redis = Redis::start();
    let store = Place::of(&redis).fresh();
    found(&store, &tenant("a"), &[1]).await;
    let before = asked(&redis);
    assert!(before.contains(&("evalsha".into(), 1)), "{before:?}");
    wait_until(|| redis.run_command(&["ping"]) == "PONG").await;
    let evalsha = |all: &[(String, u64)]| all.iter().find(|(name, _)| name == "evalsha").cloned();
    assert_eq!(evalsha(&asked(&redis)), evalsha(&before));
}
