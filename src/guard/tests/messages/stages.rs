//! Session and compaction over conversations in Messages.

use proptest::prelude::*;

use super::{any_profile, any_window};
use crate::{
    compaction::{Summariser, SummaryRange, SummaryWork},
    guard::{self, fold::memory::SessionKnowledge, request::estimate::Weights},
    recovery::Language,
    session::Lineage,
    store::{Account, Tenant},
    support::{
        generate_messages::any_messages,
        guard_properties::{MESSAGES, settings},
        plans::make_policy,
        strict,
    },
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_request_finds_the_state_of_the_one_before(case in any_messages(6)) {
        let tenant = Tenant::from_parts([1; 16], Account::from_bytes([2; 16]));
        let mut before: Option<(Lineage, usize)> = None;
        for body in case.session().steps() {
            let now = MESSAGES.read(&body);
            let lineage = Lineage::from_conversation(&now, &tenant);
            if let Some((before, known)) = before {
                let answer = now.items[known..].iter().find(|item| !item.author.is_system());
                let keys = before.state_keys(answer.unwrap().short_digest).unwrap();
                let place = lineage.probes.iter().position(|probe| *probe == keys.exact);
                prop_assert_eq!(lineage.answer_at(place.unwrap()), Some(before.messages));
            }
            before = Some((lineage, now.items.len()));
        }
    }

    #[test]
    fn a_summary_is_asked_for_in_a_valid_request(case in any_messages(8), window in any_window(), profile in any_profile(), own in any::<bool>()) {
        let conversation = MESSAGES.read(&case.body);
        let settings = settings();
        let policy = make_policy(profile, window, &settings);
        let plan = guard::plan(&conversation, &policy, &SessionKnowledge::default());
        let due = SummaryRange {
            boundary: guard::find_course_boundary(&conversation, &policy).unwrap(),
            replaced: 20_000,
        };
        let summariser = Summariser {
            may_repeat_conversation: own,
            model: "small".into(),
            profile,
            room: 200_000,
            max_tokens: 400,
            thinking_tokens: 0,
            filling: crate::config::profile::AnswerFilling::ByName,
            language: Language::English,
            weights: Weights::for_unknown_model(),
            nonce: [1, 2, 3, 4, 5, 6, 7, 8],
        };
        if let Some((_, asked)) = SummaryWork::begin_summary(&conversation, &plan.edits, due, summariser) {
            prop_assert_eq!(strict::messages::find_violations(&asked), [], "{}", String::from_utf8_lossy(&asked));
        }
    }
}
