//! Prints progress and results.

use std::{
    io::{self, Write},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::task::JoinSet;

use super::{
    proxy::{IdleResources, ProxyProcess},
    run_state::RunState,
};

const EVERY: Duration = Duration::from_secs(10);

/// Prints a line at intervals.
pub(crate) fn start_printing(world: &Arc<RunState>, nears: &[Arc<ProxyProcess>]) -> JoinSet<()> {
    let mut task = JoinSet::new();
    let (world, nears) = (Arc::clone(world), nears.to_vec());
    let _ = writeln!(
        io::stdout(),
        "{} sessions, {} minutes, seed {}\n\n{:>6} {:<8} {:>8} {:>8} {:>7} {:>7} {:>7} {:>8} {:>8}  {:<27} {:<17} {:<5} storm",
        world.sessions,
        world.minutes,
        world.seed,
        "s",
        "phase",
        "requests",
        "ok",
        "failed",
        "left",
        "faults",
        "p50 ms",
        "p99 ms",
        "memory, MB",
        "files",
        "redis"
    );
    task.spawn(async move {
        let mut every = tokio::time::interval(EVERY);
        every.tick().await;
        loop {
            every.tick().await;
            print_line(&world, &nears);
        }
    });
    task
}

fn print_line(world: &RunState, nears: &[Arc<ProxyProcess>]) {
    let (count, times) = {
        let mut tally = world.lock_tally();
        let times = std::mem::take(&mut tally.times);
        (tally.counts.clone(), times)
    };
    let of = |name: &str| count.get(name).copied().unwrap_or(0);
    let failed = count
        .iter()
        .filter(|(name, _)| name.starts_with("failed: "));
    let failed: u64 = failed.map(|(_, count)| count).sum();
    let rests: Vec<IdleResources> = nears.iter().map(|near| near.measure_resources()).collect();
    let list = |figure: fn(&IdleResources) -> String| {
        let all: Vec<String> = rests.iter().map(figure).collect();
        all.join(" ")
    };
    let _ = writeln!(
        io::stdout(),
        "{:>6.0} {:<8} {:>8} {:>8} {:>7} {:>7} {:>7} {:>8.1} {:>8.1}  {:<27} {:<17} {:<5} {}",
        world.elapsed().as_secs_f64(),
        world.phase().name(),
        of("requests"),
        of("ok"),
        failed - of("failed: left"),
        of("failed: left"),
        of("provider: faults"),
        percentile_ms(&times, 50),
        percentile_ms(&times, 99),
        list(|rest| format!("{:>6.1}", rest.rss_kb as f64 / 1_024.0)),
        list(|rest| rest.files.to_string()),
        if world.redis_up.load(Relaxed) {
            "up"
        } else {
            "down"
        },
        world.lock_weather().storm_name()
    );
}

/// The percentile of durations, in milliseconds.
fn percentile_ms(times: &[u32], share: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let time = times.get(times.len() * share / 100);
    time.map_or(f64::NAN, |time| f64::from(*time) / 1_000.0)
}

/// All counts, and the resources of idle proxies.
pub(crate) fn print_summary(
    world: &RunState,
    warm: Option<&[IdleResources]>,
    end: Option<&[IdleResources]>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "\nin {:.0} s:", world.elapsed().as_secs_f64())?;
    for (name, count) in &world.lock_tally().counts {
        writeln!(out, "{count:>10}  {name}")?;
    }
    for (name, rests) in [("after the warm-up", warm), ("at the end", end)] {
        for rest in rests.into_iter().flatten() {
            writeln!(
                out,
                "at rest {name}: {:<6} {:>7.1} MB, {:>3} files, {:>3} threads",
                rest.name,
                rest.rss_kb as f64 / 1_024.0,
                rest.files,
                rest.threads
            )?;
        }
    }
    Ok(())
}
