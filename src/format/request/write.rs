//! Writes items, texts and tools of the layers above in the format of the request.
//!
//! A text named `escaped` is the raw content of a JSON string.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;

#[cfg(test)]
use crate::format::tests::toy;
use crate::{
    conversation::{Author, BlockKind, Content, Conversation, Format, ItemPlace, edit::Edits},
    format::{
        ModelAnswer, ProxyToolCall, chat, messages, responses,
        text_request::{AnswerLimit, TextRequest},
        tools::{ToolForm, ToolSchema},
    },
    json::text::escape_text,
};

impl Format {
    /// An item with an escaped text, by the model or the user; in Messages and Responses also by the system. Any other
    /// author becomes the user.
    pub fn text_item(self, author: Author, escaped: &str) -> String {
        in_format!(self, write::text_item(author, escaped))
    }

    /// Items of this format as entries of a list, with commas between them.
    pub fn write_entries(self, items: &[&str]) -> String {
        by_format!(self,
            Messages => messages::write::write_entries(items);
            else Chat | Responses => items.join(","))
    }

    /// An entry with a summary of the provider's own; `None` where the format has none.
    pub fn write_summary_entry(self, block: &str) -> Option<String> {
        by_format!(self,
            Messages => Some(format!(r#"{{"role":"assistant","content":[{block}]}}"#));
            else Chat | Responses => None)
    }

    /// The block of an answer that is a summary of the provider's own, as it came.
    pub fn read_summary_block(self, answer: &[u8]) -> Option<&str> {
        by_format!(self,
            Messages => messages::summary::read_summary_block(answer);
            else Chat | Responses => None)
    }

    /// The text of such a block; `None` where the summary failed.
    pub fn read_summary_text(self, block: &str) -> Option<String> {
        by_format!(self,
            Messages => messages::summary::read_summary_text(block);
            else Chat | Responses => None)
    }

    pub fn text_block(self, escaped: &str) -> String {
        match self {
            Self::Chat | Self::Messages => chat::write::text_block(escaped),
            Self::Responses => responses::write::text_block(escaped),
            #[cfg(test)]
            Self::Toy => toy::write::text_block(escaped),
        }
    }

    /// Writes a text of an answer, next to its calls and its reasoning.
    pub(crate) fn text_in_answer(self, escaped: &str) -> String {
        by_format!(self,
            Responses => self.text_item(Author::Model, escaped);
            else Chat | Messages => self.text_block(escaped))
    }

    /// An answer of the model with these calls and without text.
    pub fn calls_item(self, calls: &[&str]) -> String {
        in_format!(self, write::calls_item(calls))
    }

    /// An answer of the model as an item of the next request. An answer above `max_bytes` is reduced to its calls, or to
    /// its continuation block; in Messages and Responses also to its reasoning. `None` if the rest is still too long.
    /// Arguments above `max_argument_bytes` are left out.
    pub fn answer_item(
        self,
        said: &ModelAnswer,
        max_bytes: usize,
        max_argument_bytes: usize,
    ) -> Option<Box<str>> {
        let is_overlong = |call: &ProxyToolCall| call.is_overlong(max_argument_bytes);
        let fits = !said.message.is_empty() && said.message.len() <= max_bytes;
        if fits && !said.proxy_calls.iter().any(is_overlong) {
            return Some(said.message.clone());
        }
        // Its calls stay, since the results need them.
        match self {
            Self::Chat => Some(chat::write::reduce_answer(said, max_argument_bytes)),
            Self::Messages | Self::Responses => {
                self.reduce_blocks(said, max_bytes, max_argument_bytes)
            }
            #[cfg(test)]
            Self::Toy => Some(said.message.clone()),
        }
    }

    /// Reduces an answer that is a list of blocks to its thinking, and its calls or its continuation block. Returns
    /// `None` if its thinking is too long to be sent again, or was not kept: servers refuse calls that come back without
    /// the thinking before them.
    fn reduce_blocks(
        self,
        said: &ModelAnswer,
        max_bytes: usize,
        max_argument_bytes: usize,
    ) -> Option<Box<str>> {
        let answer = self.index_items(&[&said.message])?;
        let mut calls = said.proxy_calls.iter();
        let mut blocks: Vec<Cow<'_, str>> = Vec::new();
        for block in &answer.blocks {
            match block.kind {
                BlockKind::Reasoning(_) => {
                    blocks.push(String::from_utf8_lossy(answer.span_bytes(block.span)));
                }
                BlockKind::Call => blocks.push(self.write_call(calls.next()?, max_argument_bytes)),
                _ => {}
            }
        }
        if let ([], Some(package)) = (&said.proxy_calls[..], &said.package) {
            blocks.push(self.text_in_answer(&escape_text(&package.text)).into());
        }
        let item = self.calls_item(&blocks.iter().map(|block| &**block).collect::<Vec<_>>());
        (item.len() <= max_bytes && !blocks.is_empty()).then(|| item.into())
    }

    /// A call of the next request; arguments above `max_argument_bytes` are left out.
    pub fn write_call(self, call: &ProxyToolCall, max_argument_bytes: usize) -> Cow<'_, str> {
        if call.is_overlong(max_argument_bytes) {
            in_format!(self, write::write_empty_call(call))
                .to_string()
                .into()
        } else {
            Cow::Borrowed(&call.json)
        }
    }

    /// Repairs the calls of an answer, so that they can be sent back: with an id, and arguments that are an object.
    /// Providers refuse other calls, although the model may have written them. `id`: makes the id of a call that has
    /// none, from its number.
    pub fn mend_calls(self, said: &mut ModelAnswer, id: impl Fn(usize) -> String) {
        for (nth, call) in said.proxy_calls.iter_mut().enumerate() {
            if call.id.is_empty() && !call.legacy {
                call.id = id(nth).into();
            }
            let Ok(before) = serde_json::from_str::<Value>(&call.json) else {
                continue;
            };
            let mut mended = before.clone();
            in_format!(self, write::mend_call(call, &mut mended));
            if mended == before {
                continue;
            }
            let mended = mended.to_string();
            said.message = if said.message.contains(&*call.json) {
                said.message.replacen(&*call.json, &mended, 1).into()
            } else {
                // The calls go back without what the model said beside them.
                Box::default()
            };
            call.json = mended.into();
        }
    }

    /// The result of a call, for [`Self::write_entries`] or for a place among other results; `text` is not escaped.
    pub fn result_item(self, call: &ProxyToolCall, text: &str) -> Box<str> {
        in_format!(self, write::result_item(call, text))
    }

    /// An entry among the messages that brings tools; empty where the format has none. `schemas`: elements of a list of
    /// tools, with commas between them.
    pub fn write_tools_entry(self, schemas: &str) -> String {
        by_format!(self,
            Messages => messages::tools::write_entry(schemas),
            Responses => responses::tools::write_entry(schemas);
            else Chat => String::new())
    }

    pub fn text_request(self, request: &TextRequest<'_>) -> Bytes {
        in_format!(self, write::text_request(request))
    }
}

impl ProxyToolCall {
    /// Returns the object in the arguments as text, even if it was encoded twice; `{}` if there is no object.
    pub(in crate::format) fn object_text(&self) -> String {
        let parse = |text: &str| serde_json::from_str(text).unwrap_or_default();
        let is_object = |text: &str| matches!(parse(text), Value::Object(_));
        match parse(&self.arguments) {
            Value::Object(_) => self.arguments.to_string(),
            Value::String(inner) if is_object(&inner) => inner,
            _ => "{}".to_owned(),
        }
    }
}

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

impl Conversation {
    /// Appends an escaped text to an item: a paragraph to a string, a block to a list. Any other
    /// content stays as it is.
    pub fn append_text(&self, at: usize, escaped: &str, edits: &mut Edits) {
        match &self.items[at].content {
            Content::Text(text) => {
                let gap = if text.span.is_empty() { "" } else { "\\n\\n" };
                edits.insert(text.span.end, format!("{gap}{escaped}"));
            }
            Content::Blocks(blocks, list) => {
                let comma = if blocks.is_empty() { "" } else { "," };
                let block = self.format.text_block(escaped);
                let end = match self.items[at].place {
                    ItemPlace::Part(_) => self.items[at].span.end,
                    ItemPlace::Whole | ItemPlace::Outside => list.end - 1,
                };
                edits.insert(end, format!("{comma}{block}"));
            }
            Content::Absent | Content::Null(_) | Content::FixedBlocks(..) | Content::Other(_) => {}
        }
    }

    /// Turns the request into a request for a summary by the provider itself. Returns whether the format has such a
    /// request.
    pub fn ask_for_summary(&self, model: &str, edits: &mut Edits) -> bool {
        by_format!(self.format,
            Messages => {
                messages::summary::ask_for_summary(self, model, edits);
                true
            };
            else Chat | Responses => false)
    }

    /// Turns the request into one for a plain text of `model`, without other options of the client.
    pub fn ask_for_text(&self, model: &str, limit: AnswerLimit, edits: &mut Edits) {
        in_format!(
            self.format,
            summary::ask_for_text(self, model, limit, edits)
        )
    }
}
