//! The tools of a Responses request: the client's, and the proxy-executed ones that are added to them.

use memchr::memmem;
use serde_json::value::RawValue;

use crate::{
    conversation::Conversation,
    format::{
        responses::request::tool_entries,
        tools::{ClientTools, ListedTool, ToolForm, ToolSchema, write_object_schema},
    },
    json::scan::{JsonKind, Span},
};

/// The type of an entry with the tools that a search loaded.
const SEARCH_OUTPUT: &[u8] = b"tool_search_output";

/// Reads the client's tools. For some models, Codex sends its tools in an entry. New tools are added to `tools` if the
/// request has it, which must then be a list, else to that entry.
pub(in crate::format) fn read_client_tools(
    conversation: &Conversation,
    reserved: impl Iterator<Item = &'static str>,
) -> Option<ClientTools> {
    // Nothing can be put next to an input that is a string.
    let input = conversation.find_field("input")?;
    if input.kind != JsonKind::Array {
        return None;
    }
    let json = |span: Span| conversation.span_bytes(span);
    let list = conversation.find_tool_list("tools")?;
    let mut tools: Vec<ListedTool> = serde_json::from_slice(json(list)).ok()?;
    for entry in tool_entries(conversation) {
        let entry: ListedTool = serde_json::from_slice(json(entry.span)).ok()?;
        tools.extend(entry.tools.into_iter().flatten());
    }
    let input = json(input.value);
    if memmem::find(input, SEARCH_OUTPUT).is_some() {
        // The output of a search has the tools that the search loaded.
        let entries: Vec<&RawValue> = serde_json::from_slice(input).unwrap_or_default();
        let outputs = entries.iter().map(|entry| entry.get());
        let outputs = outputs.filter(|it| memmem::find(it.as_bytes(), SEARCH_OUTPUT).is_some());
        let loaded = outputs.filter_map(|it| serde_json::from_str::<ListedTool>(it).ok()?.tools);
        tools.extend(loaded.flatten());
    }
    ClientTools::from_list(ToolForm::ResponsesTools, &tools, reserved)
}

/// Writes an entry that adds tools from its place on (OpenAI's "Keep the prefix unchanged").
pub(in crate::format) fn write_entry(schemas: &str) -> String {
    format!(r#"{{"type":"additional_tools","role":"developer","tools":[{schemas}]}}"#)
}

/// Writes a tool that is not strict: functions are strict if nothing else is said.
pub(in crate::format) fn write_tool(tool: &ToolSchema<'_>) -> String {
    let (name, description) = (tool.name, tool.description);
    let schema = write_object_schema(tool.arguments, false);
    format!(
        r#"{{"type":"function","name":"{name}","description":"{description}","parameters":{schema},"strict":false}}"#
    )
}
