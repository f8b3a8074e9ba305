//! Proxy-executed tools, added to the tools of a request.

use super::chat;

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
    /// The reserved names that the client has tools of.
    pub taken: Vec<&'static str>,
}

/// How a request lists its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolForm {
    ChatTools,
    /// All functions of the client are `strict`.
    ChatStrictTools,
    /// The legacy `functions`.
    ChatFunctions,
}

impl ToolForm {
    pub const ALL: [Self; 3] = [Self::ChatTools, Self::ChatStrictTools, Self::ChatFunctions];

    /// The top-level member that holds the list.
    pub const fn field_name(self) -> &'static str {
        match self {
            Self::ChatTools | Self::ChatStrictTools => "tools",
            Self::ChatFunctions => "functions",
        }
    }

    /// Writes the tool as an element of the list.
    pub fn write_tool(self, tool: &ToolSchema<'_>) -> String {
        match self {
            Self::ChatTools | Self::ChatStrictTools | Self::ChatFunctions => {
                chat::tools::write_tool(self, tool)
            }
        }
    }
}
