//! The guard's invariants over the toy format, which shares nothing with chat completions, and a comparison of both
//! formats' plans for the same conversation.

mod stages;
mod translate;

use proptest::prelude::*;
use translate::{call_to_toy, message_to_toy, to_chat, to_toy};

use crate::{
    config::profile::{PROFILES, find_profile},
    conversation::{Conversation, Format},
    guard::{
        self,
        fold::memory::{GuardMemory, SessionKnowledge},
        grammar::prompt_placement::may_prompt,
        inject::injections::{InjectedTools, InjectionContent, InjectionRecord, Injections},
        plan::report::Plan,
        request::policy::Policy,
    },
    json::text,
    support::{
        annotate_randomly, any_settings,
        generate::{GeneratedCase, Random, any_conversation},
        guard_properties::{CHAT, WINDOWS, WireFormat, any_answer_share, profiles_of, settings},
        made::{self, make_course, non_system_indices, random_records},
        parse,
        plans::{self, apply_plan, make_policy},
        strict,
    },
};

const TOY: WireFormat = WireFormat {
    format: Format::Toy,
    from_chat: to_toy,
    broken_rules: |before, after, profile| {
        strict::find_broken_rules(before, &to_chat(after), profile)
    },
};

fn any_window() -> impl Strategy<Value = u32> {
    prop::sample::select(&WINDOWS[..4])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn translation_loses_nothing(case in any_conversation(30), seed in any::<u64>()) {
        let body = annotate_randomly(&CHAT.read(&case.body()), seed);
        let back = to_chat(&to_toy(&body));
        prop_assert_eq!(parse::parse_value(&back).unwrap(), parse::parse_value(&body).unwrap());
    }

    #[test]
    fn every_plan_keeps_the_invariants(case in any_conversation(50), window in prop::sample::select(&WINDOWS[..])) {
        let body = case.body();
        for profile in profiles_of(&case) {
            TOY.check(&body, window, profile);
        }
    }

    #[test]
    fn a_profile_that_does_not_fit_breaks_nothing_new(case in any_conversation(40), window in any_window(), profile in prop::sample::select(PROFILES)) {
        TOY.check(&case.body(), window, find_profile(profile.name).unwrap());
    }

    #[test]
    fn every_plan_keeps_the_invariants_with_any_answer_cap(case in any_conversation(40), window in any_window(), asked in any_answer_share()) {
        let asked = (f64::from(window) * asked) as u32;
        let body = case.session.asking_for(asked).whole();
        for profile in profiles_of(&case) {
            TOY.check(&body, window, profile);
            TOY.fits_beside_its_answer(&body, window, profile);
        }
    }

    #[test]
    fn every_plan_keeps_the_invariants_with_any_settings(case in any_conversation(50), window in any_window(), seed in any::<u64>()) {
        let body = annotate_randomly(&CHAT.read(&case.body()), seed);
        for profile in profiles_of(&case) {
            TOY.check_with(&body, window, profile, &any_settings(seed));
        }
    }

    #[test]
    fn growing_changes_the_prefix_only_at_cuts(case in any_conversation(30), window in any_window(), profile in any::<prop::sample::Index>(), asked in prop::option::of(any_answer_share())) {
        let profiles = profiles_of(&case);
        let asked = asked.map(|part| (f64::from(window) * part) as u32);
        let session = asked.map_or_else(|| case.session.clone(), |asked| case.session.asking_for(asked));
        TOY.grow(&session, window, profiles[profile.index(profiles.len())]);
    }

    #[test]
    fn the_prefix_changes_only_at_cuts_with_any_settings(case in any_conversation(30), window in any_window(), profile in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let profiles = profiles_of(&case);
        TOY.grow_annotated(&case.session, window, profiles[profile.index(profiles.len())], seed);
    }

    #[test]
    fn a_plan_equals_that_of_chat_with_any_injections(case in any_conversation(40), window in any_window(), seed in any::<u64>()) {
        let body = annotate_randomly(&CHAT.read(&case.body()), seed);
        let chat = CHAT.read(&body);
        let knowledge = SessionKnowledge { injections: made::make_injected(&chat, seed), ..SessionKnowledge::default() };
        let settings = any_settings(seed);
        for profile in profiles_of(&case) {
            let plan = plans::check_plan(&body, window, profile, &knowledge, &settings);
            let toy = TOY.read(&body);
            let toy_plan = guard::plan(&toy, &make_policy(profile, window, &settings), &in_toy(&knowledge));
            assert_same_plan((&chat, &plan), (&toy, &toy_plan));
        }
    }

    #[test]
    fn the_plans_of_a_session_equal_those_of_chat(case in any_conversation(30), window in any_window(), profile in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let profiles = profiles_of(&case);
        let settings = any_settings(seed);
        grow_both(&case, &make_policy(profiles[profile.index(profiles.len())], window, &settings), seed);
    }
}

/// Grows a session in both formats, each with the memory of its plans. Prompts and turns are injected on the way, and
/// at times a course begins.
fn grow_both(case: &GeneratedCase, policy: &Policy<'_>, seed: u64) {
    let whole = CHAT.read(&case.body());
    let all = random_records(&whole, non_system_indices(&whole).len(), seed);
    let mut random = Random::for_part(seed, 3);
    let mut chat_recall = SessionKnowledge::default();
    let mut toy_memory = GuardMemory::default();
    for body in case.session.clone().thinned(8).steps() {
        let (chat, toy) = (CHAT.read(&body), TOY.read(&body));
        let count = non_system_indices(&chat).len();
        if random.chance(10) {
            let boundary = guard::find_course_boundary(&chat, policy);
            assert_eq!(boundary, guard::find_course_boundary(&toy, policy));
            chat_recall.injections.course = boundary.map(make_course);
        }
        let known = all.iter().filter(|record| record.place as usize <= count);
        chat_recall.injections.records = known.cloned().collect();
        let toy_recall = SessionKnowledge {
            memory: toy_memory,
            ..in_toy(&chat_recall)
        };
        let plan = guard::plan(&chat, policy, &chat_recall);
        let toy_plan = guard::plan(&toy, policy, &toy_recall);
        assert_same_plan((&chat, &plan), (&toy, &toy_plan));
        let alternates = plan.memory.alternates;
        for urgent in [false, true] {
            assert_eq!(
                may_prompt(&chat, policy.profile, alternates, urgent),
                may_prompt(&toy, policy.profile, alternates, urgent)
            );
        }
        chat_recall.memory = plan.memory;
        chat_recall.sent_messages = count;
        toy_memory = toy_plan.memory;
    }
}

/// Asserts that both plans report and remember the same, and send the same messages.
fn assert_same_plan(chat: (&Conversation, &Plan), toy: (&Conversation, &Plan)) {
    assert_eq!(
        format!("{:?}", toy.1.report),
        format!("{:?}", chat.1.report)
    );
    assert_eq!(
        without_digests(&toy.1.memory),
        without_digests(&chat.1.memory)
    );
    let (in_toy, in_chat) = (apply_plan(toy.0, toy.1), apply_plan(chat.0, chat.1));
    assert_eq!(
        parse::parse_value(&to_chat(&in_toy)).unwrap(),
        parse::parse_value(&in_chat).unwrap()
    );
}

/// Memory without the digests of messages and the places in them, which differ between the formats.
pub(super) fn without_digests(memory: &GuardMemory) -> GuardMemory {
    let limits = memory.limits.iter().map(|&(_, limit)| (0, limit));
    GuardMemory {
        limits: limits.collect(),
        cut: memory
            .cut
            .clone()
            .map(guard::fold::cut_state::CutMark::without_words),
        ..memory.clone()
    }
}

/// The same injections in the toy format, without memory.
fn in_toy(knowledge: &SessionKnowledge) -> SessionKnowledge {
    let mut injections = Injections::clone(&knowledge.injections);
    for record in &mut injections.records {
        match &mut record.what {
            InjectionContent::Round(turn) => {
                for message in turn {
                    message.json = message_to_toy(&message.json).into();
                }
            }
            InjectionContent::Calls { calls, results, .. } => {
                for call in calls {
                    call.json = call_to_toy(&call.json).into();
                }
                for result in results {
                    *result = message_to_toy(result).into();
                }
            }
            InjectionContent::Prompt(_)
            | InjectionContent::Tools { .. }
            | InjectionContent::Text { .. }
            | InjectionContent::Spoken { .. }
            | InjectionContent::DroppedRound { .. }
            | InjectionContent::HiddenPlaces(_) => {}
        }
    }
    injections.tools = injections.tools.map(|tools| InjectedTools {
        field: match tools.field {
            "tools" => "gear",
            _ => "old_gear",
        },
        ..tools
    });
    SessionKnowledge {
        injections,
        sent_messages: knowledge.sent_messages,
        ..SessionKnowledge::default()
    }
}

#[test]
fn text_of_a_round_is_removed_from_the_answer() {
    let body = br#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"abc","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"r"}]}"#;
    let spoken = InjectionContent::Spoken {
        chars: 3,
        digest: text::digest_text(b"abc"),
    };
    let records = [made::calls_round(1), spoken].map(|what| InjectionRecord { place: 1, what });
    let mut knowledge = SessionKnowledge::default();
    knowledge.injections.records = records.to_vec();
    let settings = settings();
    let policy = make_policy(find_profile("openai").unwrap(), 32_768, &settings);
    let (chat, toy) = (CHAT.read(body), TOY.read(body));
    let plan = guard::plan(&chat, &policy, &knowledge);
    let toy_plan = guard::plan(&toy, &policy, &in_toy(&knowledge));
    assert_same_plan((&chat, &plan), (&toy, &toy_plan));
    let out = apply_plan(&toy, &toy_plan);
    assert!(String::from_utf8_lossy(&out).contains(r#""words":false"#));
}
