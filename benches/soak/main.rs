//! A soak test: hours of work in minutes, with every failure.
//!
//! `cargo bench --bench soak -- [minutes] [seed] [phase]`, 10 minutes by default; `all` runs only
//! the phase with every failure at once, between warm-up and calm. Three proxies run as processes,
//! one on its file and two replicas on a real `redis-server`, before two providers that fail in
//! every way. 2,000 conversations grow; some of their clients read slowly, and some disconnect.
//! Phases bring failures, storms of them, a Redis that stalls, dies and comes back empty, and
//! reloads of good and broken settings.
//!
//! Every byte of every answer is compared with the provider's, every upstream request is checked
//! against the rules of providers and for texts of other sessions, and every session must keep what
//! it knew. At the end all resources must be back at their level after the warm-up. The first
//! failure ends the run with code 1, its reason and the seed.

mod assertions;
mod checks;
mod conversation;
mod faults;
mod fleet;
mod idle;
mod model;
mod progress;
mod provider;
mod proxy;
mod redis;
mod run_state;
mod send;

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
    fleet::Fleet,
    provider::SoakProviders,
    proxy::{IdleResources, ProxyProcess},
    redis::SoakRedis,
    run_state::{RunState, SoakPhase},
};

const MINUTES: f64 = 10.0;
const SESSIONS: usize = 2_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|it| !it.starts_with("--"));
    let minutes = arguments.next().and_then(|it| it.parse().ok());
    let seed = arguments.next().and_then(|it| it.parse().ok());
    let only = arguments.next();
    let world = RunState::new(minutes.unwrap_or(MINUTES), seed.unwrap_or(1), SESSIONS);
    let heard = Arc::clone(&world);
    std::panic::set_hook(Box::new(move |panic| {
        heard.report_failure(panic.to_string())
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(run(&world, only.as_deref()));
            // The processes end with the tasks that hold them.
            runtime.shutdown_timeout(Duration::from_secs(10));
            ended
        }
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        world.report_failure(error.to_string());
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

async fn run(world: &Arc<RunState>, only: Option<&str>) -> io::Result<()> {
    let far = SoakProviders::start_both(world).await;
    let store = Arc::new(SoakRedis::start_server());
    let folder = tempfile::tempdir()?;
    let nears = proxy::start_all(folder.path(), &far, &store, world).await?;
    let mut fleet = Fleet::start_clients(world, &nears);
    let mut shown = progress::start_printing(world, &nears);
    let mut warm = None;
    let wanted =
        |phase: &SoakPhase| !phase.has_faults() || only.is_none_or(|only| only == phase.name());
    for phase in SoakPhase::ALL.into_iter().filter(wanted) {
        world.enter_phase(phase);
        tokio::select! {
            () = world.wait_for_failure() => break,
            _ = tokio::signal::ctrl_c() => world.report_failure("interrupted".to_owned()),
            () = run_phase(phase, world, &nears, &store) => {}
        }
        if phase == SoakPhase::WarmUp {
            warm = measure_at_rest(world, &far, &mut fleet, &nears).await;
        }
        if world.failure().is_some() {
            break;
        }
    }
    let end = match world.failure() {
        None => measure_at_rest(world, &far, &mut fleet, &nears).await,
        Some(_) => None,
    };
    fleet.stop_clients().await;
    shown.abort_all();
    progress::print_summary(world, warm.as_deref(), end.as_deref())?;
    if let (Some(warm), Some(end)) = (warm, end) {
        idle::check_given_back(world, &warm, &end);
        idle::check_readiness(world, &nears).await;
    }
    Ok(())
}

/// Runs the events of a phase until it is over.
async fn run_phase(
    phase: SoakPhase,
    world: &Arc<RunState>,
    nears: &[Arc<ProxyProcess>],
    store: &Arc<SoakRedis>,
) {
    let over = tokio::time::sleep(world.phase_duration(phase));
    let chaos = async {
        tokio::join!(
            async {
                if phase.has_storms() {
                    world.change_weather().await;
                }
            },
            async {
                if phase.stalls_redis() {
                    store
                        .repeat_outages(world, world.phase_duration(phase))
                        .await;
                }
            },
            async {
                if phase.has_reloads() {
                    proxy::reload_repeatedly(nears, world).await;
                }
            }
        );
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = over => {}
        () = chaos => {}
    }
    world.end_storm();
    store.end_outage(world).await;
    for near in nears {
        near.restore_settings().await;
    }
}

/// Stops all clients, closes connections, and measures the resources of every proxy.
async fn measure_at_rest(
    world: &Arc<RunState>,
    far: &SoakProviders,
    fleet: &mut Fleet,
    nears: &[Arc<ProxyProcess>],
) -> Option<Vec<IdleResources>> {
    fleet.pause_clients().await;
    if world.failure().is_some() {
        return None;
    }
    let mut all = Vec::new();
    for near in nears {
        all.push(idle::measure_idle(world, near, far).await);
    }
    fleet.resume_clients();
    Some(all)
}

/// Waits for a fixed time.
async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
