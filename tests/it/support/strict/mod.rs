//! A strict provider: refuses every conversation that any real provider would refuse.
//!
//! It reads the body with serde_json and shares no code with the guard's units or lint, so that a
//! mistake cannot hide in both. Each numbered rule is described at its check.

use plimsoll::guard::profile::{Acceptance, Profile, ReasoningMember};
use serde_json::Value;

use super::parse;

/// The tools that the proxy may add.
const OUR_TOOLS: [&str; 5] = [
    "add_reminder",
    "update_reminder",
    "delete_reminder",
    "clear_mind",
    "recall",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: u8,
    /// The message that breaks it.
    pub(crate) message: usize,
    pub(crate) what: String,
}

/// Every rule that this body breaks. A body that is no conversation breaks rule 0.
pub(crate) fn find_violations(body: &[u8], profile: &Profile) -> Vec<Violation> {
    let mut report = ViolationReport::default();
    let Some(body) = parse::parse_value(body).ok() else {
        report.add(0, 0, "not JSON");
        return report.0;
    };
    let Some(messages) = body["messages"].as_array() else {
        report.add(0, 0, "no messages");
        return report.0;
    };
    check_pairs(messages, &mut report);
    check_legacy_pairs(messages, &mut report);
    check_order(messages, profile, &mut report);
    check_contents(messages, &mut report);
    report.0
}

/// Rules broken by an edit: those that the original kept, and those that need a comparison (a text
/// became empty, tools were removed while calls stayed, a result changed its form).
pub(crate) fn find_broken_rules(before: &[u8], after: &[u8], profile: &Profile) -> Vec<Violation> {
    let known: Vec<u8> = find_violations(before, profile)
        .iter()
        .map(|it| it.rule)
        .collect();
    let mut report = ViolationReport(find_violations(after, profile));
    report.0.retain(|it| !known.contains(&it.rule));
    let (Ok(before), Ok(after)) = (parse::parse_value(before), parse::parse_value(after)) else {
        return report.0;
    };
    let empty = Vec::new();
    let messages = after["messages"].as_array().unwrap_or(&empty);
    // Rule 13: a conversation with calls needs its tools.
    for key in ["tools", "functions"] {
        let calls = messages
            .iter()
            .position(|message| !calls(message).is_empty());
        if let Some(at) = calls.filter(|_| !keeps_tools(before.get(key), after.get(key))) {
            report.add(13, at, format!("calls stay, but {key} changed"));
        }
    }
    // vLLM refuses an empty list of tools.
    if leaves_empty_tools(&before, &after) {
        report.add(13, 0, "an empty list of tools");
    }
    let had_empty = before["messages"]
        .as_array()
        .is_some_and(|messages| messages.iter().any(|message| empty_texts(message) > 0));
    for (at, message) in messages.iter().enumerate() {
        if !had_empty && empty_texts(message) > 0 {
            report.add(10, at, "an empty text where there was text");
        }
    }
    report.0
}

/// Whether an edit has left an empty list of tools behind.
fn leaves_empty_tools(before: &Value, after: &Value) -> bool {
    let is_empty = |body: &Value| body["tools"].as_array().is_some_and(Vec::is_empty);
    is_empty(after) && !is_empty(before)
}

/// Whether the client's tools are as they were, perhaps shorter; tools of the proxy may follow them.
fn keeps_tools(before: Option<&Value>, after: Option<&Value>) -> bool {
    let (Some(Value::Array(before)), Some(Value::Array(after))) = (before, after) else {
        return before == after;
    };
    let is_ours = |tool: &Value| {
        let name = tool["function"]["name"].as_str().or(tool["name"].as_str());
        name.is_some_and(|name| OUR_TOOLS.contains(&name))
    };
    strip_client_tools(before, after).is_some_and(|added| added.iter().all(is_ours))
}

/// Rule 14: what the model demands of each answer, by its row of the table. Only requests as they go out have it.
pub(crate) fn find_lacking_members(body: &Value, rules: &Profile) -> Vec<Violation> {
    let mut report = ViolationReport::default();
    let empty = Vec::new();
    let messages = body["messages"].as_array().unwrap_or(&empty);
    let turn = messages.iter().rposition(|it| role(it) == "user");
    for (at, answer) in messages.iter().enumerate() {
        let demands = match rules.reasoning_member {
            ReasoningMember::Free => false,
            ReasoningMember::OnCalls => !calls(answer).is_empty(),
            ReasoningMember::OnEvery | ReasoningMember::Always => role(answer) == "assistant",
        };
        if demands && !answer["reasoning_content"].is_string() {
            report.add(14, at, "an answer without its reasoning");
        }
        let signature =
            |call: &&Value| call["extra_content"]["google"]["thought_signature"].is_string();
        let is_running = turn.is_none_or(|turn| at > turn);
        if rules.signs_calls && is_running && !calls(answer).first().is_none_or(signature) {
            report.add(14, at, "a call without its signature");
        }
    }
    report.0
}

#[derive(Default)]
struct ViolationReport(Vec<Violation>);

impl ViolationReport {
    fn add(&mut self, rule: u8, message: usize, what: impl Into<String>) {
        self.0.push(Violation {
            rule,
            message,
            what: what.into(),
        });
    }
}

fn role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or("")
}

fn is_system(message: &Value) -> bool {
    matches!(role(message), "system" | "developer")
}

fn calls(message: &Value) -> Vec<&Value> {
    if role(message) != "assistant" {
        return Vec::new();
    }
    let listed = message["tool_calls"].as_array().into_iter().flatten();
    let legacy = message.get("function_call").filter(|call| call.is_object());
    listed.chain(legacy).collect()
}

/// Rules 1, 2 and 3: tool messages follow directly after the assistant message with their calls,
/// and every call has one. Pairing is by position: an id that an earlier step used, or a result
/// elsewhere, does not count.
fn check_pairs(messages: &[Value], report: &mut ViolationReport) {
    let mut open: Vec<&str> = Vec::new();
    let mut named: Vec<&str> = Vec::new();
    let mut caller = 0;
    for (at, message) in messages.iter().enumerate() {
        if role(message) == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or("");
            if let Some(place) = open.iter().position(|open| *open == id) {
                open.remove(place);
            } else if named.contains(&id) {
                report.add(3, at, format!("{id:?} is answered twice in one step"));
            } else {
                report.add(1, at, format!("{id:?} answers no call directly before it"));
            }
            continue;
        }
        report_unanswered(&open, caller, report);
        named = match message["tool_calls"].as_array() {
            Some(calls) if role(message) == "assistant" => calls
                .iter()
                .filter_map(|call| call["id"].as_str())
                .collect(),
            _ => Vec::new(),
        };
        open = named.clone();
        caller = at;
    }
    report_unanswered(&open, caller, report);
}

fn report_unanswered(open: &[&str], caller: usize, report: &mut ViolationReport) {
    for id in open {
        report.add(
            2,
            caller,
            format!("call {id:?} has no answer directly after it"),
        );
    }
}

/// Rules 1 and 2 in their legacy form: a `function` message follows directly after its
/// `function_call`, with the same name.
fn check_legacy_pairs(messages: &[Value], report: &mut ViolationReport) {
    let called = |at: usize| {
        let message = messages.get(at)?;
        message["function_call"]["name"]
            .as_str()
            .filter(|_| role(message) == "assistant")
    };
    for (at, message) in messages.iter().enumerate() {
        let before = at.checked_sub(1).and_then(called);
        if role(message) == "function" && before != message["name"].as_str() {
            report.add(
                1,
                at,
                "a function message that answers no call directly before it",
            );
        }
        // The last message's call may be open: providers require an answer for `tool_calls` only.
        let answered = messages
            .get(at + 1)
            .is_none_or(|next| role(next) == "function");
        if called(at).is_some() && !answered {
            report.add(2, at, "a function_call without an answer directly after it");
        }
    }
}

fn check_order(messages: &[Value], profile: &Profile, report: &mut ViolationReport) {
    let first = messages.iter().position(|message| !is_system(message));
    let first = first.unwrap_or(messages.len());
    // Rule 5: "System message must be at the beginning".
    if profile.system_later == Acceptance::No {
        let later = messages.iter().enumerate().skip(first);
        for (at, _) in later.filter(|(_, message)| is_system(message)) {
            report.add(5, at, "a system message later on");
        }
    }
    let said: Vec<(usize, &Value)> = messages
        .iter()
        .enumerate()
        .filter(|(_, message)| !is_system(message))
        .collect();
    // Rule 6: "function call turn comes immediately after a user turn", and similar.
    if profile.begins_with_user && said.first().is_some_and(|(_, it)| role(it) != "user") {
        report.add(6, first, "does not begin with a user message");
    }
    for pair in said.windows(2) {
        let (before, (at, now)) = (role(pair[0].1), pair[1]);
        // Rule 8: "Unexpected role 'user' after role 'tool'".
        let answers = matches!(before, "tool" | "function");
        if profile.user_after_tool == Acceptance::No && answers && role(now) == "user" {
            report.add(8, at, "a user message after a tool's");
        }
    }
    if profile.adjacent_users == Acceptance::No {
        check_alternation(&said, report);
    }
    // Rule 9: the last message is not the assistant's, except a marked prefix.
    if let Some(last) = messages.last() {
        let prefix = last["prefix"] == true || last["partial"] == true;
        if !profile.may_end_with_assistant && role(last) == "assistant" && !prefix {
            report.add(9, messages.len() - 1, "ends with an assistant message");
        }
    }
}

/// Rule 7, as in templates: apart from steps, "conversation roles must alternate user/assistant".
fn check_alternation(said: &[(usize, &Value)], report: &mut ViolationReport) {
    let plain: Vec<_> = said
        .iter()
        .filter(|(_, it)| match role(it) {
            "user" => true,
            "assistant" => calls(it).is_empty(),
            _ => false,
        })
        .collect();
    for pair in plain.windows(2) {
        if role(pair[0].1) == role(pair[1].1) {
            let what = format!("two {} messages without the other between", role(pair[1].1));
            report.add(7, pair[1].0, what);
        }
    }
}

/// Rule 10: `content` may be null only beside calls, a refusal or audio; parts must not be empty.
fn check_contents(messages: &[Value], report: &mut ViolationReport) {
    for (at, message) in messages.iter().enumerate() {
        let content = &message["content"];
        let excused = !calls(message).is_empty()
            || message["refusal"].is_string()
            || message["audio"].is_object();
        if content.is_null() && !excused {
            report.add(10, at, "no content");
        }
        if content.as_array().is_some_and(Vec::is_empty) && !excused {
            report.add(10, at, "no parts");
        }
    }
}

fn empty_texts(message: &Value) -> usize {
    match &message["content"] {
        Value::String(text) => usize::from(text.is_empty()),
        Value::Array(parts) => parts.iter().filter(|part| part["text"] == "").count(),
        _ => 0,
    }
}

pub(crate) mod messages;
pub(crate) mod responses;
mod summaries;
#[cfg(test)]
mod tests;
mod tools;
pub(crate) mod version;

pub(crate) use tools::strip_client_tools;
