use proptest::prelude::*;

use super::{GenerationEvents, RecoveryAction, RecoveryClock, RecoveryPace};
use crate::health::HealthLevel::{self, Caution, Critical, Healthy, Unknown};

const PACE: RecoveryPace = RecoveryPace {
    caution_cadence: 10,
    critical_countdown: 5,
};

const NO_EVENTS: GenerationEvents = GenerationEvents {
    carried_prompt: false,
    cleared: false,
};

const PROMPTED: GenerationEvents = GenerationEvents {
    carried_prompt: true,
    cleared: false,
};

fn is_prompt(action: Option<RecoveryAction>) -> bool {
    use RecoveryAction::{Caution, Critical};
    matches!(action, Some(Caution | Critical { .. }))
}

/// The clock after a generation that did what was due.
fn generation(clock: RecoveryClock, level: HealthLevel, pace: RecoveryPace) -> RecoveryClock {
    let action = clock.due_action();
    let events = GenerationEvents {
        carried_prompt: is_prompt(action),
        cleared: action == Some(RecoveryAction::Course),
    };
    clock.advance_after(level, events, pace)
}

/// The actions due with the requests whose answers have these levels, and with the next one.
fn due_actions(
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

fn critical(left: u32) -> RecoveryClock {
    RecoveryClock::Critical { left, told: false }
}

#[test]
fn caution_prompts_at_once_and_then_by_the_cadence() {
    for cadence in [1, 2, 3, 10] {
        let pace = RecoveryPace {
            caution_cadence: cadence,
            ..PACE
        };
        let actions = due_actions([Caution; 40], pace);
        let prompted: Vec<_> = (0..actions.len())
            .filter(|&at| actions[at] == Some(RecoveryAction::Caution))
            .collect();
        let expected: Vec<_> = (1..actions.len()).step_by(cadence as usize).collect();
        assert_eq!(prompted, expected, "cadence {cadence}");
    }
}

#[test]
fn a_prompt_that_was_not_sent_stays_due() {
    let mut clock = RecoveryClock::Calm.advance_after(Caution, NO_EVENTS, PACE);
    for _ in 0..30 {
        assert_eq!(clock.due_action(), Some(RecoveryAction::Caution));
        clock = clock.advance_after(Caution, NO_EVENTS, PACE);
    }
    clock = clock.advance_after(Caution, PROMPTED, PACE);
    let expected = RecoveryClock::Caution {
        due: false,
        since: 1,
    };
    assert_eq!(clock, expected);
}

#[test]
fn the_countdown_ends_with_a_course() {
    let mut expected = vec![None];
    expected.extend([5, 4, 3, 2, 1].map(|left| Some(RecoveryAction::Critical { left })));
    expected.push(Some(RecoveryAction::Course));
    // The sixth request began a course, which is critical from its start.
    expected.push(Some(RecoveryAction::Critical { left: 5 }));
    assert_eq!(due_actions([Critical; 7], PACE), expected);
    assert_eq!(critical(3).countdown(), Some(3));
    assert_eq!(RecoveryClock::Calm.countdown(), None);
}

#[test]
fn a_course_that_could_not_begin_stays_due() {
    let mut clock = critical(1);
    for _ in 0..3 {
        clock = clock.advance_after(Critical, NO_EVENTS, PACE);
        assert_eq!(clock.due_action(), Some(RecoveryAction::Course));
    }
}

/// Else each request to a provider that stops reporting usage would add the same prompt.
#[test]
fn a_countdown_that_stands_still_prompts_once() {
    let mut clock = critical(4);
    for _ in 0..20 {
        clock = generation(clock, Unknown, PACE);
        assert_eq!((clock.due_action(), clock.countdown()), (None, Some(4)));
    }
    let next = generation(clock, Critical, PACE).due_action();
    assert_eq!(next, Some(RecoveryAction::Critical { left: 3 }));
    // The prompt was sent already, so a fall to caution does not repeat it.
    let fallen = clock.advance_after(Caution, NO_EVENTS, PACE);
    assert_eq!(fallen.due_action(), None);
}

#[test]
fn leaving_critical_ends_the_countdown() {
    let healthy = critical(3).advance_after(Healthy, NO_EVENTS, PACE);
    assert_eq!(healthy, RecoveryClock::Calm);
    // No prompt was sent while critical, so one is due now.
    let caution = critical(3).advance_after(Caution, NO_EVENTS, PACE);
    assert_eq!(caution.due_action(), Some(RecoveryAction::Caution));
    let mut clock = critical(3).advance_after(Caution, PROMPTED, PACE);
    for _ in 0..9 {
        assert_eq!(clock.due_action(), None);
        clock = clock.advance_after(Caution, NO_EVENTS, PACE);
    }
    assert_eq!(clock.due_action(), Some(RecoveryAction::Caution));
}

#[test]
fn a_clear_resets_the_clock() {
    let cleared = GenerationEvents {
        cleared: true,
        carried_prompt: true,
    };
    for before in [
        RecoveryClock::Calm,
        critical(0),
        critical(4),
        RecoveryClock::Caution {
            due: false,
            since: 7,
        },
    ] {
        let after = |level| before.advance_after(level, cleared, PACE);
        assert_eq!(after(Healthy), RecoveryClock::Calm);
        assert_eq!(after(Unknown), RecoveryClock::Calm);
        assert_eq!(after(Critical), critical(5));
        assert_eq!(after(Caution).due_action(), Some(RecoveryAction::Caution));
    }
}

#[test]
fn a_prompt_ahead_of_a_cut_stands_for_that_of_the_entry() {
    let carried = GenerationEvents {
        carried_prompt: true,
        ..GenerationEvents::default()
    };
    let prompted = |since| RecoveryClock::Caution { due: false, since };
    let after = |before: RecoveryClock, level, events| before.advance_after(level, events, PACE);
    let calm = RecoveryClock::Calm;
    assert_eq!(after(calm, Healthy, carried), prompted(1));
    assert_eq!(after(calm, Caution, carried), prompted(1));
    assert_eq!(after(calm, Unknown, carried), prompted(0));
    let quiet = GenerationEvents::default();
    assert_eq!(after(prompted(1), Caution, quiet), prompted(2));
    assert_eq!(after(prompted(1), Critical, quiet), critical(5));
    assert_eq!(after(prompted(1), Healthy, quiet), calm);
}

fn level() -> impl Strategy<Value = HealthLevel> {
    prop::sample::select(vec![Healthy, Caution, Critical, Unknown])
}

fn events() -> impl Strategy<Value = GenerationEvents> {
    let any = (prop::bool::ANY, prop::bool::weighted(0.1));
    any.prop_map(|(carried_prompt, cleared)| GenerationEvents {
        carried_prompt,
        cleared,
    })
}

proptest! {
    #[test]
    fn an_unknown_level_advances_no_count(
        past in prop::collection::vec((level(), events()), 0..40),
        unknown in events(),
    ) {
        let clock = past.iter().fold(RecoveryClock::Calm, |clock, (level, events)| clock.advance_after(*level, *events, PACE));
        let unknown = GenerationEvents { cleared: false, ..unknown };
        let after = clock.advance_after(Unknown, unknown, PACE);
        prop_assert_eq!(after.countdown(), clock.countdown());
        let prompted = is_prompt(clock.due_action()) && unknown.carried_prompt;
        prop_assert_eq!(after.due_action(), if prompted { None } else { clock.due_action() });
        if !unknown.carried_prompt {
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
        // Generations without usage and without a prompt change nothing.
        let (mut clock, mut known) = (RecoveryClock::Calm, RecoveryClock::Calm);
        for level in levels {
            if level == Unknown {
                clock = clock.advance_after(Unknown, NO_EVENTS, pace);
            } else {
                clock = generation(clock, level, pace);
                known = generation(known, level, pace);
            }
            prop_assert_eq!(clock, known);
        }
    }

    #[test]
    fn a_countdown_starts_at_a_critical_level_and_skips_no_number(
        steps in prop::collection::vec((level(), events()), 0..80),
        countdown in 1u32..8,
    ) {
        let pace = RecoveryPace { critical_countdown: countdown, ..PACE };
        let mut clock = RecoveryClock::Calm;
        for (level, events) in steps {
            let after = clock.advance_after(level, events, pace);
            match (clock.countdown().filter(|_| !events.cleared), after.countdown()) {
                (None, Some(left)) => {
                    prop_assert_eq!(level, Critical);
                    prop_assert_eq!(left, countdown);
                }
                (Some(before), Some(left)) => {
                    let paused = level == Unknown;
                    prop_assert_eq!(left, if paused { before } else { before.saturating_sub(1) });
                }
                (Some(_), None) => prop_assert!(matches!(level, Healthy | Caution)),
                (None, None) => prop_assert_ne!(level, Critical),
            }
            prop_assert_eq!(after.due_action().is_some() || level != Critical, true);
            clock = after;
        }
    }

    #[test]
    fn a_due_caution_prompt_stays_due(levels in prop::collection::vec(prop::bool::ANY, 0..60)) {
        let mut clock = RecoveryClock::Calm.advance_after(Caution, NO_EVENTS, PACE);
        for known in levels {
            clock = clock.advance_after(if known { Caution } else { Unknown }, NO_EVENTS, PACE);
            prop_assert_eq!(clock.due_action(), Some(RecoveryAction::Caution));
        }
    }
}
