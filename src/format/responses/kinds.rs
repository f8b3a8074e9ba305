//! The types of entries in `input`, and how each is indexed.

use crate::format::index::indexing::Role;

/// What an entry is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A message that no model wrote.
    Message(Role),
    /// A part of a model's answer.
    Answer(AnswerPart),
    Output(OutputShape),
    /// The entry is an item of its own, is never removed, and is never edited.
    Fixed,
    /// Of an unknown type that does not say who made the entry. It is a part of the answer that it directly follows, else
    /// it is treated as [`Self::Fixed`].
    #[default]
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerPart {
    Text,
    Reasoning,
    Call(CallShape),
    /// Run by the server, which needs no output of the client.
    ServerCall,
    /// As [`Self::ServerCall`], with an image as its result.
    Image,
    /// As [`Self::ServerCall`], and the model loses tools without it.
    ToolSearch,
    /// Of an unknown type whose name says that the model made it.
    NewType,
}

/// The members of a call with an output of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallShape {
    /// `arguments` hold JSON, which may be shortened.
    Function,
    /// The input is any text, or an object with texts, such as commands and patches. Both may be shortened.
    Custom,
    /// As [`Self::Custom`]. Its output may name the call by the call's `id`.
    LocalShell,
    /// The input is an object of which the provider may check each value.
    Fixed,
    /// As [`Self::Fixed`], and it makes calls.
    Program,
    /// As [`Self::Fixed`], and the model loses tools without it.
    ToolSearch,
    /// The answer names the call by its `id`.
    Approval,
}

/// The members of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputShape {
    /// `output` is a string or a list of parts.
    Text,
    /// As [`Self::Text`]. The output may name its call by the call's `id`.
    LocalShell,
    /// `output` is a list of chunks with `stdout` and `stderr`.
    Shell,
    /// `output` is a screenshot.
    Screenshot,
    /// Never edited.
    Fixed,
}

/// The members that decide the kind of an entry, as spelled in the body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EntryType<'a> {
    /// `type`; empty where it is missing.
    pub(super) name: &'a [u8],
    pub(super) role: &'a [u8],
    pub(super) execution: &'a [u8],
    pub(super) has_call_id: bool,
}

impl EntryType<'_> {
    pub(super) fn kind(self) -> EntryKind {
        use AnswerPart::{Call, Image, Reasoning, ServerCall, Text, ToolSearch};
        use EntryKind::{Answer, Fixed, Message, Output, Unknown};
        // A search that the server itself runs needs no output of the client.
        let is_client_search = self.execution != b"server" && self.has_call_id;
        match self.name {
            b"message" | b"" => match self.role {
                b"user" => Message(Role::USER),
                b"system" => Message(Role::SYSTEM),
                b"developer" => Message(Role::DEVELOPER),
                b"assistant" => Answer(Text),
                _ => Fixed,
            },
            b"reasoning" => Answer(Reasoning),
            b"function_call" => Answer(Call(CallShape::Function)),
            b"local_shell_call" => Answer(Call(CallShape::LocalShell)),
            b"custom_tool_call" | b"shell_call" | b"apply_patch_call" => {
                Answer(Call(CallShape::Custom))
            }
            b"computer_call" => Answer(Call(CallShape::Fixed)),
            b"program" => Answer(Call(CallShape::Program)),
            b"mcp_approval_request" => Answer(Call(CallShape::Approval)),
            b"tool_search_call" if is_client_search => Answer(Call(CallShape::ToolSearch)),
            b"tool_search_output" if is_client_search => Output(OutputShape::Fixed),
            b"tool_search_call" | b"tool_search_output" => Answer(ToolSearch),
            b"web_search_call"
            | b"file_search_call"
            | b"code_interpreter_call"
            | b"mcp_call"
            | b"mcp_list_tools" => Answer(ServerCall),
            b"image_generation_call" => Answer(Image),
            b"function_call_output" | b"custom_tool_call_output" | b"apply_patch_call_output" => {
                Output(OutputShape::Text)
            }
            b"local_shell_call_output" => Output(OutputShape::LocalShell),
            b"shell_call_output" => Output(OutputShape::Shell),
            b"computer_call_output" => Output(OutputShape::Screenshot),
            b"program_output" | b"mcp_approval_response" => Output(OutputShape::Fixed),
            b"compaction"
            | b"compaction_summary"
            | b"compaction_trigger"
            | b"item_reference"
            | b"additional_tools"
            | b"configuration_update" => Fixed,
            name if name.ends_with(b"_call") || name.ends_with(b"_request") => {
                Answer(AnswerPart::NewType)
            }
            // The client made it.
            name if name.ends_with(b"_output") || name.ends_with(b"_response") => Fixed,
            _ => Unknown,
        }
    }
}
