//! Lessons dated by the wall clock, as replicas tell them to each other, and how two of them meet.
//!
//! What a replica has answered since a lesson was learnt speaks against it, whoever learnt it. A
//! clock that is wrong, or is set, makes a lesson last longer or shorter, by as much as it is wrong and
//! never by more than its age; nothing else.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::lesson::{INFERRED_MAX_AGE, LEAST_INPUT, LEAST_WINDOW};

/// A lesson learnt again is told again where what is known elsewhere is older by so much.
const REFRESH_MS: u64 = 60_000;
/// The largest prompt that was answered is told again once it grew by so much, in percent.
const GROWTH_PERCENT: u32 = 10;

/// A number of tokens, since when, and how long it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatedTokens {
    pub tokens: u32,
    /// Since 1970.
    pub since_ms: u64,
    pub max_age_ms: u64,
}

impl DatedTokens {
    pub(super) fn new(tokens: u32, now: SystemTime, max_age: Duration) -> Self {
        Self {
            tokens,
            since_ms: wall_ms(now),
            max_age_ms: to_millis(max_age),
        }
    }

    /// A date far ahead means that the clock was set back, and is as old as one far behind.
    fn is_believed(&self, now: SystemTime) -> bool {
        wall_ms(now).abs_diff(self.since_ms) < self.max_age_ms
    }
}

/// The tokens of a lesson that is believed now.
pub(super) fn believed_tokens(lesson: Option<DatedTokens>, now: SystemTime) -> Option<u32> {
    let believed = lesson.filter(|lesson| lesson.is_believed(now))?;
    Some(believed.tokens)
}

/// All that is known of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lessons {
    /// The largest prompt that was answered.
    pub accepted: Option<DatedTokens>,
    pub window: Option<DatedTokens>,
    /// A largest prompt that the provider named.
    pub named: Option<DatedTokens>,
    pub inferred: Option<DatedTokens>,
}

impl Lessons {
    /// Whether this is worth telling to those who know `told`.
    pub fn is_news(&self, told: &Self) -> bool {
        let lesson = |ours: Option<DatedTokens>, told: Option<DatedTokens>| match (ours, told) {
            (Some(ours), Some(told)) => {
                ours.tokens != told.tokens || ours.since_ms > told.since_ms + REFRESH_MS
            }
            (ours, told) => ours.is_some() != told.is_some(),
        };
        let grown = match (self.accepted, told.accepted) {
            (Some(ours), Some(told)) => {
                let least = u64::from(told.tokens) * u64::from(100 + GROWTH_PERCENT) / 100;
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
    pub(super) fn merge_with(self, theirs: Self, written_ms: u64) -> Self {
        let newest = |ours: Option<DatedTokens>, theirs: Option<DatedTokens>| match (ours, theirs) {
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

    /// Only those that are believed now, none of them for longer than it would be here, and none that would not
    /// have been learnt.
    pub(super) fn keep_believed(self, max_age: Duration, now: SystemTime) -> Self {
        let bound = |lesson: Option<DatedTokens>, least: u32, most_age: Duration| {
            let lesson = lesson.filter(|lesson| lesson.tokens >= least)?;
            let bounded = DatedTokens {
                since_ms: lesson.since_ms.min(wall_ms(now)),
                max_age_ms: lesson.max_age_ms.min(to_millis(most_age)),
                ..lesson
            };
            bounded.is_believed(now).then_some(bounded)
        };
        Self {
            accepted: bound(self.accepted, 1, max_age),
            window: bound(self.window, LEAST_WINDOW, max_age),
            named: bound(self.named, LEAST_INPUT, max_age),
            inferred: bound(self.inferred, LEAST_INPUT, max_age.min(INFERRED_MAX_AGE)),
        }
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

/// Milliseconds since 1970.
pub fn wall_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, to_millis)
}

pub(super) fn to_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const HOUR_MS: u64 = 3_600_000;
    const NOW_MS: u64 = 1_000 * HOUR_MS;

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(NOW_MS)
    }

    fn dated(tokens: u32, since_ms: u64) -> Option<DatedTokens> {
        Some(DatedTokens {
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
        let merged = ours.merge_with(window(16_000, NOW_MS - 1), NOW_MS);
        assert_eq!(merged, ours);
        // The window became smaller after that.
        let merged = ours.merge_with(window(16_000, NOW_MS + 1), NOW_MS + 1);
        assert_eq!(merged, window(16_000, NOW_MS + 1));
        // They fit together.
        let merged = ours.merge_with(window(32_000, NOW_MS - 1), NOW_MS);
        assert_eq!(
            (merged.accepted, merged.window),
            (ours.accepted, dated(32_000, NOW_MS - 1))
        );
        let inferred = Lessons {
            inferred: dated(16_000, NOW_MS - 1),
            ..Lessons::default()
        };
        let merged = ours.merge_with(inferred, NOW_MS);
        assert_eq!(merged.inferred, dated(30_000, NOW_MS - 1));
    }

    #[test]
    fn the_newer_lesson_counts_and_what_was_forgotten_is_forgotten() {
        let (old, new) = (window(8_000, NOW_MS - 9), window(9_000, NOW_MS - 5));
        assert_eq!(old.merge_with(new, NOW_MS - 5), new);
        assert_eq!(new.merge_with(old, NOW_MS - 9), new);
        assert_eq!(
            old.merge_with(Lessons::default(), NOW_MS),
            Lessons::default()
        );
        // Learnt after they wrote.
        assert_eq!(new.merge_with(Lessons::default(), NOW_MS - 6), new);
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
        let heard = told.keep_believed(DAY, now);
        assert_eq!(heard, told);
        let at = |hours: u64| now + Duration::from_millis(hours * HOUR_MS);
        assert_eq!(heard.bounds_at(at(22)).window, Some(8_000));
        assert_eq!(heard.bounds_at(at(23)).window, None);
        // A clock that is ahead prolongs it by nothing beyond its age,
        let ahead = window(8_000, NOW_MS + 99 * HOUR_MS).keep_believed(DAY, now);
        assert_eq!(ahead.bounds_at(at(23)).window, Some(8_000));
        assert_eq!(ahead.bounds_at(at(24)).window, None);
        // one that is behind shortens it, and nobody's patience is longer than ours.
        let behind = window(8_000, NOW_MS - 25 * HOUR_MS).keep_believed(DAY, now);
        assert_eq!(behind.bounds_at(now).window, None);
        let short = told.keep_believed(Duration::from_millis(2 * HOUR_MS), now);
        assert_eq!(short.bounds_at(at(1)).window, None);
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_no_lesson_for_ever() {
        let now = now();
        let learnt = window(8_000, NOW_MS);
        assert_eq!(learnt.bounds_at(now - DAY / 2).window, Some(8_000));
        assert_eq!(learnt.bounds_at(now - DAY).window, None);
    }

    fn any_lessons() -> impl Strategy<Value = Lessons> {
        let one = || {
            let tokens = prop_oneof![4 => 0_u32..40_000, 1 => any::<u32>()];
            let since = prop_oneof![4 => NOW_MS - 20..NOW_MS + 20, 1 => any::<u64>()];
            let age = prop_oneof![4 => 0..30 * HOUR_MS, 1 => any::<u64>()];
            prop::option::of(
                (tokens, since, age).prop_map(|(tokens, since_ms, max_age_ms)| DatedTokens {
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
            let merged = ours.merge_with(theirs, written);
            let latest = ours.accepted.filter(|answered| merged.accepted == Some(*answered));
            if let Some(answered) = latest {
                for lesson in [merged.window, merged.named].into_iter().flatten() {
                    prop_assert!(lesson.tokens >= answered.tokens);
                }
            }
            let now = now();
            let heard = merged.keep_believed(DAY, now);
            let known = heard.bounds_at(now);
            prop_assert!(known.window.is_none_or(|tokens| tokens >= LEAST_WINDOW));
            prop_assert!(known.input.is_none_or(|tokens| tokens >= LEAST_INPUT));
            prop_assert_eq!(heard.bounds_at(now + DAY).window, None);
        }
    }
}
