//! Any number of generated conversations through the guard, on all cores: every result is checked
//! by the strict provider and for the properties of every plan. Ends at the first failure.
//!
//! `cargo bench --bench million -- [COUNT [SEED [FIRST]]]` (20,000, 1876, 0). Each conversation
//! depends only on the seed and its number: to repeat a failure, pass a count of one and its number
//! as `FIRST`. With `reasoning`, sessions through the proxy whose models bind their reasoning.

use std::{
    cell::RefCell,
    io::{self, Write},
    num::NonZero,
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

#[allow(
    unused_imports,
    clippy::unwrap_used,
    reason = "shared with the tests, which use all of it"
)]
#[path = "../../tests/it/support/mod.rs"]
mod support;

mod draw;
mod tally;

use draw::DrawnCase;
use mimalloc::MiMalloc;
use support::{
    bound_sessions::{DrawnSession, KeptState, run_sessions},
    plans,
};
use tally::PlanTally;

/// As the binary has it.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Conversations between two lines of progress.
const TOLD_EVERY: u64 = 50_000;

fn main() -> io::Result<ExitCode> {
    let numbers: Vec<u64> = std::env::args().filter_map(|it| it.parse().ok()).collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    if std::env::args().any(|it| it == "reasoning") {
        return run_reasoning(number(0, 1_000), number(1, 0));
    }
    let (count, seed, first) = (number(0, 20_000), number(1, 1_876), number(2, 0));
    silence_panics();
    let began = Instant::now();
    let (tally, failure) = run(count, seed, first);
    let mut out = io::stdout().lock();
    tally.write(&mut out, began.elapsed())?;
    let Some((at, what)) = failure else {
        return Ok(ExitCode::SUCCESS);
    };
    writeln!(out, "\nfailed: {what}\n{:?}", DrawnCase::new(seed, at))?;
    writeln!(out, "repeat: cargo bench --bench million -- 1 {seed} {at}")?;
    Ok(ExitCode::FAILURE)
}

/// Sessions of agents whose models bind their reasoning, through the proxy: `reasoning [COUNT [FIRST]]`.
fn run_reasoning(count: u64, first: u64) -> io::Result<ExitCode> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        .enable_all()
        .build()?;
    let began = Instant::now();
    let sessions = run_sessions(
        (first..first + count).map(DrawnSession::new),
        8 * cores,
        KeptState::Always,
    );
    let (figures, failures) = runtime.block_on(sessions);
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{count} sessions in {:.1} s",
        began.elapsed().as_secs_f64()
    )?;
    for (name, count) in figures {
        writeln!(out, "{count:>9}  {name}")?;
    }
    for (seed, fault) in &failures {
        writeln!(out, "\nfailed: {fault}")?;
        writeln!(
            out,
            "repeat: cargo bench --bench million -- reasoning 1 {seed}"
        )?;
    }
    Ok(match failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The counts, and the first failure with its number and message.
fn run(count: u64, seed: u64, first: u64) -> (PlanTally, Option<(u64, String)>) {
    let next = AtomicU64::new(first);
    let failed = AtomicBool::new(false);
    let found = Mutex::new((PlanTally::default(), None));
    let work = || {
        let mut tally = PlanTally::default();
        while !failed.load(Relaxed) {
            let at = next.fetch_add(1, Relaxed);
            if at >= first + count {
                break;
            }
            if at > first && (at - first).is_multiple_of(TOLD_EVERY) {
                let _ = writeln!(io::stderr(), "{} of {count}", at - first);
            }
            let one = AssertUnwindSafe(|| check_conversation(seed, at, &mut tally));
            if panic::catch_unwind(one).is_err() {
                failed.store(true, Relaxed);
                let what = SAID.with_borrow(Clone::clone);
                let mut found = found.lock().expect("nobody panics with it");
                found.1.get_or_insert((at, what));
            }
        }
        found.lock().expect("nobody panics with it").0.add(&tally);
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    found.into_inner().expect("nobody panics with it")
}

fn check_conversation(seed: u64, at: u64, tally: &mut PlanTally) {
    let drawn = DrawnCase::new(seed, at);
    let plan = plans::check_plan(
        &drawn.body,
        drawn.window,
        drawn.profile,
        &drawn.knowledge,
        &drawn.settings,
    );
    tally.count(&drawn, &plan);
}

thread_local! {
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the message of a failed check instead of printing it.
fn silence_panics() {
    panic::set_hook(Box::new(|panic| SAID.set(panic.to_string())));
}
