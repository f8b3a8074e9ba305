//! When a conversation is summarised, and which part of it.

use crate::{
    config::CompactionConfig,
    conversation::Conversation,
    guard::{self, Policy, budget, injections::Injections},
};

/// The part of the budget below which a summary is not worth its price.
const LEAST_SHARE: u32 = 10;

/// The part before the newest steps, which a summary is to take the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryRange {
    /// The first message that is kept after the pinned start, counted without system messages.
    pub boundary: u32,
    /// Raw tokens that the summary takes the place of.
    pub replaced: u32,
}

/// The tokens from which on a conversation is summarised: (window - reserve) × threshold.
pub fn compute_threshold(budget: &budget::Budget, settings: &CompactionConfig) -> u32 {
    let room = budget.window.saturating_sub(budget.reserve);
    (f64::from(room) * settings.threshold) as u32
}

/// What would be summarised of a conversation as it goes out now: all that is still in it between
/// the pinned start and the newest steps, an earlier summary included.
///
/// `None` where what is new in that is less than a tenth of the budget, or where the guard stands
/// back from this conversation. An earlier summary is not new: where all that is pinned is past the
/// threshold by itself, it would be summarised again and again, each time to less.
pub fn find_summary_range(
    conversation: &Conversation,
    policy: &Policy<'_>,
    memory: &guard::GuardMemory,
    ours: &Injections,
) -> Option<SummaryRange> {
    let boundary = guard::find_course_boundary(conversation, policy)?;
    let begun = ours.course.as_ref().map(|course| course.boundary);
    let earlier = ours.summary.as_ref().map(|summary| summary.boundary);
    let least = begun.max(earlier).max(memory.boundary());
    if least.is_some_and(|least| boundary <= least) {
        return None;
    }
    let weigh = |until| guard::weigh_before(conversation, policy, memory, ours, until);
    let replaced = weigh(boundary);
    let known = least.map_or(0, weigh);
    let budget = budget::compute_request_budget(conversation, policy).tokens;
    let new = replaced.saturating_sub(known);
    (new >= budget / LEAST_SHARE && new > 0).then_some(SummaryRange { boundary, replaced })
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
            Recall,
            injections::{Course, Summary},
            profile::find_profile,
        },
    };

    fn conversation(steps: usize, words: usize) -> Conversation {
        let result = "word ".repeat(words);
        let step = |id: usize| {
            let call = json!({"id": format!("c{id}"), "type": "function",
                "function": {"name": "read", "arguments": "{}"}});
            let asks = json!({"role": "assistant", "content": null, "tool_calls": [call]});
            [
                asks,
                json!({"role": "tool", "tool_call_id": format!("c{id}"), "content": result}),
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
        Policy {
            profile: find_profile("openai").unwrap(),
            window,
            input_limit: None,
            settings,
        }
    }

    /// With folds and summaries alone.
    fn due_of(conversation: &Conversation, window: u32, ours: &Injections) -> Option<SummaryRange> {
        let mut settings = GuardConfig::default();
        settings.clear.enabled = false;
        due_by(&settings, conversation, window, ours)
    }

    fn due_by(
        settings: &GuardConfig,
        conversation: &Conversation,
        window: u32,
        ours: &Injections,
    ) -> Option<SummaryRange> {
        let policy = policy(settings, window);
        let recall = Recall {
            injections: ours.clone(),
            ..Recall::default()
        };
        let plan = guard::plan(conversation, &policy, &recall);
        find_summary_range(conversation, &policy, &plan.memory, ours)
    }

    #[test]
    fn the_threshold_is_a_share_of_the_window_without_the_reserve() {
        let budget = budget::Budget {
            window: 128_000,
            reserve: 8_000,
            tokens: 118_125,
        };
        for (share, expected) in [(0.4, 48_000), (0.6, 72_000), (0.9, 108_000)] {
            let settings = CompactionConfig {
                threshold: share,
                ..CompactionConfig::default()
            };
            assert_eq!(compute_threshold(&budget, &settings), expected);
        }
    }

    #[test]
    fn what_lies_before_the_newest_steps_is_due() {
        let conversation = conversation(20, 400);
        let due = due_of(&conversation, 32_768, &Injections::default()).unwrap();
        // The pinned message, steps of two messages each, and an eighth of the budget that stays.
        assert!(
            due.boundary % 2 == 1 && (30..40).contains(&due.boundary),
            "{due:?}"
        );
        let steps = (due.boundary - 1) / 2;
        let each = due.replaced / steps;
        assert!((650..720).contains(&each), "{due:?}");
    }

    #[test]
    fn too_little_is_not_due() {
        let nothing = Injections::default();
        assert_eq!(due_of(&conversation(0, 0), 32_768, &nothing), None);
        assert_eq!(due_of(&conversation(2, 400), 32_768, &nothing), None);
        assert_eq!(due_of(&conversation(20, 10), 32_768, &nothing), None);
        let settings = GuardConfig {
            enabled: false,
            ..GuardConfig::default()
        };
        let conversation = conversation(20, 400);
        let memory = guard::GuardMemory::default();
        let policy = policy(&settings, 32_768);
        assert_eq!(
            find_summary_range(&conversation, &policy, &memory, &nothing),
            None
        );
    }

    #[test]
    fn a_later_summary_goes_beyond_the_earlier_one_and_takes_it_in() {
        let conversation = conversation(24, 400);
        let first = due_of(&conversation, 32_768, &Injections::default()).unwrap();
        let summarised = |boundary: u32| Injections {
            summary: Some(Summary {
                boundary,
                text: "<summary>\n</summary>".into(),
            }),
            ..Injections::default()
        };
        assert_eq!(
            due_of(&conversation, 32_768, &summarised(first.boundary)),
            None
        );
        // Three more steps are less than a tenth, however long the summary itself is.
        let mut long = summarised(first.boundary - 6);
        if let Some(summary) = &mut long.summary {
            summary.text = format!("<summary>\n{}</summary>", "word ".repeat(4_000)).into();
        }
        assert_eq!(due_of(&conversation, 32_768, &long), None);
        let later = due_of(&conversation, 32_768, &summarised(11)).unwrap();
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
        assert_eq!(due_of(&conversation, 32_768, &begun), None);
    }

    #[test]
    fn what_the_guard_left_out_already_is_not_counted() {
        let conversation = conversation(60, 400);
        let whole = due_of(&conversation, 128_000, &Injections::default()).unwrap();
        let folded = due_of(&conversation, 32_768, &Injections::default()).unwrap();
        assert!(folded.boundary > whole.boundary);
        assert!(folded.replaced < 24_576, "{folded:?}");
        // Nor is what was cleared.
        let settings = GuardConfig::default();
        let cleared = due_by(&settings, &conversation, 32_768, &Injections::default()).unwrap();
        assert!(cleared.replaced < 24_576, "{cleared:?}");
    }
}
