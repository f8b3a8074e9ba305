use proptest::prelude::*;

use super::{GenerationEvents, RecoveryAction, RecoveryClock, RecoveryPace};
use crate::health::HealthLevel::{self, Caution, Critical, Healthy, Unknown};

const PACE: RecoveryPace = RecoveryPace {
    caution_cadence: 10,
    critical_countdown: 5,
};

const CUT: GenerationEvents = GenerationEvents {
    carried_prompt: false,
    cut: true,
    cleared: false,
};

/// A generation that carries whatever prompt is due.
fn generation(clock: RecoveryClock, level: HealthLevel, pace: RecoveryPace) -> RecoveryClock {
    let asked = matches!(
        clock.due_action(),
        Some(RecoveryAction::Caution | RecoveryAction::Critical { .. })
    );
    let cleared = clock.due_action() == Some(RecoveryAction::Course);
    let did = GenerationEvents {
        carried_prompt: asked,
        cleared,
        ..GenerationEvents::default()
    };
    clock.advance_after(level, did, pace)
}

/// What is due with each of the requests that these levels answer, and with the one after them.
fn due(
    levels: impl IntoIterator<Item = HealthLevel>,
    pace: RecoveryPace,
) -> Vec<Option<RecoveryAction>> {
    let mut clock = RecoveryClock::Calm;
    let mut found = vec![clock.due_action()];
    for level in levels {
        clock = generation(clock, level, pace);
        found.push(clock.due_action());
    }
    found
}

fn critical(left: u32, cut: bool) -> RecoveryClock {
    RecoveryClock::Critical {
        left,
        cut,
        told: false,
    }
}

#[test]
fn caution_asks_on_entering_and_then_by_the_cadence() {
    for cadence in [1, 2, 3, 10] {
        let pace = RecoveryPace {
            caution_cadence: cadence,
            ..PACE
        };
        let found = due([Caution; 40], pace);
        let asked: Vec<_> = (0..found.len())
            .filter(|&at| found[at] == Some(RecoveryAction::Caution))
            .collect();
        let expected: Vec<_> = (1..found.len()).step_by(cadence as usize).collect();
        assert_eq!(asked, expected, "cadence {cadence}");
    }
}

#[test]
fn a_prompt_that_found_no_place_stays_due() {
    let mut clock = RecoveryClock::Calm.advance_after(Caution, GenerationEvents::default(), PACE);
    for _ in 0..30 {
        assert_eq!(clock.due_action(), Some(RecoveryAction::Caution));
        clock = clock.advance_after(Caution, GenerationEvents::default(), PACE);
    }
    let asked = GenerationEvents {
        carried_prompt: true,
        ..GenerationEvents::default()
    };
    clock = clock.advance_after(Caution, asked, PACE);
    assert_eq!(
        clock,
        RecoveryClock::Caution {
            due: false,
            since: 1
        }
    );
}

#[test]
fn the_countdown_ends_with_a_course() {
    let left = |left| Some(RecoveryAction::Critical { left });
    assert_eq!(
        due([Critical; 7], PACE),
        [
            None,
            left(5),
            left(4),
            left(3),
            left(2),
            left(1),
            Some(RecoveryAction::Course),
            // The sixth request after entering began a course, which is critical from its start.
            left(5)
        ]
    );
    assert_eq!(critical(3, false).countdown(), Some(3));
    assert_eq!(RecoveryClock::Calm.countdown(), None);
}

#[test]
fn a_course_that_could_not_begin_stays_due() {
    let mut clock = critical(1, false);
    for _ in 0..3 {
        clock = clock.advance_after(Critical, GenerationEvents::default(), PACE);
        assert_eq!(clock.due_action(), Some(RecoveryAction::Course));
    }
}

/// Else a provider that stops reporting would collect the same notice in every request, for ever.
#[test]
fn a_count_that_stands_still_is_told_once() {
    let mut clock = critical(4, false);
    for _ in 0..20 {
        clock = generation(clock, Unknown, PACE);
        assert_eq!((clock.due_action(), clock.countdown()), (None, Some(4)));
    }
    let next = generation(clock, Critical, PACE);
    assert_eq!(
        next.due_action(),
        Some(RecoveryAction::Critical { left: 3 })
    );
    // It was asked already, so falling to caution is no reason to ask again.
    assert_eq!(
        clock
            .advance_after(Caution, GenerationEvents::default(), PACE)
            .due_action(),
        None
    );
}

#[test]
fn leaving_critical_ends_the_countdown() {
    let nothing = GenerationEvents::default();
    assert_eq!(
        critical(3, false).advance_after(Healthy, nothing, PACE),
        RecoveryClock::Calm
    );
    // Nobody was asked in it, so that is due now.
    assert_eq!(
        critical(3, false)
            .advance_after(Caution, nothing, PACE)
            .due_action(),
        Some(RecoveryAction::Caution)
    );
    let asked = GenerationEvents {
        carried_prompt: true,
        ..nothing
    };
    let mut clock = critical(3, false).advance_after(Caution, asked, PACE);
    for _ in 0..9 {
        assert_eq!(clock.due_action(), None);
        clock = clock.advance_after(Caution, nothing, PACE);
    }
    assert_eq!(clock.due_action(), Some(RecoveryAction::Caution));
}

#[test]
fn a_cut_of_ours_neither_starts_nor_ends_a_countdown() {
    assert_eq!(
        RecoveryClock::Calm.advance_after(Healthy, CUT, PACE),
        RecoveryClock::Calm
    );
    assert_eq!(
        RecoveryClock::Calm
            .advance_after(Caution, CUT, PACE)
            .due_action(),
        Some(RecoveryAction::Caution)
    );
    let mut clock = critical(5, false).advance_after(Healthy, CUT, PACE);
    for left in (1..5).rev() {
        assert_eq!(clock, critical(left, true));
        clock = clock.advance_after(Healthy, GenerationEvents::default(), PACE);
    }
    assert_eq!(clock.due_action(), Some(RecoveryAction::Course));
    // A cut made in an answer without usage counts as one, too.
    let clock = critical(5, false).advance_after(Unknown, CUT, PACE);
    assert_eq!(
        clock.advance_after(Healthy, GenerationEvents::default(), PACE),
        critical(4, true)
    );
}

#[test]
fn a_clear_begins_anew() {
    let cleared = GenerationEvents {
        cleared: true,
        carried_prompt: true,
        cut: true,
    };
    for before in [
        RecoveryClock::Calm,
        critical(0, true),
        critical(4, false),
        RecoveryClock::Caution {
            due: false,
            since: 7,
        },
    ] {
        assert_eq!(
            before.advance_after(Healthy, cleared, PACE),
            RecoveryClock::Calm
        );
        assert_eq!(
            before.advance_after(Unknown, cleared, PACE),
            RecoveryClock::Calm
        );
        assert_eq!(
            before.advance_after(Critical, cleared, PACE),
            critical(5, false)
        );
        assert_eq!(
            before.advance_after(Caution, cleared, PACE).due_action(),
            Some(RecoveryAction::Caution)
        );
    }
}

fn level() -> impl Strategy<Value = HealthLevel> {
    prop::sample::select(vec![Healthy, Caution, Critical, Unknown])
}

fn did() -> impl Strategy<Value = GenerationEvents> {
    (
        prop::bool::ANY,
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(asked, cut, cleared)| GenerationEvents {
            carried_prompt: asked,
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
        let clock = past.iter().fold(RecoveryClock::Calm, |clock, (level, did)| clock.advance_after(*level, *did, PACE));
        let unknown = GenerationEvents { cleared: false, ..unknown };
        let after = clock.advance_after(Unknown, unknown, PACE);
        prop_assert_eq!(after.countdown(), clock.countdown());
        let prompt = matches!(clock.due_action(), Some(RecoveryAction::Caution | RecoveryAction::Critical { .. }));
        let heard = prompt && unknown.carried_prompt;
        prop_assert_eq!(after.due_action(), if heard { None } else { clock.due_action() });
        if !unknown.carried_prompt && !unknown.cut {
            prop_assert_eq!(after, clock);
        }
    }

    #[test]
    fn unknown_levels_between_change_no_prompt(
        levels in prop::collection::vec(level(), 0..80),
        cadence in 1u32..12,
        countdown in 1u32..8,
    ) {
        let pace = RecoveryPace { caution_cadence: cadence, critical_countdown: countdown };
        // Without a prompt given in them, answers without usage might not have been.
        let (mut clock, mut known) = (RecoveryClock::Calm, RecoveryClock::Calm);
        for level in levels {
            if level == Unknown {
                clock = clock.advance_after(Unknown, GenerationEvents::default(), pace);
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
        let pace = RecoveryPace { critical_countdown: countdown, ..PACE };
        let mut clock = RecoveryClock::Calm;
        for (level, did) in steps {
            let after = clock.advance_after(level, did, pace);
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
            prop_assert_eq!(after.due_action().is_some() || level != Critical, true);
            clock = after;
        }
    }

    #[test]
    fn a_due_caution_waits_for_its_place(levels in prop::collection::vec(prop::bool::ANY, 0..60)) {
        let mut clock = RecoveryClock::Calm.advance_after(Caution, GenerationEvents::default(), PACE);
        for known in levels {
            clock = clock.advance_after(if known { Caution } else { Unknown }, GenerationEvents::default(), PACE);
            prop_assert_eq!(clock.due_action(), Some(RecoveryAction::Caution));
        }
    }
}
