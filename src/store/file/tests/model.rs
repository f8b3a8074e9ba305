//! The file store agrees with the memory store after any steps, also when it is reopened.

use proptest::prelude::*;

use super::*;
use crate::store::{StateKeys, memory::MemoryStore};

#[derive(Clone, Debug)]
enum Step {
    Save {
        who: u8,
        id: u8,
        opening: u64,
        number: u64,
        answer: u64,
        bytes: u16,
    },
    Find {
        who: u8,
        opening: u64,
        numbers: Vec<u64>,
    },
    Command {
        who: u8,
        id: u8,
        bytes: u8,
    },
    Share {
        name: u8,
        value: u8,
    },
    Look {
        who: u8,
        id: u8,
    },
    Wait(u8),
    /// Clears the cache.
    Forget,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (who, id, opening) = (0..3_u8, 0..4_u8, 0..3_u64);
    let save = (
        who.clone(),
        id.clone(),
        opening.clone(),
        0..14_u64,
        0..3_u64,
        0..900_u16,
    );
    let save = save.prop_map(|(who, id, opening, number, answer, bytes)| Step::Save {
        who,
        id,
        opening,
        number,
        answer,
        bytes,
    });
    let numbers = prop::collection::vec(0..42_u64, 0..6);
    let find = (who.clone(), opening, numbers).prop_map(|(who, opening, numbers)| Step::Find {
        who,
        opening,
        numbers,
    });
    let step = prop_oneof![
        8 => save,
        6 => find,
        2 => (who.clone(), id.clone(), 0..9_u8).prop_map(|(who, id, bytes)| Step::Command { who, id, bytes }),
        1 => (0..4_u8, any::<u8>()).prop_map(|(name, value)| Step::Share { name, value }),
        2 => (who, id).prop_map(|(who, id)| Step::Look { who, id }),
        1 => (0..9_u8).prop_map(Step::Wait),
        2 => Just(Step::Forget),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..120)
}

/// All keys of an opening: exact ones by answer, gap and bare ones by number.
fn nth(opening: u64, number: u64) -> StateKey {
    key(opening * 10_000 + number)
}

async fn both(steps: Vec<Step>) {
    let directory = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicU64::new(1_000));
    let clock: Arc<dyn Fn() -> u64 + Send + Sync> = {
        let now = Arc::clone(&now);
        Arc::new(move || now.load(Ordering::SeqCst))
    };
    let limits = || StoreLimits::with_clock(&LIMITS, Arc::clone(&clock));
    let open = || FileStore::with_limits(limits(), directory.path()).unwrap();
    let memory = MemoryStore::with_limits(limits());
    let mut file = open();
    let who = |who: u8| tenant(["a", "b", "c"][usize::from(who)]);
    for step in steps {
        match step {
            Step::Save {
                who: of,
                id,
                opening,
                number,
                answer,
                bytes,
            } => {
                let saved = StateToSave {
                    opening,
                    keys: StateKeys {
                        exact: nth(opening, number * 3 + answer),
                        gap: (number % 2 == 0).then(|| nth(opening, 1_000 + number)),
                        bare: nth(opening, 2_000 + number),
                    },
                    answer: answer.into(),
                    state: Bytes::from(vec![number as u8; bytes.into()]),
                    ..saved(who(of), session(id), 0)
                };
                memory.save_state(saved.clone()).await.unwrap();
                file.save_state(saved).await.unwrap();
            }
            Step::Find {
                who: of,
                opening,
                numbers,
            } => {
                let keys = numbers
                    .iter()
                    .flat_map(|number| [*number, 1_000 + number / 3, 2_000 + number / 3]);
                let keys: Vec<_> = keys.map(|number| nth(opening, number)).collect();
                let expected = memory.find_state(&who(of), opening, &keys).await.unwrap();
                // The second find may use the cache.
                for _ in 0..2 {
                    assert_eq!(
                        file.find_state(&who(of), opening, &keys).await.unwrap(),
                        expected
                    );
                }
            }
            Step::Command { who: of, id, bytes } => {
                let (account, commands) = (who(of).account(), Bytes::from(vec![id; bytes.into()]));
                let expected = memory
                    .put_commands(Some(&account), session(id), commands.clone())
                    .await;
                let replaced = file
                    .put_commands(Some(&account), session(id), commands)
                    .await;
                assert_eq!(replaced.unwrap(), expected.unwrap());
            }
            Step::Share { name, value } => {
                let value = Bytes::from(vec![value]);
                memory.publish_shared(&[name], value.clone()).await.unwrap();
                file.publish_shared(&[name], value).await.unwrap();
            }
            Step::Look { who: of, id } => {
                let account = who(of).account();
                let expected = memory
                    .load_session(Some(&account), session(id))
                    .await
                    .unwrap();
                let row = file
                    .load_session(Some(&account), session(id))
                    .await
                    .unwrap();
                assert_eq!(row, expected);
            }
            Step::Wait(seconds) => {
                now.fetch_add(seconds.into(), Ordering::SeqCst);
            }
            Step::Forget => file.readers.recent.clear(),
            Step::Reopen => {
                drop(file);
                file = open();
            }
        }
    }
    let page = Page { skip: 0, take: 200 };
    for account in [None, Some(who(0).account())] {
        let sorted = async |store: &dyn Store| {
            let mut rows = store.list_sessions(account.as_ref(), page).await.unwrap();
            rows.sort_by_key(|row| (row.tenant, row.session));
            rows
        };
        assert_eq!(sorted(&file).await, sorted(&memory).await);
    }
    let sorted = async |store: &dyn Store| {
        let mut shared = store.read_shared().await.unwrap();
        shared.all.sort();
        shared
    };
    assert_eq!(sorted(&file).await, sorted(&memory).await);
    assert_eq!(file.shared_version(), memory.shared_version());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_file_store_agrees_with_the_memory_store(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(both(steps));
    }
}
