//! The tools of a request: reads the client's, and writes proxy-executed ones.

use serde::Deserialize;

use crate::{conversation::Conversation, json::scan::JsonKind};

/// A proxy-executed tool. Its name and texts need no escapes in JSON, which a test asserts.
pub struct ToolSchema<'a> {
    pub name: &'a str,
    pub description: &'a str,
    pub arguments: &'a [ToolArgument],
}

/// One argument of a tool, a string.
pub struct ToolArgument {
    pub name: &'static str,
    /// May be empty.
    pub description: &'static str,
    pub required: bool,
}

/// The client's tools, as far as the proxy reads them.
pub struct ClientTools {
    pub form: ToolForm,
    /// The reserved names that tools of the client already have.
    pub taken: Vec<&'static str>,
    /// The model sees none of them in the beginning.
    pub defers_all: bool,
}

/// A tool of the client, as far as it is read. Schemas may be most of a body, so they are skipped. If a member occurs
/// twice in a tool, then the list is not read, since parsers choose differently.
#[derive(Deserialize)]
pub(in crate::format) struct ListedTool {
    name: Option<String>,
    pub(in crate::format) function: Option<ListedFunction>,
    custom: Option<ListedFunction>,
    /// The model does not see it before something names it.
    defer_loading: Option<bool>,
    /// The tools that a tool holds.
    pub(in crate::format) tools: Option<Vec<Self>>,
}

#[derive(Deserialize)]
pub(in crate::format) struct ListedFunction {
    name: Option<String>,
    pub(in crate::format) strict: Option<bool>,
}

impl ListedTool {
    /// Whether the tool, or one that it holds, has this name, wherever its kind of tool puts names.
    fn has_name(&self, name: &str) -> bool {
        let functions = [&self.function, &self.custom].into_iter().flatten();
        let names = functions.map(|function| &function.name);
        let mut names = names.chain([&self.name]).flatten();
        let mut inner = self.tools.iter().flatten();
        names.any(|it| it == name) || inner.any(|tool| tool.has_name(name))
    }
}

/// Reads the tools in a top-level member. The list is empty if the member is absent or null; `None` if it cannot be read.
pub(in crate::format) fn read_tool_list(
    conversation: &Conversation,
    name: &str,
) -> Option<Vec<ListedTool>> {
    let field = conversation.find_field(name);
    match field.filter(|field| field.kind != JsonKind::Null) {
        Some(field) => serde_json::from_slice(conversation.span_bytes(field.value)).ok(),
        None => Some(Vec::new()),
    }
}

impl ClientTools {
    /// `None` without tools.
    pub(in crate::format) fn from_list(
        form: ToolForm,
        tools: &[ListedTool],
        reserved: impl Iterator<Item = &'static str>,
    ) -> Option<Self> {
        let taken = reserved.filter(|name| tools.iter().any(|tool| tool.has_name(name)));
        (!tools.is_empty()).then(|| Self {
            form,
            taken: taken.collect(),
            defers_all: tools.iter().all(|tool| tool.defer_loading == Some(true)),
        })
    }
}

/// How a request lists its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolForm {
    ChatTools,
    /// All functions of the client are `strict`.
    ChatStrictTools,
    /// The legacy `functions`.
    ChatFunctions,
    MessagesTools,
    ResponsesTools,
}

impl ToolForm {
    pub const ALL: [Self; 5] = [
        Self::ChatTools,
        Self::ChatStrictTools,
        Self::ChatFunctions,
        Self::MessagesTools,
        Self::ResponsesTools,
    ];

    /// The top-level member that holds the list.
    pub const fn field_name(self) -> &'static str {
        match self {
            Self::ChatTools
            | Self::ChatStrictTools
            | Self::MessagesTools
            | Self::ResponsesTools => "tools",
            Self::ChatFunctions => "functions",
        }
    }
}

/// Writes the JSON schema of a tool's arguments. All arguments of a `strict` tool are required; one that may be left out
/// may be null.
pub(in crate::format) fn write_object_schema(arguments: &[ToolArgument], strict: bool) -> String {
    let properties = arguments.iter().map(|it| write_property(it, strict));
    let properties = properties.collect::<Vec<_>>().join(",");
    let required = arguments.iter().filter(|it| it.required || strict);
    let required = required.map(|it| format!("\"{}\"", it.name));
    let required = match required.collect::<Vec<_>>().join(",") {
        // Some validators want at least one name in `required`.
        names if names.is_empty() => names,
        names => format!(r#","required":[{names}]"#),
    };
    let closed = if strict {
        r#","additionalProperties":false"#
    } else {
        ""
    };
    format!(r#"{{"type":"object","properties":{{{properties}}}{required}{closed}}}"#)
}

fn write_property(argument: &ToolArgument, strict: bool) -> String {
    let kind = if strict && !argument.required {
        r#"["string","null"]"#
    } else {
        r#""string""#
    };
    let description = match argument.description {
        "" => String::new(),
        text => format!(r#","description":"{text}""#),
    };
    format!(r#""{}":{{"type":{kind}{description}}}"#, argument.name)
}
