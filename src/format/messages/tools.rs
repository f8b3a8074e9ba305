//! The tools of a Messages request: the client's, and the proxy-executed ones beside them.

use crate::{
    conversation::Conversation,
    format::{
        tools::{ClientTools, ToolForm, ToolSchema, write_object_schema},
        values::take_text,
    },
    json::scan::{JsonKind, JsonScanner, MalformedJson},
};

pub(in crate::format) fn read_client_tools(
    conversation: &Conversation,
    reserved: impl Iterator<Item = &'static str>,
) -> Option<ClientTools> {
    let field = conversation.find_field("tools")?;
    let field = Some(field).filter(|field| field.kind == JsonKind::Array)?;
    let (mut names, mut count) = (Vec::new(), 0);
    // Schemas may be most of a body, so they are walked without being read.
    let walked =
        JsonScanner::new(&conversation.body, field.value.start as usize).walk_array(|scan| {
            count += 1;
            scan.walk_object(|scan, key| {
                match &*conversation.decode_text(key) {
                    "name" => {
                        names.extend(take_text(scan)?.map(|name| conversation.decode_text(name)));
                    }
                    _ => drop(scan.take_value()?),
                }
                Ok::<_, MalformedJson>(())
            })
            .map(drop)
        });
    walked.ok().filter(|_| count > 0)?;
    let taken = reserved.filter(|reserved| names.iter().any(|name| name == reserved));
    Some(ClientTools {
        form: ToolForm::MessagesTools,
        taken: taken.collect(),
    })
}

pub(in crate::format) fn write_tool(tool: &ToolSchema<'_>) -> String {
    let (name, description) = (tool.name, tool.description);
    let schema = write_object_schema(tool.arguments, false);
    format!(r#"{{"name":"{name}","description":"{description}","input_schema":{schema}}}"#)
}
