//! The shared state of the run: phase, counts, and the first failure.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::{
    faults::FaultWeather,
    pause,
    support::{AgentGeneration, generate::Random},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SoakPhase {
    WarmUp,
    Faults,
    Redis,
    Reloads,
    All,
    Calm,
}

impl SoakPhase {
    pub(crate) const ALL: [Self; 6] = [
        Self::WarmUp,
        Self::Faults,
        Self::Redis,
        Self::Reloads,
        Self::All,
        Self::Calm,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WarmUp => "warm-up",
            Self::Faults => "faults",
            Self::Redis => "redis",
            Self::Reloads => "reloads",
            Self::All => "all",
            Self::Calm => "calm",
        }
    }

    /// Share of the whole run.
    fn share_of_run(self) -> f64 {
        match self {
            Self::WarmUp => 0.15,
            Self::Faults | Self::All => 0.2,
            Self::Redis => 0.25,
            Self::Reloads | Self::Calm => 0.1,
        }
    }

    pub(crate) fn has_faults(self) -> bool {
        !matches!(self, Self::WarmUp | Self::Calm)
    }

    pub(crate) fn has_storms(self) -> bool {
        matches!(self, Self::Faults | Self::Reloads | Self::All)
    }

    pub(crate) fn stalls_redis(self) -> bool {
        matches!(self, Self::Redis | Self::All)
    }

    pub(crate) fn has_reloads(self) -> bool {
        matches!(self, Self::Reloads | Self::All)
    }
}

pub(crate) struct RunState {
    pub(crate) seed: u64,
    pub(crate) sessions: usize,
    pub(crate) minutes: f64,
    begun: Instant,
    phase: AtomicUsize,
    failure: watch::Sender<Option<String>>,
    pub(crate) weather: Mutex<FaultWeather>,
    /// Incremented when Redis goes, and some time after it is back: odd during an outage.
    disturbed: AtomicU64,
    /// How often Redis lost all data.
    lost: AtomicU64,
    pub(crate) redis_up: AtomicBool,
    tally: Mutex<RunTally>,
    /// Digests and bytes of the newest texts, to show a wrong byte.
    recent: Mutex<VecDeque<(String, String)>>,
}

/// Number of texts kept for that.
const RECENT: usize = 512;

/// Counters by name.
#[derive(Default)]
pub(crate) struct RunTally {
    pub(crate) counts: BTreeMap<String, u64>,
    /// Durations of plain answers since the last report, in microseconds.
    pub(crate) times: Vec<u32>,
}

/// The state of Redis at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RedisEpoch {
    disturbed: u64,
    lost: u64,
}

impl RedisEpoch {
    /// Whether everything stored between the two moments is there at the second.
    pub(crate) fn is_undisturbed_until(self, later: Self) -> bool {
        self == later && self.disturbed.is_multiple_of(2)
    }

    /// Whether everything stored before the first moment is there at the second.
    pub(crate) fn is_kept_at(self, later: Self) -> bool {
        self.lost == later.lost && later.disturbed.is_multiple_of(2)
    }
}

impl RunState {
    pub(crate) fn new(minutes: f64, seed: u64, sessions: usize) -> Arc<Self> {
        Arc::new(Self {
            seed,
            sessions,
            minutes,
            begun: Instant::now(),
            phase: AtomicUsize::new(0),
            failure: watch::Sender::new(None),
            weather: Mutex::new(FaultWeather::default()),
            disturbed: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            redis_up: AtomicBool::new(true),
            tally: Mutex::default(),
            recent: Mutex::default(),
        })
    }

    pub(crate) fn random_with_salt(&self, salt: u64) -> Random {
        Random::for_part(self.seed, salt)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn phase_duration(&self, phase: SoakPhase) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0 * phase.share_of_run())
    }

    pub(crate) fn enter_phase(&self, phase: SoakPhase) {
        let at = SoakPhase::ALL.iter().position(|it| *it == phase);
        self.phase.store(at.unwrap_or(0), Relaxed);
    }

    pub(crate) fn phase(&self) -> SoakPhase {
        SoakPhase::ALL[self.phase.load(Relaxed)]
    }

    /// Keeps the first reason, and ends the run.
    pub(crate) fn report_failure(&self, why: String) {
        self.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            if first {
                *failure = Some(why);
            }
            first
        });
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    pub(crate) async fn wait_for_failure(&self) {
        let mut failure = self.failure.subscribe();
        // The sender lives as long as the world.
        let _ = failure.wait_for(Option::is_some).await;
    }

    pub(crate) fn count_event(&self, what: &str) {
        let mut tally = self.lock_tally();
        match tally.counts.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(tally.counts.insert(what.to_owned(), 1)),
        }
    }

    /// The actions in an answer's header.
    pub(crate) fn count_actions(&self, answer: &AgentGeneration) {
        self.count_event(&format!(
            "health: {}",
            answer.header("health").unwrap_or("-")
        ));
        for action in answer.header("actions").unwrap_or("").split([',', ' ']) {
            let name = match action.split_once('=') {
                Some(("injected", what)) => what,
                Some((name, _)) => name,
                None => action,
            };
            if !name.is_empty() && name != "none" {
                self.count_event(&format!("did: {name}"));
            }
        }
    }

    /// Records a text that a provider is about to send.
    pub(crate) fn remember_answer(&self, digest: &str, told: String) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back((digest.to_owned(), told));
    }

    /// The first difference between received and sent text.
    pub(crate) fn describe_difference(&self, digest: &str, came: &str) -> String {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, said)) = recent.iter().find(|(of, _)| of == digest) else {
            return format!("nobody said {digest}");
        };
        let same = said.bytes().zip(came.bytes()).take_while(|(a, b)| a == b);
        let at = same.count();
        let show = |text: &str| {
            let bytes = &text.as_bytes()[at.saturating_sub(80)..text.len().min(at + 400)];
            String::from_utf8_lossy(bytes).into_owned()
        };
        format!(
            "at {at} of {}, {:?} became {:?}",
            said.len(),
            show(said),
            show(came)
        )
    }

    pub(crate) fn record_time(&self, time: Duration) {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.lock_tally().times.push(micros);
    }

    pub(crate) fn lock_tally(&self) -> MutexGuard<'_, RunTally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock_weather(&self) -> MutexGuard<'_, FaultWeather> {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Storms over one provider, then the other, with calm between.
    pub(crate) async fn change_weather(&self) {
        let mut random = self.random_with_salt(77 + self.phase.load(Relaxed) as u64);
        loop {
            pause(random.between(3_000, 8_000) as u64).await;
            self.lock_weather().begin_storm(&mut random);
            self.count_event("storms");
            pause(random.between(2_000, 6_000) as u64).await;
            self.end_storm();
        }
    }

    pub(crate) fn end_storm(&self) {
        *self.lock_weather() = FaultWeather::default();
    }

    pub(crate) fn redis_epoch(&self) -> RedisEpoch {
        RedisEpoch {
            disturbed: self.disturbed.load(Relaxed),
            lost: self.lost.load(Relaxed),
        }
    }

    /// Redis goes, or has recovered.
    pub(crate) fn mark_disturbed(&self) {
        self.disturbed.fetch_add(1, Relaxed);
    }

    pub(crate) fn mark_lost(&self) {
        self.lost.fetch_add(1, Relaxed);
    }
}
