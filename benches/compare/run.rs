//! The order of a run: loads, rounds and turns.

use std::{
    io::{self, IsTerminal, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Options,
    bodies::{BodySize, SIZES},
    figures::{DIRECT, Figure, FigureSample, Figures, LoadKind},
    load::PeerLoad,
    peers::{self, Peer, Speed},
    provider,
};

/// The results of a run.
pub(crate) struct RunResults {
    pub(crate) figures: Figures,
    /// Each peer in the order of the tables, with its version.
    pub(crate) peers: Vec<(&'static str, String)>,
    /// Peers that could not be started, with the reason.
    pub(crate) missing: Vec<(&'static str, String)>,
    pub(crate) rounds: usize,
}

/// Rounds of the slowest peers.
pub(crate) const SLOW_ROUNDS: usize = 2;

pub(crate) async fn run(options: &Options) -> io::Result<RunResults> {
    let begun = Instant::now();
    let names = options.peers();
    if !options.no_install {
        peers::install(&names)?;
    }
    let provider = provider::start()?;
    let (mut started, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        print_progress(begun, &format!("starting {name}"));
        match peers::start(name, provider.address).await {
            Ok(peer) => {
                peer.pause_process(true);
                started.push(peer);
            }
            Err(why) => missing.push((name, why.to_string())),
        }
    }
    let mut figures = Figures::default();
    record_idle_memory(&started, &mut figures);
    for (kind, size) in plan(options) {
        print_progress(begun, &format!("{kind:?}, {}", size.title));
        let load = Arc::new(PeerLoad::new(kind, size, options.light));
        let slice = turn_length(kind) * options.slice / 100;
        let rounds = LoadRounds {
            begun,
            slice,
            count: options.rounds,
        };
        rounds.run_round(&started, &load, &mut figures).await;
    }
    for peer in &started {
        peer.check_core()?;
    }
    print_progress(begun, "done");
    Ok(RunResults {
        figures,
        peers: started
            .iter()
            .map(|it| (it.name, it.version.clone()))
            .collect(),
        missing,
        rounds: options.rounds,
    })
}

/// The wanted loads. Endless streams and memory are measured with the smallest body; the size for
/// the open loop has only that.
fn plan(options: &Options) -> Vec<(LoadKind, BodySize)> {
    let wants = |kind| options.measure.is_empty() || options.measure.contains(&kind);
    let mut plan = Vec::new();
    let sizes = SIZES.into_iter().filter(|size| {
        options.loads.is_empty() || options.loads.iter().any(|name| name == size.name)
    });
    for size in sizes {
        let all = [
            LoadKind::Latency,
            LoadKind::Busy,
            LoadKind::Open,
            LoadKind::Stream,
            LoadKind::Growing,
            LoadKind::GrowingMessages,
            LoadKind::GrowingResponses,
        ];
        let kinds = match size.name {
            "250k" => &all[1..2],
            "100k" | "1m" => &all[..],
            // In chat completions only.
            _ => &all[..5],
        };
        plan.extend(kinds.iter().filter(|it| wants(**it)).map(|it| (*it, size)));
    }
    let streams = [
        LoadKind::Streams,
        LoadKind::Events,
        LoadKind::Flood,
        LoadKind::Memory,
    ];
    plan.extend(
        streams
            .into_iter()
            .filter(|it| wants(*it))
            .map(|it| (it, SIZES[0])),
    );
    plan
}

/// The length of a turn. Processor time is counted in hundredths of a second, so it needs most.
const fn turn_length(kind: LoadKind) -> Duration {
    Duration::from_millis(match kind {
        LoadKind::Latency => 300,
        LoadKind::Busy
        | LoadKind::Streams
        | LoadKind::Growing
        | LoadKind::GrowingMessages
        | LoadKind::GrowingResponses => 800,
        LoadKind::Open | LoadKind::Events => 500,
        LoadKind::Stream => 250,
        LoadKind::Flood => 1_000,
        LoadKind::Memory => 0,
    })
}

/// Before the first request, and after it.
fn record_idle_memory(peers: &[Peer], figures: &mut Figures) {
    for peer in peers.iter().filter(|peer| peer.name != DIRECT) {
        let case = (peer.name, LoadKind::Memory, SIZES[0].name);
        let memory = [(Figure::Fresh, peer.fresh), (Figure::Idle, peer.memory())];
        figures.keep_sample(case, 0, FigureSample::from(memory));
    }
}

/// The rounds of one load.
struct LoadRounds {
    begun: Instant,
    slice: Duration,
    count: usize,
}

impl LoadRounds {
    async fn run_round(&self, peers: &[Peer], load: &Arc<PeerLoad>, figures: &mut Figures) {
        // Round 0 only warms up.
        let rounds = match load.kind {
            LoadKind::Memory => 1..=1,
            _ => 0..=self.count,
        };
        for round in rounds {
            for at in 0..peers.len() {
                let peer = &peers[(at + round) % peers.len()];
                let case = (peer.name, load.kind, load.size.name);
                let late = peer.speed != Speed::Fast && round > SLOW_ROUNDS;
                if late || !stands_for(peer, load) || figures.refused(case).is_some() {
                    continue;
                }
                let slice = if round == 0 {
                    self.slice / 4
                } else {
                    self.slice
                };
                let rate = choose_rate(peers, peer, load, figures);
                peer.pause_process(false);
                let turn = match load.warm_up(peer).await {
                    Ok(()) => load.measure_turn(peer, slice, rate).await,
                    Err(why) => Err(why),
                };
                peer.pause_process(true);
                match turn {
                    Ok(sample) if round > 0 => figures.keep_sample(case, round, sample),
                    Ok(_) => {}
                    Err(why) => {
                        print_progress(self.begun, &format!("{} refused: {why}", peer.name));
                        figures.record_refusal(case, why.to_string());
                    }
                }
            }
        }
    }
}

/// Whether there is anything to measure: no proxy has neither processor time nor memory.
fn stands_for(peer: &Peer, load: &PeerLoad) -> bool {
    let proxy = peer.name != DIRECT || !matches!(load.kind, LoadKind::Flood | LoadKind::Memory);
    // Slow peers have no growing load: some read one format only, and `Busy` gives their cost.
    let has_load = !load.kind.grows() || peer.speed == Speed::Fast;
    proxy && has_load && peer.can_take(load.size)
}

/// The rate of the open loop: half of what the slowest fast peer reached in the closed loop, so
/// that all of them get the same rate; for a slow peer half of its own.
fn choose_rate(peers: &[Peer], peer: &Peer, load: &PeerLoad, figures: &Figures) -> f64 {
    let reached =
        |peer: &Peer| figures.median((peer.name, LoadKind::Busy, load.size.name), Figure::Rate);
    let slowest = match peer.speed {
        Speed::Fast => peers
            .iter()
            .filter(|peer| peer.speed == Speed::Fast)
            .filter_map(reached)
            .min_by(f64::total_cmp),
        Speed::Middle | Speed::Slow => reached(peer),
    };
    // Without a closed loop before it, a rate that every peer can serve.
    (slowest.unwrap_or(20.0) / 2.0).max(1.0)
}

/// Prints the progress.
fn print_progress(begun: Instant, what: &str) {
    let mut out = io::stderr().lock();
    let end = if out.is_terminal() { "\x1b[K\r" } else { "\n" };
    let _ = write!(out, "{:>4} s  {what}{end}", begun.elapsed().as_secs());
    let _ = out.flush();
}
