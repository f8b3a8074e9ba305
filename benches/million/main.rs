//! Any number of generated conversations through the guard, on all cores: every result is checked
//! by the strict provider and for the properties of every plan. Ends at the first failure.
//!
//! `cargo bench --bench million -- [COUNT [SEED [FIRST]]]` (20,000, 1876, 0). Each conversation
//! depends only on the seed and its number: to repeat a failure, pass a count of one and its number
//! as `FIRST`. With `reasoning`, sessions through the proxy whose models bind their reasoning; with `edits`, sessions
//! whose clients edit their own history.

use std::{
    cell::RefCell,
    collections::BTreeMap,
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
    client_sessions::edits::{DrawnEdits, run_edited},
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
    if std::env::args().any(|it| it == "edits") {
        return run_edits(number(0, 1_000), number(1, 0));
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
    let began = Instant::now();
    let sessions = (first..first + count).map(DrawnSession::with_events);
    let ran = on_all_cores(|at_once| run_sessions(sessions, at_once, KeptState::Always))?;
    tell_sessions("reasoning", began, ran)
}

/// Sessions whose clients edit their own history, through the proxy: `edits [COUNT [FIRST_SEED]]`. A seed has up to three
/// sessions of one tenant; the last may have more than are left of the count.
fn run_edits(count: u64, first: u64) -> io::Result<ExitCode> {
    let began = Instant::now();
    let mut left = count as usize;
    let cases = (first..).map(DrawnEdits::new).map_while(move |case| {
        let is_due = left > 0;
        left = left.saturating_sub(case.count());
        is_due.then_some(case)
    });
    let ran = on_all_cores(|at_once| run_edited(cases, at_once))?;
    tell_sessions("edits", began, ran)
}

/// Runs sessions, of which so many may run at once.
fn on_all_cores<T, F: Future<Output = T>>(run: impl FnOnce(usize) -> F) -> io::Result<T> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        .enable_all()
        .build()?;
    Ok(runtime.block_on(run(8 * cores)))
}

/// Tells the figures, and each failure with its seed.
fn tell_sessions(
    name: &str,
    began: Instant,
    (figures, failures): (BTreeMap<String, usize>, Vec<(u64, String)>),
) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    writeln!(out, "{:.1} s", began.elapsed().as_secs_f64())?;
    for (figure, count) in figures {
        writeln!(out, "{count:>9}  {figure}")?;
    }
    for (seed, fault) in &failures {
        writeln!(out, "\nfailed: {fault}")?;
        writeln!(
            out,
            "repeat: cargo bench --bench million -- {name} 1 {seed}"
        )?;
    }
    Ok(if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
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
