//! Bounds on concurrent use: connections, bytes of bodies, requests of a client, and listeners.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::Notify;

use crate::wire::Body;

/// A bound. It may change while holds exist: below the amount taken, it admits nothing until enough is returned.
#[derive(Debug)]
pub struct Limit {
    taken: AtomicUsize,
    max: AtomicUsize,
    /// Notified of every change that may leave room for more.
    changed: Notify,
}

/// The bytes of all bodies.
pub type InflightBytes = Arc<Limit>;

/// A part of what a limit allows, returned on drop.
#[derive(Debug)]
pub struct Hold {
    limit: Arc<Limit>,
    amount: usize,
}

/// Limits by key. Each lives as long as a hold of it or another reference to it.
#[derive(Debug, Default)]
pub struct LimitMap<K>(Mutex<HashMap<K, Weak<Limit>>>);

impl Limit {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            changed: Notify::new(),
        })
    }

    pub fn set_max(&self, max: usize) {
        self.max.store(max, Relaxed);
        self.changed.notify_one();
    }

    pub fn amount_taken(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// An empty hold that can grow.
    pub fn begin_hold(self: &Arc<Self>) -> Hold {
        Hold {
            limit: Arc::clone(self),
            amount: 0,
        }
    }

    /// `None`: there is no room.
    pub fn try_take_one(self: &Arc<Self>) -> Option<Hold> {
        let mut hold = self.begin_hold();
        hold.grow(1).then_some(hold)
    }

    /// Waits for room. For one caller at a time.
    pub async fn take_one(self: &Arc<Self>) -> Hold {
        loop {
            if let Some(hold) = self.try_take_one() {
                return hold;
            }
            // A change before this line leaves a permit, which completes the wait at once.
            self.changed.notified().await;
        }
    }
}

impl Hold {
    /// Takes `amount` more; `false` if there is no room. Never waits: bodies could deadlock each other.
    pub fn grow(&mut self, amount: usize) -> bool {
        let max = self.limit.max.load(Relaxed);
        let add = |taken: usize| taken.checked_add(amount).filter(|sum| *sum <= max);
        let has_grown = self.limit.taken.fetch_update(Relaxed, Relaxed, add).is_ok();
        if has_grown {
            self.amount += amount;
        }
        has_grown
    }

    /// Grows to `amount` if it is less; `false` if there is no room.
    pub fn grow_to(&mut self, amount: usize) -> bool {
        self.grow(amount.saturating_sub(self.amount))
    }

    /// Bytes that keep the hold until the last of them is dropped. A client that reads slowly leaves an answer in
    /// the server's write queue, long after its body was consumed.
    pub fn attach_to_bytes(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(HeldBytes { bytes, _hold: self })
    }

    /// A body that keeps the hold until it is dropped.
    pub fn attach_to_body(self, body: Body) -> Body {
        let keep = move |frame| {
            let _ = &self;
            frame
        };
        body.map_frame(keep).boxed_unsync()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.limit.taken.fetch_sub(self.amount, Relaxed);
            self.limit.changed.notify_one();
        }
    }
}

struct HeldBytes {
    bytes: Bytes,
    _hold: Hold,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<K: Hash + Eq> LimitMap<K> {
    /// The limit of a key, with `max` as its bound from now on.
    pub fn get(&self, key: K, max: usize) -> Arc<Limit> {
        let mut limits = self.0.lock();
        limits.retain(|_, limit| limit.strong_count() > 0);
        if let Some(limit) = limits.get(&key).and_then(Weak::upgrade) {
            limit.set_max(max);
            return limit;
        }
        let limit = Limit::new(max);
        limits.insert(key, Arc::downgrade(&limit));
        limit
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::{Limit, LimitMap};

    #[test]
    fn bytes_keep_their_room_while_any_of_them_is_left() {
        let limit = Limit::new(10);
        let mut hold = limit.begin_hold();
        assert!(hold.grow(10));
        let bytes = hold.attach_to_bytes("0123456789".into());
        let rest = bytes.slice(8..);
        drop(bytes);
        assert!(!limit.begin_hold().grow(1));
        assert_eq!(rest, "89");
        drop(rest);
        assert!(limit.begin_hold().grow(10));
    }

    #[test]
    fn a_dropped_hold_returns_its_room() {
        let limit = Limit::new(10);
        let mut first = limit.begin_hold();
        assert!(first.grow(4) && first.grow(4));
        assert!(!first.grow(4));
        let mut second = limit.begin_hold();
        assert!(!second.grow(3) && !second.grow(usize::MAX));
        drop(first);
        assert!(second.grow(10));
        assert_eq!(limit.amount_taken(), 10);
    }

    #[test]
    fn the_bound_may_change_while_something_is_held() {
        let limit = Limit::new(2);
        let (first, second) = (limit.try_take_one().unwrap(), limit.try_take_one().unwrap());
        assert!(limit.try_take_one().is_none());
        limit.set_max(3);
        let third = limit.try_take_one().unwrap();
        limit.set_max(1);
        drop((first, second));
        assert!(limit.try_take_one().is_none(), "one of one is taken");
        drop(third);
        assert!(limit.try_take_one().is_some());
    }

    #[tokio::test]
    async fn a_waiting_caller_gets_returned_room() {
        let limit = Limit::new(1);
        let first = limit.take_one().await;
        let mut second = std::pin::pin!(limit.take_one());
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        let second = second.await;
        let mut third = std::pin::pin!(limit.take_one());
        assert!(third.as_mut().now_or_never().is_none());
        limit.set_max(2);
        let _third = third.await;
        drop(second);
    }

    #[test]
    fn a_hold_counts_after_its_bound_has_changed() {
        let limits = LimitMap::default();
        // Only the hold refers to the limit.
        let unbounded = limits.get("alice", usize::MAX).try_take_one().unwrap();
        assert!(limits.get("alice", 1).try_take_one().is_none());
        assert!(limits.get("bob", 1).try_take_one().is_some());
        let second = limits.get("alice", 2).try_take_one().unwrap();
        drop(unbounded);
        assert!(limits.get("alice", 1).try_take_one().is_none());
        drop(second);
        assert!(limits.get("alice", 1).try_take_one().is_some());
    }

    #[test]
    fn unused_limits_are_dropped() {
        let limits = LimitMap::default();
        let held = limits.get(1_000, 1);
        for key in 0..100 {
            let _ = limits.get(key, 1);
        }
        assert!(Arc::ptr_eq(&held, &limits.get(1_000, 1)));
        assert!(limits.0.lock().len() <= 2);
    }
}
