//! Requests for summaries: valid, cacheable, within the room, and complete.

use crate::compaction::{completion, sections};
use crate::support::{
    count::TokenCounter,
    drive::{apply_plan, make_policy, raw_tokens, settings},
    generate::{ConversationSize, Recipe, Session, Shape, any_conversation},
    model::notice::summary_key,
    strict,
};
use bytes::Bytes;
use plimsoll::{
    compaction::{Summariser, SummaryProgress, SummaryRange, SummaryWork, find_summary_range},
    config::GuardConfig,
    conversation::{Conversation, units},
    format::chat::index_body,
    guard::{
        self, Plan, SessionKnowledge, StandBackReason,
        profile::{PROFILES, Profile, find_profile},
    },
    recovery::Language,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Of the model that summarises.
const WINDOW: u32 = 32_768;
const NONCE: [u8; 8] = [0xC0, 0xDE, 0xC0, 0xDE, 1, 2, 3, 4];
const KEY: &str = "c0dec0de01020304";

fn summariser(profile: &'static Profile, own: bool, room: u32) -> Summariser {
    Summariser {
        may_repeat_conversation: own,
        model: "plimsoll-32k".into(),
        profile,
        room,
        max_tokens: 1_000,
        thinking_tokens: 0,
        filling: plimsoll::config::profile::AnswerFilling::Nothing,
        language: Language::English,
        weights: guard::estimate::Weights::for_unknown_model(),
        nonce: NONCE,
    }
}

fn plan_of(conversation: &Conversation, profile: &'static Profile, window: u32) -> Option<Plan> {
    let settings = settings();
    let policy = make_policy(profile, window, &settings);
    let plan = guard::plan(conversation, &policy, &SessionKnowledge::default());
    match plan.report.stood_back {
        Some(StandBackReason::Unsound(broken)) => panic!("unsound: {broken:?}"),
        Some(_) => None,
        None => Some(plan),
    }
}

/// Every boundary between two units after the pinned start and the fold.
fn boundaries(conversation: &Conversation, plan: &Plan) -> Vec<u32> {
    let units = units::split_units(conversation);
    let mut said = 0;
    let mut found = Vec::new();
    for (at, unit) in units.iter().enumerate() {
        let system = unit.kind == units::UnitKind::System;
        let beyond = plan.memory.boundary().is_none_or(|folded| said > folded);
        if at > units::find_pinned_end(&units) && !system && beyond {
            found.push(said);
        }
        said += if system {
            0
        } else {
            unit.messages.len() as u32
        };
    }
    found
}

fn messages(body: &[u8]) -> Vec<Vec<u8>> {
    let conversation = index_body(Bytes::copy_from_slice(body)).expect("a conversation");
    let spans = conversation.items.iter().map(|message| message.span);
    spans
        .map(|span| conversation.span_bytes(span).to_vec())
        .collect()
}

/// The form for the same model: valid, and the sent request up to the cut plus one or two messages.
fn check_own(body: &[u8], profile: &'static Profile, window: u32) {
    let conversation = index_body(Bytes::copy_from_slice(body)).unwrap();
    let Some(plan) = plan_of(&conversation, profile, window) else {
        return;
    };
    let whole = apply_plan(&conversation, &plan);
    let before = messages(&whole);
    for boundary in boundaries(&conversation, &plan) {
        let context = format!("{}, {window}, boundary {boundary}", profile.name);
        let due = SummaryRange {
            boundary,
            replaced: 10_000,
        };
        let asked = summariser(profile, true, u32::MAX);
        let (_, request) =
            SummaryWork::begin_summary(&conversation, &plan.edits, due, asked).expect(&context);
        assert_eq!(
            strict::find_broken_rules(&whole, &request, profile),
            [],
            "{context}"
        );
        let now = messages(&request);
        let shared = now.iter().zip(&before).take_while(|(a, b)| a == b).count();
        let added = now.len() - shared;
        assert!((1..=2).contains(&added), "{context}: {added} messages more");
        let ours: Value = serde_json::from_slice(now.last().unwrap()).unwrap();
        assert_eq!(ours["role"], "user", "{context}");
        let text = ours["content"].as_str().unwrap();
        assert!(
            text.contains(&format!("<summary key=\"{KEY}\">")),
            "{context}"
        );
        // The messages cut off are those that the boundary names, except system messages.
        let cut = index_body(request).unwrap();
        let folded = plan.report.folded.map_or(0, |folded| folded.messages);
        assert!(shared <= before.len(), "{context}");
        let said = cut.items[..shared]
            .iter()
            .filter(|it| !it.author.is_system())
            .count();
        assert!(said + folded >= boundary as usize, "{context}: {said} said");
    }
}

/// The transcript form: every request is within the room, and every message is in exactly one.
fn check_record(body: &[u8], profile: &'static Profile, room: u32) {
    let conversation = index_body(Bytes::copy_from_slice(body)).unwrap();
    let Some(plan) = plan_of(&conversation, profile, 32_768) else {
        return;
    };
    let Some(&boundary) = boundaries(&conversation, &plan).last() else {
        return;
    };
    let due = SummaryRange {
        boundary,
        replaced: 100_000,
    };
    let asked = summariser(profile, false, room);
    let Some((mut work, first)) =
        SummaryWork::begin_summary(&conversation, &plan.edits, due, asked)
    else {
        return;
    };
    let requests = 1 + work.remaining_requests();
    let mut bodies = vec![first];
    let answer = summary_answer(&"word ".repeat(200));
    while let Ok(SummaryProgress::Ask(next)) = work.read_answer(&answer) {
        bodies.push(next);
    }
    assert_eq!(bodies.len(), requests);
    let mut labels = 0;
    for body in &bodies {
        assert!(
            raw_tokens(body, profile) <= room,
            "{}",
            raw_tokens(body, profile)
        );
        assert_eq!(strict::find_violations(body, profile), []);
        let body: Value = serde_json::from_slice(body).unwrap();
        let text = body["messages"][0]["content"].as_str().unwrap();
        assert_eq!(text.matches("</transcript>").count(), 1);
        labels += text.matches(&format!("[{KEY} ")).count();
        // The example of a line, and the summary so far.
        labels -= 1 + usize::from(text.contains("summary of all before]"));
    }
    let ours = usize::from(plan.report.folded.is_some());
    let kept = apply_plan(&conversation, &plan);
    let kept = index_body(kept).unwrap();
    let rest = conversation.items.len() - cut_at(&conversation, boundary);
    let part = &kept.items[..kept.items.len() - rest];
    let said = part.iter().filter(|it| !it.author.is_system());
    let expected: usize = said.map(|it| 1 + it.calls.len()).sum();
    assert!(labels <= expected, "{labels} of {expected} ({ours})");
    // Units of very many calls are cut as a whole.
    assert!(
        room < 20_000 || labels == expected,
        "{labels} of {expected}"
    );
}

/// The message that a boundary names.
fn cut_at(conversation: &Conversation, boundary: u32) -> usize {
    let said = conversation.items.iter().enumerate();
    let mut said = said.filter(|(_, message)| !message.author.is_system());
    said.nth(boundary as usize).unwrap().0
}

fn summary_answer(done: &str) -> Vec<u8> {
    let text = format!(
        "<summary key=\"{KEY}\"><done>{done}</done><to_do>b</to_do><current_state>c</current_state>\
         <key_context>d</key_context><next_steps>e</next_steps><cautions>none</cautions></summary>"
    );
    let message = json!({"role": "assistant", "content": text});
    json!({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})
        .to_string()
        .into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_summary_request_to_the_same_model_extends_what_was_sent(case in any_conversation(24)) {
        for profile in PROFILES {
            for window in [4_096, 128_000] {
                check_own(&case.body(), profile, window);
            }
        }
    }

    #[test]
    fn a_transcript_fits_and_omits_no_message(case in any_conversation(40), room in 2_500u32..40_000) {
        for name in ["openai", "template"] {
            check_record(&case.body(), find_profile(name).unwrap(), room);
        }
    }
}

/// A whole summary by a model that refuses what it does not take.
fn whole_summary(conversation: &Conversation, asked: Summariser) -> (usize, String) {
    // Too little would be left for a summary if results were cleared.
    let mut settings = GuardConfig::default();
    settings.clear.enabled = false;
    let profile = asked.profile;
    let policy = make_policy(profile, WINDOW, &settings);
    let plan = guard::plan(conversation, &policy, &SessionKnowledge::default());
    let ours = guard::injections::Injections::default();
    let due =
        find_summary_range(conversation, &policy, &plan.memory, &ours).expect("a summary is due");
    let (mut work, mut body) =
        SummaryWork::begin_summary(conversation, &plan.edits, due, asked).unwrap();
    for requests in 1.. {
        assert_eq!(strict::find_violations(&body, profile), []);
        let progress = work.read_answer(answer_summary(&body).as_bytes());
        match progress.unwrap_or_else(|rejected| panic!("request {requests}: {rejected}")) {
            SummaryProgress::Ask(next) => body = next,
            SummaryProgress::Done(summary) => {
                assert_eq!(summary.boundary, due.boundary);
                return (requests, summary.text.into_string());
            }
        }
    }
    unreachable!("every summary ends")
}

/// A completion with the summary that the last message asks for, by the messages or the transcript in it.
fn answer_summary(body: &[u8]) -> String {
    let tokens = TokenCounter::o200k().request(body);
    let body: Value = serde_json::from_slice(body).unwrap();
    let cap = body["max_tokens"]
        .as_u64()
        .or(body["max_completion_tokens"].as_u64());
    let total = tokens + cap.expect("a cap");
    assert!(total <= WINDOW.into(), "{total} tokens do not fit");
    let key = summary_key(&body).expect("a key is asked for");
    completion(&sections(&key, 1))
}

#[test]
fn a_model_summarises_when_asked() {
    for shape in [Shape::OneTurn, Shape::Chinese, Shape::Chat] {
        let session = Session::new(3, Recipe::new(shape), ConversationSize::Bytes(90_000));
        let conversation = index_body(Bytes::from(session.whole())).unwrap();
        for (profile, own, room) in [
            ("openai", true, 28_000),
            ("template", true, 28_000),
            ("openai", false, 7_000),
        ] {
            let asked = Summariser {
                language: match shape {
                    Shape::Chinese => Language::Chinese,
                    _ => Language::English,
                },
                ..summariser(find_profile(profile).unwrap(), own, room)
            };
            let (requests, text) = whole_summary(&conversation, asked);
            assert_eq!(requests > 1, !own, "{shape:?}: {requests} requests");
            assert!(
                text.starts_with("<summary>\n<done>") && text.len() > 150,
                "{text}"
            );
        }
    }
}

/// Golden requests: `tests/data/summary/NAME.json` is the conversation, `NAME.FORM.json` the
/// request, rewritten by `UPDATE_GOLDEN=1`.
#[test]
fn golden_summary_requests_are_as_recorded() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/summary");
    for (name, language) in [("en", Language::English), ("zh", Language::Chinese)] {
        let body = std::fs::read(folder.join(format!("{name}.json"))).unwrap();
        let conversation = index_body(Bytes::from(body)).unwrap();
        for (form, profile, own) in [
            ("own", "openai", true),
            ("own-strict", "mistral", true),
            ("record", "template", false),
        ] {
            let due = SummaryRange {
                boundary: 5,
                replaced: 8_000,
            };
            let asked = Summariser {
                language,
                ..summariser(find_profile(profile).unwrap(), own, 20_000)
            };
            let plan = plan_of(&conversation, asked.profile, 32_768).unwrap();
            let (_, request) =
                SummaryWork::begin_summary(&conversation, &plan.edits, due, asked).unwrap();
            let place = folder.join(format!("{name}.{form}.json"));
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::write(&place, &request).unwrap();
            }
            let expected = std::fs::read_to_string(&place).unwrap_or_default();
            assert_eq!(
                String::from_utf8_lossy(&request),
                expected,
                "{}",
                place.display()
            );
        }
    }
}
