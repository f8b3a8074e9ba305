use std::{
    sync::{
        Barrier,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use proptest::{collection::vec, prelude::*};

use super::{Breaker, LONGEST_REST, Permit, State};

const MS: Duration = Duration::from_millis(1);
const OPEN: Duration = Duration::from_millis(100);

/// One that has just opened.
fn opened(now: Instant) -> Breaker {
    let breaker = Breaker::new(2, OPEN);
    for _ in 0..2 {
        breaker.admit(now).unwrap().failed(now);
    }
    assert_eq!(breaker.state(now), State::Open);
    breaker
}

#[test]
fn failures_in_a_row_open_it() {
    let now = Instant::now();
    let breaker = Breaker::new(3, OPEN);
    let fail = || breaker.admit(now).unwrap().failed(now);
    fail();
    fail();
    breaker.admit(now).unwrap().succeeded();
    fail();
    fail();
    drop(breaker.admit(now).unwrap());
    assert_eq!(breaker.state(now), State::Closed);
    fail();
    assert_eq!(breaker.state(now), State::Open);
    assert!(breaker.admit(now).is_none());
    assert!(breaker.admit(now + OPEN - MS).is_none());
    assert_eq!(breaker.state(now + OPEN), State::HalfOpen);
}

#[test]
fn none_of_any_number_opens_one_that_is_off() {
    let now = Instant::now();
    let breaker = Breaker::new(0, OPEN);
    for _ in 0..1_000 {
        breaker.admit(now).unwrap().failed(now);
    }
    assert_eq!(breaker.state(now), State::Closed);
}

#[test]
fn one_probe_decides() {
    let begun = Instant::now();
    let half = begun + OPEN;

    let breaker = opened(begun);
    let probe = breaker.admit(half).unwrap();
    assert!(breaker.admit(half).is_none());
    drop(probe);
    let probe = breaker.admit(half).unwrap();
    probe.failed(half);
    assert_eq!(breaker.state(half), State::Open);
    assert!(breaker.admit(half + OPEN - MS).is_none());
    breaker.admit(half + OPEN).unwrap().succeeded();
    assert_eq!(breaker.state(half + OPEN), State::Closed);
    // It takes as many failures as ever.
    breaker.admit(half).unwrap().failed(half);
    assert_eq!(breaker.state(half), State::Closed);
}

#[test]
fn what_nobody_else_could_answer_counts_too() {
    let now = Instant::now();
    let breaker = opened(now);
    breaker.force().succeeded();
    assert_eq!(breaker.state(now), State::Closed);
    let breaker = opened(now);
    breaker.force().failed(now + MS);
    assert_eq!(breaker.state(now + OPEN), State::Open);
    assert_eq!(breaker.state(now + OPEN + MS), State::HalfOpen);
}

#[test]
fn what_ends_late_is_not_counted() {
    let now = Instant::now();
    let breaker = Breaker::new(1, OPEN);
    let late: Vec<_> = (0..3).map(|_| breaker.admit(now).unwrap()).collect();
    let [first, second, third] = <[Permit<'_>; 3]>::try_from(late).unwrap();
    first.failed(now);
    second.succeeded();
    assert_eq!(breaker.state(now), State::Open, "a success of before");
    let probe = breaker.admit(now + OPEN).unwrap();
    breaker.force().succeeded();
    third.failed(now);
    probe.failed(now + OPEN);
    assert_eq!(breaker.state(now + OPEN), State::Closed);
}

#[test]
fn a_rest_is_no_failure_and_ends() {
    let now = Instant::now();
    let breaker = Breaker::new(1, OPEN);
    breaker.rest(now, 10 * MS);
    breaker.rest(now, MS);
    assert_eq!(breaker.state(now), State::Closed);
    assert!(breaker.admit(now + 9 * MS).is_none());
    breaker.force().succeeded();
    assert!(breaker.admit(now + 10 * MS).is_some());
    breaker.rest(now, Duration::MAX);
    assert!(breaker.admit(now + LONGEST_REST - MS).is_none());
    assert!(breaker.admit(now + LONGEST_REST).is_some());
}

#[test]
fn of_many_threads_one_probes() {
    let begun = Instant::now();
    let breaker = opened(begun);
    for round in 1..=100 {
        let now = begun + OPEN * round;
        let (probes, done) = (AtomicU32::new(0), Barrier::new(8));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let permit = breaker.admit(now);
                    done.wait();
                    if let Some(permit) = permit {
                        probes.fetch_add(1, SeqCst);
                        permit.failed(now);
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
                    assert_eq!(breaker.state(now), State::Closed);
                    breaker.admit(now).unwrap().failed(now);
                }
            });
        }
    });
    assert_eq!(breaker.state(now), State::Open);
}

/// What may happen to a breaker. The number picks one of the permits under way.
#[derive(Clone, Copy, Debug)]
enum Event {
    Admit,
    Force,
    Succeed(usize),
    Fail(usize),
    Leave(usize),
    Rest(u32),
    Later(u32),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Admit),
        1 => Just(Event::Force),
        2 => any::<usize>().prop_map(Event::Succeed),
        5 => any::<usize>().prop_map(Event::Fail),
        1 => any::<usize>().prop_map(Event::Leave),
        1 => (0_u32..200).prop_map(Event::Rest),
        3 => (0_u32..80).prop_map(Event::Later),
    ]
}

/// The same in so many words: nothing is kept but what happened, and everything is counted anew
/// from that each time. Times are in milliseconds, and a permit is its place in the list.
#[derive(Default)]
struct Naive {
    /// When the breaker changed its state, and until when it is open since (0: closed).
    turns: Vec<u32>,
    /// Outcomes since the last turn; `true` is a success.
    outcomes: Vec<bool>,
    /// For each permit: the number of turns before it, whether it probes, whether it is under way.
    permits: Vec<(usize, bool, bool)>,
    rests: Vec<u32>,
}

impl Naive {
    fn open_until(&self) -> u32 {
        self.turns.last().copied().unwrap_or(0)
    }

    fn state(&self, now: u32) -> State {
        match self.open_until() {
            0 => State::Closed,
            until if now < until => State::Open,
            _ => State::HalfOpen,
        }
    }

    fn admits(&self, now: u32) -> bool {
        let turns = self.turns.len();
        let probed = self.permits.contains(&(turns, true, true));
        let rests = self.rests.iter().any(|until| now < *until);
        let free = match self.state(now) {
            State::Closed => true,
            State::Open => false,
            State::HalfOpen => !probed,
        };
        free && !rests
    }

    fn ended(&mut self, permit: usize, now: u32, failures: usize, outcome: Option<bool>) {
        let (turns, _, under_way) = &mut self.permits[permit];
        *under_way = false;
        let Some(success) = outcome.filter(|_| *turns == self.turns.len()) else {
            return;
        };
        self.outcomes.push(success);
        let row = self.outcomes.iter().rev().take_while(|success| !**success);
        let enough = failures > 0 && row.count() >= failures;
        let turn = match (self.open_until(), success) {
            (0, true) => return,
            (0, false) if !enough => return,
            (_, true) => 0,
            (_, false) => now + 100,
        };
        self.turns.push(turn);
        self.outcomes.clear();
    }
}

proptest! {
    #[test]
    fn it_does_as_the_naive_one(failures in 0_u32..4, events in vec(any_event(), 0..120)) {
        let begun = Instant::now();
        let breaker = Breaker::new(failures, OPEN);
        let (mut naive, mut now) = (Naive::default(), 1_u32);
        let mut permits: Vec<(usize, Permit<'_>)> = Vec::new();
        for event in events {
            let at = begun + now * MS;
            match event {
                Event::Admit => {
                    let permit = breaker.admit(at);
                    prop_assert_eq!(permit.is_some(), naive.admits(now));
                    if let Some(permit) = permit {
                        let probe = naive.state(now) == State::HalfOpen;
                        permits.push((naive.permits.len(), permit));
                        naive.permits.push((naive.turns.len(), probe, true));
                    }
                }
                Event::Force => {
                    permits.push((naive.permits.len(), breaker.force()));
                    naive.permits.push((naive.turns.len(), false, true));
                }
                Event::Succeed(which) | Event::Fail(which) | Event::Leave(which) => {
                    if permits.is_empty() {
                        continue;
                    }
                    let (place, permit) = permits.swap_remove(which % permits.len());
                    let outcome = match event {
                        Event::Succeed(_) => { permit.succeeded(); Some(true) }
                        Event::Fail(_) => { permit.failed(at); Some(false) }
                        _ => { drop(permit); None }
                    };
                    naive.ended(place, now, failures as usize, outcome);
                }
                Event::Rest(length) => {
                    breaker.rest(at, length * MS);
                    naive.rests.push(now + length);
                }
                Event::Later(length) => now += length,
            }
            prop_assert_eq!(breaker.state(begun + now * MS), naive.state(now));
        }
    }
}
