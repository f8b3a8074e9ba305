//! The guard's invariants over conversations in Anthropic's Messages format, and a comparison with the plans of the
//! same conversations as chat completions.

mod injected;
mod markers;
mod moved;
mod running_turn;
mod same_plans;
mod stages;
mod thinking;
mod tool_search;

use proptest::prelude::*;
use serde_json::json;

use crate::{
    config::profile::{PROFILES, Profile, find_profile},
    support::{
        annotate_randomly, any_settings,
        generate_messages::any_messages,
        guard_properties::{MESSAGES, MESSAGES_WITH_TOOLS, SMALL_WINDOWS, WINDOWS},
        strict,
    },
};

pub(super) fn any_window() -> impl Strategy<Value = u32> {
    prop::sample::select(&WINDOWS[..4])
}

pub(super) fn any_profile() -> impl Strategy<Value = &'static Profile> {
    let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
    let model = prop::sample::select(vec!["claude-opus-5", "claude-sonnet-5"]);
    (prop::sample::select(names), model)
        .prop_map(|(name, model)| find_profile(name).unwrap().for_model(model))
}

/// Of models that refuse thinking for what was changed before it.
fn any_binding_profile() -> impl Strategy<Value = &'static Profile> {
    any_profile().prop_map(|profile| profile.for_model("claude-sonnet-5-5"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn generated_conversations_are_valid(case in any_messages(12)) {
        prop_assert_eq!(strict::messages::find_violations(&case.body), []);
    }

    #[test]
    fn every_plan_keeps_the_invariants(case in any_messages(12), window in prop::sample::select(&WINDOWS[..]), profile in any_profile()) {
        MESSAGES.check(&case.body, window, profile);
    }

    #[test]
    fn a_refused_request_is_planned_anew(case in any_messages(12), window in prop::sample::select(&SMALL_WINDOWS[..]), profile in any_profile()) {
        MESSAGES.check_refused(&case.body, window, profile);
    }

    #[test]
    fn every_plan_keeps_the_invariants_with_long_tools(case in any_messages(12), window in any_window(), profile in any_profile()) {
        MESSAGES_WITH_TOOLS.check(&case.body, window, profile);
    }

    #[test]
    fn every_plan_keeps_the_invariants_with_any_settings(case in any_messages(12), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        let body = annotate_randomly(&MESSAGES.read(&case.body), seed);
        MESSAGES.check_with(&body, window, profile, &any_settings(seed));
    }

    #[test]
    fn what_does_not_pair_stays_and_the_rest_is_guarded(case in any_messages(12), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        MESSAGES.check_damaged(&case.body, window, profile, seed);
    }

    #[test]
    fn growing_changes_the_prefix_only_at_cuts(case in any_messages(8), window in any_window(), profile in any_profile()) {
        MESSAGES.grow(&case.session(), window, profile);
    }

    #[test]
    fn every_plan_keeps_the_invariants_where_thinking_is_bound(case in any_messages(12), window in any_window(), profile in any_binding_profile(), seed in any::<u64>()) {
        MESSAGES.check(&case.body, window, profile);
        let body = annotate_randomly(&MESSAGES.read(&case.body), seed);
        MESSAGES.check_with(&body, window, profile, &any_settings(seed));
    }

    #[test]
    fn growing_changes_the_prefix_only_at_cuts_where_thinking_is_bound(case in any_messages(8), window in any_window(), profile in any_binding_profile(), seed in any::<u64>()) {
        MESSAGES.grow(&case.session(), window, profile);
        let session = case.with_short_answers().session();
        MESSAGES.grow_annotated(&session, window, profile, seed);
    }

    #[test]
    fn the_prefix_changes_only_at_cuts_with_any_settings(case in any_messages(8), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        let session = case.with_short_answers().session();
        MESSAGES.grow_annotated(&session, window, profile, seed);
    }
}

#[test]
fn a_task_behind_a_summary_in_a_message_of_the_users_is_counted() {
    let file = json!({"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}});
    let body = json!({"model": "claude", "max_tokens": 1_024, "messages": [
        {"role": "user", "content": [{"type": "compaction", "content": "So far, much is done."}]},
        {"role": "user", "content": [{"type": "text", "text": "Read this. ".repeat(20)}, file]},
        {"role": "assistant", "content": "It is read."},
        {"role": "user", "content": [{"type": "text", "text": "And these."}, file, file]},
    ]});
    MESSAGES.check(
        body.to_string().as_bytes(),
        4_096,
        find_profile("openai").unwrap(),
    );
}
