//! The tools of a Responses request: the client's, and the proxy-executed ones beside them.

use std::borrow::Cow;

use crate::{
    conversation::Conversation,
    format::{
        responses::request::tool_entries,
        tools::{ClientTools, ToolForm, ToolSchema, write_object_schema},
        values::{ReadResult, skip_value, take_text, walk_if_object},
    },
    json::scan::{JsonKind, JsonScanner},
};

/// Levels of lists of tools inside a list of tools that are read.
const MAX_NAMESPACES: usize = 4;

/// Codex sends its tools in an entry, for some models. New ones are added there, or to `tools` where it is a list.
pub(in crate::format) fn read_client_tools(
    conversation: &Conversation,
    reserved: impl Iterator<Item = &'static str>,
) -> Option<ClientTools> {
    // Nothing can be put beside an input that is a string.
    let input = conversation.find_field("input")?;
    if input.kind != JsonKind::Array {
        return None;
    }
    let list = conversation.find_tool_list("tools")?;
    let mut reader = NameReader {
        conversation,
        names: Vec::new(),
        count: 0,
    };
    let mut scan = JsonScanner::new(&conversation.body, list.start as usize);
    reader.read_list(&mut scan, MAX_NAMESPACES).ok()?;
    for entry in tool_entries(conversation) {
        let mut scan = JsonScanner::new(&conversation.body, entry.span.start as usize);
        reader.read_holder(&mut scan, MAX_NAMESPACES).ok()?;
    }
    let NameReader { names, count, .. } = reader;
    let taken = reserved.filter(|reserved| names.iter().any(|name| name == reserved));
    (count > 0).then(|| ClientTools {
        form: ToolForm::ResponsesTools,
        taken: taken.collect(),
    })
}

/// Collects the names of tools. Schemas may be most of a body, so they are walked without being read.
struct NameReader<'a> {
    conversation: &'a Conversation,
    names: Vec<Cow<'a, str>>,
    count: usize,
}

impl<'a> NameReader<'a> {
    fn read_list(&mut self, scan: &mut JsonScanner<'a>, depth: usize) -> ReadResult {
        if scan.peek() != Some(b'[') || depth == 0 {
            return skip_value(scan);
        }
        scan.walk_array(|scan| {
            self.count += 1;
            self.read_holder(scan, depth - 1)
        })
        .map(drop)
    }

    /// Reads a tool, or an object with a list of tools.
    fn read_holder(&mut self, scan: &mut JsonScanner<'a>, depth: usize) -> ReadResult {
        let conversation = self.conversation;
        walk_if_object(scan, |scan, key| match &*conversation.decode_text(key) {
            "name" => {
                let name = take_text(scan)?;
                self.names
                    .extend(name.map(|name| conversation.decode_text(name)));
                Ok(())
            }
            "tools" => self.read_list(scan, depth),
            _ => skip_value(scan),
        })
        .map(drop)
    }
}

/// Functions are strict where nothing else is said.
pub(in crate::format) fn write_tool(tool: &ToolSchema<'_>) -> String {
    let (name, description) = (tool.name, tool.description);
    let schema = write_object_schema(tool.arguments, false);
    format!(
        r#"{{"type":"function","name":"{name}","description":"{description}","parameters":{schema},"strict":false}}"#
    )
}
