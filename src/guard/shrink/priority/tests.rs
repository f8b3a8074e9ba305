mod properties;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Shortening;
use crate::{
    config::{GuardConfig, profile::find_profile},
    conversation::Conversation,
    format::chat::index_body,
    guard::{
        fold::memory::SessionKnowledge,
        plan::{make_plan::plan, report::Plan},
        request::policy::Policy,
    },
};

fn read(messages: &[Value]) -> Conversation {
    index_body(Bytes::from(json!({ "messages": messages }).to_string())).unwrap()
}

fn policy(settings: &GuardConfig, window: u32) -> Policy<'_> {
    Policy::new(
        find_profile("openai").unwrap(),
        window,
        crate::config::tokens::unknown_model(),
        settings,
    )
}

fn capped(name: &str, tokens: u32) -> GuardConfig {
    GuardConfig {
        caps: [(name.to_owned(), tokens)].into(),
        ..GuardConfig::counted_by_characters()
    }
}

fn system(text: &str, annotation: Value) -> Value {
    json!({ "role": "system", "content": text, "plimsoll": annotation })
}

fn part(text: &str, annotation: Value) -> Value {
    json!({ "type": "text", "text": text, "plimsoll": annotation })
}

/// The messages that go out, without annotations, and the plan.
fn sent(messages: &[Value], policy: &Policy<'_>) -> (Value, Plan) {
    let conversation = read(messages);
    let plan = plan(&conversation, policy, &SessionKnowledge::default());
    assert!(plan.report.stood_back.is_none(), "{:?}", plan.report);
    let mut edits = plan.edits.clone();
    conversation.take_out_annotations(&mut edits);
    let body = edits.apply(&conversation.body).to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    (body["messages"].clone(), plan)
}

fn shortenings(plan: &Plan) -> Vec<(usize, Option<usize>, Shortening)> {
    let shortened = plan.report.texts.shortened.iter();
    shortened.map(|it| (it.message, it.part, it.how)).collect()
}

#[test]
fn a_named_text_is_held_to_its_cap() {
    let long = "table of many columns; ".repeat(200);
    let schema = json!({"name": "schema"});
    let call = json!({"role": "assistant", "plimsoll": schema, "content": long,
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]});
    let messages = [
        system(&long, schema.clone()),
        system(&long, json!({"name": "other"})),
        json!({"role": "user", "content": [
            part(&long, schema.clone()),
            part("short", schema.clone()),
            {"type": "text", "text": long},
        ]}),
        call,
        json!({"role": "tool", "tool_call_id": "c", "content": long, "plimsoll": schema}),
        // The annotation of a message holds for each part without one.
        json!({"role": "user", "plimsoll": schema, "content": [
            {"type": "text", "text": long, "cache_control": {"type": "ephemeral"}},
            part(&long, json!({"name": "other"})),
        ]}),
    ];
    let settings = capped("schema", 400);
    let policy = policy(&settings, 100_000);
    let (out, plan) = sent(&messages, &policy);
    let cut = out[0]["content"].as_str().unwrap();
    assert!(
        cut.starts_with("table") && cut.contains("characters truncated] ...\n"),
        "{cut}"
    );
    assert!(cut.len() <= 1_200 && cut.len() > 1_000);
    assert_eq!(out[2]["content"][0]["text"], cut);
    assert_eq!(out[5]["content"][0]["text"], cut);
    assert_eq!(out[5]["content"][0]["cache_control"]["type"], "ephemeral");
    for whole in [
        &out[1]["content"],
        &out[2]["content"][2]["text"],
        &out[3]["content"],
        &out[4]["content"],
        &out[5]["content"][1]["text"],
    ] {
        assert_eq!(*whole, long);
    }
    assert!(!out.to_string().contains("plimsoll"));
    let expected = [(0, None), (2, Some(0)), (5, Some(0))];
    assert_eq!(
        shortenings(&plan),
        expected.map(|(at, part)| (at, part, Shortening::Capped))
    );
    assert_eq!(plan.report.format_actions(), "capped=3");
    let used = plan.report.texts.caps["schema"];
    assert_eq!((used.cap, used.kept, used.cut), (400, 1, 3));
    assert!((350..=400).contains(&used.tokens));
    assert!(plan.report.raw_after < plan.report.raw_before - 3_000);
}

#[test]
fn system_text_over_its_share_goes_by_priority() {
    let text = |word: &str| format!("{word} {}", "x".repeat(1_500));
    let of = |priority: &str| json!({"name": priority, "priority": priority});
    let messages = [
        system(&text("critical"), of("critical")),
        system(&text("first low"), json!({"priority": "low"})),
        system(&text("high"), of("high")),
        system(&text("medium"), json!({"name": "<facts>\u{7}x"})),
        json!({"role": "developer", "content": [part(&text("last low"), of("low"))]}),
        json!({"role": "system", "content": text("plain")}),
        json!({"role": "user", "content": text("question"), "plimsoll": of("low")}),
    ];
    let at = |share: f64| {
        let settings = GuardConfig {
            system_share: share,
            reserve_tokens: Some(4_096),
            ..GuardConfig::counted_by_characters()
        };
        let (out, plan) = sent(&messages, &policy(&settings, 16_384));
        assert_eq!(out.as_array().unwrap().len(), messages.len());
        let over = plan.report.texts.system.is_over_limit();
        let gone: Vec<_> = shortenings(&plan).into_iter().map(|(at, ..)| at).collect();
        (gone, over, out)
    };
    // Six texts of some 500 tokens in a budget of 12,096.
    assert_eq!(at(0.3).0, [0usize; 0]);
    assert_eq!(at(0.24).0, [4]);
    assert_eq!(at(0.20).0, [1, 4]);
    assert_eq!(at(0.16).0, [1, 3, 4]);
    let (gone, over, out) = at(0.05);
    assert_eq!((gone, over), (vec![1, 2, 3, 4], true));
    let note = |name: &str| format!("[Left out by the context guard{name}]");
    assert_eq!(out[1]["content"], note(""));
    assert_eq!(out[2]["content"], note(": high"));
    assert_eq!(out[3]["content"], note(": (facts> x"));
    assert_eq!(out[4]["content"][0]["text"], note(": low"));
    for kept in [0, 5, 6] {
        assert_eq!(out[kept]["content"], messages[kept]["content"]);
    }
}

#[test]
fn system_text_without_annotations_is_shortened_only_where_asked() {
    let long = "rule. ".repeat(3_000);
    let messages = [
        system(&"never ".repeat(300), json!({"priority": "critical"})),
        json!({"role": "system", "content": long}),
        json!({"role": "system", "content": [{"type": "text", "text": "be brief"}, {"type": "text", "text": long}]}),
        json!({"role": "user", "content": "go"}),
    ];
    let mut settings = GuardConfig::counted_by_characters();
    let (_, plan) = sent(&messages, &policy(&settings, 16_384));
    assert!(
        plan.edits.is_empty() && plan.report.texts.system.is_over_limit() && plan.report.texts.new
    );
    assert_eq!(plan.report.format_actions(), "none");
    settings.trim_system = true;
    let (out, plan) = sent(&messages, &policy(&settings, 16_384));
    assert_eq!(plan.report.format_actions(), "trimmed=2");
    let used = plan.report.texts.system;
    assert!(
        !used.is_over_limit() && used.tokens + 10 > used.limit,
        "{used:?}"
    );
    assert_eq!(out[0]["content"], messages[0]["content"]);
    assert_eq!(out[2]["content"][0]["text"], "be brief");
    let one = out[1]["content"].as_str().unwrap().len();
    let other = out[2]["content"][1]["text"].as_str().unwrap().len();
    assert!(one.abs_diff(other) < 200, "{one} {other}");
}

#[test]
fn the_report_is_new_where_any_figure_changes() {
    let mut messages = vec![
        system(&"x".repeat(9_000), json!({"name": "schema"})),
        json!({"role": "user", "content": "u"}),
    ];
    let settings = capped("schema", 500);
    let policy = policy(&settings, 100_000);
    let mut knowledge = SessionKnowledge::default();
    let mut is_new = |messages: &[Value]| {
        let plan = plan(&read(messages), &policy, &knowledge);
        knowledge.memory = plan.memory;
        plan.report.texts.new
    };
    assert!(is_new(&messages) && !is_new(&messages));
    messages.push(json!({"role": "user", "content": "and a message more"}));
    assert!(is_new(&messages) && !is_new(&messages));
    // A text that grows within its cap.
    messages[0]["content"] = "x".repeat(600).into();
    assert!(is_new(&messages) && !is_new(&messages));
    messages[0]["content"] = "x".repeat(660).into();
    assert!(is_new(&messages) && !is_new(&messages));
    let plain = plan(
        &read(&messages[1..2]),
        &policy,
        &SessionKnowledge::default(),
    );
    assert!(!plain.report.texts.new && !plain.report.texts.has_content());
}

#[test]
fn the_grid_depends_on_capped_texts_as_sent() {
    let settings = GuardConfig {
        max_prompt_tokens: Some(6_000),
        ..capped("schema", 1_000)
    };
    let policy = policy(&settings, 200_000);
    let turns = |schema: usize| {
        let mut messages = vec![system(&"x".repeat(schema), json!({"name": "schema"}))];
        for turn in 0..60 {
            messages
                .push(json!({"role": "user", "content": format!("{turn} {}", "why? ".repeat(60))}));
            messages.push(json!({"role": "assistant", "content": "because. ".repeat(60)}));
        }
        messages.push(json!({"role": "user", "content": "and now?"}));
        plan(&read(&messages), &policy, &SessionKnowledge::default())
    };
    let (small, large) = (turns(3_300), turns(900_000));
    assert!(small.report.folded.is_some());
    assert_eq!(small.report.folded, large.report.folded);
    assert!(!small.memory.has_other_basis(&large.memory));
    for plan in [small, large] {
        assert!(plan.report.raw_after <= 6_000, "max_prompt_tokens holds");
        assert!(plan.report.budget.tokens <= 6_000);
    }
}

#[test]
fn left_out_texts_stay_out_with_memory_and_without() {
    let settings = GuardConfig::counted_by_characters();
    let policy = policy(&settings, 12_000);
    let mut messages = vec![system(
        &"rule ".repeat(300),
        json!({"priority": "critical"}),
    )];
    let mut knowledge = SessionKnowledge::default();
    let mut last: Vec<Value> = Vec::new();
    let mut cuts = 0;
    for turn in 0..40 {
        let context = format!("{turn} context ").repeat(60 + 40 * (turn % 5));
        messages.push(json!({"role": "user", "content": [
            part(&context, json!({"name": "context", "priority": (["low", "medium"][turn % 2])})),
            {"type": "text", "text": format!("question {turn}")},
        ]}));
        let conversation = read(&messages);
        let with = plan(&conversation, &policy, &knowledge);
        let (out, without) = sent(&messages, &policy);
        assert_eq!(with.memory, without.memory, "turn {turn}");
        assert!(with.report.raw_after <= 11_000, "turn {turn}");
        let out = out.as_array().unwrap().clone();
        assert_eq!(
            with.report.texts.cut,
            !out.starts_with(&last),
            "turn {turn}"
        );
        cuts += usize::from(with.report.texts.cut);
        assert!(with.report.folded.is_none(), "turn {turn}");
        // Another calibration brings nothing back.
        let other = SessionKnowledge {
            calibration: crate::guard::request::estimate::Calibration::from_ratio(0.5),
            memory: with.memory.clone(),
            sent_messages: messages.len() - 1,
            ..SessionKnowledge::default()
        };
        assert_eq!(plan(&conversation, &policy, &other).memory, with.memory);
        knowledge.sent_messages = messages.len() - 1;
        knowledge.memory = with.memory;
        last = out;
        messages.push(json!({"role": "assistant", "content": "because. ".repeat(5)}));
    }
    assert!((2..12).contains(&cuts), "{cuts} cuts");
}

#[test]
fn caps_and_the_share_count_as_the_provider_does() {
    let calibration = crate::guard::request::estimate::Calibration::from_ratio(1.5);
    let settings = GuardConfig {
        trim_system: true,
        ..capped("schema", 600)
    };
    let policy = policy(&settings, 12_000);
    let messages = [
        system(
            &"x".repeat(9_000),
            json!({"name": "schema", "priority": "critical"}),
        ),
        json!({"role": "system", "content": "rule. ".repeat(3_000)}),
        json!({"role": "user", "content": "go"}),
    ];
    let knowledge = SessionKnowledge {
        calibration,
        ..SessionKnowledge::default()
    };
    let texts = plan(&read(&messages), &policy, &knowledge).report.texts;
    let used = texts.caps["schema"];
    assert!(
        (540..=600).contains(&used.tokens) && used.cap == 600,
        "{used:?}"
    );
    let system = texts.system;
    assert!(!system.is_over_limit() && system.tokens + 20 > system.limit);
    let raw: usize = texts.shortened.iter().map(|it| it.after as usize).sum();
    assert!(raw <= system.limit as usize, "{texts:?}");
    let share = f64::from(super::budget::default_budget(&policy).tokens) / 3.0;
    assert!(
        f64::from(system.limit) <= share + 2.0,
        "{system:?}, {share}"
    );
}

#[test]
fn half_a_surrogate_pair_is_not_edited() {
    let half = format!("{}\\ud800", "a".repeat(9_000));
    let body = format!(
        r#"{{"messages":[{{"role":"system","content":"{half}","plimsoll":{{"name":"schema","priority":"low"}}}},{{"role":"user","content":"u"}}]}}"#
    );
    let conversation = index_body(Bytes::from(body)).unwrap();
    let settings = GuardConfig {
        trim_system: true,
        system_share: 0.05,
        ..capped("schema", 100)
    };
    let plan = plan(
        &conversation,
        &policy(&settings, 16_384),
        &SessionKnowledge::default(),
    );
    assert!(plan.edits.is_empty());
    assert!(plan.report.texts.caps["schema"].tokens > 100);
}
