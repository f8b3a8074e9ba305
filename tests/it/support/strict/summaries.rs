//! The API's own summaries in Messages: where a `compaction` block may stand, and what an edit keeps of it.

use serde_json::Value;

use super::{
    ViolationReport,
    messages::{blocks, entries_of, kind},
};

/// Rule 18: a signed block is the first of the list and the only one. Without a signature it is appended, and what stands
/// before it is left out by the API.
pub(super) fn check_summaries(entries: &[Value], report: &mut ViolationReport) {
    let all = entries.iter().enumerate();
    let all = all.flat_map(|(at, entry)| blocks(entry).iter().map(move |block| (at, entry, block)));
    let all: Vec<_> = all.filter(|(_, _, it)| kind(it) == "compaction").collect();
    for (at, entry, block) in &all {
        if !block["signature"].is_string() {
            continue;
        }
        if (*at, &blocks(entry)[0]) != (0, *block) {
            report.add(18, *at, "compaction_block_misplaced");
        }
        if all.len() > 1 {
            report.add(18, *at, "compaction_block_ambiguous");
        }
    }
}

/// The same after an edit: every block is there as it was, the last one with as many before it in its entry and nothing
/// more behind, and first if it was.
pub(super) fn compare_summaries(before: &Value, after: &Value, report: &mut ViolationReport) {
    let (before, after) = (find_last(before), find_last(after));
    if before != after {
        let what = format!("a summary of the API changed: {before:?}, {after:?}");
        report.add(18, 0, what);
    }
}

/// The role of the last block's entry, the blocks of the entry but for thinking, and whether the block is the first of all.
fn find_last(body: &Value) -> Option<(Value, Vec<Value>, bool)> {
    let entries = entries_of(body);
    let is_summary = |block: &Value| kind(block) == "compaction";
    let at = entries
        .iter()
        .rposition(|it| blocks(it).iter().any(is_summary))?;
    let entry = &entries[at];
    // What stands beside it may be shortened, and is not compared here.
    let shown = blocks(entry).iter().map(|block| {
        if is_summary(block) {
            block.clone()
        } else {
            kind(block).into()
        }
    });
    let shown = shown.filter(|it| !it.as_str().is_some_and(|kind| kind.ends_with("thinking")));
    Some((entry["role"].clone(), shown.collect(), at == 0))
}
