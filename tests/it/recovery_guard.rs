//! What is ours in a conversation: records, courses, tools and tighter results, at random places
//! of generated conversations, for every profile.

use bytes::Bytes;
use plimsoll::{
    config::GuardConfig,
    guard::{
        self, Plan, Policy, Recall, StoodBack, lint,
        profile::{PROFILES, Profile, named},
        record::{Ours, OwnTools, Record, Summary, What},
    },
    wire::{
        chat::{Conversation, Role, index},
        text,
    },
};
use proptest::prelude::*;
use serde_json::json;

use crate::support::{
    any_settings,
    generate::{Case, Random, any_conversation},
    noted, once_more, parse, strict,
};

mod annotated;
mod made;
mod places;

use made::{beside, course, records, round, tools, written};

const WINDOWS: [u32; 4] = [2_048, 8_192, 32_768, 200_000];
const PROMPT: &str = "[Note by the context guard:\nwrite down \"what matters\".]";

fn read(body: &[u8]) -> Conversation {
    index(Bytes::copy_from_slice(body)).expect("a conversation")
}

fn policy<'a>(window: u32, profile: &'a Profile, settings: &'a GuardConfig) -> Policy<'a> {
    Policy {
        profile,
        window,
        input_limit: None,
        settings,
    }
}

fn sent(conversation: &Conversation, plan: &Plan) -> Bytes {
    plan.edits.apply(&conversation.body).to_bytes()
}

fn messages(body: &[u8]) -> Vec<Vec<u8>> {
    let conversation = read(body);
    let messages = conversation.messages.iter();
    messages
        .map(|message| conversation.bytes(message.span).to_vec())
        .collect()
}

/// Indices of the messages that are no system messages.
fn said(conversation: &Conversation) -> Vec<usize> {
    let messages = conversation.messages.iter().enumerate();
    messages
        .filter(|(_, message)| !message.role.instructs())
        .map(|(at, _)| at)
        .collect()
}

/// All of ours, by the seed.
fn ours(conversation: &Conversation, seed: u64) -> Ours {
    let mut random = Random::part(seed, 9);
    let count = said(conversation).len();
    Ours {
        course: random
            .chance(40)
            .then(|| course(random.below(count + 2) as u32)),
        summary: random.chance(30).then(|| Summary {
            boundary: random.below(count + 2) as u32,
            text: "<summary>\n<done>\nread the files\n</done>\n</summary>".into(),
        }),
        records: records(conversation, count, seed),
        tools: tools(conversation).filter(|_| random.chance(50)),
        tight_chars: random.chance(30).then(|| random.between(300, 4_000)),
    }
}

/// Whether the profile has nothing against the conversation as it came.
fn clean(body: &[u8], profile: &Profile) -> bool {
    let conversation = read(body);
    let items: Vec<_> = (0..conversation.messages.len())
        .map(lint::Item::Theirs)
        .collect();
    lint::broken(&conversation, &items, profile).is_empty()
        && strict::violations(body, profile).is_empty()
}

/// What the edits broke, our tools apart.
fn broken(before: &[u8], after: &[u8], profile: &Profile) -> Vec<strict::Violation> {
    let mut broken = strict::broken(before, after, profile);
    broken.retain(|violation| violation.rule != 13);
    broken
}

/// Everything that must hold of one plan with something of ours.
fn check(body: &[u8], window: u32, profile: &Profile, recall: &Recall) -> Option<Plan> {
    check_with(body, window, profile, recall, &GuardConfig::default())
}

fn check_with(
    body: &[u8],
    window: u32,
    profile: &Profile,
    recall: &Recall,
    settings: &GuardConfig,
) -> Option<Plan> {
    let policy = policy(window, profile, settings);
    let before = read(body);
    let plan = guard::plan(&before, &policy, recall);
    let context = format!("window {window}, profile {}", profile.name);
    let after = sent(&before, &plan);
    match plan.report.stood_back {
        None => {}
        Some(StoodBack::Unsound(found)) => {
            assert!(!clean(body, profile), "{context}: unsound plan {found:?}");
            assert_eq!(after, before.body, "{context}");
            return None;
        }
        Some(_) => {
            assert_eq!(after, before.body, "{context}");
            return None;
        }
    }
    let shown = || String::from_utf8_lossy(&after).into_owned();
    assert_eq!(broken(body, &after, profile), [], "{context}: {}", shown());
    untouched(&before, &after, &plan, &context);
    once(&before, &after, &plan, recall, &context);
    let second = once_more(settings);
    let second = Policy {
        settings: &second,
        ..policy
    };
    let again = guard::plan(&read(&after), &second, &Recall::default());
    // A paragraph has no frame of its own, and spoken text is rounded.
    let slack = 20 + 4 * recall.ours.records.len() as u32;
    let (now, said) = (again.report.raw_before, plan.report.raw_after);
    // Here more may be said to stand in a round than does, which weighs no less than nothing.
    let spoken = recall.ours.records.iter();
    let spoken = spoken.filter(|record| matches!(record.what, What::Spoken { .. }));
    assert!(
        now <= said + 2 * slack && (said <= now + 2 * slack || spoken.count() > 0),
        "{context}: {now} sent, {said} planned"
    );
    // Nor may the two be on different sides of the mark past which old rounds are cleared.
    let mark = f64::from(plan.report.budget.tokens) * settings.clear.at;
    let apart = f64::from(said.min(now)) <= mark && f64::from(said.max(now) + slack) > mark;
    // A result that carries ours weighs more than it did, so that among those past the mark others may
    // be the newest, or worth clearing.
    let cleared = settings.clear.enabled && f64::from(said.max(now) + slack) > mark;
    let carried = cleared && shown().contains("[From here on by the context guard");
    if said.max(now) + slack <= plan.report.budget.tokens && !apart && !carried {
        let second = sent(&read(&after), &again);
        assert_eq!(
            String::from_utf8_lossy(&second),
            shown(),
            "{context}: guarded twice"
        );
    }
    Some(plan)
}

/// Only edited spans differ.
fn untouched(before: &Conversation, after: &[u8], plan: &Plan, context: &str) {
    let mut at = 0;
    let mut rebuilt = 0;
    for edit in &plan.edits.ordered() {
        let kept = &before.body[at..edit.span.start as usize];
        assert_eq!(&after[rebuilt..rebuilt + kept.len()], kept, "{context}");
        rebuilt += kept.len() + edit.with.len();
        at = edit.span.end as usize;
    }
    assert_eq!(&after[rebuilt..], &before.body[at..], "{context}");
}

/// What stands, stands once: one preface, and the tools at the end of the client's.
fn once(before: &Conversation, after: &[u8], plan: &Plan, recall: &Recall, context: &str) {
    let body = String::from_utf8_lossy(after);
    let notes = body.matches(guard::NOTE).count();
    let prefaces = body.matches("[Course 2, by").count();
    let theirs = String::from_utf8_lossy(&before.body)
        .matches(guard::NOTE)
        .count();
    if recall.ours.course.is_some() {
        assert_eq!(notes, theirs, "{context}: two prefaces");
        assert_eq!(
            prefaces,
            usize::from(plan.report.course.is_some()),
            "{context}"
        );
    } else {
        assert!(notes <= theirs + usize::from(plan.report.folded.is_some()));
    }
    if let Some(own) = &recall.ours.tools {
        assert!(plan.report.own_tools);
        let (was, now) = (
            parse::value(&before.body).unwrap(),
            parse::value(after).unwrap(),
        );
        let was = was[own.field].as_array().unwrap();
        let now = now[own.field].as_array().unwrap();
        assert_eq!(&now[..was.len()], &was[..]);
        assert_eq!(now.len(), was.len() + 1);
    }
}

fn profiles_of(case: &Case) -> Vec<&'static Profile> {
    let fits = |profile: &&Profile| case.recipe.strict || profile.name == "openai";
    PROFILES.iter().filter(fits).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_plan_is_valid_whatever_of_ours_it_carries(case in any_conversation(50), window in prop::sample::select(&WINDOWS[..]), seed in any::<u64>()) {
        let body = case.body();
        let ours = ours(&read(&body), seed);
        for profile in profiles_of(&case) {
            check(&body, window, profile, &Recall { ours: ours.clone(), ..Recall::default() });
        }
    }

    #[test]
    fn every_line_of_defence_is_valid_beside_what_is_ours(case in any_conversation(50), window in prop::sample::select(&WINDOWS[..]), seed in any::<u64>()) {
        let body = noted(&read(&case.body()), seed);
        let recall = Recall { ours: ours(&read(&body), seed), ..Recall::default() };
        for profile in profiles_of(&case) {
            check_with(&body, window, profile, &recall, &any_settings(seed));
        }
    }

    /// Also where the profile is stricter than the conversation: what is ours then stays out, or all goes
    /// as it came.
    #[test]
    fn a_profile_that_does_not_fit_breaks_nothing_new(case in any_conversation(30), window in prop::sample::select(&WINDOWS[..]), profile in prop::sample::select(PROFILES), seed in any::<u64>()) {
        let body = case.body();
        let profile = named(profile.name).expect("a row of the table");
        let ours = ours(&read(&body), seed);
        check(&body, window, profile, &Recall { ours, ..Recall::default() });
    }

    #[test]
    fn every_prefix_has_a_tail_for_a_new_course(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..])) {
        let settings = GuardConfig::default();
        for profile in profiles_of(&case) {
            let policy = policy(window, profile, &settings);
            for body in case.session.clone().thinned(6).steps() {
                begins(&body, &policy);
            }
        }
    }

    #[test]
    fn growing_keeps_the_prefix_but_for_cuts(case in any_conversation(30), window in prop::sample::select(&WINDOWS[..]), profile in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let profiles = profiles_of(&case);
        grow(&case, window, profiles[profile.index(profiles.len())], seed, &GuardConfig::default());
    }

    #[test]
    fn every_line_of_defence_keeps_the_prefix_beside_what_is_ours(case in any_conversation(30), window in prop::sample::select(&WINDOWS[..]), profile in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let profiles = profiles_of(&case);
        grow(&case, window, profiles[profile.index(profiles.len())], seed, &any_settings(seed));
    }
}

/// A course that begins with this request keeps what it should, and is valid.
fn begins(body: &[u8], policy: &Policy<'_>) {
    let conversation = read(body);
    let boundary = guard::tail(&conversation, policy).expect("a valid conversation");
    let ours = Ours {
        course: Some(course(boundary)),
        ..Ours::default()
    };
    let recall = Recall {
        ours,
        ..Recall::default()
    };
    let Some(plan) = check(body, policy.window, policy.profile, &recall) else {
        panic!(
            "a course at {boundary} for {} is unsound",
            policy.profile.name
        );
    };
    let gone = guard::removed_by(&conversation, boundary);
    let folded = plan.report.folded.map_or(0, |folded| folded.messages);
    assert!(folded >= gone.len(), "{folded} of {}", gone.len());
    if plan.report.raw_after <= plan.report.budget.tokens / 2 {
        assert_eq!(folded, gone.len(), "the boundary is the course's own");
    }
    let said = said(&conversation);
    let newest = said.last().is_some_and(|newest| !gone.contains(newest));
    assert!(newest, "the newest message is kept");
    // The preface stands wherever the profile has a place for it.
    let task = conversation
        .messages
        .iter()
        .find(|it| it.role == Role::User);
    assert!(
        plan.report.course == Some(2)
            || task.is_none()
            || !matches!(
                task.map(|it| &it.content),
                Some(plimsoll::wire::chat::Content::Text(_))
            )
    );
}

/// A session step by step, with records that are added as it grows and at times a course: the
/// prefix holds but for new cuts.
fn grow(case: &Case, window: u32, profile: &'static Profile, seed: u64, settings: &GuardConfig) {
    let policy = policy(window, profile, settings);
    let whole = read(&case.body());
    let all = records(&whole, said(&whole).len(), seed);
    let mut random = Random::part(seed, 3);
    let mut recall = Recall::default();
    // Where the running course began: what was before it is none of its records.
    let mut began = 0;
    let mut last: Option<(Vec<Vec<u8>>, Option<u32>)> = None;
    for body in case.session.steps() {
        let conversation = read(&body);
        let count = said(&conversation).len();
        let cleared = random.chance(10);
        if cleared {
            let boundary = guard::tail(&conversation, &policy).expect("a boundary");
            recall.ours.course = Some(course(boundary));
            began = count + 1;
        }
        let places = |record: &&Record| (began..=count).contains(&(record.place as usize));
        recall.ours.records = all.iter().filter(places).cloned().collect();
        let Some(plan) = check_with(&body, window, profile, &recall, settings) else {
            return;
        };
        let now = messages(&sent(&conversation, &plan));
        let clears = plan.report.cleared.as_ref().is_some_and(|it| it.new);
        let new = clears || plan.report.folded.is_some_and(|folded| folded.new);
        if let Some((last, boundary)) = &last {
            // Cuts never go back, and without one the prefix stands.
            assert!(cleared || plan.memory.boundary() >= *boundary);
            assert!(
                new || cleared || now.starts_with(last),
                "the prefix changed without a cut"
            );
        }
        prompted(&conversation, &policy, &recall);
        last = Some((now, plan.memory.boundary()));
        recall.memory = plan.memory;
        recall.messages = count;
    }
}

/// A prompt at the end of the request leaves the prefix as it is.
fn prompted(conversation: &Conversation, policy: &Policy<'_>, recall: &Recall) {
    let place = said(conversation).len() as u32;
    let mut recall = recall.clone();
    recall.ours.records.retain(|record| record.place < place);
    let plan = guard::plan(conversation, policy, &recall);
    for urgent in [false, true] {
        if !guard::may_prompt(conversation, policy.profile, urgent) {
            continue;
        }
        let mut more = recall.clone();
        more.ours.records.push(Record {
            place,
            what: What::Prompt("[A prompt of the guard.]".into()),
        });
        more.ours.records.push(Record {
            place,
            what: round(2),
        });
        let (window, profile) = (policy.window, policy.profile);
        let asked = check_with(&conversation.body, window, profile, &more, policy.settings);
        let asked = asked.expect("a valid conversation");
        if asked.memory != plan.memory {
            continue;
        }
        assert_eq!(asked.report.records_left_out, plan.report.records_left_out);
        let (before, after) = (sent(conversation, &plan), sent(conversation, &asked));
        let (before, after) = (messages(&before), messages(&after));
        let whole = before.len() - 1;
        assert_eq!(&after[..whole], &before[..whole]);
        let text = String::from_utf8_lossy(&after[whole..].concat()).into_owned();
        assert!(text.contains("[A prompt of the guard.]"), "{text}");
        let alone = policy.profile.adjacent_users != guard::profile::Takes::No;
        assert_eq!(
            after[whole] == before[whole],
            alone,
            "{}",
            policy.profile.name
        );
    }
}
