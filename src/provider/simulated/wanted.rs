//! What a notice asks of the model: to write down what matters, and to clear its mind.
//!
//! Read as a model would: from the newest words, whoever they are from, and only where the tools
//! that they name are really offered. Nothing is done unasked, and nothing twice: what stands
//! before the model's own last word is history.

use serde_json::Value;

use super::{
    ask::{Ask, Format},
    check::role,
    summary,
    tool::Choice,
};

pub(super) const ADD: &str = "add_reminder";
pub(super) const UPDATE: &str = "update_reminder";
pub(super) const CLEAR: &str = "clear_mind";
pub(super) const OPENING: &str = "<continuation_package>";
pub(super) const CLOSING: &str = "</continuation_package>";

/// Tools for the model's own memory; it calls them only when asked to.
const OWN: &[&str] = &[ADD, UPDATE, "delete_reminder", CLEAR];

/// With so few generations left the model clears its mind itself.
const FEW: u32 = 2;

/// What the newest words ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A call of [`ADD`].
    Notes,
    /// A call of [`CLEAR`], with a last note.
    Clear,
    /// A block at the end of the answer.
    Block,
    /// A block that is the answer.
    Summary,
}

pub(super) fn is_own(name: &str) -> bool {
    OWN.contains(&name)
}

/// Whether a text is one of those notices, or holds one.
pub(super) fn is_notice(text: &str) -> bool {
    text.contains(ADD) || text.contains(OPENING)
}

/// What the request asks for, if the model can do it.
pub(super) fn wanted(ask: &Ask<'_>) -> Option<Wanted> {
    let last = ask.messages.last();
    if ask.format == Format::Text && last.is_some_and(summary::is_asked) {
        return Some(Wanted::Summary);
    }
    let free = matches!(ask.choice, Choice::Auto | Choice::Required);
    let offered = |name: &str| free && ask.tools.iter().any(|tool| tool.name == name);
    let texts = newest_texts(ask.messages);
    let notice = texts.iter().rev().find(|text| is_notice(text))?;
    if offered(ADD) && notice.contains(ADD) {
        let few = remaining(notice).is_some_and(|left| left <= FEW);
        return Some(match few && notice.contains(CLEAR) && offered(CLEAR) {
            true => Wanted::Clear,
            false => Wanted::Notes,
        });
    }
    let block = ask.format == Format::Text && notice.contains(OPENING);
    block.then_some(Wanted::Block)
}

/// The ids of notes that the conversation tells of, each once.
pub(super) fn kept(messages: &[Value]) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for text in messages
        .iter()
        .filter(|one| role(one) != "system")
        .map(text_of)
    {
        for mark in MARKS {
            for (at, mark) in text.match_indices(mark) {
                let rest = &text[at + mark.len()..];
                let end = rest.find(|letter: char| !letter.is_ascii_digit());
                let id = format!("r{}", &rest[..end.unwrap_or(rest.len())]);
                if id.len() > 1 && !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
    }
    ids
}

/// What stands before the number of a note: where it was saved, and where all are shown.
const MARKS: [&str; 2] = ["Saved as r", "<reminder id=\"r"];

/// Whether a text tells of what is not in the conversation any more.
pub(super) fn is_record(text: &str) -> bool {
    const TAGS: [&str; 3] = ["<reminder id=", "<facts of=", "<summary>"];
    TAGS.iter().any(|tag| text.contains(tag))
}

/// All that was said since the model's last word, but for answers to its own memory's calls.
fn newest_texts(messages: &[Value]) -> Vec<String> {
    let last = messages.iter().rposition(|one| role(one) == "assistant");
    let (before, newest) = messages.split_at(last.map_or(0, |at| at + 1));
    let calls = before.last().and_then(|one| one["tool_calls"].as_array());
    let own: Vec<&Value> = calls
        .into_iter()
        .flatten()
        .filter(|call| call["function"]["name"].as_str().is_some_and(is_own))
        .map(|call| &call["id"])
        .collect();
    let said = newest.iter().filter(|one| match role(one) {
        "user" => true,
        "tool" => !own.contains(&&one["tool_call_id"]),
        "function" => !one["name"].as_str().is_some_and(is_own),
        _ => false,
    });
    said.map(text_of).collect()
}

/// The text of a message, its parts with a space between.
pub(super) fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

/// Words that tell a countdown, in the languages that the model reads.
const LEFT: &[&str] = &["remain", "left", "generation", "剩", "还有", "之后"];

/// The generations left, as the notice tells them: the least small number of a sentence that
/// speaks of what is left. `None` where it tells none.
fn remaining(notice: &str) -> Option<u32> {
    let sentences = notice.split(['.', '!', '?', ';', '。', '！', '？', '；', '\n']);
    sentences
        .filter(|sentence| LEFT.iter().any(|word| sentence.contains(word)))
        .flat_map(|sentence| sentence.split(|letter: char| !letter.is_ascii_alphanumeric()))
        .filter_map(number)
        .min()
}

fn number(word: &str) -> Option<u32> {
    match word {
        "one" | "One" | "once" | "last" => Some(1),
        "two" | "Two" => Some(2),
        // What is larger is no countdown: a percentage, or tokens.
        _ => word.parse().ok().filter(|number| *number <= 20),
    }
}

#[cfg(test)]
mod tests;
