//! What shorter definitions save, in the tokens of a vocabulary; the figures of docs/benchmarks.md.
//!
//! `cargo test --test it figures_of_short_tools -- --nocapture` prints them for generated lists, and for the tools of the
//! requests in the folder `PLIMSOLL_TOOL_REQUESTS`.

use bytes::Bytes;
use plimsoll::{
    conversation::{Conversation, Format, ToolBrevity, edit::Edits},
    json::scan::Span,
};
use tiktoken_rs::o200k_base_singleton;

use crate::support::wide_tools::wide_tools;

/// The tokens of all lists of tools: whole, without annotations, and with first sentences.
fn count(conversation: &Conversation) -> [usize; 3] {
    let count = |brevity: Option<ToolBrevity>| {
        let lists = conversation.tool_lists().into_iter();
        let tokens = lists.map(|list| count_list(conversation, list.span, brevity));
        tokens.sum()
    };
    [
        count(None),
        count(Some(ToolBrevity::NoAnnotations)),
        count(Some(ToolBrevity::FirstSentences)),
    ]
}

fn count_list(conversation: &Conversation, list: Span, brevity: Option<ToolBrevity>) -> usize {
    let mut edits = Edits::default();
    if let Some(brevity) = brevity {
        conversation.shorten_tools(list, brevity, &mut edits);
    }
    let json = edits.apply_to_part(&conversation.body, list);
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    o200k_base_singleton()
        .encode_ordinary(&json.to_string())
        .len()
}

#[test]
fn figures_of_short_tools() {
    let mut rows: Vec<(String, [usize; 3])> = Vec::new();
    for (format, tools) in [
        (Format::Chat, 36),
        (Format::Messages, 24),
        (Format::Responses, 12),
    ] {
        let tools = wide_tools(format, 7, tools);
        let conversation = super::request(format, &tools, "Hello");
        rows.push((
            format!("generated, {}", format.name()),
            count(&conversation),
        ));
    }
    if let Some(folder) = std::env::var_os("PLIMSOLL_TOOL_REQUESTS") {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let Ok(body) = std::fs::read(&path).map(Bytes::from) else {
                continue;
            };
            let format = Format::guess_from_body(&body);
            if let Ok(conversation) = format.index_body(body) {
                rows.push((path.display().to_string(), count(&conversation)));
            }
        }
    }
    for (name, [whole, bare, first]) in rows {
        println!(
            "{name}: {whole} tokens, {bare} without annotations, {first} with first sentences"
        );
        assert!(first <= bare && bare <= whole, "{name}");
    }
}
