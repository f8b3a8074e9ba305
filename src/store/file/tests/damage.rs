//! Damaged files: the store continues, and never returns a wrong state.

use std::{path::Path, sync::OnceLock};

use proptest::prelude::*;

use super::*;

const SESSIONS: u8 = 40;
const TURNS: u64 = 5;

/// The state of a key, different for each key.
fn state(id: u8, turn: u64) -> Bytes {
    let word = format!("{id}/{turn} ");
    Bytes::from(word.repeat(1 + usize::from(id) * 4))
}

fn number(id: u8, turn: u64) -> u64 {
    (u64::from(id) * TURNS + turn) * 10
}

fn owner(id: u8) -> Tenant {
    tenant(["a", "b"][usize::from(id % 2)])
}

async fn fill(store: &FileStore) {
    for turn in 0..TURNS {
        for id in 0..SESSIONS {
            let mut next = saved(owner(id), session(id), number(id, turn));
            next.opening = u64::from(id % 7);
            next.state = state(id, turn);
            store.save_state(next).await.unwrap();
            if turn == 1 {
                let commands = Bytes::from(vec![id; 20]);
                store
                    .put_commands(None, session(id), commands)
                    .await
                    .unwrap();
            }
        }
    }
}

/// The bytes of the file and its log, after a close or as a killed process leaves them.
fn pristine(closed: bool) -> &'static [Vec<u8>; 2] {
    static FILES: [OnceLock<[Vec<u8>; 2]>; 2] = [OnceLock::new(), OnceLock::new()];
    let make = || {
        let directory = tempfile::tempdir().unwrap();
        let read = |name| fs::read(directory.path().join(name)).unwrap_or_default();
        block_on(async {
            let store = open(&directory);
            fill(&store).await;
            if closed {
                store.close().await;
            }
            let files = ["sessions.db", "sessions.db-wal"].map(read);
            assert_eq!(files[1].is_empty(), closed);
            files
        })
    };
    // On another thread, since some callers are within a runtime.
    FILES[usize::from(closed)]
        .get_or_init(|| std::thread::scope(|scope| scope.spawn(make).join().unwrap()))
}

fn block_on<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(task)
}

fn put(directory: &TempDir, files: &[Vec<u8>; 2]) {
    for (name, bytes) in ["sessions.db", "sessions.db-wal"].iter().zip(files) {
        if !bytes.is_empty() {
            fs::write(directory.path().join(name), bytes).unwrap();
        }
    }
}

/// Counts the found states, and checks that each belongs to its key.
async fn count_correct_states(store: &FileStore) -> usize {
    let mut right = 0;
    for id in 0..SESSIONS {
        for turn in 0..TURNS {
            for kind in 0..3 {
                let keys = [key(number(id, turn) + kind)];
                for (tenant, own) in [(owner(id), true), (owner(id + 1), false)] {
                    let found = store.find_state(&tenant, u64::from(id % 7), &keys).await;
                    let Ok(Some(hit)) = found else { continue };
                    assert!(own, "another tenant's");
                    assert_eq!(hit.state, state(id, turn));
                    assert!(hit.commands.is_empty() || hit.commands == vec![id; 20]);
                    right += 1;
                }
            }
        }
        if let Ok(Some(row)) = store
            .load_session(Some(&owner(id).account()), session(id))
            .await
        {
            assert!((0..TURNS).any(|turn| row.state == state(id, turn)));
        }
    }
    right
}

/// Waits until saves and finds work.
async fn works_again(store: &FileStore) {
    let works = async {
        loop {
            for id in 100..140 {
                let number = u64::from(id) * 1_000;
                let _ = store
                    .save_state(saved(owner(id), session(id), number))
                    .await;
            }
            let one = [key(100_000)];
            if let Ok(Some(hit)) = store.find_state(&owner(100), 1, &one).await {
                assert_eq!(hit.state, 100_000_u64.to_le_bytes().to_vec());
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), works)
        .await
        .unwrap();
}

#[derive(Clone, Debug)]
enum Harm {
    Flip { at: f64, bit: u8 },
    Zero { at: f64, length: usize },
    Copy { from: f64, to: f64 },
    Cut(f64),
}

impl Harm {
    fn harm(&self, bytes: &mut Vec<u8>) {
        const PAGE: usize = 4_096;
        let place = |share: f64, length: usize| (share * length as f64) as usize;
        let length = bytes.len();
        match *self {
            _ if length == 0 => {}
            Self::Flip { at, bit } => bytes[place(at, length)] ^= 1 << bit,
            Self::Zero { at, length: zeroes } => {
                let at = place(at, length);
                bytes[at..length.min(at + zeroes)].fill(0);
            }
            // A page overwrites another one, as on a disk that loses a write.
            Self::Copy { from, to } if length >= PAGE => {
                let pages = length / PAGE;
                let (from, to) = (place(from, pages) * PAGE, place(to, pages) * PAGE);
                bytes.copy_within(from..from + PAGE, to);
            }
            Self::Copy { .. } => {}
            Self::Cut(at) => bytes.truncate(place(at, length)),
        }
    }
}

fn harms() -> impl Strategy<Value = Vec<Harm>> {
    let at = || 0.0..1.0_f64;
    let harm = prop_oneof![
        6 => (at(), 0..8_u8).prop_map(|(at, bit)| Harm::Flip { at, bit }),
        // The header and the schema table.
        2 => (0.0..0.002_f64, 0..8_u8).prop_map(|(at, bit)| Harm::Flip { at, bit }),
        2 => (at(), 1..9_000_usize).prop_map(|(at, length)| Harm::Zero { at, length }),
        2 => (at(), at()).prop_map(|(from, to)| Harm::Copy { from, to }),
        1 => at().prop_map(Harm::Cut),
    ];
    prop::collection::vec(harm, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn damage_never_gives_a_wrong_state(closed: bool, log: bool, harms in harms()) {
        let mut files = pristine(closed).clone();
        for harm in harms {
            harm.harm(&mut files[usize::from(log && !closed)]);
        }
        let directory = tempfile::tempdir().unwrap();
        put(&directory, &files);
        block_on(async {
            let store = open(&directory);
            count_correct_states(&store).await;
            works_again(&store).await;
            count_correct_states(&store).await;
            store.close().await;
            let store = open(&directory);
            count_correct_states(&store).await;
        });
    }
}

#[tokio::test]
async fn an_undamaged_file_has_all_states() {
    for closed in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        put(&directory, pristine(closed));
        let all = usize::from(SESSIONS) * TURNS as usize * 3;
        assert_eq!(count_correct_states(&open(&directory)).await, all);
        assert_eq!(
            files(&directory, "sessions.db.damaged"),
            Vec::<String>::new()
        );
    }
}

#[tokio::test]
async fn a_file_without_a_store_is_set_aside_with_its_log() {
    let directory = tempfile::tempdir().unwrap();
    for number in 1..=2 {
        let garbage = [vec![number; 9_000], vec![number; 500]];
        put(&directory, &garbage);
        let store = open(&directory);
        works_again(&store).await;
        store.close().await;
        let aside = format!("sessions.db.damaged-{number}");
        let read = |name: &str| fs::read(directory.path().join(name)).unwrap();
        assert_eq!(read(&aside), garbage[0]);
    }
    // A sound file is not replaced.
    works_again(&open(&directory)).await;
    let aside = files(&directory, "sessions.db.damaged-");
    assert!(
        !aside.iter().any(|name| name.contains("damaged-3")),
        "{aside:?}"
    );
}

/// The file of an open store is overwritten.
#[tokio::test]
async fn damage_of_an_open_file_is_set_aside() {
    let overwrite = |path: &Path| {
        let length = fs::metadata(path).unwrap().len();
        fs::write(path, vec![0xa5; length as usize]).unwrap();
    };
    for finding in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        put(&directory, pristine(true));
        let store = open(&directory);
        store.publish_shared(b"name", "value".into()).await.unwrap();
        let version = store.shared_version();
        checkpoint(&store).await;
        overwrite(&directory.path().join("sessions.db"));
        let set_aside = async {
            while files(&directory, "sessions.db.damaged-1").is_empty() {
                if finding {
                    count_correct_states(&store).await;
                } else {
                    fill(&store).await;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), set_aside)
            .await
            .unwrap();
        works_again(&store).await;
        assert!(store.shared_version() >= version);
        store.publish_shared(b"name", "value".into()).await.unwrap();
        assert!(store.shared_version() > version);
    }
}

#[tokio::test]
async fn the_store_works_after_the_loss_of_any_page() {
    const PAGE: usize = 4_096;
    for at in (0..pristine(true)[0].len()).step_by(PAGE) {
        let mut files = pristine(true).clone();
        files[0][at..at + PAGE].fill(0);
        let directory = tempfile::tempdir().unwrap();
        put(&directory, &files);
        let store = open(&directory);
        count_correct_states(&store).await;
        works_again(&store).await;
    }
}

#[tokio::test]
async fn the_store_works_after_any_flipped_bit_of_the_header() {
    for bit in 0..800 {
        let mut files = pristine(true).clone();
        files[0][bit / 8] ^= 1 << (bit % 8);
        let directory = tempfile::tempdir().unwrap();
        put(&directory, &files);
        works_again(&open(&directory)).await;
    }
}

/// Invalid UTF-8 in a table's definition counts as damage.
#[tokio::test]
async fn a_table_definition_that_is_no_utf8_is_damage() {
    let mut files = pristine(true).clone();
    let texts = files[0].windows(6).position(|bytes| bytes == b" TABLE");
    files[0][texts.unwrap() + 3] |= 1 << 7;
    let directory = tempfile::tempdir().unwrap();
    put(&directory, &files);
    let store = open(&directory);
    works_again(&store).await;
    let aside = fs::read(directory.path().join("sessions.db.damaged-1"));
    assert_eq!(aside.unwrap(), files[0]);
}
