//! The guard's invariants, over generated and recorded conversations.

use std::collections::BTreeSet;

use crate::support::{
    any_settings, data,
    generate::{Case, Recipe, Session, Shape, Size, any_conversation},
    noted, once_more, strict, without_notes,
};
use bytes::Bytes;
use plimsoll::{
    config::GuardConfig,
    conversation::{Conversation, units},
    format::chat::index,
    guard::{
        self, Plan, Policy, Recall, StoodBack,
        profile::{PROFILES, Profile, named},
    },
    json::text,
};
use proptest::prelude::*;

const WINDOWS: [u32; 5] = [4_096, 8_192, 16_384, 32_768, 128_000];

fn read(body: &[u8]) -> Conversation {
    index(Bytes::copy_from_slice(body)).expect("a conversation")
}

fn settings() -> GuardConfig {
    GuardConfig::default()
}

fn policy<'a>(window: u32, profile: &'static Profile, settings: &'a GuardConfig) -> Policy<'a> {
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

fn messages(conversation: &Conversation) -> Vec<&[u8]> {
    conversation
        .items
        .iter()
        .map(|message| conversation.bytes(message.span))
        .collect()
}

/// Answer caps, as parts of the window.
fn asked() -> impl Strategy<Value = f64> {
    prop::sample::select(&[0.01, 0.1, 0.3, 0.5, 0.9, 1.0, 20.0][..])
}

/// What goes out fits together with the answer that it asks for, wherever anything could be done.
fn fits_beside_its_answer(body: &[u8], window: u32, profile: &'static Profile) {
    let settings = settings();
    let policy = policy(window, profile, &settings);
    let before = read(body);
    let plan = guard::plan(&before, &policy, &Recall::default());
    let asked = before.largest_answer_cap().unwrap();
    let now = read(&sent(&before, &plan)).largest_answer_cap().unwrap();
    let lowered = plan.report.answer_cap.filter(|cap| cap.is_lowered());
    match lowered {
        Some(cap) => assert!(now < asked && now == u64::from(cap.sent)),
        None => assert_eq!(now, asked),
    }
    let halves = u64::from(plan.report.budget.reserve) * 2 >= u64::from(window);
    let inside = profile.answer_inside_window && !halves;
    if inside && !plan.report.over_budget && plan.report.stood_back.is_none() {
        let all = u64::from(plan.report.raw_after) + now;
        assert!(all <= u64::from(window), "{all} in {window}");
    }
}

/// Everything that must hold for one request under one window and profile.
fn check(body: &[u8], window: u32, profile: &'static Profile) {
    check_with(body, window, profile, &settings());
}

fn check_with(body: &[u8], window: u32, profile: &'static Profile, settings: &GuardConfig) {
    let policy = policy(window, profile, settings);
    let before = read(body);
    let plan = guard::plan(&before, &policy, &Recall::default());
    let context = format!("window {window}, profile {}", profile.name);
    let after = sent(&before, &plan);
    match plan.report.stood_back {
        None => {}
        Some(StoodBack::Unsound(broken)) => panic!("{context}: unsound plan {broken:?}"),
        Some(_) => {
            assert_eq!(after, before.body, "{context}");
            return;
        }
    }
    assert_eq!(strict::broken(body, &after, profile), [], "{context}");
    let (theirs, raw) = (plan.report.sent.total(), plan.report.raw_after);
    assert!(theirs <= raw, "{context}: {theirs} of theirs in {raw}");
    assert!(theirs <= plan.report.shares.total(), "{context}");
    if plan.edits.is_empty() {
        assert_eq!(after.as_ptr(), before.body.as_ptr());
    }
    let after = read(&after);
    untouched_bytes(&before, &after, &plan, &context);
    pinned_and_newest(&before, &after, &plan, &context);
    let settings = once_more(settings);
    let second = Policy {
        settings: &settings,
        ..policy
    };
    // What the provider gets has no annotations any more.
    let after = read(&without_notes(&after));
    let again = guard::plan(&after, &second, &Recall::default());
    // A paragraph has no frame of its own, which the plan counts all the same.
    let (now, said) = (again.report.raw_before, plan.report.raw_after);
    assert!(
        now <= said && said - now <= 10,
        "{context}: {now} sent, {said} planned"
    );
    assert_eq!(
        String::from_utf8_lossy(&sent(&after, &again)),
        String::from_utf8_lossy(&after.body),
        "{context}: guarding twice changes nothing more"
    );
    budget_holds(&before, &plan, &policy, &context);
}

/// Only edited spans differ: everything else is there, in order, byte for byte.
fn untouched_bytes(before: &Conversation, after: &Conversation, plan: &Plan, context: &str) {
    let edits = plan.edits.ordered();
    let mut at = 0;
    let mut rebuilt = 0;
    for edit in &edits {
        let kept = &before.body[at..edit.span.start as usize];
        assert_eq!(
            &after.body[rebuilt..rebuilt + kept.len()],
            kept,
            "{context}"
        );
        rebuilt += kept.len() + edit.with.len();
        at = edit.span.end as usize;
    }
    assert_eq!(&after.body[rebuilt..], &before.body[at..], "{context}");
    // What was neither truncated, cleared nor folded is the client's own message.
    let truncated = &plan.report.truncated;
    let cleared = plan.report.cleared.as_ref();
    let cleared = cleared.map_or(&[][..], |cleared| &cleared.messages);
    for cut in truncated {
        assert!(!cleared.contains(&cut.message), "{context}: told twice");
    }
    let theirs = messages(before);
    let odd: Vec<_> = messages(after)
        .into_iter()
        .filter(|message| !theirs.contains(message))
        .collect();
    let folds = usize::from(plan.report.folded.is_some());
    assert!(
        odd.len() <= truncated.len() + cleared.len() + folds + shortened(plan).len(),
        "{context}: {}",
        odd.len()
    );
}

/// The messages of which a cap or a share took something.
fn shortened(plan: &Plan) -> BTreeSet<usize> {
    let texts = &plan.report.texts.shortened;
    texts.iter().map(|text| text.message).collect()
}

fn pinned_and_newest(before: &Conversation, after: &Conversation, plan: &Plan, context: &str) {
    let kept = messages(after);
    let shortened = shortened(plan);
    let instructions = before.items.iter().enumerate();
    let instructions = instructions.filter(|(_, message)| message.author.instructs());
    let mut places = 0;
    for (at, message) in instructions {
        places += 1;
        assert!(
            shortened.contains(&at) || kept.contains(&before.bytes(message.span)),
            "{context}: a system message went"
        );
    }
    let left = after.items.iter();
    let left = left.filter(|message| message.author.instructs()).count();
    assert_eq!(left, places, "{context}: system messages");
    let user = |conversation: &Conversation| {
        let role = plimsoll::conversation::Author::User;
        conversation
            .items
            .iter()
            .position(|message| message.author == role)
    };
    if let Some(first) = user(before) {
        let was = String::from_utf8_lossy(before.bytes(before.items[first].span)).into_owned();
        let now = &after.items[user(after).expect("a user message")];
        let now = String::from_utf8_lossy(after.bytes(now.span)).into_owned();
        let note = text::escape(guard::NOTE);
        assert!(
            was == now || now.contains(&note) || shortened.contains(&first),
            "{context}: the task changed: {now}"
        );
    }
    let (Some(last), Some(now)) = (before.items.last(), after.items.last()) else {
        return;
    };
    assert_eq!(
        last.author, now.author,
        "{context}: the newest message went"
    );
    let cut = plan
        .report
        .truncated
        .iter()
        .any(|truncated| truncated.message + 1 == before.items.len());
    assert!(
        cut || shortened.contains(&(before.items.len() - 1))
            || last.digest == now.digest
            || before.items.len() == 1,
        "{context}"
    );
}

/// The budget holds whenever the pinned messages and the newest step, its results at their
/// least, fit.
fn budget_holds(before: &Conversation, plan: &Plan, policy: &Policy<'_>, context: &str) {
    let units = units::split(before).expect("a plan was made");
    let budget = plan.report.budget.tokens;
    if plan.report.raw_after <= budget {
        return;
    }
    let first = units
        .iter()
        .position(|unit| unit.kind == units::UnitKind::User);
    let newest = units.len().saturating_sub(2);
    let weights = guard::estimate::Weights::new(policy.settings.chars_per_token);
    let mut least = plan.report.shares.tools + 200;
    for (at, unit) in units.iter().enumerate() {
        let system = unit.kind == units::UnitKind::System;
        if !(system || at >= newest || first.is_some_and(|first| at <= first)) {
            continue;
        }
        for message in &before.items[unit.messages.clone()] {
            let sizes = &message.sizes;
            let tokens = guard::estimate::message(before, message, sizes, &weights, policy.profile);
            least += tokens;
        }
    }
    assert!(
        least > budget,
        "{context}: {} over {budget}, least {least}",
        plan.report.raw_after
    );
}

fn profiles_of(case: &Case) -> Vec<&'static Profile> {
    let fits = |profile: &&Profile| case.recipe.strict || profile.name == "openai";
    PROFILES.iter().filter(fits).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_plan_keeps_the_invariants(case in any_conversation(60), window in prop::sample::select(&WINDOWS[..])) {
        let body = case.body();
        for profile in profiles_of(&case) {
            check(&body, window, profile);
        }
    }

    /// Also where the profile is stricter than the conversation.
    #[test]
    fn a_profile_that_does_not_fit_breaks_nothing_new(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..3]), profile in prop::sample::select(PROFILES)) {
        let profile = named(profile.name).expect("a row of the table");
        check(&case.body(), window, profile);
    }

    #[test]
    fn growing_changes_the_prefix_only_at_cuts(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..4]), profile in any::<prop::sample::Index>()) {
        let profiles = profiles_of(&case);
        grow(&case.session, window, profiles[profile.index(profiles.len())], &settings(), None);
    }

    #[test]
    fn every_plan_keeps_the_invariants_whatever_answer_is_asked_for(case in any_conversation(60), window in prop::sample::select(&WINDOWS[..]), asked in asked()) {
        let asked = (f64::from(window) * asked) as u32;
        let body = case.session.asking_for(asked).whole();
        for profile in profiles_of(&case) {
            check(&body, window, profile);
            fits_beside_its_answer(&body, window, profile);
        }
    }

    #[test]
    fn growing_changes_the_prefix_only_at_cuts_whatever_answer_is_asked_for(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..4]), profile in any::<prop::sample::Index>(), asked in asked()) {
        let profiles = profiles_of(&case);
        let profile = profiles[profile.index(profiles.len())];
        let asked = (f64::from(window) * asked) as u32;
        grow(&case.session.asking_for(asked), window, profile, &settings(), None);
    }

    #[test]
    fn every_line_of_defence_keeps_the_invariants(case in any_conversation(60), window in prop::sample::select(&WINDOWS[..4]), seed in any::<u64>()) {
        let body = noted(&read(&case.body()), seed);
        for profile in profiles_of(&case) {
            check_with(&body, window, profile, &any_settings(seed));
        }
    }

    #[test]
    fn every_line_of_defence_keeps_the_prefix_but_for_cuts(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..4]), profile in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let profiles = profiles_of(&case);
        grow(&case.session, window, profiles[profile.index(profiles.len())], &any_settings(seed), Some(seed));
    }
}

/// A session step by step: with state and without, the same bytes go out, and the prefix holds
/// but for cuts. Returns the number of cuts and of requests.
fn grow(
    session: &Session,
    window: u32,
    profile: &'static Profile,
    settings: &GuardConfig,
    notes: Option<u64>,
) -> (usize, usize) {
    let policy = policy(window, profile, settings);
    let mut known = BTreeSet::new();
    let mut recall = Recall::default();
    let mut last: Vec<Vec<u8>> = Vec::new();
    let mut last_plan: Option<Plan> = None;
    let mut cuts = 0;
    for body in session.steps() {
        let mut conversation = read(&body);
        if let Some(seed) = notes {
            conversation = read(&noted(&conversation, seed));
        }
        let with = guard::plan(&conversation, &policy, &recall);
        let without = guard::plan(&conversation, &policy, &Recall::default());
        let out = sent(&conversation, &with);
        // A system message that came later moved the grid of whoever sees the session only now; one
        // that goes on keeps its own.
        if with.memory.grid_moved(&without.memory) {
            return (cuts, session.requests());
        }
        assert_eq!(
            with.memory, without.memory,
            "{:?} {:?}",
            with.report, without.report
        );
        assert_eq!(
            String::from_utf8_lossy(&out),
            String::from_utf8_lossy(&sent(&conversation, &without)),
            "state and no state differ at window {window} for {}",
            profile.name
        );
        let fold = with.report.folded.map(|folded| folded.messages);
        let cut = with.report.folded.is_some_and(|folded| folded.new);
        let before = last_plan.as_ref().and_then(|plan| plan.report.folded);
        let moved = fold != before.map(|folded| folded.messages);
        assert!(cut || !moved, "a cut is told when it is made");
        let cleared = with.report.cleared.as_ref();
        let clears = cleared.is_some_and(|cleared| cleared.new);
        let more = cleared.map_or(&[][..], |cleared| &cleared.messages);
        let more = more.iter().filter(|at| known.insert(**at)).count();
        assert_eq!(clears, more > 0, "a clear is told when it is made");
        let left_out = with.report.texts.cut;
        cuts += usize::from(cut || clears || left_out);
        let after = read(&out);
        let now: Vec<Vec<u8>> = messages(&after).into_iter().map(<[u8]>::to_vec).collect();
        if !cut && !clears && !left_out {
            let held = now.starts_with(&last);
            assert!(held, "the prefix changed without a cut at window {window}");
        }
        // Where the newest step needs the room of a fold's ledger, that fold is told anew.
        if cut && !moved {
            assert!(!now.starts_with(&last), "a cut was told that is none");
        }
        if left_out {
            assert!(
                !now.starts_with(&last),
                "a text that was sent before is still there"
            );
        }
        recall = Recall {
            memory: with.memory.clone(),
            messages: said(&conversation),
            ..Recall::default()
        };
        last = now;
        last_plan = Some(with);
    }
    (cuts, session.requests())
}

#[test]
fn long_sessions_are_cut_seldom() {
    let mut recipe = Recipe::new(Shape::OneTurn);
    recipe.strict = true;
    let session = Session::new(11, recipe, Size::Messages(600));
    for profile in ["openai", "template", "gemini"] {
        let (cuts, requests) = grow(&session, 32_768, named(profile).unwrap(), &settings(), None);
        assert!(cuts > 3, "{cuts} cuts in {requests} requests");
        assert!(cuts * 5 < requests, "{cuts} cuts in {requests} requests");
    }
}

/// Messages, system ones apart.
fn said(conversation: &Conversation) -> usize {
    let messages = &conversation.items;
    messages
        .iter()
        .filter(|message| !message.author.instructs())
        .count()
}

#[test]
fn a_system_message_that_comes_and_goes_moves_no_cut() {
    let settings = settings();
    let policy = policy(8_192, named("openai").unwrap(), &settings);
    let turns: Vec<_> = (0..60)
        .flat_map(|turn| {
            let question = format!("question {turn}: {}", "why is that so? ".repeat(20));
            let answer = format!("answer {turn}: {}", "because it is. ".repeat(40));
            [("user", question), ("assistant", answer)]
        })
        .chain([("user", "and now?".to_owned())])
        .collect();
    let body = |system: bool| {
        let system = system.then(|| ("system", "Be brief.".to_owned()));
        let messages: Vec<_> = system
            .into_iter()
            .chain(turns.iter().cloned())
            .map(|(role, content)| serde_json::json!({"role": role, "content": content}))
            .collect();
        read(
            serde_json::json!({ "messages": messages })
                .to_string()
                .as_bytes(),
        )
    };
    let with = guard::plan(&body(true), &policy, &Recall::default());
    let folded = with.report.folded.expect("a fold");
    let recall = Recall {
        memory: with.memory.clone(),
        messages: said(&body(true)),
        ..Recall::default()
    };
    let without = guard::plan(&body(false), &policy, &recall);
    assert_eq!(without.memory, with.memory);
    let now = without.report.folded.expect("a fold");
    assert_eq!((now.messages, now.new), (folded.messages, false));
}

#[test]
fn two_thousand_messages() {
    for shape in [Shape::Agent, Shape::Chat, Shape::Mixed] {
        let session = Session::new(3, Recipe::new(shape), Size::Messages(2_000));
        for window in [8_192, 128_000] {
            check(&session.whole(), window, named("openai").unwrap());
        }
    }
}

#[test]
fn every_recorded_request_is_guarded() {
    for recorded in data::requests().into_iter().chain(data::unusual()) {
        for window in WINDOWS {
            for profile in PROFILES {
                let checked = std::panic::catch_unwind(|| check(&recorded.body, window, profile));
                assert!(
                    checked.is_ok(),
                    "{} at {window} for {}",
                    recorded.name,
                    profile.name
                );
            }
        }
    }
}

/// A step of so many calls, answered in reverse.
fn wide_step(calls: usize, result: &str) -> Vec<u8> {
    let asked: Vec<_> = (0..calls)
        .map(|at| format!(r#"{{"id":"c{at}","function":{{"name":"f{at}","arguments":"{{}}"}}}}"#))
        .collect();
    let answers: Vec<_> = (0..calls)
        .rev()
        .map(|at| format!(r#"{{"role":"tool","tool_call_id":"c{at}","content":"{result}"}}"#))
        .collect();
    format!(
        r#"{{"messages":[{{"role":"user","content":"u"}},{{"role":"assistant","tool_calls":[{}]}},{}]}}"#,
        asked.join(","),
        answers.join(",")
    )
    .into_bytes()
}

/// Looking each result up among all calls of its step took minutes here.
#[test]
fn a_step_of_very_many_calls_is_guarded_in_no_time() {
    let settings = settings();
    let policy = policy(32_000, named("openai").unwrap(), &settings);
    let body = read(&wide_step(30_000, &"word ".repeat(60)));
    let plan = guard::plan(&body, &policy, &Recall::default());
    assert_eq!(plan.report.truncated.len(), 30_000);
    assert_eq!(plan.report.truncated[0].tool, "f29999");
    let recall = Recall {
        memory: plan.memory.clone(),
        messages: body.items.len(),
        ..Recall::default()
    };
    let again = guard::plan(&body, &policy, &recall);
    assert_eq!(sent(&body, &again), sent(&body, &plan));
}

#[test]
fn the_name_of_a_tool_is_shown_up_to_a_bound() {
    let settings = settings();
    let policy = policy(4_096, named("openai").unwrap(), &settings);
    let name = "n".repeat(1_000_000);
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"u"}},{{"role":"assistant","tool_calls":[{{"id":"a","function":{{"name":"{name}","arguments":""}}}}]}},{{"role":"tool","tool_call_id":"a","content":"{}"}}]}}"#,
        "word ".repeat(2_000)
    );
    let plan = guard::plan(&read(body.as_bytes()), &policy, &Recall::default());
    assert_eq!(plan.report.truncated[0].tool, "n".repeat(64));
}

/// The body with one tool result of this content, guarded; and guarded once more.
fn twice(content: &str, window: u32) -> (Plan, Bytes, Bytes) {
    let settings = settings();
    let policy = policy(window, named("openai").unwrap(), &settings);
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"u"}},{{"role":"assistant","tool_calls":[{{"id":"a","function":{{"name":"f","arguments":""}}}}]}},{{"role":"tool","tool_call_id":"a","content":{content}}}]}}"#
    );
    let before = read(body.as_bytes());
    let plan = guard::plan(&before, &policy, &Recall::default());
    let first = sent(&before, &plan);
    let after = read(&first);
    let again = guard::plan(&after, &policy, &Recall::default());
    assert_eq!(again.report.raw_before, plan.report.raw_after);
    let second = sent(&after, &again);
    (plan, first, second)
}

#[test]
fn a_result_whose_ends_are_denser_than_its_middle_is_cut_once() {
    for (end, window) in [
        ("中文", 4_096),
        ("中文", 16_384),
        ("😀", 4_096),
        ("é", 2_048),
    ] {
        for middle in [6_000, 20_000, 100_000] {
            let end = end.repeat(2_000);
            let content = format!("\"{end}{}{end}\"", "a".repeat(middle));
            let (plan, first, second) = twice(&content, window);
            assert_eq!(plan.report.truncated.len(), 1);
            assert_eq!(first, second, "{middle} at {window}");
        }
    }
}

#[test]
fn what_stands_beside_a_cut_text_still_counts() {
    let other = format!(
        r#"{{"type":"refusal","refusal":"{}"}}"#,
        "no ".repeat(1_000)
    );
    let content = format!(
        r#"[{{"type":"text","text":"{}"}},{other}]"#,
        "word ".repeat(20_000)
    );
    let (plan, first, second) = twice(&content, 16_384);
    assert_eq!(plan.report.truncated.len(), 1);
    assert_eq!(first, second);
}

fn said_by(role: &str, content: &str) -> serde_json::Value {
    serde_json::json!({"role": role, "content": content})
}

fn of(messages: &[serde_json::Value]) -> Conversation {
    read(
        serde_json::json!({ "messages": messages })
            .to_string()
            .as_bytes(),
    )
}

#[test]
fn a_reminder_behind_the_newest_question_does_not_push_it_out() {
    let settings = settings();
    let policy = policy(4_096, named("openai").unwrap(), &settings);
    let filler = "why is that so? ".repeat(300);
    let mut messages = vec![said_by("user", "the task")];
    for _ in 0..3 {
        messages.push(said_by("assistant", &filler));
        messages.push(said_by("user", "go on"));
    }
    messages.push(said_by("assistant", "done"));
    messages.push(said_by("user", &format!("the newest question {filler}")));
    let reminder = said_by("system", &"be careful ".repeat(400));
    for tail in [
        vec![reminder.clone()],
        vec![said_by("critic", "hm")],
        vec![reminder.clone(), said_by("assistant", "Well,")],
        vec![said_by("assistant", &filler), said_by("assistant", "Well,")],
        vec![
            reminder,
            said_by("assistant", "Well,"),
            said_by("system", "x"),
        ],
    ] {
        let conversation = of(&[messages.clone(), tail].concat());
        let plan = guard::plan(&conversation, &policy, &Recall::default());
        assert!(plan.report.folded.is_some());
        let out = sent(&conversation, &plan);
        let out = String::from_utf8_lossy(&out);
        assert!(out.contains("the newest question"), "{out}");
    }
}

#[test]
fn more_tokens_than_can_be_counted_are_as_many_as_can() {
    let mut settings = settings();
    settings.chars_per_token = 1e-7;
    let policy = policy(4_096, named("openai").unwrap(), &settings);
    let long = "a".repeat(500);
    let mut messages = vec![said_by("system", &long), said_by("user", &long)];
    for _ in 0..20 {
        messages.push(serde_json::json!({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}]}));
        messages.push(serde_json::json!({"role": "tool", "tool_call_id": "a", "content": long}));
        messages.push(said_by("user", &long));
    }
    let plan = guard::plan(&of(&messages), &policy, &Recall::default());
    assert_eq!(plan.report.raw_before, u32::MAX);
    assert!(plan.report.folded.is_some());
}

fn long_chat() -> Conversation {
    let turn = |at: usize| {
        [
            said_by("user", &format!("question {at}: {}", "why? ".repeat(60))),
            said_by(
                "assistant",
                &format!("answer {at}: {}", "so it is. ".repeat(80)),
            ),
        ]
    };
    let mut messages: Vec<_> = (0..60).flat_map(turn).collect();
    messages.push(said_by("user", "and now?"));
    of(&messages)
}

#[test]
fn a_recorded_cut_stays_where_calibration_would_move_it() {
    let settings = settings();
    let policy = policy(16_384, named("openai").unwrap(), &settings);
    let conversation = long_chat();
    let strict = Recall {
        calibration: guard::estimate::Calibration::of_ratio(2.0),
        ..Recall::default()
    };
    let cut = guard::plan(&conversation, &policy, &strict);
    let fresh = guard::plan(&conversation, &policy, &Recall::default());
    assert!(cut.memory.boundary() > fresh.memory.boundary());
    let recall = Recall {
        memory: cut.memory.clone(),
        messages: said(&conversation),
        ..Recall::default()
    };
    let later = guard::plan(&conversation, &policy, &recall);
    assert_eq!(later.memory.boundary(), cut.memory.boundary());
    assert_eq!(sent(&conversation, &later), sent(&conversation, &cut));
}

#[test]
fn a_cut_for_a_small_window_does_not_bind_in_a_large_one() {
    let settings = settings();
    let profile = named("openai").unwrap();
    let conversation = long_chat();
    let small = policy(8_192, profile, &settings);
    let cut = guard::plan(&conversation, &small, &Recall::default());
    assert!(cut.report.folded.is_some());
    let recall = Recall {
        memory: cut.memory,
        messages: said(&conversation),
        ..Recall::default()
    };
    let large = policy(128_000, profile, &settings);
    let plan = guard::plan(&conversation, &large, &recall);
    assert!(plan.edits.is_empty() && plan.memory.boundary().is_none());
}

fn talk(messages: &[serde_json::Value]) -> Conversation {
    read(
        serde_json::json!({ "messages": messages })
            .to_string()
            .as_bytes(),
    )
}

fn worked(steps: usize) -> Vec<serde_json::Value> {
    let mut messages = vec![serde_json::json!({"role": "system", "content": "Work."})];
    for step in 0..steps {
        let call = serde_json::json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        messages.push(serde_json::json!({"role": "assistant", "tool_calls": [call]}));
        let content = format!("{step}: {}", "what came out of it. ".repeat(20));
        messages.push(serde_json::json!({"role": "tool", "tool_call_id": "a", "content": content}));
    }
    messages
}

#[test]
fn a_question_that_comes_late_does_not_undo_the_fold() {
    let settings = settings();
    for profile in ["openai", "anthropic"] {
        let policy = policy(8_192, named(profile).unwrap(), &settings);
        let mut messages = worked(100);
        let before = guard::plan(&talk(&messages), &policy, &Recall::default());
        let folded = before.report.folded.expect("a fold").messages;
        messages.push(serde_json::json!({"role": "user", "content": "And?"}));
        let conversation = talk(&messages);
        let after = guard::plan(&conversation, &policy, &Recall::default());
        let now = after.report.folded.expect("a fold");
        assert!(now.messages >= folded, "{now:?}");
        // The question stays, also once it lies before the cut.
        messages.extend(worked(60).split_off(1));
        let conversation = talk(&messages);
        let last = guard::plan(&conversation, &policy, &Recall::default());
        assert!(last.report.folded.expect("a fold").messages > 201);
        let out = sent(&conversation, &last);
        assert!(String::from_utf8_lossy(&out).contains("And?"));
        assert_eq!(strict::broken(&conversation.body, &out, policy.profile), []);
    }
}

#[test]
fn what_lies_at_a_boundary_of_the_rounding_moves_no_cut() {
    let settings = settings();
    let policy = policy(8_192, named("openai").unwrap(), &settings);
    // The fixed part crosses a sixteenth of the window back and forth.
    let body = |system: usize| {
        let mut messages = worked(240);
        messages[0] = serde_json::json!({"role": "system", "content": "x".repeat(system)});
        messages.insert(1, serde_json::json!({"role": "user", "content": "Go."}));
        talk(&messages)
    };
    let first = guard::plan(&body(1_450), &policy, &Recall::default());
    let recall = |memory| Recall {
        memory,
        messages: said(&body(0)),
        ..Recall::default()
    };
    let second = guard::plan(&body(1_560), &policy, &recall(first.memory.clone()));
    let third = guard::plan(&body(1_450), &policy, &recall(second.memory.clone()));
    assert_eq!(first.memory, second.memory);
    assert_eq!(first.memory, third.memory);
    assert!(!second.report.folded.expect("a fold").new);
    // The grid is another one without what is remembered: the test tests something.
    let alone = guard::plan(&body(1_560), &policy, &Recall::default());
    assert_ne!(alone.memory, first.memory);
}
