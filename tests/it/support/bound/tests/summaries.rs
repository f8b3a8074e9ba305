//! Summaries on demand: which thinking behind the block is valid, and what is refused.

use serde_json::{Value, json};

use super::{BOUND, Talk};
use crate::support::bound::Host;

type Change = dyn Fn(&mut Talk);

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// Two answers with their results, and the question.
const SAFE: usize = 5;

/// A talk of three steps whose first `count` entries are a summary.
fn summarized(count: usize) -> Talk {
    let mut talk = Talk::of_steps(BOUND);
    talk.betas = "compact-2026-09-04";
    let mut asked = talk.clone();
    asked.messages().truncate(count);
    asked.body["compaction"] = json!({"type": "summarize"});
    let verdict = asked.judge();
    assert_eq!(verdict.refusal, None);
    let summary = asked.model.summarize(&verdict, "So far.");
    assert_eq!(summary["stop_reason"], "compaction");
    let entry = json!({"role": "assistant", "content": summary["content"]});
    talk.messages().splice(..count, [entry]);
    talk
}

#[test]
fn thinking_behind_a_summary_stays_valid_by_the_safe_cut() {
    for count in [3, SAFE] {
        let mut talk = summarized(count);
        talk.assert_valid();
        (0..4).for_each(|_| talk.step());
        talk.assert_valid();
    }
    // The block as the first of the entry behind it.
    let mut talk = summarized(SAFE);
    let block = talk.messages().remove(0)["content"][0].take();
    talk.blocks(0).insert(0, block);
    talk.assert_valid();
}

#[test]
fn thinking_behind_a_summary_is_stale_where_anything_else_changed() {
    let rows: [(&Change, usize); 5] = [
        // It becomes one with what was summarised.
        (&|talk| talk.messages().insert(1, user("More.")), 2),
        (&|talk| talk.body["system"] = "You mend.".into(), 2),
        (
            &|talk| talk.body["tools"].as_array_mut().unwrap().truncate(1),
            2,
        ),
        (&|talk| talk.blocks(1)[1]["text"] = "Looked.".into(), 1),
        (&|talk| drop(talk.messages().remove(0)), 2),
    ];
    for (change, stale) in rows {
        let mut talk = summarized(SAFE);
        change(&mut talk);
        assert_eq!(talk.judge().failing.len(), stale);
    }
    // What is made behind such a change stays valid.
    let mut talk = summarized(SAFE);
    talk.messages().drain(1..);
    talk.messages().push(user("Go on."));
    (0..3).for_each(|_| talk.step());
    talk.assert_valid();
}

#[test]
fn a_block_that_is_not_the_first_as_it_came_is_refused() {
    let rows: [(&Change, &str); 6] = [
        (&|talk| talk.messages().swap(0, 2), "misplaced"),
        (
            &|talk| {
                let block = talk.blocks(0)[0].clone();
                talk.blocks(0).push(block);
            },
            "ambiguous",
        ),
        (
            &|talk| talk.blocks(0)[0]["content"] = "More.".into(),
            "content_mismatch",
        ),
        (
            &|talk| drop(talk.blocks(0)[0]["encrypted_content"].take()),
            "content_mismatch",
        ),
        (
            &|talk| talk.blocks(0)[0]["signature"] = "x".into(),
            "signature_invalid",
        ),
        (&|talk| talk.betas = "", "not one of the expected"),
    ];
    for (change, words) in rows {
        let mut talk = summarized(SAFE);
        change(&mut talk);
        assert!(talk.judge().message().contains(words), "{words}");
    }
}

#[test]
fn a_request_for_a_summary_stands_alone() {
    let mut talk = Talk::of_steps(BOUND);
    talk.body["compaction"] = json!({"type": "summarize"});
    assert!(talk.judge().message().contains("Extra inputs"));
    talk.betas = "compact-2026-09-04";
    talk.assert_valid();
    talk.body["context_management"] = Value::Array(Vec::new());
    assert!(talk.judge().message().contains("cannot be combined"));
    talk.body["context_management"].take();
    let answer = talk.messages().len() - 1;
    assert_eq!(talk.messages()[answer]["role"], "user");
    let mut open = talk.clone();
    open.messages().truncate(answer);
    assert!(open.judge().message().contains("incomplete_turn"));
    talk.model.host = Host::Bedrock;
    assert!(talk.judge().message().contains("Extra inputs"));
    let mut summary = summarized(SAFE);
    summary.messages().truncate(1);
    summary.body["compaction"] = json!({"type": "summarize"});
    assert!(summary.judge().message().contains("nothing_to_summarize"));
}
