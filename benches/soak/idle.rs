//! Measures the resources of an idle proxy, and checks how many of them are allowed at the end.

use std::sync::Arc;

use super::{
    pause,
    provider::SoakProviders,
    proxy::{IdleResources, ProxyProcess},
    run_state::RunState,
};

/// The allowed increase since the warm-up.
const MORE_FILES: usize = 8;
/// Periodic file checks wake blocking threads in turn, so some threads of a rush never idle long
/// enough to end.
const MORE_THREADS: u64 = 12;
const MORE_MEMORY: f64 = 1.3;
const MORE_KB: u64 = 16 << 10;
/// The runtime keeps blocking threads for ten seconds.
const IDLE_THREADS_END_MS: u64 = 12_000;
/// The time before a resource counts as leaked.
const GIVEN_BACK_WITHIN_MS: u64 = 20_000;

/// Waits until nothing is in flight, then measures.
pub(crate) async fn measure_idle(
    world: &RunState,
    near: &ProxyProcess,
    far: &SoakProviders,
) -> IdleResources {
    const STEP_MS: u64 = 250;
    let gauges = [
        "plimsoll_requests_in_flight",
        "plimsoll_in_flight_bytes",
        "plimsoll_summaries_running",
    ];
    let mut waited = 0;
    loop {
        far.hang_up();
        let held = near.read_gauges(&gauges).await;
        if held.iter().all(|(_, value)| *value == 0.0) {
            break;
        }
        if waited >= GIVEN_BACK_WITHIN_MS {
            world.report_failure(format!("{} at rest still has {held:?}", near.name));
            break;
        }
        pause(STEP_MS).await;
        waited += STEP_MS;
    }
    // Time for closed connections to be noticed and idle threads to end.
    pause(IDLE_THREADS_END_MS).await;
    near.measure_resources()
}

/// Checks that nothing leaked.
pub(crate) fn check_given_back(world: &RunState, warm: &[IdleResources], end: &[IdleResources]) {
    for (warm, end) in warm.iter().zip(end) {
        let most = (warm.rss_kb as f64 * MORE_MEMORY) as u64 + MORE_KB;
        let kept = end.rss_kb > most
            || end.files > warm.files + MORE_FILES
            || end.threads > warm.threads + MORE_THREADS;
        if kept {
            world.report_failure(format!(
                "not given back: {warm:?} after the warm-up, {end:?} at the end"
            ));
        }
    }
}

/// Checks that every proxy is healthy.
pub(crate) async fn check_readiness(world: &RunState, nears: &[Arc<ProxyProcess>]) {
    for near in nears {
        let ready = near.get("/readyz").await;
        let open = near.read_gauges(&["plimsoll_breaker_state"]).await;
        let closed = open.iter().all(|(_, state)| *state == 0.0);
        if !closed || !ready.is_ok_and(|answer| answer.contains("ready")) {
            world.report_failure(format!("{} is not well: {open:?}", near.name));
        }
    }
}
