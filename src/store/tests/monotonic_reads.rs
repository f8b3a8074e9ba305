//! Reads are monotonic: after a read, no later read of any kind returns an older state.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{
    super::{Page, Store},
    key, saved, session, tenant,
};

/// Each is a state and the commands after it.
const ROUNDS: u64 = 300;

fn number(bytes: &Bytes) -> u64 {
    match bytes.len() {
        0 => 0,
        _ => u64::from_le_bytes(bytes.as_ref().try_into().unwrap()),
    }
}

/// State and commands of a session, read in one of three ways.
struct Seen {
    state: u64,
    commands: u64,
}

impl Seen {
    async fn asked(store: &dyn Store, way: usize) -> Self {
        let one = tenant("a");
        let (state, commands) = match way % 3 {
            0 => {
                let row = store.load_session(Some(&one.account()), session(1)).await;
                let row = row.unwrap().unwrap();
                (row.state, row.commands)
            }
            1 => {
                let rows = store.list_sessions(None, Page { skip: 0, take: 9 }).await;
                let row = rows.unwrap().remove(0);
                (row.state, row.commands)
            }
            _ => {
                let found = store
                    .find_state(&one, 1, &[key(10)])
                    .await
                    .unwrap()
                    .unwrap();
                (found.state, found.commands)
            }
        };
        Self {
            state: number(&state),
            commands: number(&commands),
        }
    }
}

pub(super) async fn never_goes_back(store: Arc<dyn Store>) {
    let one = tenant("a");
    let save = |round: u64| {
        let mut saved = saved(one, session(1), 10);
        saved.state = Bytes::copy_from_slice(&round.to_le_bytes());
        saved
    };
    store.save_state(save(0)).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let mut asking = JoinSet::new();
    asking.spawn({
        let (store, over) = (Arc::clone(&store), Arc::clone(&over));
        async move {
            let mut before = Seen {
                state: 0,
                commands: 0,
            };
            for way in 0.. {
                let last = over.load(Ordering::SeqCst);
                // In an order in which each way follows each other one.
                let now = Seen::asked(&*store, way + way / 3).await;
                assert!(now.state >= before.state && now.commands >= before.commands);
                before = now;
                if last {
                    break;
                }
            }
            assert_eq!((before.state, before.commands), (ROUNDS, ROUNDS));
        }
    });
    for round in 1..=ROUNDS {
        store.save_state(save(round)).await.unwrap();
        let commands = Bytes::copy_from_slice(&round.to_le_bytes());
        assert!(
            store
                .put_commands(None, session(1), commands)
                .await
                .unwrap()
        );
    }
    over.store(true, Ordering::SeqCst);
    asking.join_next().await.unwrap().unwrap();
}
