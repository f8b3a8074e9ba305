//! Lessons dated by the wall clock, as replicas exchange them, and how they are merged.
//!
//! An accepted prompt contradicts an earlier lesson, whichever replica learnt it. A wrong clock makes a
//! lesson last longer or shorter by its error, never by more than the lesson's age.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::unix_time::to_unix_ms;

/// No provider has a smaller window; vLLM has been seen to print 3 for one.
pub(super) const LEAST_WINDOW: u32 = 1_024;
/// No limit is inferred below this.
pub(super) const LEAST_INPUT: u32 = 256;
/// An inferred limit is believed for no longer.
pub(super) const INFERRED_MAX_AGE: Duration = Duration::from_secs(60 * 60);
/// How long an answered prompt stands against a refusal of a shorter one.
pub(super) const ACCEPTED_MAX_AGE: Duration = Duration::from_secs(60 * 60);
/// An answered prompt is published again after this time: it is believed for an hour only.
const REFRESH_ACCEPTED_MS: u64 = 30 * 60_000;
/// A lesson learnt again is published where the published one is older by this.
const REFRESH_MS: u64 = 60_000;
/// The largest accepted prompt is published again after this growth.
const GROWTH_PERCENT: u32 = 10;

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
            since_ms: to_unix_ms(now),
            max_age_ms: to_millis(max_age),
        }
    }

    /// A date in the future means that the clock was set back; it ages like one in the past.
    fn is_believed(&self, now: SystemTime) -> bool {
        to_unix_ms(now).abs_diff(self.since_ms) < self.max_age_ms
    }
}

/// The tokens of a lesson that is believed now.
pub(super) fn believed_tokens(lesson: Option<DatedTokens>, now: SystemTime) -> Option<u32> {
    Some(lesson.filter(|lesson| lesson.is_believed(now))?.tokens)
}

/// The lessons of one scope about one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lessons {
    /// The largest accepted prompt of the last hour.
    pub accepted: Option<DatedTokens>,
    /// The largest one that was accepted after that.
    pub accepted_later: Option<DatedTokens>,
    pub window: Option<DatedTokens>,
    /// A largest prompt that the provider named.
    pub named: Option<DatedTokens>,
    pub inferred: Option<DatedTokens>,
    /// The refused prompt below which that limit was inferred, in tokens.
    pub refused: u32,
}

impl Lessons {
    /// Whether these differ enough from the `published` ones to be published.
    pub fn is_news(&self, published: &Self) -> bool {
        let differs = |local: Option<DatedTokens>, published: Option<DatedTokens>| {
            let (Some(local), Some(published)) = (local, published) else {
                return local.is_some() != published.is_some();
            };
            local.tokens != published.tokens || local.since_ms > published.since_ms + REFRESH_MS
        };
        let known = published.accepted.map_or(0, |accepted| accepted.tokens);
        let least = u64::from(known) * u64::from(100 + GROWTH_PERCENT) / 100;
        let since_ms = published.accepted.map_or(0, |accepted| accepted.since_ms);
        let has_grown = |local: DatedTokens| {
            u64::from(local.tokens) > least || local.since_ms > since_ms + REFRESH_ACCEPTED_MS
        };
        self.accepted.is_some_and(has_grown)
            || differs(self.window, published.window)
            || differs(self.named, published.named)
            || differs(self.inferred, published.inferred)
    }

    /// With the lessons that another replica wrote at `written_ms`: the newest of each, without those
    /// that an accepted prompt contradicts.
    pub(super) fn merge_with(self, remote: Self, written_ms: u64) -> Self {
        let newest = |local: Option<DatedTokens>, remote: Option<DatedTokens>| match (local, remote)
        {
            (Some(local), Some(remote)) if local.since_ms > remote.since_ms => Some(local),
            // The other replica found an older lesson wrong, and dropped it.
            (Some(local), None) if local.since_ms <= written_ms => None,
            (local, remote) => remote.or(local),
        };
        let most = |local: Option<DatedTokens>, remote: Option<DatedTokens>| {
            let both = local.into_iter().chain(remote);
            both.max_by_key(|accepted| (accepted.tokens, accepted.since_ms))
        };
        let inferred = newest(self.inferred, remote.inferred);
        let merged = Self {
            accepted: most(self.accepted.or(self.accepted_later), remote.accepted),
            accepted_later: most(self.accepted_later, remote.accepted_later),
            window: newest(self.window, remote.window),
            named: newest(self.named, remote.named),
            inferred,
            refused: if inferred == self.inferred {
                self.refused
            } else {
                remote.refused
            },
        };
        merged.without_contradictions()
    }

    /// Only the lessons that are believed now and that this replica could have learnt, with the ages
    /// that it allows.
    pub(super) fn keep_believed(self, max_age: Duration, now: SystemTime) -> Self {
        let bound = |lesson: Option<DatedTokens>, least: u32, most_age: Duration| {
            let lesson = lesson.filter(|lesson| lesson.tokens >= least)?;
            let bounded = DatedTokens {
                since_ms: lesson.since_ms.min(to_unix_ms(now)),
                max_age_ms: lesson.max_age_ms.min(to_millis(most_age)),
                ..lesson
            };
            bounded.is_believed(now).then_some(bounded)
        };
        Self {
            accepted: bound(self.accepted, 1, max_age.min(ACCEPTED_MAX_AGE)),
            accepted_later: bound(self.accepted_later, 1, max_age.min(ACCEPTED_MAX_AGE)),
            window: bound(self.window, LEAST_WINDOW, max_age),
            named: bound(self.named, LEAST_INPUT, max_age),
            inferred: bound(self.inferred, LEAST_INPUT, max_age.min(INFERRED_MAX_AGE)),
            refused: self.refused,
        }
    }

    /// Without the lessons that were learnt within the hour after a larger prompt was accepted, or before. A later one means
    /// that the window has shrunk.
    fn without_contradictions(mut self) -> Self {
        let Some(accepted) = self.accepted else {
            return self;
        };
        let until_ms = accepted.since_ms.saturating_add(accepted.max_age_ms);
        for lesson in [&mut self.window, &mut self.named, &mut self.inferred] {
            match lesson.filter(|lesson| lesson.tokens < accepted.tokens) {
                Some(smaller) if smaller.since_ms >= until_ms => self.accepted = None,
                Some(_) => *lesson = None,
                None => {}
            }
        }
        self
    }
}

pub(super) fn to_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

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
        let since = UNIX_EPOCH + Duration::from_millis(since_ms);
        Lessons {
            accepted: Some(DatedTokens::new(tokens, since, ACCEPTED_MAX_AGE)),
            ..Lessons::default()
        }
    }

    #[test]
    fn an_accepted_prompt_contradicts_an_earlier_lesson() {
        let local = accepted(30_000, NOW_MS);
        let merged = local.merge_with(window(16_000, NOW_MS - 1), NOW_MS);
        assert_eq!(merged, local);
        // Within the hour it is about a session, or about another host.
        let merged = local.merge_with(window(16_000, NOW_MS + HOUR_MS - 1), NOW_MS + HOUR_MS);
        assert_eq!(merged, local);
        // The window became smaller after that.
        let merged = local.merge_with(window(16_000, NOW_MS + HOUR_MS), NOW_MS + HOUR_MS);
        assert_eq!(merged, window(16_000, NOW_MS + HOUR_MS));
        // Both can be true.
        let merged = local.merge_with(window(32_000, NOW_MS - 1), NOW_MS);
        assert_eq!(merged.accepted, local.accepted);
        assert_eq!(merged.window, dated(32_000, NOW_MS - 1));
        let inferred = Lessons {
            inferred: dated(16_000, NOW_MS - 1),
            ..Lessons::default()
        };
        assert_eq!(local.merge_with(inferred, NOW_MS).inferred, None);
    }

    #[test]
    fn the_longest_prompt_of_the_hour_counts() {
        let at = |minutes: u64| now() + Duration::from_secs(60 * minutes);
        let mut lessons = Lessons::default();
        for (minutes, tokens) in [(0, 318_000), (20, 200_000), (50, 5_000)] {
            lessons.record_accepted_prompt(tokens, DAY, at(minutes));
        }
        for (minutes, longest) in [(59, Some(318_000)), (61, Some(200_000)), (81, None)] {
            assert_eq!(lessons.longest_accepted(at(minutes)), longest, "{minutes}");
        }
        // The later one takes the place of the one that is too old.
        lessons.record_accepted_prompt(1_000, DAY, at(61));
        assert_eq!(lessons.longest_accepted(at(79)), Some(200_000));
        assert_eq!(lessons.longest_accepted(at(80)), Some(1_000));
    }

    #[test]
    fn the_newer_lesson_counts_and_a_dropped_one_is_dropped() {
        let (old, new) = (window(8_000, NOW_MS - 9), window(9_000, NOW_MS - 5));
        let none = Lessons::default();
        assert_eq!(old.merge_with(new, NOW_MS - 5), new);
        assert_eq!(new.merge_with(old, NOW_MS - 9), new);
        assert_eq!(old.merge_with(none, NOW_MS), none);
        // Learnt after the other replica wrote.
        assert_eq!(new.merge_with(none, NOW_MS - 6), new);
    }

    #[test]
    fn only_changes_are_published() {
        let published = window(8_000, NOW_MS);
        assert!(!published.is_news(&published));
        assert!(window(8_001, NOW_MS).is_news(&published));
        assert!(Lessons::default().is_news(&published));
        assert!(published.is_news(&Lessons::default()));
        assert!(!window(8_000, NOW_MS + REFRESH_MS).is_news(&published));
        assert!(window(8_000, NOW_MS + REFRESH_MS + 1).is_news(&published));
        assert!(!window(8_000, 0).is_news(&published));
        let published = accepted(10_000, NOW_MS);
        assert!(!accepted(11_000, NOW_MS).is_news(&published));
        assert!(accepted(11_001, NOW_MS).is_news(&published));
        assert!(accepted(9_000, NOW_MS + REFRESH_ACCEPTED_MS + 1).is_news(&published));
        assert!(!Lessons::default().is_news(&published));
    }

    #[test]
    fn a_remote_lesson_expires_by_its_age_on_this_clock() {
        let now = now();
        let remote = window(8_000, NOW_MS - HOUR_MS);
        let kept = remote.keep_believed(DAY, now);
        assert_eq!(kept, remote);
        let at = |hours: u64| now + Duration::from_millis(hours * HOUR_MS);
        assert_eq!(kept.bounds_at(at(22)).window, Some(8_000));
        assert_eq!(kept.bounds_at(at(23)).window, None);
        // A clock that is ahead prolongs it by nothing beyond its age.
        let ahead = window(8_000, NOW_MS + 99 * HOUR_MS).keep_believed(DAY, now);
        assert_eq!(ahead.bounds_at(at(23)).window, Some(8_000));
        assert_eq!(ahead.bounds_at(at(24)).window, None);
        // A clock that is behind shortens it, and so does a smaller age in the local settings.
        let behind = window(8_000, NOW_MS - 25 * HOUR_MS).keep_believed(DAY, now);
        assert_eq!(behind.bounds_at(now).window, None);
        let short = remote.keep_believed(Duration::from_millis(2 * HOUR_MS), now);
        assert_eq!(short.bounds_at(at(1)).window, None);
    }

    #[test]
    fn a_lesson_expires_after_the_clock_was_set_back() {
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
        let all = (one(), one(), one(), one(), one(), any::<u32>());
        all.prop_map(
            |(accepted, accepted_later, window, named, inferred, refused)| Lessons {
                accepted,
                accepted_later,
                window,
                named,
                inferred,
                refused,
            },
        )
    }

    proptest! {
        #[test]
        fn no_contradicted_lesson_is_believed(
            local in any_lessons(), remote in any_lessons(), written: u64,
        ) {
            let merged = local.merge_with(remote, written);
            let latest = local.accepted.filter(|accepted| merged.accepted == Some(*accepted));
            if let Some(accepted) = latest {
                for lesson in [merged.window, merged.named].into_iter().flatten() {
                    prop_assert!(lesson.tokens >= accepted.tokens);
                }
            }
            let now = now();
            let kept = merged.keep_believed(DAY, now);
            let known = kept.bounds_at(now);
            prop_assert!(known.window.is_none_or(|tokens| tokens >= LEAST_WINDOW));
            prop_assert!(known.input.is_none_or(|tokens| tokens >= LEAST_INPUT));
            prop_assert_eq!(kept.bounds_at(now + DAY).window, None);
        }
    }
}
