//! The tools of a chat completions request: what the client lists, and how those of the proxy stand beside them.

use serde::Deserialize;

use crate::{
    conversation::Conversation,
    format::tools::{ToolArgument, ToolForm, ToolSchema},
    json::scan::JsonKind,
};

/// What is read of an element of `tools` or `functions`.
#[derive(Deserialize)]
struct Tool {
    name: Option<String>,
    function: Option<Function>,
    custom: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    strict: Option<bool>,
}

impl Tool {
    /// Whether it has one of these names, wherever its kind of tool puts names.
    fn is_named(&self, reserved: &[&str]) -> bool {
        let inner = [&self.function, &self.custom].map(|of| of.as_ref()?.name.as_deref());
        let mut names = inner.into_iter().chain([self.name.as_deref()]).flatten();
        names.any(|name| reserved.contains(&name))
    }
}

/// The form of the proxy's schemas beside the client's own tools. `None` where the request has none, or a
/// list of tools that cannot be followed, or one with a name of the proxy's.
pub(in crate::format) fn tool_form(
    conversation: &Conversation,
    reserved: &[&str],
) -> Option<ToolForm> {
    let tools = read_tools(conversation, "tools")?;
    let functions = read_tools(conversation, "functions")?;
    if tools
        .iter()
        .chain(&functions)
        .any(|tool| tool.is_named(reserved))
    {
        return None;
    }
    if tools.is_empty() {
        return (!functions.is_empty()).then_some(ToolForm::ChatFunctions);
    }
    let mut functions = tools.iter().filter_map(|tool| tool.function.as_ref());
    let any = tools.iter().any(|tool| tool.function.is_some());
    // Some providers refuse tools of which some are strict and others are not.
    let strict = any && functions.all(|function| function.strict == Some(true));
    Some(match strict {
        true => ToolForm::ChatStrictTools,
        false => ToolForm::ChatTools,
    })
}

/// The elements of a list of tools, which may be missing; `None` where it cannot be read.
fn read_tools(conversation: &Conversation, name: &str) -> Option<Vec<Tool>> {
    let field = conversation.find_field(name);
    match field.filter(|field| field.kind != JsonKind::Null) {
        None => Some(Vec::new()),
        Some(field) => serde_json::from_slice(conversation.span_bytes(field.value)).ok(),
    }
}

/// One element of the list. Names and texts need no escapes: a test of the schemas holds that.
pub(in crate::format) fn write_tool(form: ToolForm, tool: &ToolSchema<'_>) -> String {
    let &ToolSchema {
        name,
        description,
        arguments,
    } = tool;
    let strict = form == ToolForm::ChatStrictTools;
    let properties: Vec<_> = arguments
        .iter()
        .map(|argument| write_property(argument, strict))
        .collect();
    let required: Vec<_> = arguments
        .iter()
        .filter(|argument| argument.required || strict)
        .map(|argument| format!("\"{}\"", argument.name))
        .collect();
    let (properties, required) = (properties.join(","), required.join(","));
    let required = match required.as_str() {
        // Some validators want at least one name in it.
        "" => String::new(),
        names => format!(r#","required":[{names}]"#),
    };
    let (closed, strictly) = match strict {
        true => (r#","additionalProperties":false"#, r#","strict":true"#),
        false => ("", ""),
    };
    let parameters =
        format!(r#"{{"type":"object","properties":{{{properties}}}{required}{closed}}}"#);
    let function = format!(
        r#"{{"name":"{name}","description":"{description}"{strictly},"parameters":{parameters}}}"#
    );
    match form {
        ToolForm::ChatFunctions => function,
        _ => format!(r#"{{"type":"function","function":{function}}}"#),
    }
}

fn write_property(argument: &ToolArgument, strict: bool) -> String {
    let kind = match strict && !argument.required {
        true => r#"["string","null"]"#,
        false => r#""string""#,
    };
    let description = match argument.description {
        "" => String::new(),
        text => format!(r#","description":"{text}""#),
    };
    format!(r#""{}":{{"type":{kind}{description}}}"#, argument.name)
}
