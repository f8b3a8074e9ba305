use std::{
    sync::{
        Barrier,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use proptest::{collection::vec, prelude::*};

use super::{Breaker, BreakerState, MAX_PAUSE, Permit};

const MS: Duration = Duration::from_millis(1);
const OPEN: Duration = Duration::from_millis(100);

/// A breaker that has just opened.
fn opened(now: Instant) -> Breaker {
    let breaker = Breaker::new(2, OPEN);
    for _ in 0..2 {
        breaker.try_admit(now).unwrap().record_failure(now);
    }
    assert_eq!(breaker.state_at(now), BreakerState::Open);
    breaker
}

#[test]
fn failures_in_a_row_open_it() {
    let now = Instant::now();
    let breaker = Breaker::new(3, OPEN);
    let fail = || breaker.try_admit(now).unwrap().record_failure(now);
    fail();
    fail();
    breaker.try_admit(now).unwrap().record_success();
    fail();
    fail();
    drop(breaker.try_admit(now).unwrap());
    assert_eq!(breaker.state_at(now), BreakerState::Closed);
    fail();
    assert_eq!(breaker.state_at(now), BreakerState::Open);
    assert!(breaker.try_admit(now).is_none());
    assert!(breaker.try_admit(now + OPEN - MS).is_none());
    assert_eq!(breaker.state_at(now + OPEN), BreakerState::HalfOpen);
}

#[test]
fn a_breaker_that_is_off_never_opens() {
    let now = Instant::now();
    let breaker = Breaker::new(0, OPEN);
    for _ in 0..1_000 {
        breaker.try_admit(now).unwrap().record_failure(now);
    }
    assert_eq!(breaker.state_at(now), BreakerState::Closed);
}

#[test]
fn one_probe_closes_or_reopens_it() {
    let begun = Instant::now();
    let half = begun + OPEN;

    let breaker = opened(begun);
    let probe = breaker.try_admit(half).unwrap();
    assert!(breaker.try_admit(half).is_none());
    drop(probe);
    let probe = breaker.try_admit(half).unwrap();
    probe.record_failure(half);
    assert_eq!(breaker.state_at(half), BreakerState::Open);
    assert!(breaker.try_admit(half + OPEN - MS).is_none());
    breaker.try_admit(half + OPEN).unwrap().record_success();
    assert_eq!(breaker.state_at(half + OPEN), BreakerState::Closed);
    // It takes as many failures as before.
    breaker.try_admit(half).unwrap().record_failure(half);
    assert_eq!(breaker.state_at(half), BreakerState::Closed);
}

#[test]
fn the_outcome_of_a_forced_request_counts() {
    let now = Instant::now();
    let breaker = opened(now);
    breaker.force_admit().record_success();
    assert_eq!(breaker.state_at(now), BreakerState::Closed);
    let breaker = opened(now);
    breaker.force_admit().record_failure(now + MS);
    assert_eq!(breaker.state_at(now + OPEN), BreakerState::Open);
    assert_eq!(breaker.state_at(now + OPEN + MS), BreakerState::HalfOpen);
}

#[test]
fn a_late_outcome_is_not_counted() {
    let now = Instant::now();
    let breaker = Breaker::new(1, OPEN);
    let late: Vec<_> = (0..3).map(|_| breaker.try_admit(now).unwrap()).collect();
    let [first, second, third] = <[Permit<'_>; 3]>::try_from(late).unwrap();
    first.record_failure(now);
    second.record_success();
    assert_eq!(
        breaker.state_at(now),
        BreakerState::Open,
        "a success of an earlier period"
    );
    let probe = breaker.try_admit(now + OPEN).unwrap();
    breaker.force_admit().record_success();
    third.record_failure(now);
    probe.record_failure(now + OPEN);
    assert_eq!(breaker.state_at(now + OPEN), BreakerState::Closed);
}

#[test]
fn a_pause_is_no_failure_and_ends() {
    let now = Instant::now();
    let breaker = Breaker::new(1, OPEN);
    breaker.pause_for(now, 10 * MS);
    breaker.pause_for(now, MS);
    assert_eq!(breaker.state_at(now), BreakerState::Closed);
    assert!(breaker.try_admit(now + 9 * MS).is_none());
    breaker.force_admit().record_success();
    assert!(breaker.try_admit(now + 10 * MS).is_some());
    breaker.pause_for(now, Duration::MAX);
    assert!(breaker.try_admit(now + MAX_PAUSE - MS).is_none());
    assert!(breaker.try_admit(now + MAX_PAUSE).is_some());
}

#[test]
fn only_one_of_many_threads_probes() {
    let begun = Instant::now();
    let breaker = opened(begun);
    for round in 1..=100 {
        let now = begun + OPEN * round;
        let (probes, done) = (AtomicU32::new(0), Barrier::new(8));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let permit = breaker.try_admit(now);
                    done.wait();
                    if let Some(permit) = permit {
                        probes.fetch_add(1, SeqCst);
                        permit.record_failure(now);
                    }
                });
            }
        });
        assert_eq!(probes.into_inner(), 1);
    }
}

#[test]
fn no_failure_of_many_threads_is_lost() {
    let now = Instant::now();
    let breaker = Breaker::new(800, OPEN);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    assert_eq!(breaker.state_at(now), BreakerState::Closed);
                    breaker.try_admit(now).unwrap().record_failure(now);
                }
            });
        }
    });
    assert_eq!(breaker.state_at(now), BreakerState::Open);
}

/// One step of a random history. A `usize` picks one of the permits under way, a `u32` is in
/// milliseconds.
#[derive(Clone, Copy, Debug)]
enum Event {
    Admit,
    Force,
    Succeed(usize),
    Fail(usize),
    Leave(usize),
    Pause(u32),
    Wait(u32),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Admit),
        1 => Just(Event::Force),
        2 => any::<usize>().prop_map(Event::Succeed),
        5 => any::<usize>().prop_map(Event::Fail),
        1 => any::<usize>().prop_map(Event::Leave),
        1 => (0_u32..200).prop_map(Event::Pause),
        3 => (0_u32..80).prop_map(Event::Wait),
    ]
}

/// A breaker that keeps its history only, and counts everything from it each time. Times are in
/// milliseconds, and a permit is its index in the list.
#[derive(Default)]
struct Naive {
    /// For each change of the state, until when the breaker is open from then on (0: closed).
    changes: Vec<u32>,
    /// Outcomes since the last change; `true` is a success.
    outcomes: Vec<bool>,
    /// For each permit: the number of changes before it, whether it probes, whether it is under way.
    permits: Vec<(usize, bool, bool)>,
    pauses: Vec<u32>,
}

impl Naive {
    fn open_until(&self) -> u32 {
        self.changes.last().copied().unwrap_or(0)
    }

    fn state(&self, now: u32) -> BreakerState {
        match self.open_until() {
            0 => BreakerState::Closed,
            until if now < until => BreakerState::Open,
            _ => BreakerState::HalfOpen,
        }
    }

    fn admits(&self, now: u32) -> bool {
        let paused = self.pauses.iter().any(|until| now < *until);
        let free = match self.state(now) {
            BreakerState::Closed => true,
            BreakerState::Open => false,
            BreakerState::HalfOpen => !self.permits.contains(&(self.changes.len(), true, true)),
        };
        free && !paused
    }

    fn end_permit(&mut self, permit: usize, now: u32, failures: usize, outcome: Option<bool>) {
        let (changes, _, under_way) = &mut self.permits[permit];
        *under_way = false;
        let Some(success) = outcome.filter(|_| *changes == self.changes.len()) else {
            return;
        };
        self.outcomes.push(success);
        let row = self.outcomes.iter().rev().take_while(|success| !**success);
        let enough = failures > 0 && row.count() >= failures;
        let change = match (self.open_until(), success) {
            (0, true) => return,
            (0, false) if !enough => return,
            (_, true) => 0,
            (_, false) => now + 100,
        };
        self.changes.push(change);
        self.outcomes.clear();
    }
}

proptest! {
    #[test]
    fn it_agrees_with_a_naive_breaker(failures in 0_u32..4, events in vec(any_event(), 0..120)) {
        let begun = Instant::now();
        let breaker = Breaker::new(failures, OPEN);
        let (mut naive, mut now) = (Naive::default(), 1_u32);
        let mut permits: Vec<(usize, Permit<'_>)> = Vec::new();
        for event in events {
            let at = begun + now * MS;
            match event {
                Event::Admit => {
                    let permit = breaker.try_admit(at);
                    prop_assert_eq!(permit.is_some(), naive.admits(now));
                    if let Some(permit) = permit {
                        let probe = naive.state(now) == BreakerState::HalfOpen;
                        permits.push((naive.permits.len(), permit));
                        naive.permits.push((naive.changes.len(), probe, true));
                    }
                }
                Event::Force => {
                    permits.push((naive.permits.len(), breaker.force_admit()));
                    naive.permits.push((naive.changes.len(), false, true));
                }
                Event::Succeed(which) | Event::Fail(which) | Event::Leave(which) => {
                    if permits.is_empty() {
                        continue;
                    }
                    let (index, permit) = permits.swap_remove(which % permits.len());
                    let outcome = match event {
                        Event::Succeed(_) => { permit.record_success(); Some(true) }
                        Event::Fail(_) => { permit.record_failure(at); Some(false) }
                        _ => { drop(permit); None }
                    };
                    naive.end_permit(index, now, failures as usize, outcome);
                }
                Event::Pause(length) => {
                    breaker.pause_for(at, length * MS);
                    naive.pauses.push(now + length);
                }
                Event::Wait(length) => now += length,
            }
            prop_assert_eq!(breaker.state_at(begun + now * MS), naive.state(now));
        }
    }
}
