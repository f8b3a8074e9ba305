mod added_tools;
mod attachments;
mod compaction_requests;
mod custom_calls;
mod due;
mod last_resorts;
mod messages;
mod order;
mod other_profile;
mod recall_ids;
mod responses;
mod toy;

use bytes::Bytes;

use super::*;
use crate::{
    config::GuardConfig,
    conversation::{Author, Conversation, edit::Edits, units::split_units},
    format::chat::index_body,
    guard::{
        fold::cut_state::CutState,
        grammar::outline::OutlineItem,
        inject::injections::{InjectionRecord, Injections},
        plan::assemble::lint_plan,
        request::{
            estimate::{Calibration, TokenScale},
            measured_request::MeasuredRequest,
            view::RequestView,
        },
    },
};

fn policy(settings: &GuardConfig) -> Policy<'_> {
    Policy::new(
        profile::find_profile("openai").unwrap(),
        8_192,
        crate::config::tokens::unknown_model(),
        settings,
    )
}

#[test]
fn a_plan_that_fails_the_lint_is_not_sent() {
    let body = r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":""}}]},{"role":"tool","tool_call_id":"a","content":"r"}]}"#;
    let conversation = index_body(Bytes::from_static(body.as_bytes())).unwrap();
    let settings = GuardConfig::default();
    let policy = policy(&settings);
    // A faulty plan: it removes the call and keeps its result.
    let mut edits = Edits::default();
    edits.remove(conversation.items[1].span);
    let plan = Plan {
        edits,
        report: Report {
            folded: Some(FoldReport {
                messages: 1,
                came: 3,
                kept: 2,
                tokens: 10,
                new: true,
            }),
            ..Report::default()
        },
        memory: GuardMemory::default(),
        ..Plan::default()
    };
    let outline = vec![OutlineItem::Client(0), OutlineItem::Client(2)];
    let knowledge = SessionKnowledge::default();
    let measured = MeasuredRequest::new(&conversation, &policy, &knowledge.past_answers());
    let view = RequestView {
        conversation: &conversation,
        units: &[],
        policy,
        names_ids: recall_id::NamedIds::NONE,
        scale: TokenScale::default(),
    };
    let plan = lint_plan(plan, &outline, view, &measured, &knowledge);
    assert!(plan.edits.is_empty() && plan.report.folded.is_none());
    assert!(matches!(
        plan.report.stood_back,
        Some(StandBackReason::Unsound(broken)) if broken.has_broken(lint::ConversationRule::Pairing)
    ));
    assert_eq!(plan.report.format_actions(), "guard-fault");
}

#[test]
fn a_request_over_its_budget_behind_a_course_is_no_new_cut() {
    let body = r#"{"messages":[{"role":"user","content":"task"},{"role":"assistant","content":"a"},{"role":"user","content":"question"}]}"#;
    let conversation = index_body(Bytes::from_static(body.as_bytes())).unwrap();
    let settings = GuardConfig::default();
    let policy = policy(&settings);
    let mut knowledge = SessionKnowledge {
        injections: Injections {
            course: Some(crate::support::made::make_course(2)),
            ..Injections::default()
        },
        ..SessionKnowledge::default()
    };
    let first = plan(&conversation, &policy, &knowledge);
    assert!(first.report.folded.unwrap().new && !first.report.over_budget);
    // The same request, counted as more than its budget: nothing else of it can go.
    knowledge.memory = first.memory.clone();
    knowledge.sent_messages = 3;
    let (raw, budget) = (first.report.raw_after, first.report.budget.tokens);
    knowledge.calibration = Calibration::default().learn_usage(raw, budget + 1, false);
    let second = plan(&conversation, &policy, &knowledge);
    assert!(second.report.over_budget, "{:?}", second.report);
    assert!(!second.report.folded.unwrap().new);
    assert_eq!(second.memory.cut, first.memory.cut);
}

/// A round behind the task already separates it from the user's next message: no other word of the model comes between.
#[test]
fn no_word_of_the_model_is_added_before_a_round() {
    let says = |role| serde_json::json!({"role": role, "content": role});
    let messages = ["user", "user", "assistant", "user", "assistant", "user"].map(says);
    let body = serde_json::json!({"messages": messages}).to_string();
    let conversation = index_body(Bytes::from(body)).unwrap();
    let settings = GuardConfig::default();
    let policy = policy(&settings);
    let sent_roles = |records| {
        let mut knowledge = SessionKnowledge {
            injections: Injections {
                records,
                ..Injections::default()
            },
            sent_messages: 6,
            ..SessionKnowledge::default()
        };
        knowledge.memory = plan(&conversation, &policy, &knowledge).memory;
        // The first answer and the second question are left out.
        let units = split_units(&conversation);
        let mut state = CutState::new(units.len());
        state.folded[2..4].fill(true);
        knowledge.memory.cut = state.to_mark(&conversation, &units);
        knowledge.memory.alternates = Some(true);
        let plan = plan(&conversation, &policy, &knowledge);
        assert_eq!(plan.report.stood_back, None);
        let sent = index_body(plan.edits.apply(&conversation.body).to_bytes()).unwrap();
        sent.items.iter().map(|it| it.author).collect::<Vec<_>>()
    };
    let (user, model) = (Author::User, Author::Model);
    assert_eq!(sent_roles(Vec::new()), [user, model, user, model, user]);
    let round = InjectionRecord {
        place: 1,
        what: crate::support::made::block_round(),
    };
    let with_round = [user, model, user, user, model, user];
    assert_eq!(sent_roles(vec![round]), with_round);
}

/// The test takes minutes where each pinned message looks back over all pinned messages before it.
#[test]
fn time_is_linear_in_pinned_messages() {
    let settings = GuardConfig::default();
    let policy = policy(&settings);
    for (role, answers) in [("system", 0), ("other", 0), ("system", 100_000)] {
        let answers = r#",{"role":"assistant","content":"a"}"#.repeat(answers);
        let stays = format!(r#",{{"role":"{role}","content":"s"}}"#).repeat(120_000);
        let user = r#"{"role":"user","content":"u"}"#;
        let body = format!(r#"{{"messages":[{user}{answers}{stays}]}}"#);
        let conversation = index_body(Bytes::from(body)).unwrap();
        let plan = plan(&conversation, &policy, &SessionKnowledge::default());
        assert!(plan.report.over_budget && plan.report.stood_back.is_none());
    }
}

/// The test takes a minute where a turn is searched for each message of it that is left out.
#[test]
fn time_is_linear_in_what_is_left_out_of_a_turn() {
    let settings = GuardConfig::default();
    let policy = Policy {
        window: 1_000_000,
        ..policy(&settings)
    };
    let user = |at: usize| format!(r#"{{"role":"user","content":"u{at}"}}"#);
    // The newest stay, up to a quarter of the room.
    let list = (0..200_000).map(user).collect::<Vec<_>>().join(",");
    let body = format!(r#"{{"messages":[{list}]}}"#);
    let conversation = index_body(Bytes::from(body)).unwrap();
    let plan = plan(&conversation, &policy, &SessionKnowledge::default());
    assert!(plan.report.folded.unwrap().messages > 100_000);
}

/// The question that the rest of a course answers stays when the user goes on, and is told of once a cut takes it.
#[test]
fn the_question_of_a_course_stays_until_a_cut_and_then_stands_in_its_ledger() {
    let settings = GuardConfig::counted_by_characters();
    let question = "Write the changelog of the zebra release.";
    let call = |at: usize| {
        let calls = format!(
            r#"[{{"id":"c{at}","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}]"#
        );
        let result = format!("result {at} ").repeat(200);
        [
            format!(r#"{{"role":"assistant","tool_calls":{calls}}}"#),
            format!(r#"{{"role":"tool","tool_call_id":"c{at}","content":"{result}"}}"#),
        ]
    };
    let says = |role: &str, text: &str| format!(r#"{{"role":"{role}","content":"{text}"}}"#);
    let mut messages = vec![
        says("user", "the task"),
        says("assistant", "yes"),
        says("user", question),
    ];
    messages.extend((0..2).flat_map(call));
    let mut knowledge = SessionKnowledge {
        injections: Injections {
            course: Some(crate::support::made::make_course(5)),
            ..Injections::default()
        },
        ..SessionKnowledge::default()
    };
    let mut before = String::new();
    let mut is_told = false;
    for at in 2..80 {
        let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
        let conversation = index_body(Bytes::from(body)).unwrap();
        let planned = plan(&conversation, &policy(&settings), &knowledge);
        let sent = planned.edits.apply(&conversation.body).to_bytes();
        let sent = String::from_utf8(sent.to_vec()).unwrap();
        assert!(sent.contains(question), "request {at}: {sent}");
        let is_cut = planned.report.folded.as_ref().is_some_and(|it| it.new)
            || !sent.contains(&says("user", question));
        if !is_cut && at < 8 {
            let same = before.trim_end_matches("]}");
            assert!(sent.starts_with(same), "request {at}");
        }
        is_told |= !sent.contains(&says("user", question));
        before = sent;
        knowledge.memory = planned.memory;
        knowledge.history = planned.history;
        knowledge.sent_messages = messages.len();
        messages.extend([says("assistant", "done"), says("user", "go on")]);
        messages.extend(call(at));
    }
    assert!(is_told, "no cut took it");
}

/// Models imitate what they see themselves say.
#[test]
fn no_note_stands_in_the_voice_of_the_model() {
    let settings = GuardConfig::counted_by_characters();
    for task in ["null", r#""the task""#, "[]"] {
        let mut messages = vec![format!(r#"{{"role":"user","content":{task}}}"#)];
        for at in 0..60 {
            let text = format!("plank {at} ").repeat(80);
            messages.push(format!(r#"{{"role":"assistant","content":"{text}"}}"#));
            messages.push(format!(
                r#"{{"role":"user","content":"Go on after {at}."}}"#
            ));
        }
        let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
        let conversation = index_body(Bytes::from(body)).unwrap();
        let policy = Policy {
            profile: profile::find_profile("template").unwrap(),
            ..policy(&settings)
        };
        let planned = plan(&conversation, &policy, &SessionKnowledge::default());
        assert!(planned.report.folded.is_some());
        let sent = planned.edits.apply(&conversation.body).to_bytes();
        let sent: serde_json::Value = serde_json::from_slice(&sent).unwrap();
        let messages = sent["messages"].as_array().unwrap();
        let said = messages.iter().filter(|it| it["role"] == "assistant");
        assert!(
            said.clone().all(|it| !it.to_string().contains("[Note by")),
            "{task}"
        );
        let roles: Vec<_> = messages.iter().map(|it| it["role"].clone()).collect();
        assert!(
            roles.windows(2).all(|two| two[0] != two[1]),
            "{task}: {roles:?}"
        );
    }
}
