//! How often the server is asked.

use super::*;

/// Commands the server carried out, by name and number.
fn asked(redis: &Redis) -> Vec<(String, u64)> {
    let stats = redis.run_command(&["info", "commandstats"]);
    let counted = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let (calls, _) = rest.split_once(',')?;
        Some((name.to_owned(), calls.parse().unwrap()))
    });
    // Those of scripts are no commands of ours, and these are the test's own.
    let ours = [
        "evalsha",
        "eval",
        "get",
        "hget",
        "set",
        "ping",
        "script|load",
    ];
    let mut all: Vec<_> = counted
        .filter(|(name, _)| ours.contains(&name.as_str()))
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

    /// Who sent last, and how often the store sent after it had been answered.
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
            let own = listener.local_addr().unwrap().port();
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
                port: own,
                turns,
                _tasks: tasks,
            }
        }

        /// Round trips since last asked, and the commands in them.
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
async fn one_round_trip_finds_and_one_saves() {
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
    // A server that does not know a script is told it along with the next call, and once.
    redis.run_command(&["script", "flush"]);
    assert_eq!(found(&store, &one, &[40]).await, Some((0, 40)));
    let told = vec!["EVALSHA".into(), "GET".into(), "EVAL".into()];
    assert_eq!(relay.turns(), (2, told));
    assert_eq!(found(&store, &one, &[40]).await, Some((0, 40)));
    assert_eq!(relay.turns().0, 1);
}

/// What another replica shared is known with the next find.
#[tokio::test]
async fn news_of_other_replicas_come_along() {
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
    // A server that lost all begins with a version that never was.
    let before = one.shared_version();
    redis.run_command(&["flushall"]);
    one.publish_shared(b"window", "3".into()).await.unwrap();
    assert!(one.shared_version() > before);
}

#[tokio::test]
async fn nothing_is_asked_of_an_idle_server() {
    let redis = Redis::start();
    let store = Place::of(&redis).fresh();
    found(&store, &tenant("a"), &[1]).await;
    let before = asked(&redis);
    assert!(before.contains(&("evalsha".into(), 1)), "{before:?}");
    wait_until(|| redis.run_command(&["ping"]) == "PONG").await;
    let evalsha = |all: &[(String, u64)]| all.iter().find(|(name, _)| name == "evalsha").cloned();
    assert_eq!(evalsha(&asked(&redis)), evalsha(&before));
}
