//! The guard's invariants over conversations in Anthropic's Messages format, and a comparison with the plans of the
//! same conversations as chat completions.

use proptest::prelude::*;

use crate::{
    guard::profile::PROFILES,
    support::{
        annotate_randomly, any_settings,
        generate_messages::any_messages,
        guard_properties::{MESSAGES, WINDOWS, settings},
        strict,
    },
};

fn any_window() -> impl Strategy<Value = u32> {
    prop::sample::select(&WINDOWS[..4])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn generated_conversations_are_valid(case in any_messages(12)) {
        prop_assert_eq!(strict::messages::find_violations(&case.body), []);
    }

    #[test]
    fn every_plan_keeps_the_invariants(case in any_messages(12), window in prop::sample::select(&WINDOWS[..]), profile in prop::sample::select(PROFILES)) {
        MESSAGES.check(&case.body, window, crate::guard::profile::find_profile(profile.name).unwrap());
    }

    #[test]
    fn every_plan_keeps_the_invariants_with_any_settings(case in any_messages(12), window in any_window(), profile in prop::sample::select(PROFILES), seed in any::<u64>()) {
        let profile = crate::guard::profile::find_profile(profile.name).unwrap();
        let body = annotate_randomly(&MESSAGES.read(&case.body), seed);
        MESSAGES.check_with(&body, window, profile, &any_settings(seed));
    }

    #[test]
    fn growing_changes_the_prefix_only_at_cuts(case in any_messages(8), window in any_window(), profile in prop::sample::select(PROFILES)) {
        let profile = crate::guard::profile::find_profile(profile.name).unwrap();
        MESSAGES.grow(&case.session(), window, profile, &settings(), None);
    }

    #[test]
    fn the_prefix_changes_only_at_cuts_with_any_settings(case in any_messages(8), window in any_window(), profile in prop::sample::select(PROFILES), seed in any::<u64>()) {
        let profile = crate::guard::profile::find_profile(profile.name).unwrap();
        MESSAGES.grow(&case.session(), window, profile, &any_settings(seed), Some(seed));
    }
}
