//! What somebody has seen is true for whoever asks after that, by whichever question.

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

/// Each is a state and the orders after it.
const ROUNDS: u64 = 300;

fn number(bytes: &Bytes) -> u64 {
    match bytes.len() {
        0 => 0,
        _ => u64::from_le_bytes(bytes.as_ref().try_into().unwrap()),
    }
}

/// What is true of a session now, asked in three ways.
struct Seen {
    state: u64,
    orders: u64,
}

impl Seen {
    async fn asked(store: &dyn Store, way: usize) -> Self {
        let one = tenant("a");
        let (state, orders) = match way % 3 {
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
            orders: number(&orders),
        }
    }
}

pub(super) async fn is_not_unseen(store: Arc<dyn Store>) {
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
                orders: 0,
            };
            for way in 0.. {
                let last = over.load(Ordering::SeqCst);
                // Each way after each other one.
                let now = Seen::asked(&*store, way + way / 3).await;
                assert!(now.state >= before.state && now.orders >= before.orders);
                before = now;
                if last {
                    break;
                }
            }
            assert_eq!((before.state, before.orders), (ROUNDS, ROUNDS));
        }
    });
    for round in 1..=ROUNDS {
        store.save_state(save(round)).await.unwrap();
        let orders = Bytes::copy_from_slice(&round.to_le_bytes());
        assert!(store.put_commands(None, session(1), orders).await.unwrap());
    }
    over.store(true, Ordering::SeqCst);
    asking.join_next().await.unwrap().unwrap();
}
