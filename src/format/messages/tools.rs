//! The tools of a Messages request: the client's, and the proxy-executed ones that are added to them.

use serde_json::value::RawValue;

use crate::{
    conversation::Conversation,
    format::tools::{ClientTools, ToolForm, ToolSchema, read_tool_list, write_object_schema},
};

pub(in crate::format) fn read_client_tools(
    conversation: &Conversation,
    reserved: impl Iterator<Item = &'static str>,
) -> Option<ClientTools> {
    let tools = read_tool_list(conversation, "tools")?;
    ClientTools::from_list(ToolForm::MessagesTools, &tools, reserved)
}

pub(in crate::format) fn write_tool(tool: &ToolSchema<'_>) -> String {
    let (name, description) = (tool.name, tool.description);
    let schema = write_object_schema(tool.arguments, false);
    format!(r#"{{"name":"{name}","description":"{description}","input_schema":{schema}}}"#)
}

/// Writes an entry that adds tools from its place on, each with its definition (Anthropic's "Define tools in a message").
/// The request needs [`Beta::InlineTools`](crate::format::request::beta_header::Beta).
pub(in crate::format) fn write_entry(schemas: &str) -> String {
    let list = format!("[{schemas}]");
    let tools: Vec<&RawValue> = serde_json::from_str(&list).unwrap_or_default();
    let blocks = tools.iter().map(|tool| {
        format!(
            r#"{{"type":"tool_addition","tool":{{"type":"tool_definition","definition":{tool}}}}}"#
        )
    });
    let blocks = blocks.collect::<Vec<_>>().join(",");
    format!(r#"{{"role":"system","content":[{blocks}]}}"#)
}
