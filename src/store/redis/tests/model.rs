//! The server's scripts agree with the memory store.

use proptest::prelude::*;

use super::*;
use crate::store::{StateKeys, memory::MemoryStore, tests::end_user};

#[derive(Clone, Debug)]
enum Step {
    Save {
        who: usize,
        session: u8,
        exact: u64,
        gap: Option<u64>,
        bare: u64,
        answer: u8,
        opening: u64,
        bytes: usize,
    },
    Command(usize, u8, Vec<u8>),
    Find(usize, Vec<u64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let save = (
        (0..3_usize, 0..3_u8, 0..40_u64, prop::option::of(0..40_u64)),
        (0..24_u64, 0..3_u8, 0..3_u64, 0..700_usize),
    );
    let save = save.prop_map(
        |((who, session, exact, gap), (bare, answer, opening, bytes))| Step::Save {
            who,
            session,
            exact,
            gap,
            bare,
            answer,
            opening,
            bytes,
        },
    );
    let command = (
        0..3_usize,
        0..4_u8,
        prop::collection::vec(any::<u8>(), 0..9),
    );
    let find = (0..3_usize, prop::collection::vec(0..40_u64, 0..40));
    let step = prop_oneof![
        6 => save,
        1 => command.prop_map(|(who, session, commands)| Step::Command(who, session, commands)),
        2 => find.prop_map(|(who, keys)| Step::Find(who, keys)),
    ];
    prop::collection::vec(step, 1..80)
}

/// Two of these are end users of one account.
fn tenants() -> [Tenant; 3] {
    [end_user("a", "1"), end_user("a", "2"), end_user("b", "1")]
}

async fn follow(steps: Vec<Step>, one: &dyn Store, other: &dyn Store) {
    let tenants = tenants();
    let mut number = 0_u64;
    for step in steps {
        match step {
            Step::Save {
                who,
                session: id,
                exact,
                gap,
                bare,
                answer,
                opening,
                bytes,
            } => {
                number += 1;
                let mut state = number.to_le_bytes().to_vec();
                state.resize(8 + bytes, 0);
                let saved = StateToSave {
                    tenant: tenants[who],
                    session: session(id),
                    opening,
                    keys: StateKeys {
                        exact: key(exact),
                        gap: gap.map(key),
                        bare: key(bare),
                    },
                    answer: answer.into(),
                    state: state.into(),
                };
                let (a, b) = (
                    one.save_state(saved.clone()).await,
                    other.save_state(saved).await,
                );
                assert_eq!(a.is_ok(), b.is_ok(), "{a:?} {b:?}");
            }
            Step::Command(who, id, commands) => {
                let account = (who < 2).then(|| tenants[who].account());
                let give = async |store: &dyn Store| {
                    let commands = Bytes::from(commands.clone());
                    store
                        .put_commands(account.as_ref(), session(id), commands)
                        .await
                        .unwrap()
                };
                // Two accounts may have one id, so the result for the administrator is undefined.
                if account.is_some() {
                    assert_eq!(give(one).await, give(other).await);
                }
            }
            Step::Find(who, keys) => {
                let keys: Vec<_> = keys.into_iter().map(key).collect();
                let found = one.find_state(&tenants[who], 0, &keys).await.unwrap();
                assert_eq!(
                    found,
                    other.find_state(&tenants[who], 0, &keys).await.unwrap()
                );
            }
        }
    }
    for tenant in &tenants {
        for number in 0..40 {
            let found = one.find_state(tenant, 0, &[key(number)]).await.unwrap();
            let expected = other.find_state(tenant, 0, &[key(number)]).await.unwrap();
            assert_eq!(found, expected, "key {number}");
        }
        for id in 0..4 {
            let account = tenant.account();
            let row = async |store: &dyn Store| {
                let row = store
                    .load_session(Some(&account), session(id))
                    .await
                    .unwrap();
                row.map(|row| (row.tenant, row.state, row.commands))
            };
            assert_eq!(row(one).await, row(other).await);
        }
    }
}

#[test]
fn the_redis_store_agrees_with_the_memory_store() {
    let redis = Redis::start();
    let place = Place::of(&redis);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    proptest!(ProptestConfig::with_cases(96), |(steps in steps())| {
        runtime.block_on(async {
            let memory = MemoryStore::new(&StoreConfig {
                max_sessions: 100,
                max_bytes: 1 << 30,
                max_age: Duration::from_secs(3_600),
                ..StoreConfig::default()
            });
            follow(steps, &place.fresh(), &memory).await;
        });
    });
}
