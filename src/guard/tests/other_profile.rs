//! A session whose next request goes to a provider with other rules of turns.

use proptest::prelude::*;

use super::*;
use crate::{
    config::profile::find_profile,
    guard::grammar::lint,
    support::{
        generate::any_conversation,
        guard_properties::{WINDOWS, settings},
        plans::{index_conversation, make_policy},
    },
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Cuts that one provider allowed were sent to a stricter one, and the guard stood back from what it had made itself.
    #[test]
    fn cuts_for_one_provider_are_valid_for_the_next(case in any_conversation(24), window in prop::sample::select(&WINDOWS[..]), stricter in prop::sample::select(vec!["template", "mistral", "gemini", "anthropic"])) {
        let (conversation, settings) = (index_conversation(&case.body()), settings());
        let first = find_profile("openai").unwrap();
        let known = plan(&conversation, &make_policy(first, window, &settings), &SessionKnowledge::default());
        let knowledge = SessionKnowledge {
            memory: known.memory,
            history: known.history,
            sent_messages: conversation.items.len(),
            ..SessionKnowledge::default()
        };
        let next = find_profile(stricter).unwrap();
        let policy = make_policy(next, window, &settings);
        let planned = plan(&conversation, &policy, &knowledge);
        let is_unsound = matches!(planned.report.stood_back, Some(StandBackReason::Unsound(_)));
        prop_assert!(!is_unsound, "{:?}", planned.report.stood_back);
        let sent = index_conversation(&planned.edits.apply(&conversation.body).to_bytes());
        let items = |conversation: &Conversation| -> Vec<OutlineItem> {
            (0..conversation.items.len()).map(OutlineItem::Client).collect()
        };
        let before = lint::find_broken_rules(&conversation, &items(&conversation), next);
        let after = lint::find_broken_rules(&sent, &items(&sent), next);
        prop_assert!(after.excess_over(before).is_empty(), "{after:?} {before:?}");
    }
}
