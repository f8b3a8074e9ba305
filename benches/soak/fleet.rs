//! The clients: each with a conversation that grows, and time to think between two requests.

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
    checks::{self, Verdict},
    near::Near,
    pause,
    send::{Doors, Manner},
    talk::{How, Talk},
    told::Told,
    world::World,
};

/// Requests that run at one time; who comes beyond waits, so that a busy machine is not drowned.
const RUNNING: u32 = 64;
/// How long a client thinks, on the average.
const THINKS_MS: usize = 14_000;
/// Requests for one turn, before a client thinks again.
const TRIES: usize = 4;
/// What clients may take to come to rest.
const RESTS_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Fleet {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

struct Shared {
    world: Arc<World>,
    nears: Vec<Arc<Near>>,
    doors: Mutex<Vec<Arc<Doors>>>,
    running: Semaphore,
    goes: watch::Sender<bool>,
}

impl Fleet {
    pub(crate) fn start(world: &Arc<World>, nears: &[Arc<Near>]) -> Self {
        let shared = Arc::new(Shared {
            world: Arc::clone(world),
            doors: Mutex::new(doors(nears)),
            nears: nears.to_vec(),
            running: Semaphore::new(RUNNING as usize),
            goes: watch::Sender::new(true),
        });
        let mut clients = JoinSet::new();
        for number in 0..world.sessions {
            let talk = Talk::new(world, number);
            clients.spawn(live(Arc::clone(&shared), talk));
        }
        Self { shared, clients }
    }

    /// Lets all requests end, begins no more, and closes all connections.
    pub(crate) async fn rest(&mut self) {
        self.shared.goes.send_replace(false);
        let all = self.shared.running.acquire_many(RUNNING);
        if tokio::time::timeout(RESTS_WITHIN, all).await.is_err() {
            self.shared
                .world
                .fail("a request did not come to an end".to_owned());
        }
        *self.shared.doors() = doors(&self.shared.nears);
    }

    pub(crate) fn go_on(&self) {
        self.shared.goes.send_replace(true);
    }

    pub(crate) async fn stop(&mut self) {
        self.clients.shutdown().await;
    }
}

fn doors(nears: &[Arc<Near>]) -> Vec<Arc<Doors>> {
    let doors = nears.iter().map(|near| Arc::new(Doors::new(near.address)));
    doors.collect()
}

impl Shared {
    fn doors(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Doors>>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A proxy that knows the conversation: the one with the file, or any of the replicas.
    fn door(&self, talk: &mut Talk) -> Arc<Doors> {
        let at = match talk.on_redis() {
            true => 1 + talk.random.below(self.nears.len() - 1),
            false => 0,
        };
        Arc::clone(&self.doors()[at])
    }
}

async fn live(shared: Arc<Shared>, mut talk: Talk) {
    let mut goes = shared.goes.subscribe();
    // Not all at once.
    pause(talk.random.below(THINKS_MS) as u64).await;
    loop {
        // The sender is in `shared`.
        let _ = goes.wait_for(|goes| *goes).await;
        let Ok(running) = shared.running.acquire().await else {
            return;
        };
        if *shared.goes.borrow() {
            if let Err(why) = turn(&shared, &mut talk).await {
                let (marker, turn) = (&talk.marker, talk.turn);
                shared.world.fail(format!("{marker}, turn {turn}: {why}"));
            }
            talk.ends_if_long();
        }
        drop(running);
        pause(talk.random.between(THINKS_MS / 10, THINKS_MS * 19 / 10) as u64).await;
    }
}

/// One turn: the request, again where it failed, and what comes of it.
async fn turn(shared: &Shared, talk: &mut Talk) -> Result<(), String> {
    let world = &shared.world;
    for _ in 0..TRIES {
        let how = How {
            streams: talk.random.chance(60),
            wants_usage: talk.random.chance(50),
        };
        let manner = Manner::any(&mut talk.random, world.phase().fails());
        let doors = shared.door(talk);
        let before = world.tide();
        if talk
            .told
            .as_ref()
            .is_some_and(|told| !told.holds_at(before))
            && talk.on_redis()
        {
            talk.told = None;
        }
        let begun = Instant::now();
        let answer = doors.send(talk, how, manner).await;
        let took = begun.elapsed();
        world.count("requests");
        let judged = match answer {
            Some(answer) => checks::judge(world, talk, how, answer)?,
            None => (Verdict::Failed("left".to_owned()), None),
        };
        talk.doubt(before, world.tide());
        let message = match judged {
            (Verdict::Good(message), Some(generation)) => {
                let told = Told::next(talk.told.as_ref(), &generation, how.streams, before)?;
                world.did(&generation);
                let certain = !talk.on_redis() || before.nothing_was_lost_until(world.tide());
                talk.told = certain.then_some(told);
                message
            }
            (verdict, _) => {
                if let Verdict::Failed(kind) = verdict {
                    world.count(&format!("failed: {kind}"));
                }
                if let Some(told) = &mut talk.told {
                    told.may_have_more();
                }
                pause(100).await;
                continue;
            }
        };
        world.count("ok");
        if manner != Manner::Slow {
            world.took(took);
        }
        if talk.random.chance(4) {
            look(&doors, world, talk).await?;
        }
        talk.goes_on(&message);
        return Ok(());
    }
    world.count("turns put off");
    Ok(())
}

/// Asks the API for the session, and now and then orders something of it.
async fn look(doors: &Doors, world: &World, talk: &mut Talk) -> Result<(), String> {
    /// What is stored a little later than its answer ends, under load.
    const LOOKS: usize = 20;
    let Some(told) = talk.told.clone() else {
        return Ok(());
    };
    let id = told.session().to_owned();
    let before = world.tide();
    for at in 1..=LOOKS {
        let answer = doors.api(talk, Method::GET, &id).await;
        let certain = !talk.on_redis() || before.nothing_was_lost_until(world.tide());
        if !certain || (answer.status == 200 && told.is_told_by(&answer.json())) {
            break;
        }
        if at == LOOKS {
            return Err(format!("{told:?}, and the API tells {}", answer.text()));
        }
        pause(250).await;
    }
    world.count("sessions looked at");
    let order = match talk.random.below(20) {
        0 => "clear",
        1 => "compact",
        _ => return Ok(()),
    };
    let answer = doors
        .api(talk, Method::POST, &format!("{id}/{order}"))
        .await;
    world.count(&format!("ordered: {order} {}", answer.status.as_u16()));
    Ok(())
}
