//! The cost of observation: the proxy with all telemetry, compared with none.
//!
//! `cargo bench --bench telemetry`, or `cargo bench --bench telemetry -- 3` for three rounds. On: a
//! JSON log in a file, a trace of every request to a collector, a scrape of `/metrics` every
//! second, and a listener to the API's events. Off: none of these. Both are processes before the
//! same provider, which answers at once, and alternate in every round; with `taskset` they have
//! their own core. Figures are medians of the rounds, and ratios are those of the two turns of a
//! round.

mod load;
mod provider;
mod proxy;

use std::{
    io::{self, Write},
    time::Duration,
};

use self::{
    load::{TelemetryLoad, TurnFigures},
    proxy::MeasuredProxy,
};

const ROUNDS: usize = 7;

/// Times of a turn: with many connections for throughput and CPU, then with one for latency.
const BUSY: Duration = Duration::from_secs(2);
const QUIET: Duration = Duration::from_secs(1);
const CONNECTIONS: usize = 16;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.find_map(|it| it.parse().ok()).unwrap_or(ROUNDS);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(rounds))
}

async fn run(rounds: usize) -> io::Result<()> {
    proxy::pin_to_core(std::process::id(), "1");
    let far = provider::start_provider().await?;
    let off = MeasuredProxy::start_proxy(far.address, false).await?;
    let on = MeasuredProxy::start_proxy(far.address, true).await?;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "\nbeing watched, medians of {rounds} rounds; log, traces, scrapes{}: on beside off\n\n\
         {:<22} {:>4} {:>12} {:>12} {:>12} {:>14}",
        if on.hears_events { ", events" } else { "" },
        "request",
        "",
        "requests/s",
        "median, µs",
        "99 %, µs",
        "CPU, µs each"
    )?;
    for load in TelemetryLoad::all_loads() {
        let mut turns: [Vec<TurnFigures>; 2] = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            // The order alternates, and the first round only warms up.
            for side in [round % 2, 1 - round % 2] {
                let near = [&off, &on][side];
                let turn = load::run_turn(near, &load).await?;
                if round > 0 {
                    turns[side].push(turn);
                }
            }
        }
        write_row(&mut out, &load, &turns)?;
    }
    writeln!(
        out,
        "\nspans that reached the collector: {}; lines in the log: {}",
        on.spans_taken().await?,
        on.count_log_lines()?
    )?;
    Ok(())
}

fn write_row(
    out: &mut impl Write,
    load: &TelemetryLoad,
    turns: &[Vec<TurnFigures>; 2],
) -> io::Result<()> {
    for (name, turns) in [("off", &turns[0]), ("on", &turns[1])] {
        let of = |figure: fn(&TurnFigures) -> f64| median(turns.iter().map(figure).collect());
        writeln!(
            out,
            "{:<22} {name:>4} {:>12} {:>12.0} {:>12.0} {:>12.0} {:>14.1}",
            load.name,
            "",
            of(|it| it.per_second),
            of(|it| it.median_us),
            of(|it| it.late_us),
            of(|it| it.cpu_us)
        )?;
    }
    let ratio = |figure: fn(&TurnFigures) -> f64| {
        let pairs = turns[0].iter().zip(&turns[1]);
        median(pairs.map(|(off, on)| figure(on) / figure(off)).collect())
    };
    writeln!(
        out,
        "{:<22} {:>4} {:>12} {:>12.3} {:>12.3} {:>12.3} {:>14.3}",
        "",
        "",
        "on / off",
        ratio(|it| it.per_second),
        ratio(|it| it.median_us),
        ratio(|it| it.late_us),
        ratio(|it| it.cpu_us)
    )
}

fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    list.get(list.len() / 2).copied().unwrap_or(f64::NAN)
}
