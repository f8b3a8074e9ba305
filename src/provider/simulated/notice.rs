//! What the newest words ask of the model beside its work: notes for itself, a new course, a summary.
//!
//! Read as a model would: from the newest words, whoever they are from, and only where the tools
//! that they name are offered. What stands before the model's own last answer is history.

use serde_json::{Value, json};

use super::{
    check::role,
    request::{ChatRequest, Choice, Format, Tool},
};

const ADD: &str = "add_reminder";
const UPDATE: &str = "update_reminder";
const CLEAR: &str = "clear_mind";
/// Tools for the model's own memory; it calls them only when asked to.
const MEMORY_TOOLS: &[&str] = &[ADD, UPDATE, "delete_reminder", CLEAR];

const PACKAGE: [&str; 2] = ["<continuation_package>", "</continuation_package>"];
/// What opens the block of a summary that is asked for; its key follows.
const SUMMARY: &str = "<summary key=\"";
/// What stands before the number of answers that remain.
const REMAINING: [&str; 2] = ["this reply included: ", "（含本次）："];
/// With so few answers left the model begins the new course itself.
const FEW_REMAINING: u32 = 2;
/// Notes from which on one is written anew instead of another one beside it.
const MANY_NOTES: usize = 6;
/// What stands before the number of a note: where it was saved, and where all are shown.
const NOTE_IDS: [&str; 2] = ["Saved as r", "<reminder id=\"r"];
/// Parts of a text that tells of what is not in the conversation any more.
const RECORDS: [&str; 3] = ["<reminder id=", "<facts of=", "<summary>"];
/// Characters of one quotation.
const QUOTED: usize = 100;

/// A call of one of the model's own tools.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MemoryCall {
    pub(super) name: &'static str,
    pub(super) arguments: Value,
}

/// What the newest words ask for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wanted {
    Call(MemoryCall),
    /// This block at the end of the answer.
    Block(String),
    /// This text as the answer.
    Summary(String),
}

pub(super) fn is_memory_tool(name: &str) -> bool {
    MEMORY_TOOLS.contains(&name)
}

/// What the request asks for, if the model can do it.
pub(super) fn find_wanted(request: &ChatRequest<'_>) -> Option<Wanted> {
    let messages = request.messages;
    let is_text = request.format == Format::Text;
    if let Some(summary) = write_summary(messages).filter(|_| is_text) {
        return Some(Wanted::Summary(summary));
    }
    let texts = newest_texts(messages);
    let notice = texts.iter().rev().find(|text| is_notice(text))?;
    let free = matches!(request.choice, Choice::Auto | Choice::Required);
    let offered = |name: &str| {
        let mut tools = request.tools.iter().filter(|_| free);
        tools.find(|tool| tool.name == name && notice.contains(ADD))
    };
    let notes = write_notes(messages);
    let Some(add) = offered(ADD) else {
        let asked = is_text && notice.contains(PACKAGE[0]);
        return asked.then(|| Wanted::Block(format!("{}\n{notes}\n{}", PACKAGE[0], PACKAGE[1])));
    };
    let clear = offered(CLEAR).filter(|_| {
        notice.contains(CLEAR) && read_remaining(notice).is_some_and(|left| left <= FEW_REMAINING)
    });
    let ids = find_note_ids(messages);
    let many = ids.len() >= MANY_NOTES;
    let (name, arguments) = match (clear, offered(UPDATE)) {
        (Some(_), _) if many => (CLEAR, json!({})),
        (Some(tool), _) => (CLEAR, carry_note(tool, notes)),
        (None, Some(_)) if many => {
            let id = &ids[messages.len() % ids.len()];
            (UPDATE, json!({"id": id, "content": notes}))
        }
        (None, _) => (ADD, carry_note(add, notes)),
    };
    Some(Wanted::Call(MemoryCall { name, arguments }))
}

/// The newest words of a user that are neither a notice nor a record, else the first ones.
pub(super) fn find_task(messages: &[Value]) -> String {
    let mut users = messages
        .iter()
        .filter(|one| role(one) == "user")
        .map(text_of);
    let is_record = |text: &str| RECORDS.iter().any(|tag| text.contains(tag));
    let is_task = |text: &String| !is_notice(text) && !is_record(text);
    let newest = users.clone().rfind(is_task);
    newest.or_else(|| users.next()).unwrap_or_default()
}

/// Whether a third of the characters are Chinese ones.
pub(super) fn is_chinese(text: &str) -> bool {
    let han = text
        .chars()
        .filter(|it| ('\u{4e00}'..='\u{9fff}').contains(it));
    han.count() * 3 > text.chars().count()
}

fn is_notice(text: &str) -> bool {
    text.contains(ADD) || text.contains(PACKAGE[0])
}

/// All that was said since the model's last answer, but for results of its own memory's calls.
fn newest_texts(messages: &[Value]) -> Vec<String> {
    let last = messages.iter().rposition(|one| role(one) == "assistant");
    let (before, newest) = messages.split_at(last.map_or(0, |at| at + 1));
    let calls = before.last().and_then(|one| one["tool_calls"].as_array());
    let own: Vec<&Value> = calls
        .into_iter()
        .flatten()
        .filter(|call| {
            call["function"]["name"]
                .as_str()
                .is_some_and(is_memory_tool)
        })
        .map(|call| &call["id"])
        .collect();
    let said = newest.iter().filter(|one| match role(one) {
        "user" => true,
        "tool" => !own.contains(&&one["tool_call_id"]),
        _ => false,
    });
    said.map(text_of).collect()
}

/// The text of a message, its parts with a space between.
fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

/// The answers that remain, as the notice tells them.
fn read_remaining(notice: &str) -> Option<u32> {
    let (_, after) = REMAINING.iter().find_map(|mark| notice.rsplit_once(mark))?;
    let end = after.find(|it: char| !it.is_ascii_digit());
    after[..end.unwrap_or(after.len())].parse().ok()
}

/// The ids of notes that the conversation tells of, each once.
fn find_note_ids(messages: &[Value]) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for text in messages.iter().map(text_of) {
        for after in NOTE_IDS.iter().flat_map(|mark| text.split(mark).skip(1)) {
            let end = after.find(|it: char| !it.is_ascii_digit());
            let id = format!("r{}", &after[..end.unwrap_or(after.len())]);
            if id.len() > 1 && !ids.contains(&id) {
                ids.push(id);
            }
        }
    }
    ids
}

/// The arguments that carry a note: in the first text that the tool must have, else in the first
/// that it may have.
fn carry_note(tool: &Tool<'_>, note: String) -> Value {
    let properties = tool.parameters["properties"].as_object();
    let first = tool.parameters["required"][0].as_str();
    let first = first.or_else(|| properties?.keys().next().map(String::as_str));
    first.map_or_else(|| json!({}), |name| json!({ name: note }))
}

/// Notes from which the work can go on, in the language of the notice.
fn write_notes(messages: &[Value]) -> String {
    let newest = || messages.iter().rev();
    let call = newest().find_map(|one| one["tool_calls"][0]["function"]["arguments"].as_str());
    let result = newest().find(|one| role(one) == "tool").map(text_of);
    let line = result.as_deref().and_then(|text| text.lines().next());
    let [first, pointers, detail, none] = match messages.last() {
        Some(last) if is_chinese(&text_of(last)) => ["第一步：继续", "线索：", "细节：", "无"],
        _ => ["First step: go on with ", "Pointers: ", "Detail: ", "none"],
    };
    format!(
        "{first}{}\n{pointers}{}\n{detail}{}",
        quote(&find_task(messages)),
        quote(call.unwrap_or(none)),
        quote(line.unwrap_or(none)),
    )
}

/// The summary that the last message asks for, from the conversation before it or from the record
/// in it.
fn write_summary(messages: &[Value]) -> Option<String> {
    let (last, before) = messages.split_last()?;
    let asked = text_of(last);
    let (_, after) = asked
        .rsplit_once(SUMMARY)
        .filter(|_| role(last) == "user")?;
    let (key, _) = after.split_once('"')?;
    let [worked, go_on, none] = match asked.contains('摘') {
        true => ["处理了：", "继续：", "无"],
        false => ["Worked on: ", "Go on with: ", "none"],
    };
    let record = asked.rsplit_once("\n</transcript>");
    let record = record.and_then(|(record, _)| Some(record.split_once("\n<transcript")?.1));
    let (task, newest) = match record {
        Some(record) => {
            // The first line ends the tag, and each message begins with a line in brackets.
            let mut lines = record.lines().skip(1).filter(|line| !line.starts_with('['));
            let task = lines.next().unwrap_or(none).to_owned();
            (task, lines.last().unwrap_or(none).to_owned())
        }
        None => {
            let newest = before.iter().map(text_of).rfind(|text| !text.is_empty());
            (find_task(before), newest.unwrap_or_else(|| none.to_owned()))
        }
    };
    let (task, newest) = (quote(&task), quote(&newest));
    Some(format!(
        "{SUMMARY}{key}\">\n<done>{worked}{task}</done>\n<to_do>{task}</to_do>\n\
         <current_state>{newest}</current_state>\n<key_context>{none}</key_context>\n\
         <next_steps>{go_on}{task}</next_steps>\n<cautions>{none}</cautions>\n</summary>"
    ))
}

/// The beginning of a text in one line, without what could look like a tag.
fn quote(text: &str) -> String {
    let letters = text.trim().chars().take(QUOTED);
    let plain = letters.map(|it| {
        if matches!(it, '<' | '>' | '\n') {
            ' '
        } else {
            it
        }
    });
    plain.collect()
}

#[cfg(test)]
mod tests;
