//! Injections in a conversation: records, courses, tools and tighter results, at random places of
//! generated conversations, for every profile.

use crate::support::{
    annotate_randomly, any_settings,
    generate::{GeneratedCase, Random, any_conversation},
    made::{
        PROMPT, block_round, calls_beside, calls_round, make_course, make_injected,
        non_system_indices, random_records,
    },
    parse,
    plans::{apply_plan, check_plan_unless_stood_back, index_conversation, make_policy},
};
use bytes::Bytes;
use plimsoll::{
    config::GuardConfig,
    conversation::{Author, Conversation},
    guard::{
        self, Plan, Policy, SessionKnowledge,
        injections::{InjectedTools, InjectionContent, InjectionRecord, Injections},
        profile::{PROFILES, Profile, find_profile},
    },
    json::text,
};
use proptest::prelude::*;
use serde_json::json;

mod annotated;
mod places;

const WINDOWS: [u32; 4] = [2_048, 8_192, 32_768, 200_000];

fn messages(body: &[u8]) -> Vec<Vec<u8>> {
    let conversation = index_conversation(body);
    let messages = conversation.items.iter();
    messages
        .map(|message| conversation.span_bytes(message.span).to_vec())
        .collect()
}

/// All properties of one plan with injections.
fn check(
    body: &[u8],
    window: u32,
    profile: &Profile,
    knowledge: &SessionKnowledge,
) -> Option<Plan> {
    check_plan_unless_stood_back(body, window, profile, knowledge, &GuardConfig::default())
}

fn profiles_of(case: &GeneratedCase) -> Vec<&'static Profile> {
    let fits = |profile: &&Profile| case.recipe.strict || profile.name == "openai";
    PROFILES.iter().filter(fits).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_plan_is_valid_with_any_injections(case in any_conversation(50), window in prop::sample::select(&WINDOWS[..]), seed in any::<u64>()) {
        let body = case.body();
        let ours = make_injected(&index_conversation(&body), seed);
        for profile in profiles_of(&case) {
            check(&body, window, profile, &SessionKnowledge { injections: ours.clone(), ..SessionKnowledge::default() });
        }
    }

    #[test]
    fn every_line_of_defence_is_valid_with_injections(case in any_conversation(50), window in prop::sample::select(&WINDOWS[..]), seed in any::<u64>()) {
        let body = annotate_randomly(&index_conversation(&case.body()), seed);
        let knowledge = SessionKnowledge { injections: make_injected(&index_conversation(&body), seed), ..SessionKnowledge::default() };
        for profile in profiles_of(&case) {
            check_plan_unless_stood_back(&body, window, profile, &knowledge, &any_settings(seed));
        }
    }

    /// Also where the profile is stricter than the conversation: injections are left out, or the
    /// request is sent unchanged.
    #[test]
    fn a_profile_that_does_not_fit_breaks_nothing_new(case in any_conversation(30), window in prop::sample::select(&WINDOWS[..]), profile in prop::sample::select(PROFILES), seed in any::<u64>()) {
        let body = case.body();
        let profile = find_profile(profile.name).expect("a row of the table");
        let ours = make_injected(&index_conversation(&body), seed);
        check(&body, window, profile, &SessionKnowledge { injections: ours, ..SessionKnowledge::default() });
    }

    #[test]
    fn every_prefix_can_begin_a_new_course(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..])) {
        let settings = GuardConfig::default();
        for profile in profiles_of(&case) {
            let policy = make_policy(profile, window, &settings);
            for body in case.session.clone().thinned(6).steps() {
                check_new_course(&body, &policy);
            }
        }
    }

    #[test]
    fn growing_changes_the_prefix_only_at_cuts_with_injections(case in any_conversation(30), window in prop::sample::select(&WINDOWS[..]), profile in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let profiles = profiles_of(&case);
        check_growth(&case, window, profiles[profile.index(profiles.len())], seed, &GuardConfig::default());
    }

    #[test]
    fn every_line_of_defence_keeps_the_prefix_with_injections(case in any_conversation(30), window in prop::sample::select(&WINDOWS[..]), profile in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let profiles = profiles_of(&case);
        check_growth(&case, window, profiles[profile.index(profiles.len())], seed, &any_settings(seed));
    }
}

/// A course that begins with this request keeps what it must, and is valid.
fn check_new_course(body: &[u8], policy: &Policy<'_>) {
    let conversation = index_conversation(body);
    let boundary =
        guard::find_course_boundary(&conversation, policy).expect("a valid conversation");
    let ours = Injections {
        course: Some(make_course(boundary)),
        ..Injections::default()
    };
    let knowledge = SessionKnowledge {
        injections: ours,
        ..SessionKnowledge::default()
    };
    let Some(plan) = check(body, policy.window, policy.profile, &knowledge) else {
        panic!(
            "a course at {boundary} for {} is unsound",
            policy.profile.name
        );
    };
    let gone = guard::list_removed_messages(&conversation, boundary);
    let folded = plan.report.folded.map_or(0, |folded| folded.messages);
    assert!(folded >= gone.len(), "{folded} of {}", gone.len());
    if plan.report.raw_after <= plan.report.budget.tokens / 2 {
        assert_eq!(folded, gone.len(), "the boundary is the course's own");
    }
    let said = non_system_indices(&conversation);
    let newest = said.last().is_some_and(|newest| !gone.contains(newest));
    assert!(newest, "the newest message is kept");
    // The preface is there wherever the profile has a place for it.
    let task = conversation
        .items
        .iter()
        .find(|it| it.author == Author::User);
    assert!(
        plan.report.course == Some(2)
            || task.is_none()
            || !matches!(
                task.map(|it| &it.content),
                Some(plimsoll::conversation::Content::Text(_))
            )
    );
}

/// A session step by step, with new records and sometimes a course: the prefix changes only at new
/// cuts.
fn check_growth(
    case: &GeneratedCase,
    window: u32,
    profile: &'static Profile,
    seed: u64,
    settings: &GuardConfig,
) {
    let policy = make_policy(profile, window, settings);
    let whole = index_conversation(&case.body());
    let all = random_records(&whole, non_system_indices(&whole).len(), seed);
    let mut random = Random::for_part(seed, 3);
    let mut knowledge = SessionKnowledge::default();
    // The start of the current course; earlier messages have no records of it.
    let mut began = 0;
    let mut last: Option<(Vec<Vec<u8>>, Option<u32>)> = None;
    for body in case.session.steps() {
        let conversation = index_conversation(&body);
        let count = non_system_indices(&conversation).len();
        let cleared = random.chance(10);
        if cleared {
            let boundary = guard::find_course_boundary(&conversation, &policy).expect("a boundary");
            knowledge.injections.course = Some(make_course(boundary));
            began = count + 1;
        }
        let places = |record: &&InjectionRecord| (began..=count).contains(&(record.place as usize));
        knowledge.injections.records = all.iter().filter(places).cloned().collect();
        let Some(plan) = check_plan_unless_stood_back(&body, window, profile, &knowledge, settings)
        else {
            return;
        };
        let now = messages(&apply_plan(&conversation, &plan));
        let clears = plan.report.cleared.as_ref().is_some_and(|it| it.new);
        let clears = clears || plan.report.texts.cut;
        let new = clears || plan.report.folded.is_some_and(|folded| folded.new);
        if let Some((last, boundary)) = &last {
            // Cuts never move back, and without a new one the prefix is kept.
            assert!(cleared || plan.memory.boundary() >= *boundary);
            // A prompt after a result cannot precede a question where roles must alternate: its
            // answer is missing. The client's messages are kept nevertheless.
            let out = plan.memory.alternates == Some(true)
                && asked_again(&conversation, knowledge.sent_messages);
            let same = now.iter().zip(last).take_while(|(a, b)| a == b).count();
            let theirs = messages(&body);
            let ours_alone = last[same..].iter().all(|it| !theirs.contains(it));
            assert!(
                new || cleared || now.starts_with(last) || (out && ours_alone),
                "the prefix changed without a cut"
            );
        }
        check_prompt_at_end(&conversation, &policy, &knowledge);
        last = Some((now, plan.memory.boundary()));
        knowledge.memory = plan.memory;
        knowledge.sent_messages = count;
    }
}

/// Whether a question follows a result that was the newest of `before` messages.
fn asked_again(conversation: &Conversation, before: usize) -> bool {
    let roles: Vec<_> = non_system_indices(conversation)
        .iter()
        .map(|&at| conversation.items[at].author)
        .collect();
    before > 0 && roles[before - 1].is_tool() && roles.get(before) == Some(&Author::User)
}

/// A prompt at the end of the request leaves the prefix unchanged.
fn check_prompt_at_end(
    conversation: &Conversation,
    policy: &Policy<'_>,
    knowledge: &SessionKnowledge,
) {
    let place = non_system_indices(conversation).len() as u32;
    let mut knowledge = knowledge.clone();
    knowledge
        .injections
        .records
        .retain(|record| record.place < place);
    let mut plan = guard::plan(conversation, policy, &knowledge);
    for urgent in [false, true] {
        let known = plan.memory.alternates;
        if !guard::may_prompt(conversation, policy.profile, known, urgent) {
            continue;
        }
        let mut more = knowledge.clone();
        more.injections.records.push(InjectionRecord {
            place,
            what: InjectionContent::Prompt("[A prompt of the guard.]".into()),
        });
        more.injections.records.push(InjectionRecord {
            place,
            what: calls_round(2),
        });
        let (window, profile) = (policy.window, policy.profile);
        let asked = check_plan_unless_stood_back(
            &conversation.body,
            window,
            profile,
            &more,
            policy.settings,
        );
        let asked = asked.expect("a valid conversation");
        // The first injection decides it.
        let alternates = plan.memory.alternates.or(asked.memory.alternates);
        plan.memory.alternates = alternates;
        if asked.memory != plan.memory {
            continue;
        }
        assert_eq!(asked.report.records_left_out, plan.report.records_left_out);
        let (before, after) = (
            apply_plan(conversation, &plan),
            apply_plan(conversation, &asked),
        );
        let (before, after) = (messages(&before), messages(&after));
        let whole = before.len() - 1;
        assert_eq!(&after[..whole], &before[..whole]);
        let text = String::from_utf8_lossy(&after[whole..].concat()).into_owned();
        assert!(text.contains("[A prompt of the guard.]"), "{text}");
        let newest = non_system_indices(conversation)
            .last()
            .copied()
            .expect("a message");
        let after_user = conversation.items[newest].author == Author::User;
        let joins = policy.profile.adjacent_users == guard::profile::Acceptance::No
            || (after_user && alternates == Some(true));
        assert_eq!(
            after[whole] == before[whole],
            !joins,
            "{}",
            policy.profile.name
        );
    }
}
