//! Which models check, for whom, and what a request may say about it.

use serde_json::{Value, json};

use super::{ALL, BOUND, BoundApi, BoundModel, Talk, to_events};
use crate::support::bound::{Account, Host, settings::BETA};

#[test]
fn which_models_check_is_told_by_their_names() {
    for name in [
        "claude-opus-5-5",
        "anthropic.claude-opus-5-5",
        "us.anthropic.claude-sonnet-5-5-v1:0",
        "claude-haiku-5-5@20260921",
        "anthropic/claude-opus-5.5",
        "claude-sonnet-5-5[1m]",
        "claude-fable-5-1",
        "claude-mythos-5-2",
        "claude-opus-6",
    ] {
        let mut talk = Talk::of_steps(name);
        talk.body["system"] = "Another.".into();
        assert_eq!(talk.judge().failing.len(), 6, "{name}");
    }
    for name in [
        "claude-opus-5",
        "claude-opus-5-20260901",
        "claude-sonnet-5",
        "claude-haiku-4-5",
        "claude-fable-5",
        "claude-mythos-5-1",
        "m",
    ] {
        let mut talk = Talk::of_steps(name);
        talk.body["system"] = "Another.".into();
        talk.assert_valid();
    }
    let mut talk = Talk::new("my-deployment");
    talk.model.serves = Some(BOUND.to_owned());
    talk.step();
    talk.body["system"] = "Another.".into();
    assert_eq!(talk.judge().failing.len(), 2);
}

/// A request whose second answer is stale.
fn stale_talk(model: BoundModel) -> Talk {
    let mut talk = Talk::new(BOUND);
    talk.model = model;
    (0..3).for_each(|_| talk.step());
    talk.blocks(2)[0]["content"] = "cleared".into();
    talk
}

#[test]
fn an_old_account_is_checked_where_it_asks_for_it() {
    let mut talk = stale_talk(BoundModel::old());
    assert_eq!(
        (talk.judge().refusal, talk.judge().failing.len()),
        (None, 4)
    );
    talk.betas = BETA;
    let answer = talk.clone().ask(&[json!({"type": "text", "text": "Yes."})]);
    let told = answer["input_transformations"].as_array().unwrap();
    assert_eq!(
        told[0],
        json!({"type": "thinking_mismatch_allowed", "path": "messages.3.content.0",
        "reason": "prefix_binding_mismatch"})
    );
    assert_eq!(told.len(), 4);
    talk.body["thinking"] =
        json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}});
    assert!(
        talk.judge()
            .message()
            .contains("bound to a different conversation")
    );
}

#[test]
fn a_failing_block_is_dropped_with_all_behind_it() {
    let mut talk = stale_talk(BoundModel::default());
    talk.body["thinking"] =
        json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}});
    assert_eq!(
        talk.judge().message(),
        "thinking.adaptive.block_binding: Extra inputs are not permitted"
    );
    talk.betas = "a-2026-01-01, thinking-binding-controls-2026-08-01";
    let answer = talk.ask(&[
        json!({"type": "thinking", "thinking": "again"}),
        json!({"type": "text", "text": "Yes."}),
    ]);
    let told = answer["input_transformations"].clone();
    let paths: Vec<_> = told
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, &ALL[2..]);
    assert_eq!(told[0]["type"], "thinking_dropped");
    let events = to_events(BoundApi::Messages, &answer);
    let start = events
        .lines()
        .find(|line| line.contains("message_start\""))
        .unwrap();
    assert!(start.contains(&told.to_string()));
    // What was made without the dropped blocks stays once they are left out.
    talk.take(&[(5, 2), (5, 0), (3, 2), (3, 0)]);
    talk.assert_valid();
}

#[test]
fn a_signature_that_was_tampered_with_is_refused_whatever_is_asked() {
    for name in [BOUND, "claude-opus-4-6"] {
        let mut talk = Talk::of_steps(name);
        talk.blocks(1)[0]["thinking"] = "Something else.".into();
        assert_eq!(
            talk.judge().message(),
            "messages.1.content.0: Invalid `signature` in `thinking` block"
        );
        talk.blocks(1)[0]["signature"] = "c2ln".into();
        talk.betas = BETA;
        assert!(talk.judge().refusal.is_some());
    }
}

#[test]
fn thinking_of_another_model_or_account_is_dropped_without_an_error() {
    let mut talk = Talk::of_steps("claude-opus-5-5");
    talk.body["model"] = BOUND.into();
    let verdict = talk.judge();
    assert_eq!((verdict.refusal, verdict.transformations.len()), (None, 6));
    assert_eq!(
        verdict.transformations[0]["reason"],
        "model_binding_mismatch"
    );
    talk.step();
    assert_eq!(talk.judge().read.len(), 2);

    for (name, read) in [(BOUND, 0), ("claude-opus-5-5", 6)] {
        let mut talk = Talk::of_steps(name);
        talk.model.organization = 2;
        assert_eq!(talk.judge().read.len(), read);
    }
}

#[test]
fn thinking_settings_are_those_of_the_model() {
    for (name, kind, is_taken) in [
        ("claude-opus-5-5", "enabled", false),
        ("claude-opus-5-5", "disabled", false),
        ("claude-sonnet-5-5", "between_tools", true),
        ("claude-sonnet-5-5", "disabled", false),
        ("claude-haiku-5-5", "disabled", true),
        ("claude-opus-4-5", "enabled", true),
    ] {
        let mut talk = Talk::new(name);
        talk.body["thinking"] = json!({"type": kind});
        assert_eq!(talk.judge().refusal.is_none(), is_taken, "{name} {kind}");
    }
}

#[test]
fn bedrock_names_the_field_otherwise_and_binds_the_end_user() {
    let bedrock = || BoundModel {
        host: Host::Bedrock,
        account: Account::Old,
        ..BoundModel::default()
    };
    let mut talk = Talk::new(BOUND);
    talk.model = bedrock();
    talk.body["anthropic_beta"] = json!([BETA]);
    talk.body["metadata"] = json!({"user_id": "a"});
    talk.step();
    talk.body["metadata"] = json!({"user_id": "b"});
    let verdict = talk.judge();
    assert_eq!(verdict.refusal, None);
    assert_eq!(
        verdict.transformations[0]["reason"],
        "end_user_binding_mismatch"
    );
    talk.body["thinking"] =
        json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}});
    assert_eq!(
        talk.judge().message(),
        "thinking.adaptive.block_binding.prefix_mismatch_behavior: Extra inputs are not permitted"
    );
    talk.body["thinking"] =
        json!({"type": "adaptive", "block_binding": {"mismatch_behavior": "error"}});
    assert!(
        talk.judge()
            .message()
            .contains("`thinking.block_binding.mismatch_behavior`")
    );
}

#[test]
fn the_running_turn_of_an_older_model_keeps_its_thinking() {
    let mut talk = Talk::of_steps("claude-opus-4-5");
    talk.body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
    talk.assert_valid();
    let mut folded = talk.clone();
    folded.take(&[(1, 2), (1, 0)]);
    folded.blocks(1).remove(0);
    assert!(folded.judge().message().starts_with(
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When"));
    let mut missing = talk.clone();
    missing.take(&[(3, 2)]);
    assert!(
        missing
            .judge()
            .message()
            .contains("in the latest assistant message cannot be modified")
    );
    missing
        .messages()
        .push(json!({"role": "assistant", "content": "Done."}));
    missing
        .messages()
        .push(json!({"role": "user", "content": "More."}));
    missing.assert_valid();
    // Whole steps may go, and without thinking nothing is asked for.
    talk.messages().drain(1..3);
    talk.assert_valid();
    folded.body["thinking"] = Value::Null;
    folded.assert_valid();
}
