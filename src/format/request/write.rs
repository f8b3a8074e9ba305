//! Writes items and texts of the layers above in the format of the request.
//!
//! A text named `escaped` is the raw content of a JSON string.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;

#[cfg(test)]
use crate::format::tests::toy;
use crate::{
    conversation::{Author, Content, Conversation, Field, Format, ItemPlace, edit::Edits},
    format::{AssistantTurn, ProxyToolCall, chat, messages, responses},
    json::scan::{JsonKind, Span},
};

/// A request for one text, with one user message.
pub struct TextRequest<'a> {
    pub model: &'a str,
    /// Not escaped.
    pub text: &'a str,
    pub limit: AnswerLimit,
}

/// The answer cap of a request that the proxy makes itself.
#[derive(Clone, Copy, Debug)]
pub struct AnswerLimit {
    pub tokens: u32,
    /// Chat completions take `max_completion_tokens`, and reasoning models refuse `max_tokens`. Many engines know no other
    /// name than that.
    pub names_completion_cap: bool,
}

impl Format {
    /// An item with an escaped text, by the model or the user; in Messages and Responses also by the system. Any other
    /// author becomes the user.
    pub fn text_item(self, author: Author, escaped: &str) -> String {
        in_format!(self, write::text_item(author, escaped))
    }

    /// Items of this format as entries of a list, with commas between them.
    pub fn write_entries(self, items: &[&str]) -> String {
        match self {
            Self::Messages => messages::write::write_entries(items),
            Self::Chat | Self::Responses => items.join(","),
            #[cfg(test)]
            Self::Toy => items.join(","),
        }
    }

    pub fn text_block(self, escaped: &str) -> String {
        match self {
            Self::Chat | Self::Messages => chat::write::text_block(escaped),
            Self::Responses => responses::write::text_block(escaped),
            #[cfg(test)]
            Self::Toy => toy::write::text_block(escaped),
        }
    }

    /// A text of an answer, beside its calls and its reasoning.
    pub(crate) fn text_in_answer(self, escaped: &str) -> String {
        match self {
            Self::Responses => self.text_item(Author::Model, escaped),
            Self::Chat | Self::Messages => self.text_block(escaped),
            #[cfg(test)]
            Self::Toy => self.text_block(escaped),
        }
    }

    /// An answer of the model with these calls and without text.
    pub fn calls_item(self, calls: &[&str]) -> String {
        in_format!(self, write::calls_item(calls))
    }

    /// An answer of the model as an item of the next request. An answer above `max_bytes` is reduced
    /// to its calls or its continuation block, and in Messages and Responses its reasoning; `None` where that is still
    /// too long. Arguments above `max_argument_bytes` are left out.
    pub fn answer_item(
        self,
        turn: &AssistantTurn,
        max_bytes: usize,
        max_argument_bytes: usize,
    ) -> Option<Box<str>> {
        match self {
            Self::Chat => {
                let item = chat::write::answer_item(turn, max_bytes, max_argument_bytes);
                Some(item)
            }
            Self::Messages | Self::Responses => {
                messages::write::answer_item(self, turn, max_bytes, max_argument_bytes)
            }
            #[cfg(test)]
            Self::Toy => Some(toy::write::answer_item(turn)),
        }
    }

    /// A call of the next request; arguments above `max_argument_bytes` are left out.
    pub fn write_call(self, call: &ProxyToolCall, max_argument_bytes: usize) -> Cow<'_, str> {
        match call.is_overlong(max_argument_bytes) {
            true => in_format!(self, write::write_empty_call(call))
                .to_string()
                .into(),
            false => Cow::Borrowed(&call.json),
        }
    }

    /// The result of a call, for [`Self::write_entries`] or for a place among other results; `text` is not escaped.
    pub fn result_item(self, call: &ProxyToolCall, text: &str) -> Box<str> {
        in_format!(self, write::result_item(call, text))
    }

    pub fn text_request(self, request: &TextRequest<'_>) -> Bytes {
        in_format!(self, write::text_request(request))
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

    /// Turns the request into one for a plain text of `model`, without other options of the client.
    pub fn ask_for_text(&self, model: &str, limit: AnswerLimit, edits: &mut Edits) {
        in_format!(
            self.format,
            summary::ask_for_text(self, model, limit, edits)
        )
    }
}

/// The members of a request for one text that only the proxy reads.
pub(in crate::format) struct TextMembers<'a> {
    pub(in crate::format) model: &'a str,
    /// The member that caps the answer, and its value.
    pub(in crate::format) cap: (&'a str, u32),
    /// Members by which the client may demand a call, each with the value that forbids it.
    pub(in crate::format) call_choices: &'a [(&'a str, &'a str)],
    /// Members that are added where the request has none.
    pub(in crate::format) defaults: &'a [(&'a str, &'a str)],
}

impl TextMembers<'_> {
    /// Removes members of `part` and sets these.
    pub(in crate::format) fn write(
        &self,
        part: &Conversation,
        is_dropped: impl Fn(&str) -> bool,
        edits: &mut Edits,
    ) {
        let spans: Vec<Span> = part.fields.iter().map(Field::full_span).collect();
        edits.remove_items(&spans, |at| {
            is_dropped(&part.decode_text(part.fields[at].key))
        });
        let mut added = String::new();
        let mut set = |member: &str, value: &str| match part.find_field(member) {
            Some(field) => edits.replace(field.value, value.to_owned()),
            None => added.push_str(&format!(",\"{member}\":{value}")),
        };
        set("model", &Value::from(self.model).to_string());
        set(self.cap.0, &self.cap.1.to_string());
        if part.find_field("stream").is_some() {
            set("stream", "false");
        }
        let (choices, defaults) = (self.call_choices.iter(), self.defaults.iter());
        let choices = choices.filter(|(name, _)| is_set(part, name));
        let defaults = defaults.filter(|(name, _)| part.find_field(name).is_none());
        for (name, value) in choices.chain(defaults) {
            set(name, value);
        }
        if !added.is_empty() {
            edits.insert(part.span.end - 1, added);
        }
    }
}

/// Whether a top-level member is present and not null.
pub(in crate::format) fn is_set(part: &Conversation, name: &str) -> bool {
    let field = part.find_field(name);
    field.is_some_and(|field| field.kind != JsonKind::Null)
}
