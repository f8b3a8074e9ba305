//! The Redis of the replicas, which stalls, dies, and comes back with its data or without.

use std::{
    sync::{Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{pause, run_state::RunState};
use crate::support::Redis;

/// Time for replicas to reconnect and store what is pending.
const FOUND_WITHIN_MS: u64 = 8_000;

pub(crate) struct SoakRedis {
    redis: Mutex<Redis>,
    /// The kind of an outage.
    away: Mutex<Option<Outage>>,
}

#[derive(Clone, Copy)]
enum Outage {
    Stalls,
    Dies,
    /// It comes back empty.
    DiesEmpty,
}

impl SoakRedis {
    /// A server that survives its own crash but not the machine's; waiting for the disk could delay
    /// writes.
    pub(crate) fn start_server() -> Self {
        let redis = Redis::with(
            "redis-server",
            &["--appendonly", "yes", "--appendfsync", "no"],
        );
        Self {
            redis: Mutex::new(redis),
            away: Mutex::new(None),
        }
    }

    pub(crate) fn url(&self) -> String {
        self.with_server(|redis| redis.url())
    }

    fn with_server<T>(&self, act: impl FnOnce(&mut Redis) -> T) -> T {
        tokio::task::block_in_place(|| {
            act(&mut self.redis.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }

    /// An outage of this length.
    pub(crate) async fn repeat_outages(&self, world: &RunState, time: Duration) {
        let begun = Instant::now();
        let mut random = world.random_with_salt(55);
        let ways = [Outage::Stalls, Outage::Dies, Outage::DiesEmpty];
        for at in 0.. {
            // Long enough for sessions to be reported and continued.
            pause(random.between(15_000, 25_000) as u64).await;
            let away = random.between(1_000, 7_000) as u64;
            let left = time.saturating_sub(begun.elapsed());
            if left < Duration::from_millis(away + 2 * FOUND_WITHIN_MS) {
                return;
            }
            self.begin_outage(world, ways[at % ways.len()]).await;
            pause(away).await;
            self.end_outage(world).await;
        }
    }

    async fn begin_outage(&self, world: &RunState, how: Outage) {
        world.mark_disturbed();
        world.redis_up.store(false, Relaxed);
        *self.lock_outage() = Some(how);
        self.with_server(|redis| match how {
            Outage::Stalls => redis.stall(),
            Outage::Dies => redis.kill(),
            Outage::DiesEmpty => {
                redis.run_command(&["flushall"]);
                redis.kill();
            }
        });
        world.count_event(match how {
            Outage::Stalls => "redis: stalled",
            Outage::Dies => "redis: killed",
            Outage::DiesEmpty => {
                world.mark_lost();
                "redis: lost everything"
            }
        });
    }

    fn lock_outage(&self) -> std::sync::MutexGuard<'_, Option<Outage>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends an outage, and gives the replicas time to reconnect.
    pub(crate) async fn end_outage(&self, world: &RunState) {
        let Some(how) = self.lock_outage().take() else {
            return;
        };
        self.with_server(|redis| match how {
            Outage::Stalls => redis.resume(),
            Outage::Dies | Outage::DiesEmpty => redis.restart(),
        });
        world.redis_up.store(true, Relaxed);
        pause(FOUND_WITHIN_MS).await;
        world.mark_disturbed();
    }
}
