//! The scripted agent: with tools in chat completions, up to seven rounds of calls follow each user message, then a
//! text. It follows the proxy's notices by the tools of reminders. Without tools, and in the other APIs, it answers with
//! the text.
//!
//! The same conversation gets the same answer for the same key, streamed or not.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    demo_agent::{QUESTION, find_names},
    prompt::{count_tokens, find_end},
};

/// Of calls in one turn.
const MAX_ROUNDS: usize = 7;

/// What it answers where nothing else is due: what it is, and how full it is. Tokens.
pub(super) fn describe_itself(prompt: u32, window: u32) -> String {
    format!(
        "This is the canned answer of the model that is built into Plimsoll: it thinks nothing and asks nobody. The \
         prompt of this request filled {prompt} of the {window} tokens of its window. For answers of a real model, \
         name a provider in the settings."
    )
}

const ADD: &str = "add_reminder";
const UPDATE: &str = "update_reminder";
const CLEAR: &str = "clear_mind";
/// Tools for the model's memory. It calls those for reminders only on request, and sees all it works on, so it recalls
/// nothing.
const MEMORY_TOOLS: [&str; 5] = [ADD, UPDATE, "delete_reminder", CLEAR, "recall"];

/// Stands before the number of answers that remain.
const REMAINING: &str = "this reply included: ";
/// With so few answers left the model begins the new course itself.
const FEW_REMAINING: u32 = 2;
/// The beginning of the first reminder in a list of reminders.
const FIRST_REMINDER: &str = "<reminder id=\"r1\"";
/// Characters of one quotation.
const QUOTED: usize = 100;

#[derive(Debug)]
pub(super) struct Reply {
    /// The called tool; its arguments are the text.
    pub(super) tool: Option<String>,
    pub(super) text: String,
    /// The limit has ended the text.
    pub(super) is_cut: bool,
    pub(super) tokens: u32,
}

/// A tool's name, and the arguments of its call.
type Call = (String, Value);

/// An answer of at most `limit` tokens, `text` where nothing else is due; `seed` differs from prompt to prompt.
pub(super) fn make_reply(body: &Value, seed: u64, limit: u32, text: String) -> Reply {
    let call = follow_notice(body).or_else(|| call_tool(body, seed));
    let (tool, mut text) = match call {
        Some((tool, arguments)) => (Some(tool), arguments.to_string()),
        None => (None, name_all(body).unwrap_or(text)),
    };
    let name = tool.as_deref().map(count_tokens);
    let overhead = name.map_or(0, |tokens| tokens.saturating_add(3));
    let end = find_end(&text, limit.saturating_sub(overhead));
    let is_cut = end < text.len();
    text.truncate(end);
    let tokens = count_tokens(&text).saturating_add(overhead);
    Reply {
        tool,
        text,
        is_cut,
        tokens: tokens.min(limit),
    }
}

fn list_messages(body: &Value) -> &[Value] {
    body["messages"].as_array().map_or(&[], Vec::as_slice)
}

fn role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

/// The offered functions, each with its name.
fn offered_tools(body: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let tools = body["tools"].as_array().into_iter().flatten();
    let tools = tools.map(|tool| &tool["function"]);
    tools.filter_map(|tool| Some((tool["name"].as_str()?, tool)))
}

/// All names in the prompt, where the demo's agent asks for them.
fn name_all(body: &Value) -> Option<String> {
    let messages = list_messages(body);
    let asks = messages
        .iter()
        .rev()
        .take(2)
        .any(|it| message_text(it).contains(QUESTION));
    let texts: Vec<String> = messages.iter().map(message_text).collect();
    let names: BTreeSet<&str> = texts.iter().flat_map(|text| find_names(text)).collect();
    asks.then(|| names.into_iter().collect::<Vec<_>>().join(" "))
}

/// A call, unless a text is due.
fn call_tool(body: &Value, seed: u64) -> Option<Call> {
    let is_due = match body["tool_choice"].as_str() {
        Some("none") => false,
        Some("required") => true,
        _ => is_call_due(list_messages(body)),
    };
    let tools = offered_tools(body).filter(|(name, _)| is_due && !MEMORY_TOOLS.contains(name));
    let tools: Vec<_> = tools.collect();
    let seed = usize::try_from(seed).unwrap_or(usize::MAX);
    let (name, tool) = tools.get(seed % tools.len().max(1))?;
    let schema = &tool["parameters"];
    let required = schema["required"].as_array().into_iter().flatten();
    let arguments = required.filter_map(Value::as_str).map(|name| {
        let value = match schema["properties"][name]["type"].as_str() {
            Some("integer" | "number") => json!(10),
            Some("boolean") => json!(true),
            _ => json!("tide tables"),
        };
        (name, value)
    });
    Some(((*name).to_owned(), arguments.collect()))
}

/// The number of rounds depends on where the turn begins, so that turns differ in length.
fn is_call_due(messages: &[Value]) -> bool {
    let roles: Vec<&str> = messages.iter().map(role).collect();
    let begin = roles.iter().rposition(|role| *role == "user").unwrap_or(0);
    let turn = roles[begin..].iter();
    let rounds = turn.filter(|role| **role == "assistant").count();
    matches!(roles.last(), Some(&("user" | "tool"))) && rounds < 1 + begin * 5 % MAX_ROUNDS
}

/// The call that the proxy's newest notice asks for, where its tools are offered.
fn follow_notice(body: &Value) -> Option<Call> {
    let messages = list_messages(body);
    let notice = find_notice(messages)?;
    let can_call = |name: &str| {
        notice.contains(name) && offered_tools(body).any(|(offered, _)| offered == name)
    };
    if !can_call(ADD) || body["tool_choice"] == "none" {
        return None;
    }
    let reminder = write_reminder(messages);
    let few = read_remaining(&notice).is_some_and(|left| left <= FEW_REMAINING);
    // A reminder of an earlier course is updated, so that their number does not grow.
    let mut texts = messages.iter().map(message_text);
    let has_reminder = texts.any(|text| text.contains(FIRST_REMINDER));
    let (tool, arguments) = match (few && can_call(CLEAR), has_reminder) {
        (true, true) => (CLEAR, json!({})),
        (true, false) => (CLEAR, json!({"reminder_content": reminder})),
        (false, true) if can_call(UPDATE) => (UPDATE, json!({"id": "r1", "content": reminder})),
        (false, _) => (ADD, json!({"content": reminder})),
    };
    Some((tool.to_owned(), arguments))
}

/// The newest text behind the model's last answer that asks for a reminder. Nothing is asked for behind a call of a tool
/// for reminders.
fn find_notice(messages: &[Value]) -> Option<String> {
    let last = messages.iter().rposition(|it| role(it) == "assistant");
    let called = last.map(|last| &messages[last]["tool_calls"][0]["function"]["name"]);
    let called = called.and_then(Value::as_str).unwrap_or_default();
    if MEMORY_TOOLS.contains(&called) {
        return None;
    }
    let newest = messages.iter().skip(last.map_or(0, |last| last + 1));
    newest.map(message_text).rfind(|text| text.contains(ADD))
}

/// The text of a message, its parts joined by spaces.
fn message_text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

/// The number of remaining answers in the notice.
fn read_remaining(notice: &str) -> Option<u32> {
    let (_, after) = notice.rsplit_once(REMAINING)?;
    let end = after.find(|character: char| !character.is_ascii_digit());
    after[..end.unwrap_or(after.len())].parse().ok()
}

/// A reminder from which the work can go on, in lines without tags.
fn write_reminder(messages: &[Value]) -> String {
    let quote_start = |text: &str| {
        let start: String = text.trim().chars().take(QUOTED).collect();
        start.replace(['<', '>', '\n'], " ")
    };
    let text_of = |found: Option<&Value>| found.map(message_text).unwrap_or_default();
    let task = text_of(messages.iter().find(|it| role(it) == "user"));
    let arguments = "/tool_calls/0/function/arguments";
    let mut newest = messages.iter().rev();
    let call = newest.find_map(|message| message.pointer(arguments)?.as_str());
    let result = text_of(messages.iter().rfind(|it| role(it) == "tool"));
    format!(
        "First step: go on with {}\nPointers: {}\nDetail: {}",
        quote_start(&task),
        quote_start(call.unwrap_or("-")),
        quote_start(result.lines().next().unwrap_or("-")),
    )
}
