//! Hours of work in minutes, and all that can go wrong in them.
//!
//! `cargo bench --bench soak -- [minutes] [seed] [phase]`: 10 minutes unless told otherwise; `all` runs
//! the phase where everything fails at once, between warm-up and calm, and leaves out the others. Three proxies run
//! as processes of their own, one on its file and two replicas on a real `redis-server`, before two
//! providers that fail in every way. 2,000 conversations grow, by clients of which some read slowly
//! and some vanish. Phases bring the failures, storms of them, a Redis that stalls, dies and comes
//! back empty, and reloads of good and broken settings.
//!
//! All the time every byte of every answer is held against what the provider said, every request that
//! reaches a provider against the rules of providers and against texts of other sessions, and what a
//! session knows against what it knew. At the end everything must be back where it was after the
//! warm-up. The first failure ends the run with code 1, its reason and the seed.

mod checks;
mod far;
mod faults;
mod fleet;
mod mind;
mod near;
mod redis;
mod rest;
mod send;
mod talk;
mod told;
mod watch;
mod world;

#[allow(
    unused_imports,
    clippy::unwrap_used,
    reason = "shared with the tests, which use all of it"
)]
#[path = "../../tests/it/support/mod.rs"]
mod support;

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use self::{
    far::Far,
    fleet::Fleet,
    near::Near,
    redis::Store,
    rest::Rest,
    world::{Phase, World},
};

const MINUTES: f64 = 10.0;
const SESSIONS: usize = 2_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|it| !it.starts_with("--"));
    let minutes = arguments.next().and_then(|it| it.parse().ok());
    let seed = arguments.next().and_then(|it| it.parse().ok());
    let only = arguments.next();
    let world = World::new(minutes.unwrap_or(MINUTES), seed.unwrap_or(1), SESSIONS);
    let heard = Arc::clone(&world);
    std::panic::set_hook(Box::new(move |panic| heard.fail(panic.to_string())));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(run(&world, only.as_deref()));
            // The processes are ended with the tasks that hold them.
            runtime.shutdown_timeout(Duration::from_secs(10));
            ended
        }
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        world.fail(error.to_string());
    }
    match world.failure() {
        None => ExitCode::SUCCESS,
        Some(why) => {
            let mut out = io::stdout().lock();
            let _ = writeln!(out, "\nFAILED, seed {}: {why}", world.seed);
            ExitCode::FAILURE
        }
    }
}

async fn run(world: &Arc<World>, only: Option<&str>) -> io::Result<()> {
    let far = Far::start(world).await;
    let store = Arc::new(Store::start());
    let folder = tempfile::tempdir()?;
    let nears = near::start_all(folder.path(), &far, &store, world).await?;
    let mut fleet = Fleet::start(world, &nears);
    let mut shown = watch::start(world, &nears);
    let mut warm = None;
    let wanted = |phase: &Phase| !phase.fails() || only.is_none_or(|only| only == phase.name());
    for phase in Phase::ALL.into_iter().filter(wanted) {
        world.enter(phase);
        tokio::select! {
            () = world.failed() => break,
            _ = tokio::signal::ctrl_c() => world.fail("interrupted".to_owned()),
            () = during(phase, world, &nears, &store) => {}
        }
        if phase == Phase::WarmUp {
            warm = quiet(world, &far, &mut fleet, &nears).await;
        }
        if world.failure().is_some() {
            break;
        }
    }
    let end = match world.failure() {
        None => quiet(world, &far, &mut fleet, &nears).await,
        Some(_) => None,
    };
    fleet.stop().await;
    shown.abort_all();
    watch::summary(world, warm.as_deref(), end.as_deref())?;
    if let (Some(warm), Some(end)) = (warm, end) {
        rest::returned(world, &warm, &end);
        rest::well(world, &nears).await;
    }
    Ok(())
}

/// Brings about what belongs to a phase, until it is over.
async fn during(phase: Phase, world: &Arc<World>, nears: &[Arc<Near>], store: &Arc<Store>) {
    let over = tokio::time::sleep(world.lasts(phase));
    let chaos = async {
        tokio::join!(
            async {
                if phase.storms() {
                    world.weather().await;
                }
            },
            async {
                if phase.stalls_redis() {
                    store.comes_and_goes(world, world.lasts(phase)).await;
                }
            },
            async {
                if phase.reloads() {
                    near::reloads(nears, world).await;
                }
            }
        );
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = over => {}
        () = chaos => {}
    }
    world.calm();
    store.is_up(world).await;
    for near in nears {
        near.settle().await;
    }
}

/// Everybody stops, connections are closed, and what every proxy holds then is measured.
async fn quiet(
    world: &Arc<World>,
    far: &Far,
    fleet: &mut Fleet,
    nears: &[Arc<Near>],
) -> Option<Vec<Rest>> {
    fleet.rest().await;
    if world.failure().is_some() {
        return None;
    }
    let mut all = Vec::new();
    for near in nears {
        all.push(rest::at_rest(world, near, far).await);
    }
    fleet.go_on();
    Some(all)
}

/// A wait with nothing to wait for but time.
async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
