//! Generated sessions of agents whose model binds its reasoning to what stood before it, through a proxy with every
//! mechanism on. The provider refuses none, nothing stale is sent, what was left out stays out, and reasoning goes with
//! a change alone.

mod client;
mod draw;
mod provider;
mod sent;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use plimsoll::store::Store;
use tempfile::TempDir;
use tokio::task::{JoinError, JoinSet};

pub(crate) use self::draw::DrawnSession;
use self::{
    client::SessionClient,
    provider::{SessionLog, start_provider},
};
use super::{
    agent::AgentGeneration, generate::Random, provider::ScriptedProvider, proxy::RunningProxy,
    store::memory_store,
};

/// The figure of reasoning that went although nothing before it was changed.
pub(crate) const NEEDLESS: &str = "reasoning that went without a change";

/// Counts of what happened in sessions, which show that nothing was left out.
pub(crate) type SessionFigures = BTreeMap<String, usize>;

/// Whether the proxy keeps its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptState {
    Always,
    /// It loses it between any two requests.
    Loses,
}

/// Runs sessions, some at a time. Failures come with their seeds; after some no session begins.
pub(crate) async fn run_sessions(
    sessions: impl Iterator<Item = DrawnSession>,
    at_once: usize,
    kept: KeptState,
) -> (SessionFigures, Vec<(u64, String)>) {
    let mut running = JoinSet::new();
    let mut figures = SessionFigures::new();
    let mut failures = Vec::new();
    let mut sessions = sessions.fuse();
    loop {
        while running.len() < at_once && failures.len() < 10 {
            let Some(session) = sessions.next() else {
                break;
            };
            running.spawn(async move { (session.seed, run_session(session, kept).await) });
        }
        let Some(ran) = running.join_next().await else {
            return (figures, failures);
        };
        match ran.unwrap() {
            (_, Ok(session)) => {
                for (name, count) in session {
                    *figures.entry(name).or_default() += count;
                }
            }
            (seed, Err(fault)) => failures.push((seed, fault)),
        }
    }
}

/// Runs a session.
///
/// # Errors
/// What must not be.
async fn run_session(session: DrawnSession, kept: KeptState) -> Result<SessionFigures, String> {
    let (provider, log) = start_provider(&session).await;
    let drive = SessionDrive {
        provider,
        log: Arc::clone(&log),
        store: memory_store(),
        folder: tempfile::tempdir().unwrap(),
        kept,
        figures: SessionFigures::new(),
        actions: Vec::new(),
        session: session.clone(),
    };
    // A task of its own, whose panic is a fault of this session alone.
    let mut task = JoinSet::new();
    task.spawn(drive.run());
    let ran = task.join_next().await.unwrap();
    let log = std::mem::take(&mut *log.lock().unwrap_or_else(|it| it.into_inner()));
    let mut faults = log.faults.clone();
    let mut figures = ran.unwrap_or_else(|panic| {
        faults.push(read_panic(panic));
        SessionFigures::new()
    });
    if !faults.is_empty() {
        return Err(format!("{session}\n{}", faults.join("\n")));
    }
    let counts = [
        ("requests to the provider", log.requests),
        ("refused as too long", log.too_long),
        ("summaries", log.summaries),
        ("summaries by the provider", log.provider_summaries),
        (
            "requests that begin with the provider's summary",
            log.summarised,
        ),
        ("tokens that the provider cleared", log.cleared),
        ("requests whose start changed", log.changes),
        ("reasoning that was read", log.read),
        (NEEDLESS, log.needless),
        ("reasoning that the API left out", log.dropped),
        ("refused after a loss", log.healed),
    ];
    for (name, count) in counts {
        note(&mut figures, name, count);
    }
    note(&mut figures, &format!("sessions of {:?}", session.api), 1);
    note(
        &mut figures,
        &format!("sessions of {}", session.model.name),
        1,
    );
    Ok(figures)
}

fn note(figures: &mut SessionFigures, name: &str, count: usize) {
    *figures.entry(name.to_owned()).or_default() += count;
}

fn read_panic(panic: JoinError) -> String {
    let said = panic.into_panic();
    let text = said.downcast_ref::<String>().cloned();
    let text = text.or_else(|| said.downcast_ref::<&str>().map(|it| (*it).to_owned()));
    format!("the client: {}", text.unwrap_or_default())
}

struct SessionDrive {
    session: DrawnSession,
    provider: ScriptedProvider,
    log: Arc<Mutex<SessionLog>>,
    store: Arc<dyn Store>,
    /// With the secret of the installation, which seals the states.
    folder: TempDir,
    kept: KeptState,
    figures: SessionFigures,
    /// What the last answer told of changes.
    actions: Vec<String>,
}

impl SessionDrive {
    async fn run(mut self) -> SessionFigures {
        let mut random = Random::for_part(self.session.seed, 3);
        let restarts = random.chance(25);
        let mut proxy = self.start_proxy().await;
        let mut client = SessionClient::new(&self.session, proxy.client());
        let mut events = Random::for_part(self.session.seed, 6);
        let mut calls = 0;
        let (mut released, mut answered) = (0, 0);
        for nth in 0..self.session.requests {
            let loses = self.kept == KeptState::Loses && random.chance(15);
            if nth > 0 && (loses || restarts && random.chance(10)) {
                proxy.stop();
                proxy.wait_until_gone().await;
                released = self.log.lock().unwrap().held;
                if loses {
                    self.store = memory_store();
                    self.log.lock().unwrap().lose_state();
                    self.note("states lost");
                }
                self.note("restarts");
                proxy = self.start_proxy().await;
                client.connect_to(proxy.client());
            }
            if self.session.clears_from.is_some_and(|from| from <= nth) {
                client.clear_results(calls);
                self.note("requests that clear by calls");
            }
            self.log.lock().unwrap().sends_anew();
            let answer = client.ask().await;
            self.check_actions(&answer);
            let held = self.log.lock().unwrap().held;
            answered = if held > released { answered + 1 } else { 0 };
            if answered > self.session.summaries_late_by {
                self.provider.release_stalled();
                (released, answered) = (held, 0);
            }
            while events.chance(self.session.repeats) {
                self.log.lock().unwrap().is_repeat = true;
                client.repeat(self.session.api, events.chance(50)).await;
                self.log.lock().unwrap().is_repeat = false;
                self.note("repeats");
            }
            let newest = &mut self.log.lock().unwrap().newest;
            client.go_on(&self.session, &answer, nth, newest);
            if self.session.clears_from.is_some_and(|from| from <= nth) {
                calls += newest.call_ids.len();
            }
        }
        self.figures
    }

    async fn start_proxy(&self) -> RunningProxy {
        let session = &self.session;
        let proxy = self.provider.proxy().store(Arc::clone(&self.store));
        let proxy = proxy
            .providers(|provider| session.set_provider(provider))
            .set(|config| {
                config.server.data_dir = self.folder.path().into();
                session.set_proxy(config);
            });
        proxy.model("*", session.model_settings()).start().await
    }

    fn note(&mut self, name: &str) {
        note(&mut self.figures, name, 1);
    }

    /// Where the API left out reasoning that it read before, the proxy has told a new change.
    fn check_actions(&mut self, answer: &AgentGeneration) {
        let actions = answer.header("actions").unwrap_or_default();
        let mut told: Vec<String> = Vec::new();
        for word in actions.split(',').map(str::trim) {
            let name = word.split('=').next().unwrap_or_default();
            self.note(&format!("requests with {name}"));
            if !matches!(
                name,
                "none" | "clamped" | "injected" | "compacting" | "recalled"
            ) {
                told.push(word.to_owned());
            }
        }
        if let Some(course) = answer.header("course") {
            told.push(format!("course {course}"));
        }
        // The count is of what no earlier answer said: the word alone tells a new change.
        let tells_loss = told.iter().any(|it| it.starts_with("thinking-dropped="));
        let mut log = self.log.lock().unwrap();
        if std::mem::take(&mut log.drops_anew) && told == self.actions && !tells_loss {
            let fault = format!("dropped with no change told: {actions}");
            log.faults.push(fault);
        }
        drop(log);
        self.actions = told;
    }
}
