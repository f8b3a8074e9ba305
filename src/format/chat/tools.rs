//! The tools of a chat completions request: the client's, and the proxy-executed ones that are added to them.

use crate::{
    conversation::Conversation,
    format::tools::{ClientTools, ToolForm, ToolSchema, read_tool_list, write_object_schema},
};

pub(in crate::format) fn read_client_tools(
    conversation: &Conversation,
    reserved: impl Iterator<Item = &'static str>,
) -> Option<ClientTools> {
    let mut tools = read_tool_list(conversation, "tools")?;
    let functions = read_tool_list(conversation, "functions")?;
    let form = match &tools[..] {
        [] => ToolForm::ChatFunctions,
        // Some providers refuse tools of which some are strict and others are not.
        tools => {
            let functions = tools.iter().filter_map(|tool| tool.function.as_ref());
            let mut strict = functions
                .map(|function| function.strict == Some(true))
                .peekable();
            if strict.peek().is_some() && strict.all(|strict| strict) {
                ToolForm::ChatStrictTools
            } else {
                ToolForm::ChatTools
            }
        }
    };
    tools.extend(functions);
    ClientTools::from_list(form, &tools, reserved)
}

pub(in crate::format) fn write_tool(form: ToolForm, tool: &ToolSchema<'_>) -> String {
    let &ToolSchema {
        name,
        description,
        arguments,
    } = tool;
    let strict = form == ToolForm::ChatStrictTools;
    let strictly = if strict { r#","strict":true"# } else { "" };
    let parameters = write_object_schema(arguments, strict);
    let function = format!(
        r#"{{"name":"{name}","description":"{description}"{strictly},"parameters":{parameters}}}"#
    );
    match form {
        ToolForm::ChatFunctions => function,
        _ => format!(r#"{{"type":"function","function":{function}}}"#),
    }
}
