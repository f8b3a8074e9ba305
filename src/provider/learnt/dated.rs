//! Lessons dated by the wall clock, as replicas tell them to each other, and how two of them meet.
//!
//! What a replica has answered since a lesson was learnt speaks against it, whoever learnt it. A
//! clock that is wrong makes a lesson last longer or shorter, by as much as it is wrong and never
//! beyond its age; nothing else.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::lesson::{Entry, Held, INFERRED_MAX_AGE, LEAST_INPUT, LEAST_WINDOW, at};

/// A lesson learnt again is told again where what is known elsewhere is older by so much.
const REFRESH_MS: u64 = 60_000;
/// The largest prompt that was answered is told again once it grew by so much, in percent.
const GROWTH: u32 = 10;

/// One time by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub instant: Instant,
    /// Since 1970.
    pub wall_ms: u64,
}

/// A number of tokens, since when, and how long it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dated {
    pub tokens: u32,
    /// Since 1970.
    pub since_ms: u64,
    pub max_age_ms: u64,
}

/// All that is known of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lessons {
    /// The largest prompt that was answered.
    pub accepted: Option<Dated>,
    pub window: Option<Dated>,
    /// A largest prompt that the provider named.
    pub named: Option<Dated>,
    pub inferred: Option<Dated>,
}

impl Lessons {
    /// Whether this is worth telling to those who know `told`.
    pub fn is_news(&self, told: &Self) -> bool {
        let lesson = |ours: Option<Dated>, told: Option<Dated>| match (ours, told) {
            (Some(ours), Some(told)) => {
                ours.tokens != told.tokens || ours.since_ms > told.since_ms + REFRESH_MS
            }
            (ours, told) => ours.is_some() != told.is_some(),
        };
        let grown = match (self.accepted, told.accepted) {
            (Some(ours), Some(told)) => {
                let least = u64::from(told.tokens) * u64::from(100 + GROWTH) / 100;
                u64::from(ours.tokens) > least
            }
            (ours, _) => ours.is_some(),
        };
        grown
            || lesson(self.window, told.window)
            || lesson(self.named, told.named)
            || lesson(self.inferred, told.inferred)
    }

    /// With what another replica wrote at that time: each lesson as it was learnt last, and none that
    /// what was answered since speaks against.
    pub(super) fn merged(self, theirs: Self, written_ms: u64) -> Self {
        let newest = |ours: Option<Dated>, theirs: Option<Dated>| match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours.since_ms > theirs.since_ms => Some(ours),
            // What was known when they wrote, and is not there, was found to be wrong.
            (Some(ours), None) => Some(ours).filter(|ours| ours.since_ms > written_ms),
            (_, theirs) => theirs,
        };
        let both = [self.accepted, theirs.accepted].into_iter().flatten();
        let accepted = both.max_by_key(|answered| (answered.tokens, answered.since_ms));
        let merged = Self {
            accepted,
            window: newest(self.window, theirs.window),
            named: newest(self.named, theirs.named),
            inferred: newest(self.inferred, theirs.inferred),
        };
        merged.without_contradictions()
    }

    fn without_contradictions(mut self) -> Self {
        let Some(accepted) = self.accepted else {
            return self;
        };
        for lesson in [&mut self.window, &mut self.named] {
            let smaller = lesson.filter(|lesson| lesson.tokens < accepted.tokens);
            match smaller {
                Some(lesson) if lesson.since_ms > accepted.since_ms => self.accepted = None,
                Some(_) => *lesson = None,
                None => {}
            }
        }
        if let Some(limit) = &mut self.inferred
            && accepted.since_ms >= limit.since_ms
        {
            limit.tokens = limit.tokens.max(accepted.tokens);
        }
        self
    }
}

impl Entry {
    /// As it is told to others.
    pub(super) fn dated(&self, now: Moment) -> Lessons {
        let dated = |held: Option<Held>| {
            let held = held.filter(|held| at(Some(*held), now.instant).is_some())?;
            let age = now.instant.saturating_duration_since(held.since);
            Some(Dated {
                tokens: held.tokens,
                since_ms: now.wall_ms.saturating_sub(millis(age)),
                max_age_ms: millis(held.max_age),
            })
        };
        Lessons {
            accepted: dated(self.accepted),
            window: dated(self.window),
            named: dated(self.named),
            inferred: dated(self.inferred),
        }
    }

    /// From what was told by others. Nothing is believed for longer than it would be here, and
    /// nothing that would not have been learnt.
    pub(super) fn undated(lessons: Lessons, max_age: Duration, now: Moment) -> Self {
        let held = |dated: Option<Dated>, least: u32, most_age: Duration| {
            let dated = dated.filter(|dated| dated.tokens >= least)?;
            let max_age = most_age.min(Duration::from_millis(dated.max_age_ms));
            let age = Duration::from_millis(now.wall_ms.saturating_sub(dated.since_ms));
            let left = max_age.checked_sub(age).filter(|left| !left.is_zero())?;
            Some(match now.instant.checked_sub(age) {
                Some(since) => Held::new(dated.tokens, since, max_age),
                // The machine's clock began later.
                None => Held::new(dated.tokens, now.instant, left),
            })
        };
        Self {
            accepted: held(lessons.accepted, 1, max_age),
            window: held(lessons.window, LEAST_WINDOW, max_age),
            named: held(lessons.named, LEAST_INPUT, max_age),
            inferred: held(lessons.inferred, LEAST_INPUT, max_age.min(INFERRED_MAX_AGE)),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const HOUR_MS: u64 = 3_600_000;
    const NOW_MS: u64 = 1_000 * HOUR_MS;

    fn now() -> Moment {
        Moment {
            instant: Instant::now(),
            wall_ms: NOW_MS,
        }
    }

    fn dated(tokens: u32, since_ms: u64) -> Option<Dated> {
        Some(Dated {
            tokens,
            since_ms,
            max_age_ms: 24 * HOUR_MS,
        })
    }

    fn window(tokens: u32, since_ms: u64) -> Lessons {
        Lessons {
            window: dated(tokens, since_ms),
            ..Lessons::default()
        }
    }

    fn accepted(tokens: u32, since_ms: u64) -> Lessons {
        Lessons {
            accepted: dated(tokens, since_ms),
            ..Lessons::default()
        }
    }

    #[test]
    fn what_was_answered_since_speaks_against_a_lesson() {
        let ours = accepted(30_000, NOW_MS);
        let merged = ours.merged(window(16_000, NOW_MS - 1), NOW_MS);
        assert_eq!(merged, ours);
        // The window became smaller after that.
        let merged = ours.merged(window(16_000, NOW_MS + 1), NOW_MS + 1);
        assert_eq!(merged, window(16_000, NOW_MS + 1));
        // They fit together.
        let merged = ours.merged(window(32_000, NOW_MS - 1), NOW_MS);
        assert_eq!(
            (merged.accepted, merged.window),
            (ours.accepted, dated(32_000, NOW_MS - 1))
        );
        let inferred = Lessons {
            inferred: dated(16_000, NOW_MS - 1),
            ..Lessons::default()
        };
        let merged = ours.merged(inferred, NOW_MS);
        assert_eq!(merged.inferred, dated(30_000, NOW_MS - 1));
    }

    #[test]
    fn the_newer_lesson_counts_and_what_was_forgotten_is_forgotten() {
        let (old, new) = (window(8_000, NOW_MS - 9), window(9_000, NOW_MS - 5));
        assert_eq!(old.merged(new, NOW_MS - 5), new);
        assert_eq!(new.merged(old, NOW_MS - 9), new);
        assert_eq!(old.merged(Lessons::default(), NOW_MS), Lessons::default());
        // Learnt after they wrote.
        assert_eq!(new.merged(Lessons::default(), NOW_MS - 6), new);
    }

    #[test]
    fn only_changes_are_news() {
        let told = window(8_000, NOW_MS);
        assert!(!told.is_news(&told));
        assert!(window(8_001, NOW_MS).is_news(&told));
        assert!(Lessons::default().is_news(&told));
        assert!(told.is_news(&Lessons::default()));
        assert!(!window(8_000, NOW_MS + REFRESH_MS).is_news(&told));
        assert!(window(8_000, NOW_MS + REFRESH_MS + 1).is_news(&told));
        assert!(!window(8_000, 0).is_news(&told));
        let told = accepted(10_000, NOW_MS);
        assert!(!accepted(11_000, NOW_MS).is_news(&told));
        assert!(accepted(11_001, NOW_MS).is_news(&told));
        assert!(!Lessons::default().is_news(&told));
    }

    #[test]
    fn ages_go_from_clock_to_clock() {
        let now = now();
        let told = window(8_000, NOW_MS - HOUR_MS);
        let entry = Entry::undated(told, DAY, now);
        assert_eq!(entry.dated(now), told);
        let at = |hours: u64| now.instant + Duration::from_millis(hours * HOUR_MS);
        assert_eq!(entry.known(at(22)).window, Some(8_000));
        assert_eq!(entry.known(at(23)).window, None);
        // A clock that is ahead prolongs it by nothing beyond its age,
        let ahead = Entry::undated(window(8_000, NOW_MS + 99 * HOUR_MS), DAY, now);
        assert_eq!(ahead.known(at(23)).window, Some(8_000));
        assert_eq!(ahead.known(at(24)).window, None);
        // one that is behind shortens it, and nobody's patience is longer than ours.
        let behind = Entry::undated(window(8_000, NOW_MS - 25 * HOUR_MS), DAY, now);
        assert_eq!(behind.known(now.instant).window, None);
        let short = Entry::undated(told, Duration::from_millis(2 * HOUR_MS), now);
        assert_eq!(short.known(at(1)).window, None);
    }

    fn any_lessons() -> impl Strategy<Value = Lessons> {
        let one = || {
            let tokens = prop_oneof![4 => 0_u32..40_000, 1 => any::<u32>()];
            let since = prop_oneof![4 => NOW_MS - 20..NOW_MS + 20, 1 => any::<u64>()];
            let age = prop_oneof![4 => 0..30 * HOUR_MS, 1 => any::<u64>()];
            prop::option::of(
                (tokens, since, age).prop_map(|(tokens, since_ms, max_age_ms)| Dated {
                    tokens,
                    since_ms,
                    max_age_ms,
                }),
            )
        };
        (one(), one(), one(), one()).prop_map(|(accepted, window, named, inferred)| Lessons {
            accepted,
            window,
            named,
            inferred,
        })
    }

    proptest! {
        #[test]
        fn nothing_disproved_is_believed(ours in any_lessons(), theirs in any_lessons(), written: u64) {
            let merged = ours.merged(theirs, written);
            let latest = ours.accepted.filter(|answered| merged.accepted == Some(*answered));
            if let Some(answered) = latest {
                for lesson in [merged.window, merged.named].into_iter().flatten() {
                    prop_assert!(lesson.tokens >= answered.tokens);
                }
            }
            let now = now();
            let entry = Entry::undated(merged, DAY, now);
            let known = entry.known(now.instant);
            prop_assert!(known.window.is_none_or(|tokens| tokens >= LEAST_WINDOW));
            prop_assert!(known.input.is_none_or(|tokens| tokens >= LEAST_INPUT));
            prop_assert_eq!(entry.known(now.instant + DAY).window, None);
            let _ = entry.dated(now);
        }
    }
}
