//! Summaries of the provider's own, which stand for all before them.

use super::{RESULTS, STEP, TASK, request};
use crate::conversation::units::{self, Unit};

const BLOCK: &str =
    r#"{"content":"So far.","type":"compaction","encrypted_content":"ZQ==","signature":"c2ln"}"#;
const QUESTION: &str = r#"{"role":"user","content":"And now?"}"#;

fn entry(role: &str, blocks: &str) -> String {
    format!(r#"{{"role":"{role}","content":[{blocks}]}}"#)
}

#[test]
fn what_stands_up_to_a_summary_and_the_question_behind_it_is_pinned() {
    let head = entry("assistant", BLOCK);
    let with_answer = entry(
        "assistant",
        &format!(r#"{BLOCK},{{"type":"text","text":"t"}}"#),
    );
    let of_user = entry("user", &format!(r#"{BLOCK},{{"type":"text","text":"t"}}"#));
    let failed = entry("assistant", r#"{"type":"compaction","content":null}"#);
    let (head, failed) = (&*head, &*failed);
    // The pinned units, those that stay, and whether the guard stands back.
    for (entries, pinned, lasting, is_managed) in [
        (&[head, QUESTION, STEP, RESULTS][..], 2, 2, false),
        (&[head, STEP, RESULTS, QUESTION], 1, 2, false),
        (&[&*with_answer, QUESTION, STEP, RESULTS], 2, 2, false),
        (&[&*of_user, STEP, RESULTS, QUESTION], 1, 1, false),
        (&[&*of_user, QUESTION, STEP, RESULTS], 2, 2, false),
        (&[TASK, STEP, RESULTS, head, QUESTION], 5, 4, true),
        // One that failed stands for nothing, and stays.
        (&[TASK, failed, QUESTION, STEP, RESULTS], 1, 2, false),
    ] {
        let found = request(entries, r#","system":"s""#);
        let units = units::split_units(&found);
        let stay = |unit: &&Unit| unit.is_pinned;
        let found = (
            units::find_pinned_end(&units) - 1,
            units.iter().filter(stay).count() - 1,
            found.managed_by_provider().is_some(),
        );
        assert_eq!(found, (pinned, lasting, is_managed), "{entries:?}");
    }
}
