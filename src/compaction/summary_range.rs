//! When a conversation is summarised, and which part of it.

use crate::{
    config::CompactionConfig,
    conversation::Conversation,
    guard::{self, Policy, budget, injections::Injections},
};

/// A summary must replace at least the budget divided by this to be worth its price.
const LEAST_SHARE: u32 = 10;

/// A request that is compacted by a summary has at least this many raw tokens.
const LEAST_COMPACTED: u32 = 1_000;

/// The part before the newest steps, which a summary replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryRange {
    /// The first message that is kept after the pinned start, counted without system messages.
    pub boundary: u32,
    /// Raw tokens that the summary replaces.
    pub replaced: u32,
}

/// The prompt size in tokens that makes a summary due: (window - reserve) × threshold.
pub fn compute_threshold(budget: &budget::Budget, settings: &CompactionConfig) -> u32 {
    let room = budget.window.saturating_sub(budget.reserve);
    (f64::from(room) * settings.threshold) as u32
}

/// The part of a conversation to summarise: all that the guard has not left out between the pinned start and the newest
/// steps, an earlier summary included.
///
/// `None` if the new content of the part is less than a tenth of the budget, or if the guard does not edit this
/// conversation. An earlier summary is not new: if the pinned messages alone exceeded the threshold, the summary would
/// be summarised again and again, each time to less.
pub fn find_summary_range(
    conversation: &Conversation,
    policy: &Policy<'_>,
    memory: &guard::GuardMemory,
    injections: &Injections,
) -> Option<SummaryRange> {
    let boundary = guard::find_course_boundary(conversation, policy)?;
    let course = injections.course.as_ref().map(|course| course.boundary);
    let summary = injections.summary.as_ref().map(|summary| summary.boundary);
    // The messages that the guard left out directly after the task are covered too. Messages that it kept between folds are
    // not covered.
    let first = memory.list_left_out().first().cloned();
    let folded = first.filter(|span| span.start <= 1).map(|span| span.end);
    let covered = course.max(summary).max(folded);
    if covered.is_some_and(|covered| boundary <= covered) {
        return None;
    }
    let weigh = |until| guard::weigh_before(conversation, policy, memory, injections, until);
    let replaced = weigh(boundary);
    let budget = budget::compute_request_budget(conversation, policy).tokens;
    let new = replaced.saturating_sub(covered.map_or(0, weigh));
    (new >= budget / LEAST_SHARE && new > 0).then_some(SummaryRange { boundary, replaced })
}

/// All messages before the last one, which is the client's request to compact its conversation. `sent` are the raw
/// tokens of this request. `None` if a summary would hardly be shorter.
pub fn cover_before_last(conversation: &Conversation, sent: u32) -> Option<SummaryRange> {
    let items = conversation.items.iter();
    let counted = items.filter(|item| !item.author.is_system()).count();
    let boundary = u32::try_from(counted.checked_sub(1)?).ok()?;
    (sent >= LEAST_COMPACTED).then_some(SummaryRange {
        boundary,
        replaced: sent,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        config::GuardConfig,
        format::chat::index_body,
        guard::{
            SessionKnowledge,
            injections::{Course, Summary},
            profile::find_profile,
        },
    };

    fn conversation(steps: usize, words: usize) -> Conversation {
        let result = "word ".repeat(words);
        let step = |id: usize| {
            let call = json!({"id": format!("c{id}"), "type": "function",
                "function": {"name": "read", "arguments": "{}"}});
            let result =
                json!({"role": "tool", "tool_call_id": format!("c{id}"), "content": result});
            [
                json!({"role": "assistant", "content": null, "tool_calls": [call]}),
                result,
            ]
        };
        let mut messages = vec![
            json!({"role": "system", "content": "s"}),
            json!({"role": "user", "content": "Repair it"}),
        ];
        messages.extend((0..steps).flat_map(step));
        let body: Value = json!({"model": "m", "messages": messages});
        index_body(Bytes::from(body.to_string())).unwrap()
    }

    fn policy(settings: &GuardConfig, window: u32) -> Policy<'_> {
        Policy::new(
            find_profile("openai").unwrap(),
            window,
            crate::config::tokens::unknown_model(),
            settings,
        )
    }

    /// The range without clearing of old tool rounds.
    fn folded_range(
        conversation: &Conversation,
        window: u32,
        injections: &Injections,
    ) -> Option<SummaryRange> {
        let mut settings = GuardConfig::counted_by_characters();
        settings.clear.enabled = false;
        planned_range(&settings, conversation, window, injections)
    }

    fn planned_range(
        settings: &GuardConfig,
        conversation: &Conversation,
        window: u32,
        injections: &Injections,
    ) -> Option<SummaryRange> {
        let policy = policy(settings, window);
        let knowledge = SessionKnowledge {
            injections: injections.clone(),
            ..SessionKnowledge::default()
        };
        let plan = guard::plan(conversation, &policy, &knowledge);
        find_summary_range(conversation, &policy, &plan.memory, injections)
    }

    #[test]
    fn the_threshold_is_a_share_of_the_window_without_the_reserve() {
        let budget = budget::Budget {
            window: 128_000,
            reserve_given_up: 0,
            reserve: 8_000,
            tokens: 118_125,
            is_open: false,
        };
        for (threshold, expected) in [(0.4, 48_000), (0.6, 72_000), (0.9, 108_000)] {
            let settings = CompactionConfig {
                threshold,
                ..CompactionConfig::default()
            };
            assert_eq!(compute_threshold(&budget, &settings), expected);
        }
    }

    #[test]
    fn the_part_before_the_newest_steps_is_summarised() {
        let conversation = conversation(20, 400);
        let range = folded_range(&conversation, 32_768, &Injections::default()).unwrap();
        // The pinned message, steps of two messages each, and an eighth of the budget that stays.
        assert_eq!(range.boundary % 2, 1);
        assert!((30..40).contains(&range.boundary), "{range:?}");
        let steps = (range.boundary - 1) / 2;
        let each = range.replaced / steps;
        assert!((650..720).contains(&each), "{range:?}");
    }

    #[test]
    fn short_conversations_are_not_summarised() {
        let nothing = Injections::default();
        for short in [
            conversation(0, 0),
            conversation(2, 400),
            conversation(20, 10),
        ] {
            assert_eq!(folded_range(&short, 32_768, &nothing), None);
        }
        let settings = GuardConfig {
            enabled: false,
            ..GuardConfig::counted_by_characters()
        };
        let conversation = conversation(20, 400);
        let memory = guard::GuardMemory::default();
        let policy = policy(&settings, 32_768);
        let unguarded = find_summary_range(&conversation, &policy, &memory, &nothing);
        assert_eq!(unguarded, None);
    }

    #[test]
    fn a_later_summary_covers_more_and_includes_the_earlier_one() {
        let conversation = conversation(24, 400);
        let range = |injections: &Injections| folded_range(&conversation, 32_768, injections);
        let first = range(&Injections::default()).unwrap();
        let summarised = |boundary: u32| Injections {
            summary: Some(Summary {
                boundary,
                text: "<summary>\n</summary>".into(),
            }),
            ..Injections::default()
        };
        assert_eq!(range(&summarised(first.boundary)), None);
        // Three more steps are less than a tenth, however long the summary itself is.
        let mut long = summarised(first.boundary - 6);
        if let Some(summary) = &mut long.summary {
            summary.text = format!("<summary>\n{}</summary>", "word ".repeat(4_000)).into();
        }
        assert_eq!(range(&long), None);
        let later = range(&summarised(11)).unwrap();
        assert_eq!(later.boundary, first.boundary);
        assert!(later.replaced < first.replaced - 5 * 650 + 300, "{later:?}");
        let begun = Injections {
            course: Some(Course {
                number: 2,
                boundary: first.boundary,
                preface: "".into(),
            }),
            ..Injections::default()
        };
        assert_eq!(range(&begun), None);
    }

    #[test]
    fn messages_that_the_guard_left_out_are_not_counted() {
        let conversation = conversation(60, 400);
        let nothing = Injections::default();
        let whole = folded_range(&conversation, 128_000, &nothing).unwrap();
        let folded = folded_range(&conversation, 32_768, &nothing).unwrap();
        assert!(folded.boundary > whole.boundary);
        assert!(folded.replaced < 32_768, "{folded:?}");
        // Nor are cleared tool rounds.
        let settings = GuardConfig::counted_by_characters();
        let cleared = planned_range(&settings, &conversation, 32_768, &nothing).unwrap();
        assert!(cleared.replaced < 32_768, "{cleared:?}");
    }
}
