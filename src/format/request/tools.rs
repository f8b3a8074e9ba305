//! Writes proxy-executed tools in the form of the request.

use crate::{
    conversation::Format,
    format::{
        chat, messages, responses,
        tools::{ToolForm, ToolSchema},
    },
};

impl ToolForm {
    /// Writes the tool as an element of the list.
    pub fn write_tool(self, tool: &ToolSchema<'_>) -> String {
        match self {
            Self::ChatTools | Self::ChatStrictTools | Self::ChatFunctions => {
                chat::tools::write_tool(self, tool)
            }
            Self::MessagesTools => messages::tools::write_tool(tool),
            Self::ResponsesTools => responses::tools::write_tool(tool),
        }
    }
}

impl Format {
    /// An entry among the messages that brings tools; empty where the format has none. `schemas`: elements of a list of
    /// tools, with commas between them.
    pub fn write_tools_entry(self, schemas: &str) -> String {
        match self {
            Self::Messages => messages::tools::write_entry(schemas),
            Self::Responses => responses::tools::write_entry(schemas),
            Self::Chat => String::new(),
            #[cfg(test)]
            Self::Toy => String::new(),
        }
    }
}
