//! What Anthropic refuses by the version that the header `anthropic-version` of a request names.

use serde_json::Value;

use super::messages::{blocks, entries_of, kind, role};

/// The value of `anthropic-version` since which more is refused.
pub(crate) const NEW_VERSION: &str = "2026-10-21";

/// What a server of this `anthropic-version` refuses of a body and the one of 2023 takes: members for sampling, documents
/// of the model, and cited texts of the user, in results too.
pub(crate) fn find_refused_by_version(version: &str, body: &Value) -> Vec<String> {
    if version < NEW_VERSION {
        return Vec::new();
    }
    let names = ["temperature", "top_p", "top_k"].into_iter();
    let members = names.filter(|name| body.get(name).is_some());
    let mut found: Vec<String> = members.map(str::to_owned).collect();
    for entry in entries_of(body) {
        for block in blocks(&entry) {
            match role(&entry) {
                "assistant" if kind(block) == "document" => found.push(block.to_string()),
                "user" => list_cited_texts(block, &mut found),
                _ => {}
            }
        }
    }
    found
}

fn list_cited_texts(block: &Value, found: &mut Vec<String>) {
    let citations = block["citations"].as_array();
    if kind(block) == "text" && citations.is_some_and(|it| !it.is_empty()) {
        found.push(block.to_string());
    }
    blocks(block)
        .iter()
        .for_each(|it| list_cited_texts(it, found));
}
