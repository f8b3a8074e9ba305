//! The tools of a chat completions request: the client's, and the proxy-executed ones beside them.

use serde::Deserialize;

use crate::{
    conversation::Conversation,
    format::tools::{ToolArgument, ToolForm, ToolSchema},
    json::scan::JsonKind,
};

/// An element of `tools` or `functions`, as far as it is read.
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
        let inner = [&self.function, &self.custom].map(|it| it.as_ref()?.name.as_deref());
        let mut names = inner.into_iter().chain([self.name.as_deref()]).flatten();
        names.any(|name| reserved.contains(&name))
    }
}

pub(in crate::format) fn tool_form(
    conversation: &Conversation,
    reserved: &[&str],
) -> Option<ToolForm> {
    let tools = read_tools(conversation, "tools")?;
    let functions = read_tools(conversation, "functions")?;
    let mut all_tools = tools.iter().chain(&functions);
    if all_tools.any(|tool| tool.is_named(reserved)) {
        return None;
    }
    if tools.is_empty() {
        return (!functions.is_empty()).then_some(ToolForm::ChatFunctions);
    }
    let mut functions = tools
        .iter()
        .filter_map(|tool| tool.function.as_ref())
        .peekable();
    // Some providers refuse tools of which some are strict and others are not.
    let strict = functions.peek().is_some() && functions.all(|it| it.strict == Some(true));
    Some(match strict {
        true => ToolForm::ChatStrictTools,
        false => ToolForm::ChatTools,
    })
}

/// The elements of a list of tools, none if it is absent; `None` if it cannot be read.
fn read_tools(conversation: &Conversation, name: &str) -> Option<Vec<Tool>> {
    let field = conversation.find_field(name);
    match field.filter(|field| field.kind != JsonKind::Null) {
        None => Some(Vec::new()),
        Some(field) => serde_json::from_slice(conversation.span_bytes(field.value)).ok(),
    }
}

pub(in crate::format) fn write_tool(form: ToolForm, tool: &ToolSchema<'_>) -> String {
    let &ToolSchema {
        name,
        description,
        arguments,
    } = tool;
    let strict = form == ToolForm::ChatStrictTools;
    let properties = arguments.iter().map(|it| write_property(it, strict));
    let properties = properties.collect::<Vec<_>>().join(",");
    let required = arguments.iter().filter(|it| it.required || strict);
    let required = required.map(|it| format!("\"{}\"", it.name));
    let required = match required.collect::<Vec<_>>().join(",") {
        // Some validators want at least one name in it.
        names if names.is_empty() => names,
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
