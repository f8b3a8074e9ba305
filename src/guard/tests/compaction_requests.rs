//! Requests by which clients compact, and the note that stands for a compacted conversation.

use serde_json::{Value, json};

use crate::{
    config::{GuardConfig, profile::find_profile},
    conversation::{Conversation, Format},
    guard::{
        self,
        fold::{
            compaction_note::{is_compaction_note, write_compaction_note},
            memory::SessionKnowledge,
        },
        request::policy::Policy,
    },
};

fn index(input: Vec<Value>) -> Conversation {
    let body = json!({"model": "m", "input": input});
    Format::Responses
        .index_body(body.to_string().into())
        .unwrap()
}

fn message(role: &str, text: &str) -> Value {
    json!({"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]})
}

/// A task and steps with outputs of this many words, and the entry that asks to compact.
fn steps(count: usize, words: usize) -> Vec<Value> {
    let mut input = vec![message("user", "Repair it")];
    for nth in 0..count {
        let id = format!("c{nth}");
        input.extend([
            json!({"type": "function_call", "call_id": id, "name": "read", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": id, "output": "word ".repeat(words)}),
        ]);
    }
    input.push(json!({"type": "compaction_trigger"}));
    input
}

fn policy(settings: &GuardConfig, window: u32) -> Policy<'_> {
    Policy::new(
        find_profile("openai").unwrap(),
        window,
        crate::config::tokens::unknown_model(),
        settings,
    )
}

#[test]
fn what_fits_is_untouched_and_what_does_not_loses_only_output() {
    let settings = GuardConfig::counted_by_characters();
    let all = index(steps(20, 400));
    let plan = |window| {
        guard::plan(
            &all,
            &policy(&settings, window),
            &SessionKnowledge::default(),
        )
    };
    assert!(plan(128_000).edits.is_empty());
    let small = plan(8_000);
    let report = &small.report;
    assert_eq!(report.truncated.len(), 20);
    assert!(report.folded.is_none() && report.cleared.is_none() && !report.over_budget);
    assert!(
        report.raw_after <= report.budget.tokens && report.raw_after > report.budget.tokens / 2
    );
    let sent = small.edits.apply(&all.body).to_bytes();
    let sent = Format::Responses.index_body(sent).unwrap();
    assert_eq!(sent.items.len(), all.items.len());
    // The cuts of the session are not those of this request.
    let mut turn = steps(20, 400);
    turn.pop();
    let mut folds = GuardConfig::counted_by_characters();
    folds.clear.enabled = false;
    let turn = guard::plan(
        &index(turn),
        &policy(&folds, 8_000),
        &SessionKnowledge::default(),
    );
    assert!(!turn.memory.list_left_out().is_empty());
    let knowledge = SessionKnowledge {
        memory: turn.memory,
        sent_messages: 41,
        ..SessionKnowledge::default()
    };
    let again = guard::plan(&all, &policy(&settings, 8_000), &knowledge);
    assert!(again.report.folded.is_none() && !again.report.truncated.is_empty());
    assert!(again.memory.list_left_out().is_empty());
}

#[test]
fn a_note_holds_the_summary_or_else_the_ledger() {
    let settings = GuardConfig::counted_by_characters();
    let policy = policy(&settings, 32_000);
    let write = |input: &[Value], summary| {
        let note = write_compaction_note(&index(input.to_vec()), &policy, summary);
        assert!(is_compaction_note(&note), "{note}");
        note
    };
    let mut input = steps(3, 10);
    input.insert(1, message("user", "Mind the pump"));
    let summary = write(&input, Some("<summary>\nmended\n</summary>"));
    assert!(summary.ends_with("\n\n<summary>\nmended\n</summary>"));
    let ledger = write(&input, None);
    // A client may keep nothing beside the note.
    for fact in ["- Repair it\n", "- Mind the pump\n", "- read"] {
        assert!(ledger.contains(fact), "{ledger}");
    }
    // The next one begins with the one before.
    let mut later = vec![message("user", "Repair it"), message("developer", &ledger)];
    later.push(message("user", "And the roof"));
    let next = write(&later, None);
    let since = next.strip_prefix(&ledger).unwrap();
    assert!(
        since.contains("And the roof") && !since.contains("Mind the pump"),
        "{since}"
    );
    assert_eq!(write(&later[..2], None), ledger);
    assert!(!is_compaction_note("You mend ships."));
    // However often: a very long one loses its middle.
    let long = format!("{ledger}{}THE END", "x".repeat(60_000));
    let next = write(&[message("developer", &long)], None);
    assert!(next.len() < 25_000 && next.ends_with("THE END"));
}

#[test]
fn each_compaction_adds_what_came_since_the_one_before() {
    let settings = GuardConfig::counted_by_characters();
    for window in [4_000, 16_000, 128_000] {
        let policy = policy(&settings, window);
        let budget = guard::budget::compute_request_budget(&index(steps(1, 1)), &policy).tokens;
        let mut entries = vec![message("user", "Repair it")];
        for round in 0..40 {
            entries.push(message("user", &format!("Caulk plank {round}")));
            entries.extend(steps(3, 40).drain(1..7));
            let note = write_compaction_note(&index(entries), &policy, None);
            for fact in [
                "- Repair it\n".to_owned(),
                format!("- Caulk plank {round}\n"),
            ] {
                assert!(note.contains(&fact), "{window}, {round}: {note}");
            }
            let tokens = policy.token_weights().count_plain_tokens(&note);
            assert!(
                tokens <= budget / 3,
                "{window}, {round}: {tokens} of {budget}"
            );
            entries = vec![message("developer", &note)];
        }
    }
}
