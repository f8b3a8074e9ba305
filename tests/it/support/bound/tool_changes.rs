//! Tools that an entry of the system adds or takes away (Anthropic's "Mid-conversation tool changes").

use serde_json::Value;

use super::{BoundModel, Host, settings::ModelVersion};

/// Tools by their names in the request.
const BY_REFERENCE: &str = "mid-conversation-tool-changes-2026-07-01";
/// Also tools with their definitions; at Anthropic alone.
const INLINE: &str = "inline-tools-2026-09-15";

/// Blocks that add tools or take them away, with their paths.
fn tool_changes(body: &Value) -> impl Iterator<Item = (String, &Value, &Value)> {
    let entries = body["messages"].as_array().into_iter().flatten();
    entries.enumerate().flat_map(|(entry, message)| {
        let blocks = message["content"].as_array().into_iter().flatten();
        let changes = blocks.enumerate().filter(|(_, block)| is_change(block));
        changes.map(move |(at, block)| (format!("messages.{entry}.content.{at}"), message, block))
    })
}

fn is_change(block: &Value) -> bool {
    matches!(
        block["type"].as_str(),
        Some("tool_addition" | "tool_removal")
    )
}

/// The definitions in entries, in order.
pub(super) fn inline_tools(body: &Value) -> impl Iterator<Item = &Value> {
    let tools = tool_changes(body).map(|(_, _, block)| &block["tool"]);
    let tools = tools.filter(|tool| tool["type"] == "tool_definition");
    tools.map(|tool| &tool["definition"])
}

/// The names of the tools that the model may call at the end of a request.
pub(in super::super) fn offered_names(body: &Value) -> Vec<String> {
    let name = |tool: &Value| tool["name"].as_str().map(str::to_owned);
    let listed = body["tools"].as_array().into_iter().flatten();
    let listed = listed.filter(|tool| tool["defer_loading"] != true);
    let mut names: Vec<String> = listed.filter_map(name).collect();
    for (_, _, block) in tool_changes(body) {
        let tool = &block["tool"];
        let changed = name(tool)
            .or_else(|| name(&tool["definition"]))
            .unwrap_or_default();
        names.retain(|it| *it != changed);
        if block["type"] == "tool_addition" {
            names.push(changed);
        }
    }
    names
}

impl BoundModel {
    /// The words of the refusal of a request whose tools are changed in a way that the API does not take.
    pub(super) fn find_bad_tool_change(
        &self,
        model: Option<&ModelVersion>,
        body: &Value,
        betas: &str,
    ) -> Option<String> {
        let listed = body["tools"].as_array().into_iter().flatten();
        let mut known: Vec<&Value> = listed.clone().map(|tool| &tool["name"]).collect();
        let mut listed = listed.filter(|tool| tool["defer_loading"] == true);
        if listed.any(|tool| !tool["cache_control"].is_null()) {
            return Some("tools: a deferred tool can't carry `cache_control`".to_owned());
        }
        let has = |beta: &str| betas.split(',').any(|it| it.trim() == beta);
        let inline = has(INLINE) && self.host == Host::Anthropic;
        for (path, entry, block) in tool_changes(body) {
            let tool = &block["tool"];
            let is_taken = inline || has(BY_REFERENCE) && tool["type"] == "tool_reference";
            if !is_taken || !model.is_some_and(takes_tool_changes) {
                return Some(format!("{path}: Input tag 'tool_addition' is not expected"));
            }
            if entry["role"] != "system" {
                return Some(format!("{path}: a tool change outside of a system message"));
            }
            match tool["type"].as_str() {
                Some("tool_definition") if tool["definition"]["name"].is_string() => {
                    known.push(&tool["definition"]["name"]);
                }
                Some("tool_reference") if known.contains(&&tool["name"]) => {}
                _ => return Some(format!("{path}: tool_reference_unresolved")),
            }
        }
        None
    }
}

fn takes_tool_changes(model: &ModelVersion) -> bool {
    let first = match model.family {
        "opus" => (4, 8),
        "fable" | "mythos" => (5, 0),
        _ => (5, 5),
    };
    model.family != "gpt" && model.version >= first
}
