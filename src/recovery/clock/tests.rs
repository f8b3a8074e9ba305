use proptest::prelude::*;

use super::{Clock, Did, Due, Pace};
use crate::health::Level::{self, Caution, Critical, Healthy, Unknown};

const PACE: Pace = Pace {
    caution_cadence: 10,
    critical_countdown: 5,
};

const CUT: Did = Did {
    asked: false,
    cut: true,
    cleared: false,
};

/// A generation that carries whatever prompt is due.
fn generation(clock: Clock, level: Level, pace: Pace) -> Clock {
    let asked = matches!(clock.due(), Some(Due::Caution | Due::Critical { .. }));
    let cleared = clock.due() == Some(Due::Course);
    let did = Did {
        asked,
        cleared,
        ..Did::default()
    };
    clock.after(level, did, pace)
}

/// What is due with each of the requests that these levels answer, and with the one after them.
fn due(levels: impl IntoIterator<Item = Level>, pace: Pace) -> Vec<Option<Due>> {
    let mut clock = Clock::Calm;
    let mut found = vec![clock.due()];
    for level in levels {
        clock = generation(clock, level, pace);
        found.push(clock.due());
    }
    found
}

fn critical(left: u32, cut: bool) -> Clock {
    Clock::Critical {
        left,
        cut,
        told: false,
    }
}

#[test]
fn caution_asks_on_entering_and_then_by_the_cadence() {
    for cadence in [1, 2, 3, 10] {
        let pace = Pace {
            caution_cadence: cadence,
            ..PACE
        };
        let found = due([Caution; 40], pace);
        let asked: Vec<_> = (0..found.len())
            .filter(|&at| found[at] == Some(Due::Caution))
            .collect();
        let expected: Vec<_> = (1..found.len()).step_by(cadence as usize).collect();
        assert_eq!(asked, expected, "cadence {cadence}");
    }
}

#[test]
fn a_prompt_that_found_no_place_stays_due() {
    let mut clock = Clock::Calm.after(Caution, Did::default(), PACE);
    for _ in 0..30 {
        assert_eq!(clock.due(), Some(Due::Caution));
        clock = clock.after(Caution, Did::default(), PACE);
    }
    let asked = Did {
        asked: true,
        ..Did::default()
    };
    clock = clock.after(Caution, asked, PACE);
    assert_eq!(
        clock,
        Clock::Caution {
            due: false,
            since: 1
        }
    );
}

#[test]
fn the_countdown_ends_with_a_course() {
    let left = |left| Some(Due::Critical { left });
    assert_eq!(
        due([Critical; 7], PACE),
        [
            None,
            left(5),
            left(4),
            left(3),
            left(2),
            left(1),
            Some(Due::Course),
            // The sixth request after entering began a course, which is critical from its start.
            left(5)
        ]
    );
    assert_eq!(critical(3, false).countdown(), Some(3));
    assert_eq!(Clock::Calm.countdown(), None);
}

#[test]
fn a_course_that_could_not_begin_stays_due() {
    let mut clock = critical(1, false);
    for _ in 0..3 {
        clock = clock.after(Critical, Did::default(), PACE);
        assert_eq!(clock.due(), Some(Due::Course));
    }
}

/// Else a provider that stops reporting would collect the same notice in every request, for ever.
#[test]
fn a_count_that_stands_still_is_told_once() {
    let mut clock = critical(4, false);
    for _ in 0..20 {
        clock = generation(clock, Unknown, PACE);
        assert_eq!((clock.due(), clock.countdown()), (None, Some(4)));
    }
    let next = generation(clock, Critical, PACE);
    assert_eq!(next.due(), Some(Due::Critical { left: 3 }));
    // It was asked already, so falling to caution is no reason to ask again.
    assert_eq!(clock.after(Caution, Did::default(), PACE).due(), None);
}

#[test]
fn leaving_critical_ends_the_countdown() {
    let nothing = Did::default();
    assert_eq!(
        critical(3, false).after(Healthy, nothing, PACE),
        Clock::Calm
    );
    // Nobody was asked in it, so that is due now.
    assert_eq!(
        critical(3, false).after(Caution, nothing, PACE).due(),
        Some(Due::Caution)
    );
    let asked = Did {
        asked: true,
        ..nothing
    };
    let mut clock = critical(3, false).after(Caution, asked, PACE);
    for _ in 0..9 {
        assert_eq!(clock.due(), None);
        clock = clock.after(Caution, nothing, PACE);
    }
    assert_eq!(clock.due(), Some(Due::Caution));
}

#[test]
fn a_cut_of_ours_neither_starts_nor_ends_a_countdown() {
    assert_eq!(Clock::Calm.after(Healthy, CUT, PACE), Clock::Calm);
    assert_eq!(
        Clock::Calm.after(Caution, CUT, PACE).due(),
        Some(Due::Caution)
    );
    let mut clock = critical(5, false).after(Healthy, CUT, PACE);
    for left in (1..5).rev() {
        assert_eq!(clock, critical(left, true));
        clock = clock.after(Healthy, Did::default(), PACE);
    }
    assert_eq!(clock.due(), Some(Due::Course));
    // A cut made in an answer without usage counts as one, too.
    let clock = critical(5, false).after(Unknown, CUT, PACE);
    assert_eq!(
        clock.after(Healthy, Did::default(), PACE),
        critical(4, true)
    );
}

#[test]
fn a_clear_begins_anew() {
    let cleared = Did {
        cleared: true,
        asked: true,
        cut: true,
    };
    for before in [
        Clock::Calm,
        critical(0, true),
        critical(4, false),
        Clock::Caution {
            due: false,
            since: 7,
        },
    ] {
        assert_eq!(before.after(Healthy, cleared, PACE), Clock::Calm);
        assert_eq!(before.after(Unknown, cleared, PACE), Clock::Calm);
        assert_eq!(before.after(Critical, cleared, PACE), critical(5, false));
        assert_eq!(
            before.after(Caution, cleared, PACE).due(),
            Some(Due::Caution)
        );
    }
}

fn level() -> impl Strategy<Value = Level> {
    prop::sample::select(vec![Healthy, Caution, Critical, Unknown])
}

fn did() -> impl Strategy<Value = Did> {
    (
        prop::bool::ANY,
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(asked, cut, cleared)| Did {
            asked,
            cut,
            cleared,
        })
}

proptest! {
    #[test]
    fn an_unknown_level_moves_nothing(
        past in prop::collection::vec((level(), did()), 0..40),
        unknown in did(),
    ) {
        let clock = past.iter().fold(Clock::Calm, |clock, (level, did)| clock.after(*level, *did, PACE));
        let unknown = Did { cleared: false, ..unknown };
        let after = clock.after(Unknown, unknown, PACE);
        prop_assert_eq!(after.countdown(), clock.countdown());
        let prompt = matches!(clock.due(), Some(Due::Caution | Due::Critical { .. }));
        let heard = prompt && unknown.asked;
        prop_assert_eq!(after.due(), if heard { None } else { clock.due() });
        if !unknown.asked && !unknown.cut {
            prop_assert_eq!(after, clock);
        }
    }

    #[test]
    fn unknown_levels_between_change_no_prompt(
        levels in prop::collection::vec(level(), 0..80),
        cadence in 1u32..12,
        countdown in 1u32..8,
    ) {
        let pace = Pace { caution_cadence: cadence, critical_countdown: countdown };
        // Without a prompt given in them, answers without usage might not have been.
        let (mut clock, mut known) = (Clock::Calm, Clock::Calm);
        for level in levels {
            if level == Unknown {
                clock = clock.after(Unknown, Did::default(), pace);
            } else {
                clock = generation(clock, level, pace);
                known = generation(known, level, pace);
            }
            prop_assert_eq!(clock, known);
        }
    }

    #[test]
    fn a_countdown_is_whole_and_starts_by_its_level_alone(
        steps in prop::collection::vec((level(), did()), 0..80),
        countdown in 1u32..8,
    ) {
        let pace = Pace { critical_countdown: countdown, ..PACE };
        let mut clock = Clock::Calm;
        for (level, did) in steps {
            let after = clock.after(level, did, pace);
            match (clock.countdown().filter(|_| !did.cleared), after.countdown()) {
                (None, Some(left)) => {
                    prop_assert_eq!(level, Critical);
                    prop_assert_eq!(left, countdown);
                }
                (Some(before), Some(left)) => {
                    let unmoved = level == Unknown;
                    prop_assert_eq!(left, if unmoved { before } else { before.saturating_sub(1) });
                }
                (Some(_), None) => prop_assert!(matches!(level, Healthy | Caution) && !did.cut),
                (None, None) => prop_assert_ne!(level, Critical),
            }
            prop_assert_eq!(after.due().is_some() || level != Critical, true);
            clock = after;
        }
    }

    #[test]
    fn a_due_caution_waits_for_its_place(levels in prop::collection::vec(prop::bool::ANY, 0..60)) {
        let mut clock = Clock::Calm.after(Caution, Did::default(), PACE);
        for known in levels {
            clock = clock.after(if known { Caution } else { Unknown }, Did::default(), PACE);
            prop_assert_eq!(clock.due(), Some(Due::Caution));
        }
    }
}
