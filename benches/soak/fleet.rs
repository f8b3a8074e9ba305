//! The clients: each has a growing conversation, and pauses between requests.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use http::Method;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};

use super::{
    assertions::ExpectedSession,
    checks::{self, CheckedAnswer},
    conversation::{ClientConversation, SendOptions},
    pause,
    proxy::ProxyProcess,
    run_state::RunState,
    send::{ClientManner, ProxyConnections},
};

/// Concurrent requests; further ones wait, so that a busy machine is not overloaded.
const RUNNING: u32 = 64;
/// The average pause of a client.
const THINKS_MS: usize = 14_000;
/// Attempts of one turn before the client pauses again.
const TRIES: usize = 4;
/// Time limit for all clients to stop.
const RESTS_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Fleet {
    shared: Arc<FleetState>,
    clients: JoinSet<()>,
}

struct FleetState {
    world: Arc<RunState>,
    nears: Vec<Arc<ProxyProcess>>,
    doors: Mutex<Vec<Arc<ProxyConnections>>>,
    running: Semaphore,
    is_running: watch::Sender<bool>,
}

impl Fleet {
    pub(crate) fn start_clients(world: &Arc<RunState>, nears: &[Arc<ProxyProcess>]) -> Self {
        let shared = Arc::new(FleetState {
            world: Arc::clone(world),
            doors: Mutex::new(open_connections(nears)),
            nears: nears.to_vec(),
            running: Semaphore::new(RUNNING as usize),
            is_running: watch::Sender::new(true),
        });
        let mut clients = JoinSet::new();
        for number in 0..world.sessions {
            let talk = ClientConversation::new(world, number);
            clients.spawn(run_client(Arc::clone(&shared), talk));
        }
        Self { shared, clients }
    }

    /// Lets all requests end, starts no more, and closes all connections.
    pub(crate) async fn pause_clients(&mut self) {
        self.shared.is_running.send_replace(false);
        let all = self.shared.running.acquire_many(RUNNING);
        if tokio::time::timeout(RESTS_WITHIN, all).await.is_err() {
            self.shared
                .world
                .report_failure("a request did not come to an end".to_owned());
        }
        *self.shared.lock_connections() = open_connections(&self.shared.nears);
    }

    pub(crate) fn resume_clients(&self) {
        self.shared.is_running.send_replace(true);
    }

    pub(crate) async fn stop_clients(&mut self) {
        self.clients.shutdown().await;
    }
}

fn open_connections(nears: &[Arc<ProxyProcess>]) -> Vec<Arc<ProxyConnections>> {
    let doors = nears
        .iter()
        .map(|near| Arc::new(ProxyConnections::new(near.address)));
    doors.collect()
}

impl FleetState {
    fn lock_connections(&self) -> std::sync::MutexGuard<'_, Vec<Arc<ProxyConnections>>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A proxy that has the conversation's session: the one with the file, or any replica.
    fn choose_proxy(&self, talk: &mut ClientConversation) -> Arc<ProxyConnections> {
        let at = if talk.uses_redis() {
            1 + talk.random.below(self.nears.len() - 1)
        } else {
            0
        };
        Arc::clone(&self.lock_connections()[at])
    }
}

async fn run_client(shared: Arc<FleetState>, mut talk: ClientConversation) {
    let mut goes = shared.is_running.subscribe();
    // Staggered.
    pause(talk.random.below(THINKS_MS) as u64).await;
    loop {
        // The sender is in `shared`.
        let _ = goes.wait_for(|goes| *goes).await;
        let Ok(running) = shared.running.acquire().await else {
            return;
        };
        if *shared.is_running.borrow() {
            if let Err(why) = run_turn(&shared, &mut talk).await {
                let (marker, turn) = (&talk.marker, talk.turn);
                shared
                    .world
                    .report_failure(format!("{marker}, turn {turn}: {why}"));
            }
            talk.restart_if_long();
        }
        drop(running);
        pause(talk.random.between(THINKS_MS / 10, THINKS_MS * 19 / 10) as u64).await;
    }
}

/// One turn: the request with its retries, and its result.
async fn run_turn(shared: &FleetState, talk: &mut ClientConversation) -> Result<(), String> {
    let world = &shared.world;
    for _ in 0..TRIES {
        let how = SendOptions {
            streams: talk.random.chance(60),
            wants_usage: talk.random.chance(50),
        };
        let manner = ClientManner::draw_manner(&mut talk.random, world.phase().has_faults());
        let doors = shared.choose_proxy(talk);
        let before = world.redis_epoch();
        if talk
            .expected
            .as_ref()
            .is_some_and(|told| !told.is_kept_at(before))
            && talk.uses_redis()
        {
            talk.expected = None;
        }
        let begun = Instant::now();
        let answer = doors.send_turn(talk, how, manner).await;
        let took = begun.elapsed();
        world.count_event("requests");
        let judged = match answer {
            Some(answer) => checks::check_answer(world, talk, how, answer)?,
            None => (CheckedAnswer::Failed("left".to_owned()), None),
        };
        talk.forget_if_disturbed(before, world.redis_epoch());
        let message = match judged {
            (CheckedAnswer::Good(message), Some(generation)) => {
                let told = ExpectedSession::check_answer(
                    talk.expected.as_ref(),
                    &generation,
                    how.streams,
                    before,
                )?;
                world.count_actions(&generation);
                let certain =
                    !talk.uses_redis() || before.is_undisturbed_until(world.redis_epoch());
                talk.expected = certain.then_some(told);
                message
            }
            (verdict, _) => {
                if let CheckedAnswer::Failed(kind) = verdict {
                    world.count_event(&format!("failed: {kind}"));
                }
                if let Some(told) = &mut talk.expected {
                    told.count_uncertain();
                }
                pause(100).await;
                continue;
            }
        };
        world.count_event("ok");
        if manner != ClientManner::Slow {
            world.record_time(took);
        }
        if talk.random.chance(4) {
            check_session(&doors, world, talk).await?;
        }
        talk.take_message(&message);
        return Ok(());
    }
    world.count_event("turns put off");
    Ok(())
}

/// Reads the session from the API, and sometimes changes it.
async fn check_session(
    doors: &ProxyConnections,
    world: &RunState,
    talk: &mut ClientConversation,
) -> Result<(), String> {
    /// Under load a state is stored shortly after the end of its answer.
    const LOOKS: usize = 20;
    let Some(told) = talk.expected.clone() else {
        return Ok(());
    };
    let id = told.session().to_owned();
    let before = world.redis_epoch();
    for at in 1..=LOOKS {
        let answer = doors.ask_api(talk, Method::GET, &id).await;
        let certain = !talk.uses_redis() || before.is_undisturbed_until(world.redis_epoch());
        if !certain || (answer.status == 200 && told.matches_report(&answer.json())) {
            break;
        }
        if at == LOOKS {
            return Err(format!("{told:?}, and the API tells {}", answer.text()));
        }
        pause(250).await;
    }
    world.count_event("sessions looked at");
    let order = match talk.random.below(20) {
        0 => "clear",
        1 => "compact",
        _ => return Ok(()),
    };
    let answer = doors
        .ask_api(talk, Method::POST, &format!("{id}/{order}"))
        .await;
    world.count_event(&format!("ordered: {order} {}", answer.status.as_u16()));
    Ok(())
}
