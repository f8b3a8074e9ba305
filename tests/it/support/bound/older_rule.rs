//! The rule of models without the check: with `thinking.type: "enabled"` the running turn begins with thinking, and
//! while results are returned all thinking of that turn is there.

use serde_json::Value;

use super::prefix::is_thinking;

/// Stands before the number of thinking blocks that came before a call in its answer, and `_`.
pub(super) const CALL_MARK: &str = "toolu_after";

/// The refusal of a running turn that lacks thinking.
pub(super) fn find_broken_turn(body: &Value) -> Option<String> {
    if body["thinking"]["type"] != "enabled" {
        return None;
    }
    let entries = body["messages"].as_array()?;
    let is_new_input = |entry: &Value| entry["role"] == "user" && !is_only_results(entry);
    let begin = entries
        .iter()
        .rposition(is_new_input)
        .map_or(0, |at| at + 1);
    let mut answers = (begin..entries.len()).filter(|at| entries[*at]["role"] == "assistant");
    let first = answers.clone().next()?;
    let opening = &entries[first]["content"][0];
    if !is_thinking(opening) {
        let found = opening["type"].as_str().unwrap_or("text");
        return Some(format!(
            "messages.{first}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When \
             `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the \
             lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from \
             previous turns. To avoid this requirement, disable `thinking`."
        ));
    }
    answers.find_map(|at| {
        let place = find_missing(&entries[at])?;
        Some(format!(
            "messages.{at}.content.{place}: `thinking` or `redacted_thinking` blocks in the latest assistant message \
             cannot be modified. These blocks must remain as they were in the original response."
        ))
    })
}

fn is_only_results(entry: &Value) -> bool {
    let blocks = entry["content"]
        .as_array()
        .filter(|blocks| !blocks.is_empty());
    blocks.is_some_and(|blocks| blocks.iter().all(|block| block["type"] == "tool_result"))
}

/// The first call with more or less thinking before it than when it was made.
fn find_missing(answer: &Value) -> Option<usize> {
    let mut thoughts = 0;
    for (place, block) in answer["content"].as_array()?.iter().enumerate() {
        let mark = block["id"]
            .as_str()
            .and_then(|id| id.strip_prefix(CALL_MARK));
        let made_after = mark.and_then(|mark| mark.split('_').next()?.parse::<usize>().ok());
        if block["type"] == "tool_use"
            && made_after.is_some_and(|made_after| made_after != thoughts)
        {
            return Some(place);
        }
        thoughts += usize::from(is_thinking(block));
    }
    None
}
