//! A strict server of Anthropic's Messages API: refuses what the real one refuses, and an edit that changes what must
//! stay. It reads the body with serde_json and shares no code with the guard.

use serde_json::Value;

use super::{
    super::parse,
    Violation, ViolationReport,
    summaries::{check_summaries, compare_summaries},
    tools::strip_client_tools,
    version::{NEW_VERSION, find_refused_by_version},
};

/// Blocks that no proxy edits.
const EDITABLE: [&str; 5] = ["text", "image", "document", "tool_result", "tool_use"];

/// Every rule that this body breaks; a body that is no conversation breaks rule 0.
pub(crate) fn find_violations(body: &[u8]) -> Vec<Violation> {
    let mut report = ViolationReport::default();
    let body = parse::parse_value(body).unwrap_or_default();
    let Some(entries) = body["messages"].as_array() else {
        report.add(0, 0, "no messages");
        return report.0;
    };
    check_order(entries, &mut report);
    check_pairs(entries, &mut report);
    check_contents(entries, &mut report);
    check_markers(&body, &mut report);
    check_running_turn(&body, entries, &mut report);
    check_served(entries, &mut report);
    check_deferred(&body, entries, &mut report);
    check_summaries(entries, &mut report);
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
    let refused = find_refused_by_version(NEW_VERSION, &before);
    let refused_now = find_refused_by_version(NEW_VERSION, &after);
    let new = refused_now.into_iter().filter(|it| !refused.contains(it));
    new.for_each(|what| report.add(19, 0, what));
    // Rule 11: nothing of the request but its conversation and its tools changes, and the cap only falls.
    for (key, value) in before.as_object().into_iter().flatten() {
        let same = match key.as_str() {
            "messages" | "system" => true,
            "tools" => after[key].as_array().is_some_and(|tools| {
                value
                    .as_array()
                    .is_some_and(|before| strip_client_tools(before, tools).is_some())
            }),
            "max_tokens" => after[key].as_f64() <= value.as_f64(),
            _ => after[key] == *value,
        };
        if !same {
            report.add(11, 0, format!("{key} changed"));
        }
    }
    if super::leaves_empty_tools(&before, &after) {
        report.add(11, 0, "an empty list of tools");
    }
    for (rule, what, list) in [
        (
            12,
            "a marker was moved or added",
            markers as fn(&Value) -> Vec<Value>,
        ),
        (13, "thinking changed", thinking_runs),
        (
            14,
            "a block of the server or the model changed",
            fixed_blocks,
        ),
        (15, "a call or a result changed beside its contents", frames),
    ] {
        if !is_subsequence(&list(&after), &list(&before)) {
            report.add(rule, 0, what);
        }
    }
    // Rule 10: what the server runs has its result, where it had one.
    compare_summaries(&before, &after, &mut report);
    let (before, after) = (entries_of(&before), entries_of(&after));
    let had = find_unserved(&before);
    if find_unserved(&after).iter().any(|id| !had.contains(id)) {
        report.add(10, 0, "a tool of the server lost its result");
    }
    // Rule 16: a program gets its results whole. They may be cleared.
    let whole = read_by_programs(&before);
    let is_cut = |result: &Value| result.to_string().contains("characters truncated");
    for result in read_by_programs(&after) {
        if !whole.contains(&result) && is_cut(result) {
            report.add(16, 0, "a result was cut that a program reads");
        }
    }
    report.0
}

pub(super) fn entries_of(body: &Value) -> Vec<Value> {
    body["messages"].as_array().cloned().unwrap_or_default()
}

fn is_use(block: &Value) -> bool {
    kind(block).ends_with("_tool_use")
}

/// The ids of tools that the server runs, without a result.
fn find_unserved(entries: &[Value]) -> Vec<Value> {
    let all = entries.iter().flat_map(blocks);
    let results: Vec<_> = all.clone().map(|block| &block["tool_use_id"]).collect();
    let uses = all.filter(|block| is_use(block) && !results.contains(&&block["id"]));
    uses.map(|block| block["id"].clone()).collect()
}

/// The results of calls that a program made.
fn read_by_programs(entries: &[Value]) -> Vec<&Value> {
    let all = entries.iter().flat_map(blocks);
    let called = all
        .clone()
        .filter(|block| block["caller"]["tool_id"].is_string());
    let called: Vec<_> = called.map(|block| &block["id"]).collect();
    all.filter(|block| called.contains(&&block["tool_use_id"]))
        .collect()
}

/// Rules 8 and 9: what refers to a tool of the server stands behind it; and while one is at work, a user entry has results
/// alone.
fn check_served(entries: &[Value], report: &mut ViolationReport) {
    let (mut named, mut open): (Vec<&Value>, Vec<&Value>) = (Vec::new(), Vec::new());
    for (at, entry) in entries.iter().enumerate() {
        if role(entry) != "assistant" {
            let is_result = |block: &Value| kind(block) == "tool_result";
            let has_results_alone =
                entry["content"].is_array() && blocks(entry).iter().all(is_result);
            if !(open.is_empty() || has_results_alone) {
                report.add(
                    9,
                    at,
                    format!("more than results while the server is at work: {open:?}"),
                );
            }
            continue;
        }
        for block in blocks(entry) {
            let result = Some(&block["tool_use_id"]).filter(|it| it.is_string());
            for id in result.into_iter().chain([&block["caller"]["tool_id"]]) {
                if id.is_string() && !named.contains(&id) {
                    report.add(8, at, format!("no source of {id}"));
                }
            }
            open.retain(|id| Some(*id) != result);
            if is_use(block) {
                named.push(&block["id"]);
                open.push(&block["id"]);
            }
        }
    }
}

/// Rule 17: a deferred tool is called only behind a reference that loads it.
fn check_deferred(body: &Value, entries: &[Value], report: &mut ViolationReport) {
    let tools = body["tools"].as_array().into_iter().flatten();
    let deferred = tools.filter(|tool| tool["defer_loading"] == true);
    let deferred: Vec<&Value> = deferred.map(|tool| &tool["name"]).collect();
    let mut loaded = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        for block in blocks(entry) {
            let name = &block["name"];
            let is_call = kind(block) == "tool_use" && deferred.contains(&name);
            if is_call && !loaded.contains(&name) {
                report.add(17, at, format!("{name} is deferred, and nothing loads it"));
            }
            list_references(block, &mut loaded);
        }
    }
}

/// The tools that the references anywhere in a block name.
fn list_references<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(members) => {
            if value["type"] == "tool_reference" {
                found.extend([&value["tool_name"], &value["name"]]);
            }
            members.values().for_each(|it| list_references(it, found));
        }
        Value::Array(values) => values.iter().for_each(|it| list_references(it, found)),
        _ => {}
    }
}

fn is_subsequence(part: &[Value], whole: &[Value]) -> bool {
    let mut whole = whole.iter();
    part.iter()
        .all(|value| is_ours(value) || whole.any(|it| it == value))
}

/// The frames of calls and results of the proxy, by their ids.
fn is_ours(value: &Value) -> bool {
    ["id", "tool_use_id"].iter().any(|key| {
        value[*key]
            .as_str()
            .is_some_and(|id| id.starts_with("own-"))
    })
}

pub(super) fn role(entry: &Value) -> &str {
    entry["role"].as_str().unwrap_or("")
}

pub(super) fn kind(block: &Value) -> &str {
    block["type"].as_str().unwrap_or("")
}

pub(super) fn blocks(entry: &Value) -> &[Value] {
    entry["content"].as_array().map_or(&[], Vec::as_slice)
}

/// All entries, and the system prompt as one of them.
fn all_entries(body: &Value) -> Vec<Value> {
    let system = serde_json::json!({"role": "system", "content": body["system"]});
    let entries = body["messages"].as_array().into_iter().flatten().cloned();
    std::iter::once(system).chain(entries).collect()
}

/// Rules 1 to 3: the first entry is the user's, or begins with a summary of the API, the last is not the model's, and a system entry stands behind a user
/// entry and before an answer.
fn check_order(entries: &[Value], report: &mut ViolationReport) {
    let begins = |entry: &Value| {
        let first = blocks(entry).first().map_or("", kind);
        role(entry) == "user" || first == "compaction"
    };
    if !entries.first().is_none_or(begins) {
        report.add(1, 0, "does not begin with a user entry");
    }
    if entries
        .last()
        .is_some_and(|entry| role(entry) == "assistant")
    {
        report.add(2, entries.len() - 1, "ends with an answer");
    }
    for (at, entry) in entries.iter().enumerate() {
        match role(entry) {
            "user" | "assistant" => {}
            "system" => {
                let before = at
                    .checked_sub(1)
                    .map_or("", |before| role(&entries[before]));
                let after = entries.get(at + 1).map_or("assistant", role);
                if !matches!(before, "user" | "system") || !matches!(after, "assistant" | "system")
                {
                    report.add(
                        3,
                        at,
                        format!("a system entry between {before} and {after}"),
                    );
                }
            }
            other => report.add(3, at, format!("role {other}")),
        }
    }
}

/// Rule 4: the results of an answer's calls stand first in the entry behind it, one for each call.
fn check_pairs(entries: &[Value], report: &mut ViolationReport) {
    let mut asked: Vec<&str> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let results = blocks(entry)
            .iter()
            .filter(|block| kind(block) == "tool_result");
        let mut answered: Vec<&str> = results
            .clone()
            .map(|it| it["tool_use_id"].as_str().unwrap_or(""))
            .collect();
        let first = blocks(entry)
            .iter()
            .take_while(|block| kind(block) == "tool_result")
            .count();
        if first != answered.len() || role(entry) != "user" && !answered.is_empty() {
            report.add(4, at, "results do not come first in a user entry");
        }
        answered.sort_unstable();
        asked.sort_unstable();
        if answered != asked {
            report.add(4, at, format!("calls {asked:?}, results {answered:?}"));
        }
        asked = Vec::new();
        if role(entry) == "assistant" {
            // What stands before the last `fallback` gets no result.
            let all = blocks(entry);
            let fallback = all.iter().rposition(|block| kind(block) == "fallback");
            let calls = all[fallback.unwrap_or(0)..].iter();
            let calls = calls.filter(|block| kind(block) == "tool_use");
            asked = calls.map(|it| it["id"].as_str().unwrap_or("")).collect();
        }
    }
    if !asked.is_empty() {
        report.add(4, entries.len(), "calls at the end");
    }
}

/// Rule 5: neither an entry nor a text is empty, and an input is an object.
fn check_contents(entries: &[Value], report: &mut ViolationReport) {
    for (at, entry) in entries.iter().enumerate() {
        let is_empty = match &entry["content"] {
            Value::String(text) => text.is_empty(),
            Value::Array(blocks) => blocks.is_empty(),
            // A `system` entry may set an effort alone.
            _ => entry["output_config"].is_null(),
        };
        if is_empty {
            report.add(5, at, "an empty entry");
        }
        for block in blocks(entry) {
            let inner = blocks(block).iter();
            if std::iter::once(block)
                .chain(inner)
                .any(|it| it["text"] == "")
            {
                report.add(5, at, "an empty text");
            }
            if kind(block) == "tool_use" && !block["input"].is_object() {
                report.add(5, at, "an input that is no object");
            }
        }
    }
}

/// Rule 6: at most four cache markers, those of the tools and of the request as a whole included, and none on thinking
/// or on a blank text.
fn check_markers(body: &Value, report: &mut ViolationReport) {
    let is_marked = |it: &&Value| !it["cache_control"].is_null();
    let tools = body["tools"].as_array().into_iter().flatten();
    let others = tools.chain([body]).filter(is_marked).count();
    if markers(body).len() + others > 4 {
        report.add(6, 0, "more than four cache markers");
    }
    for (at, entry) in all_entries(body).iter().enumerate() {
        for block in blocks(entry).iter().filter(is_marked) {
            let is_blank = block["text"]
                .as_str()
                .is_some_and(|text| text.trim().is_empty());
            if is_blank || kind(block).contains("thinking") {
                report.add(6, at, format!("a marker on {block}"));
            }
        }
    }
}

/// Rule 7: with `thinking.type: "enabled"`, the answers behind the last entry of the user's own begin with thinking.
fn check_running_turn(body: &Value, entries: &[Value], report: &mut ViolationReport) {
    if body["thinking"]["type"] != "enabled" {
        return;
    }
    let speaks = |entry: &Value| {
        let is_result = |block: &Value| kind(block) == "tool_result";
        role(entry) == "user" && (blocks(entry).is_empty() || !blocks(entry).iter().all(is_result))
    };
    let begin = entries.iter().rposition(speaks).unwrap_or(0);
    let mut answers = entries[begin..].iter();
    // A summary of the API's own is no answer.
    let is_summary = |entry: &Value| blocks(entry).first().map_or("", kind) == "compaction";
    let first = answers.find(|entry| role(entry) == "assistant" && !is_summary(entry));
    let block = first.map_or("thinking", |first| {
        blocks(first).first().map_or("text", kind)
    });
    if !block.ends_with("thinking") {
        report.add(7, begin, format!("expected thinking, found {block}"));
    }
}

/// The markers with what tells their blocks apart.
fn markers(body: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    for entry in all_entries(body) {
        for block in blocks(&entry) {
            for it in std::iter::once(block).chain(blocks(block)) {
                if !it["cache_control"].is_null() {
                    found.push(serde_json::json!([
                        kind(it),
                        it["tool_use_id"],
                        it["cache_control"]
                    ]));
                }
            }
        }
    }
    found
}

/// Of each answer with thinking, its thinking blocks.
fn thinking_runs(body: &Value) -> Vec<Value> {
    let runs = all_entries(body).into_iter().map(|entry| {
        let thinking = blocks(&entry)
            .iter()
            .filter(|block| kind(block).contains("thinking"));
        Value::from(thinking.cloned().collect::<Vec<_>>())
    });
    runs.filter(|run| run.as_array().is_some_and(|run| !run.is_empty()))
        .collect()
}

fn fixed_blocks(body: &Value) -> Vec<Value> {
    let entries = all_entries(body);
    let all = entries.iter().flat_map(blocks);
    all.filter(|block| !EDITABLE.contains(&kind(block)))
        .cloned()
        .collect()
}

/// Calls and results without what may be edited in them. An input keeps its keys.
fn frames(body: &Value) -> Vec<Value> {
    let entries = all_entries(body);
    let all = entries.iter().flat_map(blocks);
    let framed = all.filter(|block| matches!(kind(block), "tool_use" | "tool_result"));
    let frames = framed.map(|block| {
        let mut frame = block.clone();
        frame["content"] = Value::from(match &block["content"] {
            Value::Array(_) => "list",
            Value::String(_) => "string",
            _ => "nothing",
        });
        if let Some(input) = block["input"].as_object() {
            frame["input"] = input.keys().cloned().collect::<Vec<_>>().into();
        }
        frame
    });
    frames.collect()
}
