//! The course of a run: which loads, in which order, and whose turn it is.

use std::{
    io::{self, IsTerminal, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Options,
    bodies::{SIZES, Size},
    figures::{DIRECT, Figure, Figures, Sample},
    load::{Kind, Load},
    peers::{self, Peer, Speed},
    provider,
};

/// All that a run has found.
pub(crate) struct Found {
    pub(crate) figures: Figures,
    /// Each peer in the order of the tables, with its version.
    pub(crate) peers: Vec<(&'static str, String)>,
    /// Those that could not be started, and why.
    pub(crate) missing: Vec<(&'static str, String)>,
    pub(crate) rounds: usize,
}

/// Rounds of those that take a thousand times as long.
pub(crate) const SLOW_ROUNDS: usize = 2;

pub(crate) async fn run(options: &Options) -> io::Result<Found> {
    let begun = Instant::now();
    let names = options.peers();
    if !options.no_install {
        peers::install(&names)?;
    }
    let provider = provider::start()?;
    let (mut started, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        say(begun, &format!("starting {name}"));
        match peers::start(name, provider.address).await {
            Ok(peer) => {
                peer.rest(true);
                started.push(peer);
            }
            Err(why) => missing.push((name, why.to_string())),
        }
    }
    let mut figures = Figures::default();
    idle(&started, &mut figures);
    for (kind, size) in plan(options) {
        say(begun, &format!("{kind:?}, {}", size.title));
        let load = Arc::new(Load::new(kind, size, options.light));
        let slice = slice(kind) * options.slice / 100;
        let rounds = Rounds {
            begun,
            slice,
            count: options.rounds,
        };
        rounds.turn(&started, &load, &mut figures).await;
    }
    for peer in &started {
        peer.check_core()?;
    }
    say(begun, "done");
    Ok(Found {
        figures,
        peers: started
            .iter()
            .map(|it| (it.name, it.version.clone()))
            .collect(),
        missing,
        rounds: options.rounds,
    })
}

/// What was asked for. Streams without end and memory are measured with the smallest body, and the size
/// that is there for the requests a second has them alone.
fn plan(options: &Options) -> Vec<(Kind, Size)> {
    let wants = |kind| options.measure.is_empty() || options.measure.contains(&kind);
    let mut plan = Vec::new();
    let sizes = SIZES.into_iter().filter(|size| {
        options.loads.is_empty() || options.loads.iter().any(|name| name == size.name)
    });
    for size in sizes {
        let kinds = match size.name {
            "250k" => [Kind::Busy].as_slice(),
            _ => &[Kind::Latency, Kind::Busy, Kind::Open, Kind::Stream],
        };
        plan.extend(kinds.iter().filter(|it| wants(**it)).map(|it| (*it, size)));
    }
    let streams = [Kind::Events, Kind::Flood, Kind::Memory];
    plan.extend(
        streams
            .into_iter()
            .filter(|it| wants(*it))
            .map(|it| (it, SIZES[0])),
    );
    plan
}

/// How long a turn lasts. Processor time is counted in hundredths of a second, so it needs most.
const fn slice(kind: Kind) -> Duration {
    Duration::from_millis(match kind {
        Kind::Latency => 300,
        Kind::Busy => 800,
        Kind::Open | Kind::Events => 500,
        Kind::Stream => 250,
        Kind::Flood => 1_000,
        Kind::Memory => 0,
    })
}

/// Before anything was asked of them, and after one request.
fn idle(peers: &[Peer], figures: &mut Figures) {
    for peer in peers.iter().filter(|peer| peer.name != DIRECT) {
        let case = (peer.name, Kind::Memory, SIZES[0].name);
        let memory = [(Figure::Fresh, peer.fresh), (Figure::Idle, peer.memory())];
        figures.keep(case, 0, Sample::from(memory));
    }
}

/// The rounds of one load.
struct Rounds {
    begun: Instant,
    slice: Duration,
    count: usize,
}

impl Rounds {
    async fn turn(&self, peers: &[Peer], load: &Arc<Load>, figures: &mut Figures) {
        // Round 0 only warms up.
        let rounds = match load.kind {
            Kind::Memory => 1..=1,
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
                let rate = rate(peers, peer, load, figures);
                peer.rest(false);
                let turn = match load.greet(peer).await {
                    Ok(()) => load.turn(peer, slice, rate).await,
                    Err(why) => Err(why),
                };
                peer.rest(true);
                match turn {
                    Ok(sample) if round > 0 => figures.keep(case, round, sample),
                    Ok(_) => {}
                    Err(why) => {
                        say(self.begun, &format!("{} refused: {why}", peer.name));
                        figures.refuse(case, why.to_string());
                    }
                }
            }
        }
    }
}

/// Whether there is something to find: no proxy has neither processor time nor memory.
fn stands_for(peer: &Peer, load: &Load) -> bool {
    let proxy = peer.name != DIRECT || !matches!(load.kind, Kind::Flood | Kind::Memory);
    proxy && peer.takes(load.size)
}

/// Of the open loop: half of what the slowest of the fast ones reached in the closed loop, so that all of
/// them are asked alike; for a slow one, half of its own.
fn rate(peers: &[Peer], peer: &Peer, load: &Load, figures: &Figures) -> f64 {
    let reached =
        |peer: &Peer| figures.median((peer.name, Kind::Busy, load.size.name), Figure::Rate);
    let slowest = match peer.speed {
        Speed::Fast => peers
            .iter()
            .filter(|peer| peer.speed == Speed::Fast)
            .filter_map(reached)
            .min_by(f64::total_cmp),
        Speed::Middle | Speed::Slow => reached(peer),
    };
    // Without a closed loop before it, something that everybody here bears.
    (slowest.unwrap_or(20.0) / 2.0).max(1.0)
}

/// What is going on, for whoever waits.
fn say(begun: Instant, what: &str) {
    let mut out = io::stderr().lock();
    let end = if out.is_terminal() { "\x1b[K\r" } else { "\n" };
    let _ = write!(out, "{:>4} s  {what}{end}", begun.elapsed().as_secs());
    let _ = out.flush();
}
