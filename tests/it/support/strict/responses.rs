//! A strict server of OpenAI's Responses API: refuses what the real one refuses, and an edit that changes what must
//! stay. It reads the body with serde_json and shares no code with the guard.

use serde_json::Value;

use super::{
    super::parse,
    OUR_TOOLS, Violation, ViolationReport,
    tools::{keeps_entry, strip_client_tools},
};

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
    check_pairs(&body, entries, &mut report);
    check_programs(entries, &mut report);
    for (at, entry) in entries.iter().enumerate() {
        check_entry(entry, at, &mut report);
        let next = entries.get(at + 1);
        if kind(entry) == "reasoning" && !next.is_some_and(is_of_model) {
            report.add(2, at, "reasoning without what it led to");
        }
        let is_update = |entry: &Value| kind(entry) == "configuration_update";
        if is_update(entry) && next.is_some_and(is_update) {
            report.add(9, at, "two updates of the configuration side by side");
        }
        if kind(entry) == "compaction_trigger" && next.is_some() {
            report.add(3, at, "a trigger that is not the last");
        }
    }
    report.0
}

/// Rules broken by an edit for a provider that pairs calls and outputs at any distance.
pub(crate) fn find_broken_rules_apart(before: &[u8], after: &[u8]) -> Vec<Violation> {
    find_broken_rules(before, after, true)
}

/// Rules broken by an edit: those that the original kept, and those that need a comparison. `results_may_be_apart`: the provider
/// pairs calls and outputs at any distance.
pub(crate) fn find_broken_rules(
    before: &[u8],
    after: &[u8],
    results_may_be_apart: bool,
) -> Vec<Violation> {
    let find_all = |body: &[u8]| {
        let mut report = ViolationReport(find_violations(body));
        let parsed = parse::parse_value(body).unwrap_or_default();
        let entries = parsed["input"].as_array().filter(|_| !results_may_be_apart);
        check_adjacency(entries.map_or(&[][..], Vec::as_slice), &mut report);
        report.0
    };
    let known: Vec<u8> = find_all(before).iter().map(|it| it.rule).collect();
    let mut report = ViolationReport(find_all(after));
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
                    .is_some_and(|(before, after)| strip_client_tools(before, after).is_some())
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
    let (pinned, sent) = (of_kinds(&before, &PINNED), of_kinds(&after, &PINNED));
    let mut pairs = pinned.iter().zip(&sent);
    if pinned.len() != sent.len() || !pairs.all(|(was, now)| keeps_entry(was, now)) {
        report.add(12, 0, "an entry that stays changed or went");
    }
    let fixed = [&SERVED[..], &["reasoning", "program", "program_output"]].concat();
    if !is_subsequence(&of_kinds(&after, &fixed), &of_kinds(&before, &fixed)) {
        report.add(13, 0, "an entry of the server changed");
    }
    if !is_subsequence(&frames(&after), &frames(&before)) {
        report.add(14, 0, "an entry changed beside its texts");
    }
    // Rule 15: what a provider knows by its id stands behind the reasoning that led to it.
    // What had none needs none, whatever comes to stand before it.
    let known = led_by_reasoning(&before);
    let (free, known): (Vec<_>, Vec<_>) = known.into_iter().partition(|pair| pair[1].is_null());
    let mut led = led_by_reasoning(&after);
    led.retain(|pair| !free.iter().any(|it| it[0] == pair[0]));
    if !is_subsequence(&led, &known) {
        report.add(15, 0, "an entry lost its reasoning");
    }
    // Rule 16: reasoning is followed by what it led to.
    if !is_subsequence(&followers(&after), &followers(&before)) {
        report.add(16, 0, "reasoning lost what it led to");
    }
    // Rule 17: what waits for its output stays.
    let waiting = |list: &[Value]| -> Vec<Value> {
        let calls = open_calls(list).into_iter();
        calls.map(|at| list[at]["call_id"].clone()).collect()
    };
    let now = waiting(&after);
    if !waiting(&before).iter().all(|id| now.contains(id)) {
        report.add(17, 0, "a call went that waits for its output");
    }
    check_read_by_programs(&before, &after, &mut report);
    report.0
}

/// Rule 18: a program gets the outputs of its calls as the client sent them. Once it is done, nobody reads them, and they
/// may be cleared.
fn check_read_by_programs(before: &[Value], after: &[Value], report: &mut ViolationReport) {
    let done = |program: &Value| {
        let mut outputs = after.iter().filter(|it| kind(it) == "program_output");
        outputs.any(|output| output["call_id"] == *program)
    };
    let is_program = |id: &Value| {
        let mut programs = after.iter().filter(|it| kind(it) == "program");
        programs.any(|it| it["call_id"] == *id)
    };
    let is_read = |it: &&Value| is_output(it) && is_program(&it["caller"]["caller_id"]);
    for (at, now) in after.iter().enumerate().filter(|(_, it)| is_read(it)) {
        let was = before
            .iter()
            .find(|it| is_output(it) && it["call_id"] == now["call_id"]);
        let is_same = was.is_some_and(|was| was["output"] == now["output"]);
        let is_cut = now["output"].to_string().contains("characters truncated");
        if !is_same && (is_cut || !done(&now["caller"]["caller_id"])) {
            report.add(18, at, "an output changed that a program reads");
        }
    }
}

fn is_output(entry: &Value) -> bool {
    kind(entry).ends_with("_output")
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
        kind => matches!(kind, "reasoning" | "program") || kind.ends_with("_call"),
    }
}

/// The places of calls without an output behind them. A program is a call.
fn open_calls(entries: &[Value]) -> Vec<usize> {
    let mut open: Vec<usize> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        match kind(entry) {
            kind if SERVED.contains(&kind) => {}
            kind if kind == "program" || kind.ends_with("_call") => open.push(at),
            kind if kind.ends_with("_output") => {
                let answers = |call: &usize| entries[*call]["call_id"] == entry["call_id"];
                if let Some(call) = open.iter().rposition(answers) {
                    open.remove(call);
                }
            }
            _ => {}
        }
    }
    open
}

/// Rule 1: each output has its call before it, at any distance, and each call an output, unless it is async or a program
/// at work.
fn check_pairs(body: &Value, entries: &[Value], report: &mut ViolationReport) {
    let tools = body["tools"].as_array().into_iter().flatten();
    let is_async = |it: &Value| it["async"] == true;
    let named: Vec<&Value> = tools
        .filter(|it| is_async(it))
        .map(|it| &it["name"])
        .collect();
    for at in open_calls(entries) {
        let call = &entries[at];
        if kind(call) != "program" && !is_async(call) && !named.contains(&&call["name"]) {
            report.add(
                1,
                at,
                format!("a call without its output {}", call["call_id"]),
            );
        }
    }
    // An output without a call's id is valid wherever it stands.
    let named = |entry: &Value| is_output(entry) && !entry["call_id"].is_null();
    for (at, entry) in entries.iter().enumerate().filter(|(_, it)| named(it)) {
        let mut before = entries[..at].iter().filter(|it| !is_output(it));
        if !before.any(|call| call["call_id"] == entry["call_id"]) {
            report.add(
                1,
                at,
                format!("an output without its call {}", entry["call_id"]),
            );
        }
    }
}

/// Rule 7: what says that a program called it stands behind that program.
fn check_programs(entries: &[Value], report: &mut ViolationReport) {
    for (at, entry) in entries.iter().enumerate() {
        let caller = &entry["caller"]["caller_id"];
        let mut programs = entries[..at].iter().filter(|it| kind(it) == "program");
        if caller.is_string() && !programs.any(|it| it["call_id"] == *caller) {
            report.add(
                7,
                at,
                format!("called by a program that is not there {caller}"),
            );
        }
    }
}

/// Rule 8, of some providers, which have no programs: nothing but entries of the model and outputs stands between a call
/// and its output.
fn check_adjacency(entries: &[Value], report: &mut ViolationReport) {
    let mut open: Vec<&Value> = Vec::new();
    let is_other = |entry: &Value| !kind(entry).starts_with("program");
    for (at, entry) in entries.iter().enumerate().filter(|(_, it)| is_other(it)) {
        if is_output(entry) {
            match open.iter().position(|id| **id == entry["call_id"]) {
                Some(call) => drop(open.remove(call)),
                None => report.add(8, at, "an output apart from its call"),
            }
        } else if !is_of_model(entry) && !open.is_empty() {
            report.add(8, at, format!("between a call and its output: {open:?}"));
            open.clear();
        } else if entry["call_id"].is_string() && !SERVED.contains(&kind(entry)) {
            open.push(&entry["call_id"]);
        }
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
        // What these ask for may get shorter, and keeps its shape.
        if kind(entry) == "custom_tool_call" {
            frame["input"] = shape(&entry["input"]);
        }
        let texts = match kind(entry) {
            "local_shell_call" => ["/action/command", "/action/env"],
            "shell_call" => ["/action/commands", ""],
            "apply_patch_call" => ["/operation/diff", ""],
            _ => ["", ""],
        };
        for pointer in texts.into_iter().filter(|it| !it.is_empty()) {
            if let Some(text) = frame.pointer_mut(pointer) {
                *text = shape(text);
            }
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
        let is_call = kind(&pair[1]) == "program" || kind(&pair[1]).ends_with("_call");
        let follower = if is_call { "call" } else { kind(&pair[1]) };
        serde_json::json!([pair[0], follower])
    });
    pairs.collect()
}

/// The ids of the model's entries, each with the id of the reasoning that led to it: the newest one, unless another
/// message stands between. Texts that begin an answer with reasoning of its own were written before any.
fn led_by_reasoning(entries: &[Value]) -> Vec<Value> {
    let mut reasoning = Value::Null;
    let mut pairs = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let begins = at == 0 || !is_of_model(&entries[at - 1]);
        let mut behind = entries[at..].iter();
        let is_text = |it: &&Value| kind(it) == MESSAGE && is_of_model(it);
        if begins
            && behind
                .find(|it| !is_text(it))
                .is_some_and(|it| kind(it) == "reasoning")
        {
            reasoning = Value::Null;
        }
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
