//! The guard's invariants over conversations in OpenAI's Responses format.

use proptest::prelude::*;

use super::messages::{any_profile, any_window};
use crate::support::{
    annotate_randomly, any_settings,
    generate_responses::any_responses,
    guard_properties::{RESPONSES, WINDOWS, settings},
    strict,
};

mod stages;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn generated_conversations_are_valid(case in any_responses(12)) {
        prop_assert_eq!(strict::responses::find_violations(&case.body), []);
    }

    #[test]
    fn every_plan_keeps_the_invariants(case in any_responses(12), window in prop::sample::select(&WINDOWS[..]), profile in any_profile()) {
        RESPONSES.check(&case.body, window, profile);
    }

    #[test]
    fn every_plan_keeps_the_invariants_with_any_settings(case in any_responses(12), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        let body = annotate_randomly(&RESPONSES.read(&case.body), seed);
        RESPONSES.check_with(&body, window, profile, &any_settings(seed));
    }

    #[test]
    fn growing_changes_the_prefix_only_at_cuts(case in any_responses(8), window in any_window(), profile in any_profile()) {
        RESPONSES.grow(&case.session(), window, profile, &settings(), None);
    }

    #[test]
    fn the_prefix_changes_only_at_cuts_with_any_settings(case in any_responses(8), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        let session = case.with_short_answers().session();
        RESPONSES.grow(&session, window, profile, &any_settings(seed), Some(seed));
    }

    #[test]
    fn every_plan_with_injections_is_valid(case in any_responses(10), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        RESPONSES.check_injected(&case.body, window, profile, seed);
    }
}
