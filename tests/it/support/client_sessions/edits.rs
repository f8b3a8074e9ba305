//! Generated sessions of clients that edit their own history, one or some of a tenant at a time: results become
//! placeholders one by one or in jumps, reminders come and go, a clock stands in the first message, arguments are
//! spelled anew, messages are emptied and shortened.
//!
//! None is refused, none holds words of another session, the user's newest words are in each request, and a request that
//! holds the last two answers and most of the last request continues the session.

mod session;

use std::{collections::BTreeMap, fmt};

use plimsoll::config::{Config, GuardConfig, ModelConfig};
use tokio::task::JoinSet;

use self::session::{Clears, Clock, EditHabits, EditedSession, Reminds, Respells};
use super::{
    super::{
        any_settings,
        generate::Random,
        proxy::{model_with_courses, model_with_early_levels, model_with_window},
    },
    AnswerWatch, Check, Wire,
    judge::{compare_ids, find_violations},
    name_ship,
    provider::{WorkHabits, lock, start_work},
    proxy_for,
};

/// Faults that end a run. The others are figures.
const JUDGED: [Check; 4] = [Check::Valid, Check::Foreign, Check::Question, Check::Client];

pub(crate) type EditFigures = BTreeMap<String, usize>;

/// Some sessions of one tenant.
#[derive(Clone, Debug)]
pub(crate) struct DrawnEdits {
    pub(crate) seed: u64,
    wire: Wire,
    /// In tokens.
    window: u32,
    streams: bool,
    repeats_ids: bool,
    levels: usize,
    sessions: Vec<EditHabits>,
}

impl DrawnEdits {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::for_part(seed, 51);
        let sessions = random.weighted(&[(50, 1), (30, 2), (20, 3)]);
        Self {
            seed,
            wire: Wire::ALL[random.below(3)],
            window: random.weighted(&[(20, 2_048), (55, 4_096), (25, 8_192)]),
            streams: random.chance(25),
            repeats_ids: random.chance(15),
            levels: random.below(3),
            sessions: (0..sessions).map(|_| draw_habits(&mut random)).collect(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.sessions.len()
    }

    fn model_settings(&self) -> ModelConfig {
        match self.levels {
            0 => model_with_window(self.window),
            1 => model_with_early_levels(self.window),
            _ => model_with_courses(self.window),
        }
    }

    fn set_proxy(&self, config: &mut Config) {
        let mut random = Random::for_part(self.seed, 52);
        if random.chance(30) {
            config.guard = GuardConfig {
                chars_per_token: Some(3.0),
                ..any_settings(random.next())
            };
        }
        config.recovery.caution_cadence = random.between(2, 5) as u32;
        config.recovery.critical_countdown = random.between(2, 4) as u32;
    }
}

fn draw_habits(random: &mut Random) -> EditHabits {
    let spared = random.between(1, 4);
    EditHabits {
        clears: random.weighted(&[
            (35, Clears::Never),
            (40, Clears::OneByOne(spared)),
            (25, Clears::Jumps(spared)),
        ]),
        reminds: random.weighted(&[
            (30, Reminds::Never),
            (25, Reminds::NewestQuestion),
            (25, Reminds::NewestEntry),
            (20, Reminds::ComesAndGoes),
        ]),
        clock: random.weighted(&[
            (60, Clock::None),
            (25, Clock::InFirstMessage),
            (15, Clock::InSystem),
        ]),
        respells: random.weighted(&[
            (60, Respells::None),
            (25, Respells::Old),
            (15, Respells::All),
        ]),
        empties: random.weighted(&[(60, 0), (40, 12)]),
        shortens: random.weighted(&[(60, 0), (40, 12)]),
        requests: random.sample_quantiles(&[(0, 10), (600, 16), (900, 30), (1_000, 60)]),
    }
}

/// Printed with a failure.
impl fmt::Display for DrawnEdits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wire, window) = (self.wire, self.window);
        write!(out, "{wire:?}, window {window}, streams {}", self.streams)?;
        write!(out, ", repeated ids {}", self.repeats_ids)?;
        for (place, habits) in self.sessions.iter().enumerate() {
            write!(out, "\nsession {place}: {habits:?}")?;
        }
        Ok(())
    }
}

/// Runs cases, some at a time. Failures come with their seeds; after some no case begins.
pub(crate) async fn run_edited(
    cases: impl Iterator<Item = DrawnEdits>,
    at_once: usize,
) -> (EditFigures, Vec<(u64, String)>) {
    let (mut running, mut cases) = (JoinSet::new(), cases.fuse());
    let (mut figures, mut failures) = (EditFigures::new(), Vec::new());
    loop {
        while running.len() < at_once && failures.len() < 10 {
            let Some(case) = cases.next() else {
                break;
            };
            running.spawn(async move {
                // A task of its own, whose panic is a fault of this case alone.
                let (seed, shown) = (case.seed, case.to_string());
                let mut task = JoinSet::new();
                task.spawn(run_case(case));
                let ran = task.join_next().await.unwrap();
                let ran = ran.unwrap_or_else(|panic| Err(format!("{shown}\nthe client: {panic}")));
                (seed, ran)
            });
        }
        let Some(ran) = running.join_next().await else {
            return (figures, failures);
        };
        match ran.unwrap() {
            (_, Ok(case)) => {
                for (name, count) in case {
                    *figures.entry(name).or_default() += count;
                }
            }
            (seed, Err(fault)) => failures.push((seed, fault)),
        }
    }
}

/// # Errors
/// The faults of a case.
async fn run_case(case: DrawnEdits) -> Result<EditFigures, String> {
    let words: Vec<String> = (0..case.count())
        .map(|place| name_ship(case.seed, place))
        .collect();
    let habits = WorkHabits {
        seed: case.seed,
        ends: 18,
        written: case.window as usize / 24,
        writes_calls: false,
        repeats_ids: case.repeats_ids,
    };
    let (provider, records) = start_work(case.wire, habits, &words).await;
    let proxy = proxy_for(&provider, case.wire)
        .model("*", case.model_settings())
        .set(|config| case.set_proxy(config))
        .start()
        .await;
    let sessions = case.sessions.iter().zip(&words).enumerate();
    let mut sessions: Vec<(EditedSession, AnswerWatch)> = sessions
        .map(|(place, (habits, word))| {
            let session = EditedSession::new(&case, place, word, *habits, proxy.client());
            (session, AnswerWatch::default())
        })
        .collect();
    let mut figures = EditFigures::new();
    let mut random = Random::for_part(case.seed, 53);
    loop {
        let open = (0..sessions.len()).filter(|&at| !sessions[at].0.is_over());
        let open: Vec<usize> = open.collect();
        if open.is_empty() {
            break;
        }
        let place = open[random.below(open.len())];
        let (session, watch) = &mut sessions[place];
        let prepared = session.prepare();
        {
            let record = &mut lock(&records)[place];
            record.change = prepared.change;
            record.newest = Some(session.newest().to_owned());
            if case.seed.is_multiple_of(16) {
                for found in find_violations(case.wire, &session.client.body()) {
                    record.fault(Check::Client, found);
                }
            }
        }
        let generation = session.client.ask().await;
        {
            let record = &mut lock(&records)[place];
            let is_other = watch.judge(&generation, prepared.must_continue, record);
            if is_other {
                // What was written down belongs to the session before.
                record.notes.clear();
                record.shown.clear();
            }
            let mut note = |name: &str, is: bool| {
                *figures.entry(name.to_owned()).or_default() += usize::from(is);
            };
            note("requests", true);
            note(
                "requests that must continue their session",
                prepared.must_continue,
            );
            note("requests that got another session", is_other);
        }
        session.go_on(session.client.read(&generation));
    }
    drop(proxy);
    let mut records = std::mem::take(&mut *lock(&records));
    compare_ids(&mut records);
    let mut faults = Vec::new();
    for (place, record) in records.iter().enumerate() {
        for (name, count) in [
            ("sessions", 1),
            ("requests to the provider", record.requests),
            ("prompts that the model read", record.prompts),
            ("reminders", record.saved),
            ("requests without some of the reminders", record.hidden),
        ] {
            *figures.entry(name.to_owned()).or_default() += count;
        }
        for fault in &record.faults {
            let name = format!("faults of {:?}", fault.check);
            *figures.entry(name).or_default() += 1;
            if JUDGED.contains(&fault.check) {
                let (request, what) = (fault.request, &fault.what);
                faults.push(format!("session {place}, request {request}: {what}"));
            }
        }
    }
    if faults.is_empty() {
        Ok(figures)
    } else {
        Err(format!("{case}\n{}", faults.join("\n")))
    }
}
