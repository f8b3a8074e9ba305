//! What the session came to: sums over all its answers.

use std::collections::VecDeque;

use super::{agent::Reading, event::Event};

/// Events that are remembered.
pub(super) const EVENTS: usize = 3;
/// Prompts of one course that are marked.
const MARKS: usize = 64;

/// Counted as the answers come.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) refused: u64,
    /// New cuts of the guard's: the number of messages left out grew, and not by a new course.
    pub(super) folds: u64,
    /// Tool results truncated for the first time.
    pub(super) truncations: u64,
    pub(super) prompt_tokens: u64,
    pub(super) cached_tokens: u64,
    /// The fullest the window has been, as a ratio.
    pub(super) fullest: f64,
    /// Clears: courses that began.
    pub(super) courses: u64,
    /// Prompts that the model was given.
    pub(super) prompts: u64,
    /// Reminders that the model keeps now.
    pub(super) reminders: u32,
    /// Prompt tokens at the prompts of this course, for the gauge.
    pub(super) prompted_at: Vec<u32>,
    /// The newest events, the oldest first, each with its step.
    pub(super) events: VecDeque<(u64, Event)>,
    dropped: u64,
    truncated: u64,
}

impl Tally {
    pub(super) fn add(&mut self, reading: &Reading) {
        self.requests += 1;
        self.refused += u64::from(reading.refused.is_some());
        let (dropped, truncated) = (
            count(&reading.actions, "dropped"),
            count(&reading.actions, "truncated"),
        );
        let begins = |event: &Event| matches!(event, Event::Course { .. });
        let cleared = reading.recovery.events.iter().any(begins);
        self.folds += u64::from(dropped > self.dropped && !cleared);
        self.truncations += truncated.saturating_sub(self.truncated);
        (self.dropped, self.truncated) = (dropped, truncated);
        self.prompt_tokens += u64::from(reading.prompt_tokens.unwrap_or(0));
        self.cached_tokens += u64::from(reading.cached_tokens);
        self.fullest = self.fullest.max(reading.hard_util.unwrap_or(0.0));
        self.recover(reading);
    }

    fn recover(&mut self, reading: &Reading) {
        self.reminders = reading.recovery.reminders;
        for event in &reading.recovery.events {
            self.prompts += u64::from(event.is_prompt());
            if event.is_prompt() && self.prompted_at.len() < MARKS {
                self.prompted_at.push(reading.prompt_tokens.unwrap_or(0));
            }
            if let Event::Course { .. } = event {
                self.courses += 1;
                self.prompted_at.clear();
            }
            self.events.push_back((self.requests, *event));
            if self.events.len() > EVENTS {
                self.events.pop_front();
            }
        }
    }

    /// The share of all prompt tokens that the provider read from its cache, in percent.
    pub(super) fn cached_percent(&self) -> f64 {
        100.0 * self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64
    }
}

/// The number of one action in `x-plimsoll-actions`; 0 where it was not taken.
fn count(actions: &str, name: &str) -> u64 {
    let mut pairs = actions
        .split(',')
        .filter_map(|one| one.trim().split_once('='));
    let found = pairs.find(|(key, _)| *key == name);
    found
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::demo::event::Recovery;

    #[test]
    fn prompts_and_courses_are_counted_and_the_newest_events_kept() {
        let mut tally = Tally::default();
        let read = |reminders, events: &[Event]| Reading {
            prompt_tokens: Some(700),
            recovery: Recovery {
                course: 1,
                reminders,
                countdown: None,
                events: events.to_vec(),
            },
            ..Reading::default()
        };
        let critical = |left| Event::Critical {
            countdown: Some(left),
        };
        tally.add(&read(2, &[Event::Caution]));
        tally.add(&read(2, &[critical(2)]));
        tally.add(&read(1, &[critical(1)]));
        assert_eq!(tally.prompted_at, [700, 700, 700]);
        let course = Event::Course {
            number: 2,
            reminders: 3,
        };
        tally.add(&read(3, &[course]));
        assert_eq!((tally.courses, tally.prompts, tally.reminders), (1, 3, 3));
        assert!(tally.prompted_at.is_empty());
        let steps: Vec<u64> = tally.events.iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, [2, 3, 4]);
    }

    #[test]
    fn what_a_new_course_leaves_out_is_no_fold() {
        let mut tally = Tally::default();
        for actions in [
            "dropped=9",
            "dropped=30, course=2",
            "dropped=30",
            "dropped=41",
        ] {
            let recovery = Recovery::of(&http::HeaderMap::new(), actions);
            tally.add(&Reading {
                actions: actions.to_owned(),
                recovery,
                ..Reading::default()
            });
        }
        assert_eq!((tally.folds, tally.courses), (2, 1));
    }

    #[test]
    fn cuts_are_counted_once() {
        let mut tally = Tally::default();
        for actions in [
            "none",
            "truncated=1",
            "truncated=1",
            "truncated=2, dropped=14",
            "truncated=1, dropped=14",
            "dropped=30, refitted=1",
        ] {
            tally.add(&Reading {
                actions: actions.to_owned(),
                prompt_tokens: Some(100),
                cached_tokens: 50,
                hard_util: Some(0.5),
                ..Reading::default()
            });
        }
        assert_eq!((tally.requests, tally.folds, tally.truncations), (6, 2, 2));
        assert!((tally.cached_percent() - 50.0).abs() < 1e-9);
    }
}
