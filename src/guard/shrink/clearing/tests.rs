//! What is cleared of small conversations, and what is left alone.

use bytes::Bytes;
use serde_json::{Value, json};

use super::RESULT;
use crate::{
    config::{GuardConfig, profile::find_profile},
    conversation::Conversation,
    format::chat::index_body,
    guard::{self, fold::memory::SessionKnowledge, plan::report::Plan, request::policy::Policy},
};

const WINDOW: u32 = 8_192;

fn settings() -> GuardConfig {
    let mut settings = GuardConfig::counted_by_characters();
    settings.clear.at = Some(0.3);
    settings.clear.at_least = Some(0.02);
    settings.clear.keep_steps = Some(2);
    settings
}

fn of(messages: &[Value]) -> Conversation {
    let body = json!({ "messages": messages }).to_string();
    index_body(Bytes::from(body)).unwrap()
}

fn planned(
    conversation: &Conversation,
    settings: &GuardConfig,
    knowledge: &SessionKnowledge,
) -> Plan {
    let policy = Policy::new(
        find_profile("openai").unwrap(),
        WINDOW,
        crate::config::tokens::unknown_model(),
        settings,
    );
    guard::plan(conversation, &policy, knowledge)
}

/// The plan, and the messages that go out.
fn cleared(messages: &[Value], settings: &GuardConfig) -> (Plan, Vec<Value>) {
    let conversation = of(messages);
    let plan = planned(&conversation, settings, &SessionKnowledge::default());
    assert!(plan.report.folded.is_none(), "nothing had to go");
    let sent = plan.edits.apply(&conversation.body).to_bytes();
    let again = index_body(sent.clone()).unwrap();
    let second = planned(&again, settings, &SessionKnowledge::default());
    // Each text is rounded up by itself where it is planned.
    let (now, said) = (second.report.raw_before, plan.report.raw_after);
    assert!(now <= said && said - now <= 4, "{now} sent, {said} planned");
    assert!(second.edits.is_empty(), "a second pass finds nothing to do");
    let mut sent: Value = serde_json::from_slice(&sent).unwrap();
    let sent = sent["messages"].as_array_mut().unwrap();
    (plan, std::mem::take(sent))
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn call(id: &str, name: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}})
}

fn asks(calls: &[Value]) -> Value {
    json!({"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": calls})
}

fn result(id: &str, content: impl Into<Value>) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content.into()})
}

fn long() -> String {
    "a line of output\n".repeat(150)
}

/// So many steps of one call each, after the task.
fn steps(count: usize) -> Vec<Value> {
    let steps = (0..count).flat_map(|_| [asks(&[call("a", "read")]), result("a", long())]);
    std::iter::once(user("go")).chain(steps).collect()
}

#[test]
fn old_results_become_a_placeholder_and_nothing_else_changes() {
    let messages = steps(6);
    let (plan, sent) = cleared(&messages, &settings());
    let report = plan.report.cleared.unwrap();
    assert_eq!((report.results, report.inputs, report.media), (4, 0, 0));
    assert_eq!(report.messages, [2, 4, 6, 8]);
    assert!(report.new && plan.report.truncated.is_empty());
    assert_eq!(
        report.tokens,
        plan.report.raw_before - plan.report.raw_after
    );
    let mut expected = messages;
    for at in [2, 4, 6, 8] {
        expected[at]["content"] = RESULT.into();
    }
    assert_eq!(sent, expected);
}

#[test]
fn nothing_is_cleared_under_the_mark_or_where_it_is_off() {
    let (plan, _) = cleared(&steps(2), &settings());
    assert!(plan.report.cleared.is_none() && plan.edits.is_empty());
    let mut settings = settings();
    settings.clear.enabled = false;
    let (plan, _) = cleared(&steps(6), &settings);
    assert!(plan.report.cleared.is_none() && plan.edits.is_empty());
}

#[test]
fn what_a_jump_would_not_free_is_left_for_later() {
    let mut settings = settings();
    settings.clear.at_least = Some(0.6);
    let (plan, _) = cleared(&steps(6), &settings);
    assert!(plan.report.cleared.is_none());
    settings.clear.at_least = Some(0.3);
    let (plan, _) = cleared(&steps(6), &settings);
    assert_eq!(plan.report.cleared.unwrap().results, 3);
}

#[test]
fn the_newest_turns_stay_however_few_steps_they_have() {
    let mut messages = steps(4);
    for _ in 0..2 {
        messages.push(json!({"role": "assistant", "content": "done"}));
        messages.extend(steps(1));
    }
    let mut settings = settings();
    settings.clear.keep_steps = Some(10);
    settings.reserve_tokens = Some(WINDOW / 4);
    // The newest turn has no answer, so the two before it are the newest rounds.
    let (plan, _) = cleared(&messages, &settings);
    assert!(plan.report.cleared.is_none());
    messages.push(json!({"role": "assistant", "content": "done"}));
    messages.push(user("and?"));
    let (plan, _) = cleared(&messages, &settings);
    // Older than the newest two rounds, though ten steps are not there.
    assert_eq!(plan.report.cleared.unwrap().messages, [2, 4, 6, 8]);
    settings.clear.keep_steps = Some(1);
    let (plan, _) = cleared(&messages, &settings);
    assert_eq!(plan.report.cleared.unwrap().messages, [2, 4, 6, 8, 12]);
    settings.clear.keep_steps = Some(5);
    settings.clear.keep_rounds = Some(1);
    let (plan, _) = cleared(&messages, &settings);
    // Only what is in both stays.
    assert_eq!(plan.report.cleared.unwrap().messages, [2, 4, 6, 8, 12]);
}

#[test]
fn a_share_of_zero_clears_every_old_round_and_a_set_least_amount_still_holds() {
    let mut messages = Vec::new();
    for _ in 0..4 {
        messages.extend([user("go"), asks(&[call("a", "read")])]);
        messages.push(result("a", "a line of output\n".repeat(30)));
        messages.push(json!({"role": "assistant", "content": "done"}));
    }
    messages.extend([user("what"), user("now?")]);
    let mut settings = GuardConfig::counted_by_characters();
    let (plan, _) = cleared(&messages, &settings);
    assert!(plan.report.cleared.is_none());
    settings.clear.at = Some(0.0);
    let (plan, _) = cleared(&messages, &settings);
    assert_eq!(plan.report.cleared.unwrap().messages, [2, 6]);
    settings.clear.at_least = Some(0.5);
    let (plan, _) = cleared(&messages, &settings);
    assert!(plan.report.cleared.is_none());
}

#[test]
fn a_remark_within_a_turn_is_no_turn() {
    let mut messages = steps(5);
    messages.push(user("a remark"));
    messages.push(user("another"));
    let mut settings = settings();
    settings.clear.keep_rounds = Some(1);
    settings.clear.keep_steps = Some(3);
    let (plan, _) = cleared(&messages, &settings);
    assert_eq!(plan.report.cleared.unwrap().messages, [2, 4]);
}

#[test]
fn parallel_calls_are_cleared_but_for_those_of_excluded_tools() {
    let step = || {
        [
            asks(&[call("a", "read_file"), call("b", "bash"), call("c", "plan")]),
            result("c", long()),
            result("a", "a line\n".repeat(80)),
            result("b", "ok"),
        ]
    };
    let messages: Vec<_> = std::iter::once(user("go"))
        .chain((0..4).flat_map(|_| step()))
        .collect();
    let (plan, _) = cleared(&messages, &settings());
    assert_eq!(plan.report.cleared.unwrap().messages, [2, 3, 6, 7]);
    for exclude in ["plan", "pl*"] {
        let mut settings = settings();
        settings.clear.exclude = vec![exclude.into()];
        let (plan, _) = cleared(&messages, &settings);
        assert_eq!(plan.report.cleared.unwrap().messages, [3, 7], "{exclude}");
    }
}

#[test]
fn legacy_function_messages_are_results_too() {
    let step = || {
        let function = json!({"name": "read", "arguments": "{}"});
        [
            json!({"role": "assistant", "content": null, "function_call": function}),
            json!({"role": "function", "name": "read", "content": long()}),
        ]
    };
    let messages: Vec<_> = std::iter::once(user("go"))
        .chain((0..5).flat_map(|_| step()))
        .collect();
    let (plan, sent) = cleared(&messages, &settings());
    assert_eq!(plan.report.cleared.unwrap().messages, [2, 4, 6]);
    assert_eq!(
        sent[2],
        json!({"role": "function", "name": "read", "content": RESULT})
    );
}

#[test]
fn parts_stay_parts_and_marked_ones_stay_where_they_are() {
    let mark = json!({"type": "ephemeral"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image_url", "image_url": {"url": "https://x/y.png"}});
    let content = json!([
        image,
        text(&long()),
        text("more"),
        {"type": "text", "text": "marked", "cache_control": mark},
        {"type": "image_url", "image_url": {"url": "https://x/z.png", "detail": "low"}, "cache_control": mark},
        {"type": "odd", "odd": 1},
        {"type": "file", "file": {"file_id": "f"}},
    ]);
    let mut messages = vec![user("go"), asks(&[call("a", "read")]), result("a", content)];
    messages.extend(steps(2).split_off(1));
    let mut settings = settings();
    settings.clear.keep_steps = Some(1);
    let (_, sent) = cleared(&messages, &settings);
    let expected = json!([
        text("[An old image was left out here by the context guard to save room.]"),
        text(RESULT),
        {"type": "text", "text": "...", "cache_control": mark},
        {"type": "image_url", "image_url": {"url": "https://x/z.png", "detail": "low"}, "cache_control": mark},
        {"type": "odd", "odd": 1},
        text("[An old attachment was left out here by the context guard to save room.]"),
    ]);
    assert_eq!(sent[2]["content"], expected);
}

#[test]
fn half_a_pair_is_left_alone() {
    let conversation = of(&steps(6));
    let body = String::from_utf8_lossy(&conversation.body).into_owned();
    let half = body.replacen("a line of output", "\\ud800", 1);
    let conversation = index_body(Bytes::from(half)).unwrap();
    let plan = planned(&conversation, &settings(), &SessionKnowledge::default());
    assert_eq!(plan.report.cleared.unwrap().messages, [4, 6, 8]);
}

#[test]
fn arguments_are_shortened_where_that_is_wished() {
    let written = json!({"path": "a.rs", "content": long()}).to_string();
    let function = json!({"name": "write", "arguments": written});
    let step = || {
        let call = json!({"id": "a", "type": "function", "function": function});
        [asks(&[call]), result("a", "ok")]
    };
    let messages: Vec<_> = std::iter::once(user("go"))
        .chain((0..5).flat_map(|_| step()))
        .collect();
    let mut settings = settings();
    let (plan, _) = cleared(&messages, &settings);
    assert!(plan.report.cleared.is_none());
    settings.clear.inputs = true;
    let (plan, sent) = cleared(&messages, &settings);
    let report = plan.report.cleared.unwrap();
    assert_eq!((report.results, report.inputs), (0, 3));
    assert_eq!(report.messages, [1, 3, 5]);
    assert_eq!(sent[1]["reasoning_content"], "hm");
    let arguments = sent[1]["tool_calls"][0]["function"]["arguments"].as_str();
    let arguments: Value = serde_json::from_str(arguments.unwrap()).unwrap();
    assert_eq!(arguments["path"], "a.rs");
    assert!(arguments["content"].as_str().unwrap().chars().count() <= 200);
}

#[test]
fn old_images_go_before_old_turns() {
    let image = json!({"type": "image_url", "image_url": {"url": "https://x/y.png"}});
    let seen = || {
        let content = json!([{"type": "text", "text": "what is this?"}, image]);
        [
            json!({"role": "user", "content": content}),
            json!({"role": "assistant", "content": "a cat"}),
        ]
    };
    let messages: Vec<_> = (0..5).flat_map(|_| seen()).chain([user("and?")]).collect();
    let (plan, sent) = cleared(&messages, &settings());
    let report = plan.report.cleared.unwrap();
    // The first is part of the task, and no more go than must.
    assert_eq!((report.media, &report.messages[..]), (2, &[2, 4][..]));
    assert_eq!(sent[0], messages[0]);
    let part = json!({"type": "text", "text": "[An old image was left out here by the context guard to save room.]"});
    assert_eq!(sent[2]["content"][1], part);
    // One image less, and all fits.
    let (plan, _) = cleared(&messages[4..], &settings());
    assert!(plan.report.cleared.is_none());
}

#[test]
fn what_was_cleared_once_stays_so_and_is_new_once() {
    let settings = settings();
    let messages = steps(6);
    let conversation = of(&messages);
    let first = planned(&conversation, &settings, &SessionKnowledge::default());
    let knowledge = SessionKnowledge {
        memory: first.memory.clone(),
        sent_messages: messages.len(),
        ..SessionKnowledge::default()
    };
    let mut more = messages.clone();
    more.push(json!({"role": "assistant", "content": "done"}));
    more.push(user("thanks"));
    let later = planned(&of(&more), &settings, &knowledge);
    let (was, now) = (first.report.cleared.unwrap(), later.report.cleared.unwrap());
    assert!(was.new && !now.new);
    assert_eq!(was.messages, now.messages);
    // Another provider's numbers move no boundary back.
    let knowledge = SessionKnowledge {
        calibration: guard::estimate::Calibration::from_ratio(0.4),
        ..knowledge
    };
    let cheaper = planned(&conversation, &settings, &knowledge);
    assert_eq!(cheaper.report.cleared.unwrap().messages, was.messages);
    // Another grid does.
    let mut off = settings.clone();
    off.clear.enabled = false;
    let plan = planned(&conversation, &off, &knowledge);
    assert!(plan.report.cleared.is_none() && plan.edits.is_empty());
}

/// Some providers take longer names than others, and than are shown.
#[test]
fn a_tool_with_a_long_name_is_excluded_by_it() {
    let name = format!("mcp__{}__read", "server".repeat(12));
    let step = || [asks(&[call("a", &name)]), result("a", long())];
    let messages: Vec<_> = std::iter::once(user("go"))
        .chain((0..6).flat_map(|_| step()))
        .collect();
    let mut settings = settings();
    let (plan, _) = cleared(&messages, &settings);
    assert!(plan.report.cleared.is_some());
    for excluded in [name.clone(), format!("{}*", &name[..70])] {
        settings.clear.exclude = vec![excluded];
        let (plan, _) = cleared(&messages, &settings);
        assert!(plan.report.cleared.is_none());
    }
}

#[test]
fn what_was_cut_of_the_newest_call_does_not_come_back_when_its_step_is_old() {
    let mut settings = settings();
    settings.clear.inputs = true;
    settings.clear.keep_steps = Some(1);
    settings.clear.exclude = vec!["patch".to_owned()];
    let mut edit = call("b", "edit");
    edit["function"]["arguments"] = json!({"text": "kept in mind ".repeat(2_000)})
        .to_string()
        .into();
    let mut patch = call("c", "patch");
    patch["function"]["arguments"] = json!({"diff": "line of a diff ".repeat(850)})
        .to_string()
        .into();
    let step = asks(&[edit, patch]);
    let mut messages = steps(1);
    messages.extend([step.clone(), result("b", "ok"), result("c", "ok")]);
    let mut knowledge = SessionKnowledge::default();
    let (mut cut, mut went) = (None::<Value>, false);
    for _ in 0..40 {
        let conversation = of(&messages);
        let plan = planned(&conversation, &settings, &knowledge);
        assert!(plan.report.stood_back.is_none() && !plan.report.over_budget);
        let sent = plan.edits.apply(&conversation.body).to_bytes();
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        let mut sent = sent["messages"].as_array().unwrap().iter();
        let Some(now) = sent.find(|it| it["tool_calls"][0]["id"] == "b") else {
            went = true;
            break;
        };
        let before = cut.get_or_insert_with(|| now.clone());
        assert_ne!(
            before["tool_calls"][1], step["tool_calls"][1],
            "it did not fit"
        );
        assert_eq!(before, now);
        knowledge.memory = plan.memory;
        knowledge.sent_messages = messages.len();
        messages.extend([
            asks(&[call("a", "read")]),
            result("a", "a line\n".repeat(80)),
        ]);
    }
    assert!(went || messages.len() > 60, "its step grew old");
}
