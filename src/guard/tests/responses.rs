//! The guard's invariants over conversations in OpenAI's Responses format.

use proptest::prelude::*;

use serde_json::{Value, json};

use super::messages::{any_profile, any_window};
use crate::{
    config::profile::find_profile,
    conversation::Format,
    guard::{
        self, Plan,
        fold::memory::SessionKnowledge,
        inject::{
            dropped_rounds::drop_messages,
            injections::{InjectionRecord, Injections},
        },
        plan::explain::{ExplainedModel, explain_plan},
    },
    support::{
        annotate_randomly, any_settings,
        generate_responses::any_responses,
        guard_properties::{RESPONSES, RESPONSES_WITH_TOOLS, SMALL_WINDOWS, WINDOWS, settings},
        made::make_course,
        plans::{apply_plan, make_policy},
        strict,
    },
};

mod stages;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn generated_conversations_are_valid(case in any_responses(12)) {
        prop_assert_eq!(strict::responses::find_violations(&case.body), []);
    }

    #[test]
    fn every_plan_keeps_the_invariants(case in any_responses(12), window in prop::sample::select(&WINDOWS[..]), profile in any_profile()) {
        RESPONSES.check(&case.body, window, profile);
    }

    #[test]
    fn a_refused_request_is_planned_anew(case in any_responses(12), window in prop::sample::select(&SMALL_WINDOWS[..]), profile in any_profile()) {
        RESPONSES.check_refused(&case.body, window, profile);
    }

    #[test]
    fn every_plan_keeps_the_invariants_with_long_tools(case in any_responses(12), window in any_window(), profile in any_profile()) {
        RESPONSES_WITH_TOOLS.check(&case.body, window, profile);
    }

    #[test]
    fn tools_get_shorter_once_and_with_any_state(case in any_responses(8), window in any_window(), profile in any_profile()) {
        RESPONSES_WITH_TOOLS.grow(&case.session(), window, profile);
    }

    #[test]
    fn every_plan_keeps_the_invariants_with_any_settings(case in any_responses(12), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        let body = annotate_randomly(&RESPONSES.read(&case.body), seed);
        RESPONSES.check_with(&body, window, profile, &any_settings(seed));
    }

    #[test]
    fn what_does_not_pair_stays_and_the_rest_is_guarded(case in any_responses(12), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        RESPONSES.check_damaged(&case.body, window, profile, seed);
    }

    #[test]
    fn growing_changes_the_prefix_only_at_cuts(case in any_responses(8), window in any_window(), profile in any_profile()) {
        RESPONSES.grow(&case.session(), window, profile);
    }

    #[test]
    fn every_plan_is_valid_where_reasoning_is_bound(case in any_responses(12), window in any_window(), profile in any_profile()) {
        let profile = profile.for_model("gpt-6.2-sol");
        let (conversation, settings) = (RESPONSES.read(&case.body), settings());
        let plan = guard::plan(&conversation, &make_policy(profile, window, &settings), &SessionKnowledge::default());
        let sent = apply_plan(&conversation, &plan);
        prop_assert_eq!(strict::responses::find_broken_rules(&case.body, &sent, profile.results_may_be_apart), []);
    }

    #[test]
    fn the_prefix_changes_only_at_cuts_with_any_settings(case in any_responses(8), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        let session = case.with_short_answers().session();
        RESPONSES.grow_annotated(&session, window, profile, seed);
    }

    #[test]
    fn every_plan_with_injections_is_valid(case in any_responses(10), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        RESPONSES.check_injected(&case.body, window, profile, seed);
    }
}

#[test]
fn each_cleared_image_is_rounded_up_by_itself() {
    let url = format!("data:image/png;base64,{}", "aGVsbG8gd29ybGQh".repeat(40));
    let mut input = vec![json!({"role": "user", "content": "task"})];
    for at in 0..40 {
        let text = format!("answer {at}");
        input
            .push(json!({"role": "assistant", "content": [{"type": "output_text", "text": text}]}));
        input.push(json!({"role": "user", "content": [
            {"type": "input_text", "text": format!("look {at}")},
            {"type": "input_image", "detail": "auto", "image_url": url},
        ]}));
    }
    let body = json!({"model": "gpt-5.5", "max_output_tokens": 1_024, "input": input});
    let profile = find_profile("openai").unwrap();
    RESPONSES.check(body.to_string().as_bytes(), 16_384, profile);
}

/// The texts of an answer are shortened as one, and a provider refuses reasoning without what followed it.
#[test]
fn a_message_between_two_thoughts_never_vanishes() {
    let reasoning =
        |id: &str| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "a"});
    let says = |text: &str| {
        let part = json!({"type": "output_text", "text": text});
        json!({"type": "message", "role": "assistant", "content": [part]})
    };
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "write", "arguments": "{}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "ok"});
    let long = "a word and a line\n".repeat(9_000);
    let texts = [&long, "I look at it.", "ok", &long[..900], &long];
    let mut list = vec![json!({"role": "user", "content": "task"})];
    for (at, text) in texts.iter().enumerate() {
        list.extend([reasoning(&format!("rs_{at}")), says(text)]);
    }
    list.extend([
        reasoning("rs_9"),
        call("c1"),
        call("c2"),
        output("c1"),
        output("c2"),
    ]);
    let body = json!({"input": list}).to_string();
    for window in WINDOWS {
        RESPONSES.check(body.as_bytes(), window, find_profile("openai").unwrap());
    }
    let conversation = RESPONSES.index(body.into());
    let settings = settings();
    let policy = make_policy(find_profile("openai").unwrap(), 8_000, &settings);
    let plan = guard::plan(&conversation, &policy, &SessionKnowledge::default());
    let sent: Value = serde_json::from_slice(&apply_plan(&conversation, &plan)).unwrap();
    let sent = sent["input"].as_array().unwrap();
    assert_eq!(sent.len(), list.len(), "{sent:?}");
    let texts: Vec<_> = sent
        .iter()
        .filter_map(|it| it["content"][0]["text"].as_str())
        .collect();
    assert!(texts[0].contains("characters truncated"), "{texts:?}");
    assert_eq!(texts[1..4], ["...", "ok", "..."]);
    assert!(texts[4].len() < long.len());
}

fn reads(ids: &[&str]) -> Vec<Value> {
    let calls = ids.iter().map(
        |id| json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "read", "arguments": "{}"}),
    );
    calls.collect()
}

fn output(id: &str, chars: usize) -> Value {
    let text = "a word and a line\n".repeat(chars / 18);
    json!({"type": "function_call_output", "call_id": id, "output": text})
}

/// Plans a conversation whose results the settings keep from being cleared.
fn plan_kept_results(list: &[Value], window: u32, knowledge: &SessionKnowledge) -> (Plan, Value) {
    let body = json!({"input": list}).to_string();
    let conversation = RESPONSES.index(body.into());
    let mut settings = settings();
    settings.clear.exclude = vec!["read".into()];
    let policy = make_policy(find_profile("openai").unwrap(), window, &settings);
    let plan = guard::plan(&conversation, &policy, knowledge);
    assert!(!plan.report.over_budget, "{:?}", plan.report);
    let mut sent: Value = serde_json::from_slice(&apply_plan(&conversation, &plan)).unwrap();
    (plan, sent["input"].take())
}

fn list_outputs(sent: &Value) -> Vec<&str> {
    let sent = sent.as_array().unwrap().iter();
    sent.filter_map(|it| it["output"].as_str()).collect()
}

fn begin_reasoning() -> Vec<Value> {
    vec![
        json!({"role": "user", "content": "task"}),
        json!({"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "a"}),
    ]
}

/// None of these steps can go without the others: one reasoning led to all.
#[test]
fn steps_of_one_reasoning_get_shorter_where_they_cannot_go() {
    let mut list = begin_reasoning();
    let mut knowledge = SessionKnowledge::default();
    let (mut before, mut changes) = (Value::Null, 0);
    for step in 0..24 {
        let id = format!("c{step}");
        list.extend(reads(&[&id]));
        list.push(output(&id, 1_800));
        let (plan, sent) = plan_kept_results(&list, 8_000, &knowledge);
        assert!(plan.report.folded.is_none(), "{:?}", plan.report);
        let outputs = list_outputs(&sent);
        assert_eq!(outputs.len(), step + 1);
        // The oldest first, and the newest stays.
        assert!(outputs.is_sorted_by_key(|it| it.len()), "{outputs:?}");
        assert_eq!(outputs.last().unwrap().len(), 1_800);
        let had = before.as_array().map_or(0, Vec::len);
        let is_changed =
            before.as_array().map_or(&[][..], Vec::as_slice) != &sent.as_array().unwrap()[..had];
        changes += usize::from(is_changed);
        // What gets shorter is told once.
        let is_told = plan.report.truncated.iter().any(|it| it.new);
        assert_eq!(is_told, is_changed, "{:?}", plan.report.truncated);
        knowledge.memory = plan.memory;
        // The reasoning and its call are one message.
        knowledge.sent_messages = list.len() - 1;
        before = sent;
    }
    assert!((1..=4).contains(&changes), "{changes}");
}

/// Results that come late are units of their own, and some of a row may have gone before.
#[test]
fn late_results_of_one_reasoning_get_shorter_where_they_cannot_go() {
    let task = begin_reasoning();
    let list = [
        task[..1].to_vec(),
        reads(&["x", "y"]),
        vec![output("y", 1_800)],
        task[1..].to_vec(),
        reads(&["a", "b"]),
        vec![output("a", 3_600), output("x", 7_200), output("b", 3_600)],
        reads(&["d"]),
        vec![output("d", 3_600)],
        reads(&["e"]),
        vec![output("e", 3_600)],
        reads(&["f"]),
        vec![output("f", 3_600)],
    ];
    for window in [3_000, 4_000, 8_000] {
        plan_kept_results(&list.concat(), window, &SessionKnowledge::default());
    }
    let mut list = [task, reads(&["l0", "l1", "l2", "l3"])].concat();
    for late in 0..4 {
        let id = format!("c{late}");
        list.push(output(&format!("l{late}"), 180));
        list.extend(reads(&[&id]));
        list.push(output(&id, 7_200));
    }
    let (_, sent) = plan_kept_results(&list, 8_000, &SessionKnowledge::default());
    let outputs = list_outputs(&sent);
    assert_eq!(outputs.last().unwrap().len(), 7_200, "{outputs:?}");
}

/// The proxy's call behind the reasoning went with the course before, and a provider refuses reasoning alone.
#[test]
fn an_answer_of_a_round_s_reasoning_goes_where_a_course_begins_with_it() {
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    let reasoning =
        |id: &str| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": id});
    let (own, other) = (reasoning("rs_1"), reasoning("rs_2"));
    let call = json!({"type": "function_call", "call_id": "own-x", "name": "clear_mind", "arguments": "{}"});
    let round = format!("{own},{call}");
    let what = drop_messages(Format::Responses, &[&round]).unwrap();
    let (task, question) = (message("user", "task"), message("user", "question"));
    for (answer, stays) in [
        (vec![own.clone()], false),
        // More of the same answer, or another reasoning.
        (vec![own.clone(), message("assistant", "Done.")], true),
        (vec![other], true),
    ] {
        let list = [
            vec![
                task.clone(),
                message("assistant", "a"),
                message("user", "b"),
                message("user", "c"),
            ],
            answer.clone(),
            vec![question.clone()],
        ];
        let body = json!({"input": list.concat()}).to_string();
        let conversation = RESPONSES.index(body.into());
        let settings = settings();
        let policy = make_policy(find_profile("openai").unwrap(), 64_000, &settings);
        let knowledge = SessionKnowledge {
            injections: Injections {
                course: Some(make_course(4)),
                records: vec![InjectionRecord {
                    place: 4,
                    what: what.clone(),
                }],
                ..Injections::default()
            },
            ..SessionKnowledge::default()
        };
        let plan = guard::plan(&conversation, &policy, &knowledge);
        assert_eq!(plan.report.stood_back, None);
        let sent: Value = serde_json::from_slice(&apply_plan(&conversation, &plan)).unwrap();
        let sent = sent["input"].as_array().unwrap();
        // The task, the preface, what the rest answers, and what is left of the answer.
        let left = answer.iter().filter(|it| **it != own).count();
        assert_eq!(sent.len(), 4 + if stays { left } else { 0 }, "{sent:?}");
        assert_eq!((&sent[0], sent.last().unwrap()), (&task, &question));
        assert!(!sent.contains(&own), "{sent:?}");
    }
}

/// The test takes minutes where each request looks again at all that waits, or at all that is sent for each result.
#[test]
fn time_is_linear_in_calls_that_wait() {
    let settings = settings();
    let profile = find_profile("openai").unwrap();
    let policy = make_policy(profile, 8_192, &settings);
    let user = r#"{"role":"user","content":"u"}"#;
    let call = |at: usize, by: &str| {
        format!(
            r#"{{"type":"function_call","call_id":"c{at}","name":"look","arguments":"{{}}"{by}}}"#
        )
    };
    let output = |at: usize, by: &str| {
        format!(r#"{{"type":"function_call_output","call_id":"c{at}","output":"It is calm."{by}}}"#)
    };
    let by = r#","caller":{"type":"program","caller_id":"p"}"#;
    let called = (0..40_000).map(|at| format!("{},{}", call(at, by), output(at, by)));
    let program =
        r#"{"type":"program","id":"p1","call_id":"p","code":"look()","fingerprint":"Zg=="}"#;
    let done = r#"{"type":"program_output","call_id":"p","result":"calm","status":"completed"}"#;
    let called = called.collect::<Vec<_>>().join(",");
    let waiting = (0..40_000).map(|at| {
        let step = at + 40_000;
        let waits = call(at, r#","async":true"#);
        format!("{waits},{},{}", call(step, ""), output(step, ""))
    });
    let waiting = waiting.collect::<Vec<_>>().join(",");
    for list in [
        format!("{program},{called},{done}"),
        format!("{program},{called}"),
        waiting,
    ] {
        let conversation = RESPONSES.index(format!(r#"{{"input":[{user},{list}]}}"#).into());
        let (_, _, explained) = explain_plan(&conversation, &policy, ExplainedModel::default());
        assert_eq!(explained.stands_back.map(|it| it.word), None);
    }
}

/// The test takes minutes where each late output is weighed with all before it.
#[test]
fn time_is_linear_in_late_outputs() {
    const CALLS: usize = 20_000;
    let call = |at: usize| json!({"type": "function_call", "call_id": format!("c{at}"), "name": "read", "arguments": "{}"});
    let output = |at: usize| json!({"type": "function_call_output", "call_id": format!("c{at}"), "output": format!("result {at} ").repeat(10)});
    let says = |at: usize| json!({"role": "user", "content": format!("go on {at}")});
    let together = |late: &mut dyn Iterator<Item = usize>| {
        let mut input = vec![says(0)];
        input.extend((0..CALLS).flat_map(|at| [call(at), says(at)]));
        input.extend(late.map(output));
        input
    };
    let one_later = (0..CALLS).flat_map(|at| {
        let late = at.checked_sub(1).map(output);
        [Some(call(at)), late, Some(says(at))].into_iter().flatten()
    });
    let mut rows = vec![
        together(&mut (0..CALLS)),
        together(&mut (0..CALLS).rev()),
        one_later.collect(),
    ];
    rows[2].push(output(CALLS - 1));
    for mut input in rows {
        input.push(says(CALLS));
        let body = json!({"model": "gpt-4o", "input": input}).to_string();
        let conversation = RESPONSES.index(body.into());
        for window in [32_000, 400_000] {
            let settings = settings();
            let profile = find_profile("openai").unwrap();
            let policy = make_policy(profile, window, &settings);
            let plan = guard::plan(&conversation, &policy, &SessionKnowledge::default());
            assert!(plan.report.raw_after <= plan.report.raw_before);
        }
    }
}
