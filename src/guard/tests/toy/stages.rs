//! Session, recovery and compaction treat a conversation in the toy format as they treat it in chat completions.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{TOY, any_window, message_to_toy, to_chat};
use crate::{
    compaction::{Summariser, SummaryRange, SummaryWork},
    config::profile::Profile,
    conversation::{Conversation, Format},
    format::ProxyToolCall,
    guard::{
        self,
        fold::memory::SessionKnowledge,
        plan::explain::{ExplainedModel, explain_plan},
        request::estimate::Weights,
    },
    recovery::{Language, Prompts, RecoveryMemory, Reminders, course, language, tool},
    session::Lineage,
    store::{Account, Tenant},
    support::{
        generate::{Session, any_conversation},
        guard_properties::{CHAT, profiles_of, settings},
        parse,
        plans::make_policy,
    },
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_session_is_found_again(case in any_conversation(20)) {
        assert_states_found(&case.session);
    }

    #[test]
    fn a_course_begins_with_the_same_facts(case in any_conversation(30), window in any_window()) {
        let body = case.body();
        let (chat, toy) = (CHAT.read(&body), TOY.read(&body));
        let settings = settings();
        let policy = make_policy(profiles_of(&case)[0], window, &settings);
        let boundary = guard::find_course_boundary(&chat, &policy).unwrap();
        prop_assert_eq!(guard::find_course_boundary(&toy, &policy), Some(boundary));
        prop_assert_eq!(begin_course(&toy, boundary), begin_course(&chat, boundary));
    }

    #[test]
    fn a_summary_is_asked_for_alike(case in any_conversation(30), window in any_window(), own in any::<bool>()) {
        let body = case.body();
        let profile = profiles_of(&case)[0];
        let asked = |conversation: &Conversation| ask_for_summary(conversation, profile, window, own);
        let (chat, toy) = (asked(&CHAT.read(&body)), asked(&TOY.read(&body)));
        prop_assert_eq!(toy.is_some(), chat.is_some());
        if let (Some((left, body)), Some((toy_left, toy_body))) = (chat, toy) {
            prop_assert_eq!(toy_left, left);
            let (body, toy_body) = (parse::parse_value(&body).unwrap(), parse::parse_value(&to_chat(&toy_body)).unwrap());
            prop_assert_eq!(&toy_body["messages"], &body["messages"]);
            prop_assert_eq!(&toy_body["model"], &body["model"]);
        }
    }

    #[test]
    fn the_plan_is_explained_alike(case in any_conversation(40), window in any_window()) {
        let body = case.body();
        let found = |conversation: &Conversation| describe_plan(conversation, profiles_of(&case)[0], window);
        prop_assert_eq!(found(&TOY.read(&body)), found(&CHAT.read(&body)));
    }
}

/// Each request of a session looks for the state that the one before it left.
fn assert_states_found(session: &Session) {
    let tenant = Tenant::from_parts([1; 16], Account::from_bytes([2; 16]));
    let mut before: Option<[Lineage; 2]> = None;
    for request in 0..session.requests() {
        let body = session.body(request);
        let read = [CHAT.read(&body), TOY.read(&body)];
        let now = read
            .each_ref()
            .map(|it| Lineage::from_conversation(it, &tenant));
        assert_eq!(now[0].messages, now[1].messages);
        assert_eq!(now[0].probes.len(), now[1].probes.len());
        if let Some(before) = before {
            // The first new message after the last request is its answer.
            let answer = session.messages_at(request - 1);
            let places = [0, 1].map(|format: usize| {
                let keys = before[format].state_keys(read[format].items[answer].short_digest)?;
                let probes = &now[format].probes;
                probes.iter().position(|probe| *probe == keys.exact)
            });
            assert_eq!(places[0], places[1]);
            let place = places[0];
            assert_eq!(
                place.map(|place| now[0].answer_at(place)),
                place.map(|place| now[1].answer_at(place))
            );
        }
        before = Some(now);
    }
}

fn begin_course(
    conversation: &Conversation,
    boundary: u32,
) -> (Language, guard::injections::Course) {
    let language = language::choose_language(None, None, conversation);
    let wording = course::Wording {
        prompts: &Prompts::default(),
        language,
    };
    let removed = guard::list_removed_messages(conversation, boundary);
    let memory = RecoveryMemory::default();
    let fits = |text: &str| text.len() < 5_000;
    (
        language,
        course::begin_course(conversation, &removed, boundary, &memory, wording, fits),
    )
}

/// The first request for a summary, and the number of requests after it.
fn ask_for_summary(
    conversation: &Conversation,
    profile: &'static Profile,
    window: u32,
    own: bool,
) -> Option<(usize, Vec<u8>)> {
    let settings = settings();
    let policy = make_policy(profile, window, &settings);
    let plan = guard::plan(conversation, &policy, &SessionKnowledge::default());
    let due = SummaryRange {
        boundary: guard::find_course_boundary(conversation, &policy)?,
        replaced: 20_000,
    };
    let summariser = Summariser {
        may_repeat_conversation: own,
        model: "small".into(),
        profile,
        room: window,
        max_tokens: 400,
        thinking_tokens: 0,
        filling: crate::config::profile::AnswerFilling::ByName,
        language: Language::English,
        weights: Weights::for_unknown_model(),
        nonce: [1, 2, 3, 4, 5, 6, 7, 8],
    };
    let (work, body) = SummaryWork::begin_summary(conversation, &plan.edits, due, summariser)?;
    Some((work.remaining_requests(), body.to_vec()))
}

/// The plan as the API reports it, without the sizes of the bodies.
fn describe_plan(conversation: &Conversation, profile: &'static Profile, window: u32) -> Value {
    let settings = settings();
    let policy = make_policy(profile, window, &settings);
    let (_, _, explained) = explain_plan(conversation, &policy, ExplainedModel::default());
    let mut explained = json!(explained);
    for made in ["as_it_came", "as_it_goes"] {
        assert!(explained[made]["bytes"].take().is_number());
    }
    explained
}

#[test]
fn proxy_executed_calls_are_answered_alike() {
    let call = |name: &str, arguments: &str| ProxyToolCall {
        id: "own-1".into(),
        name: name.into(),
        arguments: arguments.into(),
        ..ProxyToolCall::default()
    };
    let calls = [
        call("add_reminder", r#"{"content":"run \"make\""}"#),
        call("delete_reminder", "{}"),
    ];
    let execute =
        |format| tool::execute_calls(format, &calls, &mut Reminders::default(), false, None);
    let (chat, toy) = (execute(Format::Chat), execute(Format::Toy));
    let results: Vec<_> = chat.results.iter().map(|it| message_to_toy(it)).collect();
    let items: Vec<&str> = toy.results.iter().map(|it| &**it).collect();
    assert_eq!(toy.clear, chat.clear);
    let values = |results: &[&str]| -> Vec<Value> {
        let values = results.iter().map(|it| serde_json::from_str(it).unwrap());
        values.collect()
    };
    let results: Vec<&str> = results.iter().map(|it| &**it).collect();
    assert_eq!(values(&items), values(&results));
    let read = Format::Toy.index_items(&items).unwrap();
    assert!(read.items.iter().all(|item| item.author.is_tool()));
}
