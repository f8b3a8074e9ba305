//! The stores with many sessions: memory, and the time to find and save states. Prints plain text.
//!
//! `cargo bench --bench store -- 1000000 8`: the number of sessions, and of generations each.

use std::{
    fs, io,
    io::Write,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::HeaderMap;
use plimsoll::{
    config::{StoreConfig, StorePlace},
    guard::injections::{InjectionContent, InjectionRecord},
    health::HealthLevel,
    session::{
        ClientIdentity, SessionId, SessionState, Tenant, Tenants,
        installation_secret::InstallationSecret,
    },
    store::{StateKey, StateKeys, StateToSave, Store, file::FileStore, memory::MemoryStore},
};
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_128;

/// Concurrent requests.
const AT_ONCE: u64 = 64;
/// Measured operations.
const TIMED: u64 = 20_000;
/// The most sessions in the memory store.
const IN_MEMORY: u64 = 100_000;

#[tokio::main]
async fn main() -> io::Result<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|it| it.parse().ok());
    let sessions = numbers.next().unwrap_or(10_000);
    let generations = numbers.next().unwrap_or(8);
    let mut out = io::stdout().lock();
    memory(&mut out, sessions.min(IN_MEMORY), generations).await?;
    file(&mut out, sessions, generations).await?;
    out.flush()
}

async fn memory(out: &mut impl Write, sessions: u64, generations: u64) -> io::Result<()> {
    let before = resident("RssAnon");
    let store = Arc::new(MemoryStore::new(&limits(StorePlace::Memory)));
    fill(&store, sessions, generations).await;
    let resident = resident("RssAnon").saturating_sub(before);
    writeln!(
        out,
        "memory: {sessions} sessions of {generations} generations; counted {} bytes each, resident {} bytes each",
        store.held_bytes() as u64 / sessions,
        resident / sessions
    )
}

async fn file(out: &mut impl Write, sessions: u64, generations: u64) -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let open = || FileStore::open(&limits(StorePlace::File), folder.path()).map(Arc::new);
    let anonymous = resident("RssAnon");
    let store = open()?;
    let begun = Instant::now();
    fill(&store, sessions, generations).await;
    let took = begun.elapsed();
    let state: usize = (0..generations).map(|turn| state(1, turn).len()).sum();
    writeln!(
        out,
        "file: {sessions} sessions of {generations} generations, states of {} bytes on average\n\
         filled in {:.0} s, {:.0} saves a second, {AT_ONCE} at once; log of {} MiB",
        state as u64 / generations,
        took.as_secs_f64(),
        (sessions * generations) as f64 / took.as_secs_f64(),
        size(&folder.path().join("sessions.db-wal")) >> 20
    )?;
    let begun = Instant::now();
    store.close().await;
    drop(store);
    let closed = begun.elapsed();
    let bytes = size(&folder.path().join("sessions.db"));
    let begun = Instant::now();
    let store = open()?;
    let opened = begun.elapsed();
    let found = times(1, TIMED, find(&store, sessions, generations)).await;
    writeln!(
        out,
        "on disk {} MiB, {} bytes a session; closed in {closed:.1?}, opened in {opened:.1?}",
        bytes >> 20,
        bytes / sessions
    )?;
    writeln!(out, "find, one at a time: {}", shown(found))?;
    let missed = times(1, TIMED / 10, miss(&store)).await;
    writeln!(out, "find nothing, 768 keys: {}", shown(missed))?;
    let saved = times(1, TIMED, save(&store, sessions, generations)).await;
    writeln!(out, "save, one at a time: {}", shown(saved))?;
    let found = times(AT_ONCE, TIMED, find(&store, sessions, generations)).await;
    writeln!(out, "find, {AT_ONCE} at once: {}", shown(found))?;
    let saved = times(AT_ONCE, TIMED, save(&store, sessions, generations + 1)).await;
    writeln!(out, "save, {AT_ONCE} at once: {}", shown(saved))?;
    writeln!(
        out,
        "resident {} MiB more than before, of it anonymous",
        resident("RssAnon").saturating_sub(anonymous) >> 20
    )?;
    store.close().await;
    Ok(())
}

fn limits(place: StorePlace) -> StoreConfig {
    StoreConfig {
        place,
        max_sessions: 100_000_000,
        max_bytes: 1 << 40,
        max_age: Duration::from_secs(604_800),
        timeout: Duration::from_millis(250),
        encrypt_key: None,
    }
}

/// Sessions grow side by side, a few thousand at a time, as in real use.
async fn fill(store: &Arc<impl Store + 'static>, sessions: u64, generations: u64) {
    const SIDE_BY_SIDE: u64 = 4_096;
    for first in (0..sessions).step_by(SIDE_BY_SIDE as usize) {
        let last = sessions.min(first + SIDE_BY_SIDE);
        let mut running = JoinSet::new();
        for lane in 0..AT_ONCE {
            let store = Arc::clone(store);
            running.spawn(async move {
                for turn in 0..generations {
                    for session in (first + lane..last).step_by(AT_ONCE as usize) {
                        let saved = store.save_state(saved(session, turn)).await;
                        assert!(saved.is_ok(), "{saved:?}");
                    }
                }
            });
        }
        running.join_all().await;
    }
}

/// Looks up like the next request of a session: all of its answers, newest first.
fn find(
    store: &Arc<FileStore>,
    sessions: u64,
    generations: u64,
) -> impl AsyncFn(u64) + Clone + use<> {
    let store = Arc::clone(store);
    async move |number| {
        let session = scattered(number) % sessions;
        let keys: Vec<_> = (0..generations)
            .rev()
            .flat_map(|turn| (0..3).map(move |kind| key(session, turn, kind)))
            .collect();
        let opening = opening(session);
        let found = store.find_state(&tenant(session), opening, &keys).await;
        assert!(matches!(found, Ok(Some(hit)) if hit.at == 0));
    }
}

/// Looks up like a long conversation that is new.
fn miss(store: &Arc<FileStore>) -> impl AsyncFn(u64) + Clone + use<> {
    let store = Arc::clone(store);
    async move |number| {
        let session = u64::MAX - number;
        let keys: Vec<_> = (0..256)
            .flat_map(|turn| (0..3).map(move |kind| key(session, turn, kind)))
            .collect();
        let found = store
            .find_state(&tenant(session), opening(session), &keys)
            .await;
        assert!(matches!(found, Ok(None)));
    }
}

/// Continues an idle session.
fn save(store: &Arc<FileStore>, sessions: u64, turn: u64) -> impl AsyncFn(u64) + Clone + use<> {
    let store = Arc::clone(store);
    async move |number| {
        let session = scattered(number) % sessions;
        let saved = store.save_state(saved(session, turn)).await;
        assert!(saved.is_ok(), "{saved:?}");
    }
}

/// The duration of each operation, with so many at a time.
async fn times<F>(at_once: u64, all: u64, act: F) -> Vec<Duration>
where
    F: AsyncFn(u64) + Clone,
{
    let lanes = (0..at_once).map(|lane| {
        let act = act.clone();
        async move {
            let mut times = Vec::new();
            for number in (lane..all).step_by(at_once as usize) {
                let begun = Instant::now();
                act(number).await;
                times.push(begun.elapsed());
            }
            times
        }
    });
    futures_util::future::join_all(lanes).await.concat()
}

fn shown(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: usize| times[(times.len() * share / 1_000).min(times.len() - 1)];
    format!(
        "median {:.1?}, 99th percentile {:.1?}, longest {:.1?}",
        at(500),
        at(990),
        at(1_000)
    )
}

fn saved(session: u64, turn: u64) -> StateToSave {
    StateToSave {
        tenant: tenant(session),
        session: SessionId::from_bytes(xxh3_128(&session.to_le_bytes()).to_le_bytes()),
        opening: opening(session),
        keys: StateKeys {
            exact: key(session, turn, 0),
            gap: (turn > 0).then(|| key(session, turn, 1)),
            bare: key(session, turn, 2),
        },
        answer: xxh3_128(&(session ^ turn << 40).to_le_bytes()),
        state: state(session, turn),
    }
}

/// A state like a conversation's: with an injected prompt once it is near its limit.
fn state(session: u64, turn: u64) -> Bytes {
    let id = SessionId::from_bytes(xxh3_128(&session.to_le_bytes()).to_le_bytes());
    let tokens = 90_000 + 2_000 * turn as u32;
    let mut state = SessionState {
        generations: turn as u32 + 1,
        messages: 2 * turn as u32 + 1,
        model: "claude-sonnet-4-20250514".into(),
        provider: "openrouter".into(),
        window: Some(200_000),
        optimal_max_tokens: Some(100_000),
        prompt_tokens: Some(tokens),
        completion_tokens: Some(1_000),
        cached_tokens: Some(tokens - 2_000),
        billed_prompt_tokens: Some(tokens),
        billed_completion_tokens: Some(1_000),
        health: HealthLevel::Healthy,
        updated_s: 1_700_000_000,
        ..SessionState::new(id)
    };
    if turn >= 6 {
        state.health = HealthLevel::Caution;
        state.recovery.records.push(InjectionRecord {
            place: state.messages,
            what: InjectionContent::Prompt("The context is filling up. ".repeat(24).into()),
        });
    }
    state
        .encode_bounded()
        .map_or_else(|_| Bytes::new(), |encoded| encoded.bytes.into())
}

/// One of ten thousand clients.
fn tenant(session: u64) -> Tenant {
    let tenants = Tenants::new(InstallationSecret::from_bytes([7; 32]));
    let name = (session % 10_000).to_string();
    tenants.derive_tenant(ClientIdentity::Named(&name), &HeaderMap::new(), None)
}

fn opening(session: u64) -> u64 {
    xxh3_128(&session.to_be_bytes()) as u64
}

fn key(session: u64, turn: u64, kind: u64) -> StateKey {
    let bytes = [session, turn, kind].map(u64::to_le_bytes).concat();
    StateKey::from_bytes(xxh3_128(&bytes).to_le_bytes())
}

fn scattered(number: u64) -> u64 {
    xxh3_128(&number.to_le_bytes()) as u64
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

/// Resident bytes of this process; 0 where the system does not report them.
fn resident(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    let value = lines
        .find(|(name, _)| *name == field)
        .map(|(_, value)| value);
    let kib = value.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
