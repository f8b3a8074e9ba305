//! A strict server of OpenAI's Responses API: refuses what the real one refuses, and an edit that changes what must
//! stay. It reads the body with serde_json and shares no code with the guard.

use serde_json::Value;

use super::{super::parse, OUR_TOOLS, Violation, ViolationReport};

/// Entries of this type may have none.
const MESSAGE: &str = "message";
/// Entries that no edit may leave out.
const PINNED: [&str; 5] = [
    "compaction",
    "additional_tools",
    "configuration_update",
    "tool_search_call",
    "tool_search_output",
];
/// Entries that are run by the server.
const SERVED: [&str; 5] = [
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "mcp_call",
    "image_generation_call",
];

/// Every rule that this body breaks; a body that is no conversation breaks rule 0.
pub(crate) fn find_violations(body: &[u8]) -> Vec<Violation> {
    let mut report = ViolationReport::default();
    let body = parse::parse_value(body).unwrap_or_default();
    let Some(entries) = body["input"].as_array() else {
        report.add(0, 0, "no input");
        return report.0;
    };
    check_pairs(entries, &mut report);
    for (at, entry) in entries.iter().enumerate() {
        check_entry(entry, at, &mut report);
        let next = entries.get(at + 1);
        if kind(entry) == "reasoning" && !next.is_some_and(is_of_model) {
            report.add(2, at, "reasoning without what it led to");
        }
        if kind(entry) == "compaction_trigger" && next.is_some() {
            report.add(3, at, "a trigger that is not the last");
        }
    }
    report.0
}

/// Rules broken by an edit: those that the original kept, and those that need a comparison.
pub(crate) fn find_broken_rules(before: &[u8], after: &[u8]) -> Vec<Violation> {
    let known: Vec<u8> = find_violations(before).iter().map(|it| it.rule).collect();
    let mut report = ViolationReport(find_violations(after));
    report.0.retain(|it| !known.contains(&it.rule));
    let (Ok(before), Ok(after)) = (parse::parse_value(before), parse::parse_value(after)) else {
        return report.0;
    };
    // Rule 11: nothing of the request but its conversation and its tools changes, and the cap only falls.
    for (key, value) in before.as_object().into_iter().flatten() {
        let same = match key.as_str() {
            "input" | "instructions" => true,
            "tools" => {
                let (before, after) = (value.as_array(), after[key].as_array());
                before
                    .zip(after)
                    .is_some_and(|(before, after)| after.starts_with(before))
            }
            "max_output_tokens" => after[key].as_f64() <= value.as_f64(),
            _ => after[key] == *value,
        };
        if !same {
            report.add(11, 0, format!("{key} changed"));
        }
    }
    let (before, after) = (entries(&before), entries(&after));
    let of_kinds = |list: &[Value], kinds: &[&str]| -> Vec<Value> {
        let list = list.iter();
        list.filter(|entry| kinds.contains(&kind(entry)))
            .cloned()
            .collect()
    };
    if of_kinds(&before, &PINNED) != of_kinds(&after, &PINNED) {
        report.add(12, 0, "an entry that stays changed or went");
    }
    let fixed = [&SERVED[..], &["reasoning"]].concat();
    if !is_subsequence(&of_kinds(&after, &fixed), &of_kinds(&before, &fixed)) {
        report.add(13, 0, "an entry of the server changed");
    }
    if !is_subsequence(&frames(&after), &frames(&before)) {
        report.add(14, 0, "an entry changed beside its texts");
    }
    // Rule 15: what a provider knows by its id stands behind the reasoning that led to it.
    let known = led_by_reasoning(&before);
    if !is_subsequence(&led_by_reasoning(&after), &known) {
        report.add(15, 0, "an entry lost its reasoning");
    }
    // Rule 16: reasoning is followed by what it led to.
    if !is_subsequence(&followers(&after), &followers(&before)) {
        report.add(16, 0, "reasoning lost what it led to");
    }
    report.0
}

fn is_subsequence(part: &[Value], whole: &[Value]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|value| whole.any(|it| it == value))
}

/// The entries without annotations.
fn entries(body: &Value) -> Vec<Value> {
    let mut entries = body["input"].clone();
    remove_annotations(&mut entries);
    entries.as_array().cloned().unwrap_or_default()
}

fn remove_annotations(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("plimsoll");
            members.values_mut().for_each(remove_annotations);
        }
        Value::Array(values) => values.iter_mut().for_each(remove_annotations),
        _ => {}
    }
}

fn kind(entry: &Value) -> &str {
    let role = entry["role"].is_string();
    entry["type"]
        .as_str()
        .unwrap_or(if role { MESSAGE } else { "" })
}

fn is_of_model(entry: &Value) -> bool {
    match kind(entry) {
        "message" => entry["role"] == "assistant",
        kind => kind == "reasoning" || kind.ends_with("_call"),
    }
}

/// Rule 1: each output has its call before it, each call one output, and an output stands behind calls or outputs.
fn check_pairs(entries: &[Value], report: &mut ViolationReport) {
    let mut open: Vec<&str> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let id = entry["call_id"].as_str().unwrap_or("");
        match kind(entry) {
            kind if kind.ends_with("_output") => match open.iter().position(|call| *call == id) {
                Some(call) => drop(open.remove(call)),
                None => report.add(1, at, format!("output without its call {id}")),
            },
            kind if SERVED.contains(&kind) => {}
            kind if kind.ends_with("_call") => open.push(id),
            _ if !open.is_empty() && !is_of_model(entry) => {
                report.add(1, at, format!("calls without outputs: {open:?}"));
                open.clear();
            }
            _ => {}
        }
    }
    if !open.is_empty() {
        report.add(1, entries.len(), format!("calls without outputs: {open:?}"));
    }
}

/// Rules 4 to 6: texts are not empty, parts fit their author, and arguments are JSON.
fn check_entry(entry: &Value, at: usize, report: &mut ViolationReport) {
    let parts = [&entry["content"], &entry["output"]];
    let mut parts = parts.into_iter().filter_map(Value::as_array).flatten();
    if parts.any(|part| part["text"] == "")
        || entry["content"].as_array().is_some_and(Vec::is_empty)
    {
        report.add(4, at, "an empty text");
    }
    if kind(entry) == MESSAGE {
        let expected = if entry["role"] == "assistant" {
            "output_"
        } else {
            "input_"
        };
        let mut parts = entry["content"].as_array().into_iter().flatten();
        if !parts.all(|part| kind(part).starts_with(expected)) {
            report.add(5, at, "a part of another author");
        }
    }
    if kind(entry) == "function_call" {
        let arguments = entry["arguments"].as_str().unwrap_or("");
        if !serde_json::from_str::<Value>(arguments).is_ok_and(|it| it.is_object()) {
            report.add(6, at, "arguments that are no JSON");
        }
    }
}

/// The client's calls, outputs and answers without what may be edited in them. Arguments keep their keys.
fn frames(entries: &[Value]) -> Vec<Value> {
    let is_our_call = |entry: &&Value| OUR_TOOLS.iter().any(|tool| entry["name"] == *tool);
    let our_ids = entries.iter().filter(is_our_call);
    let our_ids: Vec<_> = our_ids.map(|call| call["call_id"].clone()).collect();
    let is_framed = |entry: &&Value| match kind(entry) {
        _ if our_ids.contains(&entry["call_id"]) => false,
        // The proxy's own text of an answer has neither.
        MESSAGE => {
            entry["phase"].is_string() || entry["role"] == "assistant" && entry["id"].is_string()
        }
        kind => kind.ends_with("_output") || kind.ends_with("_call"),
    };
    let frames = entries.iter().filter(is_framed).map(|entry| {
        let mut frame = entry.clone();
        let shape = |value: &Value| match value {
            Value::String(_) => "string".into(),
            Value::Array(_) => "list".into(),
            other => other.clone(),
        };
        for key in ["content", "output"] {
            frame[key] = shape(&entry[key]);
        }
        if kind(entry) == "shell_call_output" {
            let mut chunks = entry["output"].clone();
            for chunk in chunks.as_array_mut().into_iter().flatten() {
                chunk["stdout"] = "text".into();
                chunk["stderr"] = "text".into();
            }
            frame["output"] = chunks;
        }
        if kind(entry) == "function_call" {
            let arguments = entry["arguments"].as_str().unwrap_or("");
            let arguments = serde_json::from_str::<Value>(arguments).unwrap_or_default();
            let keys = arguments.as_object().into_iter().flat_map(|it| it.keys());
            frame["arguments"] = keys.cloned().collect::<Vec<_>>().into();
        }
        frame
    });
    frames.collect()
}

/// The reasoning of the model, each with the kind of the entry behind it.
fn followers(entries: &[Value]) -> Vec<Value> {
    let pairs = entries
        .windows(2)
        .filter(|pair| kind(&pair[0]) == "reasoning");
    let pairs = pairs.map(|pair| {
        let is_call = kind(&pair[1]).ends_with("_call");
        let follower = if is_call { "call" } else { kind(&pair[1]) };
        serde_json::json!([pair[0], follower])
    });
    pairs.collect()
}

/// The ids of the model's entries, each with the id of the reasoning that led to it: the newest one, unless another
/// message stands between.
fn led_by_reasoning(entries: &[Value]) -> Vec<Value> {
    let mut reasoning = Value::Null;
    let mut pairs = Vec::new();
    for entry in entries {
        match kind(entry) {
            "reasoning" => reasoning = entry["id"].clone(),
            kind if kind.ends_with("_output") => {}
            _ if !is_of_model(entry) => reasoning = Value::Null,
            _ if entry["id"].is_string() => {
                pairs.push(serde_json::json!([entry["id"], reasoning]));
            }
            _ => {}
        }
    }
    pairs
}
