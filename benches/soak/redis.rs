//! The server of the replicas, which stalls, dies, and comes back with what it had or without.

use std::{
    sync::{Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{pause, world::World};
use crate::support::redis::Redis;

/// What replicas may take to find it again, and to store what was said meanwhile.
const FOUND_WITHIN_MS: u64 = 8_000;

pub(crate) struct Store {
    redis: Mutex<Redis>,
    /// How it went, where it is away.
    away: Mutex<Option<Away>>,
}

#[derive(Clone, Copy)]
enum Away {
    Stalls,
    Dies,
    /// And has lost everything.
    DiesEmpty,
}

impl Store {
    /// One that keeps what it has through its own death; the machine's is none of ours, and waiting for
    /// the disk may put writes off.
    pub(crate) fn start() -> Self {
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
        self.with(|redis| redis.url())
    }

    fn with<T>(&self, act: impl FnOnce(&mut Redis) -> T) -> T {
        tokio::task::block_in_place(|| {
            act(&mut self.redis.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }

    /// Goes and comes again, for so long.
    pub(crate) async fn comes_and_goes(&self, world: &World, time: Duration) {
        let begun = Instant::now();
        let mut random = world.random(55);
        let ways = [Away::Stalls, Away::Dies, Away::DiesEmpty];
        for at in 0.. {
            // Long enough for sessions to be told of again, and followed.
            pause(random.between(15_000, 25_000) as u64).await;
            let away = random.between(1_000, 7_000) as u64;
            let left = time.saturating_sub(begun.elapsed());
            if left < Duration::from_millis(away + 2 * FOUND_WITHIN_MS) {
                return;
            }
            self.leaves(world, ways[at % ways.len()]).await;
            pause(away).await;
            self.is_up(world).await;
        }
    }

    async fn leaves(&self, world: &World, how: Away) {
        world.turn_tide();
        world.redis_up.store(false, Relaxed);
        *self.away() = Some(how);
        self.with(|redis| match how {
            Away::Stalls => redis.stall(),
            Away::Dies => redis.kill(),
            Away::DiesEmpty => {
                redis.tell(&["flushall"]);
                redis.kill();
            }
        });
        world.count(match how {
            Away::Stalls => "redis: stalled",
            Away::Dies => "redis: killed",
            Away::DiesEmpty => {
                world.lose_all();
                "redis: lost everything"
            }
        });
    }

    fn away(&self) -> std::sync::MutexGuard<'_, Option<Away>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings it back, where it is away, and gives the replicas time to find it.
    pub(crate) async fn is_up(&self, world: &World) {
        let Some(how) = self.away().take() else {
            return;
        };
        self.with(|redis| match how {
            Away::Stalls => redis.go_on(),
            Away::Dies | Away::DiesEmpty => redis.restart(),
        });
        world.redis_up.store(true, Relaxed);
        pause(FOUND_WITHIN_MS).await;
        world.turn_tide();
    }
}
