//! What the layers above put into requests and answers, in the request's own format.
//!
//! A text that is called `escaped` is given as it stands between the quotes of a JSON string.

use std::borrow::Cow;

use bytes::Bytes;

#[cfg(test)]
use super::tests::toy;
use super::{AssistantTurn, ProxyToolCall, chat, usage::Usage};
use crate::conversation::{Author, Content, Conversation, Format, IndexError, edit::Edits};

/// A request for one text, of a model that is told all it needs in one user message.
pub struct TextRequest<'a> {
    pub model: &'a str,
    /// Not escaped.
    pub text: &'a str,
    pub limit: AnswerLimit,
}

/// The longest answer that the proxy asks for in a request of its own.
#[derive(Clone, Copy, Debug)]
pub struct AnswerLimit {
    pub tokens: u32,
    /// The provider is OpenAI itself, or Azure: models that think refuse the older name of the limit there.
    /// Other engines know no other.
    pub is_openai: bool,
}

impl Format {
    /// Indexes a request body.
    pub fn index_body(self, body: Bytes) -> Result<Conversation, IndexError> {
        match self {
            Self::Chat => chat::index_body(body),
            #[cfg(test)]
            Self::Toy => toy::index(body),
        }
    }

    /// Indexes whole items; `None` where they are not just these.
    pub fn index_items(self, items: &[&str]) -> Option<Conversation> {
        let items_alone = match self {
            Self::Chat => chat::write::wrap_messages(items),
            #[cfg(test)]
            Self::Toy => toy::request_of(items),
        };
        let read = self.index_body(Bytes::from(items_alone)).ok()?;
        (read.items.len() == items.len() && read.fields.len() == 1).then_some(read)
    }

    /// An item that says an escaped text; by the user or the model.
    pub fn text_item(self, author: Author, escaped: &str) -> String {
        match self {
            Self::Chat => chat::write::text_item(author, escaped),
            #[cfg(test)]
            Self::Toy => toy::text_item(author, escaped),
        }
    }

    /// A block of an escaped text.
    pub fn text_block(self, escaped: &str) -> String {
        match self {
            Self::Chat => chat::write::text_block(escaped),
            #[cfg(test)]
            Self::Toy => toy::text_block(escaped),
        }
    }

    /// An answer of the model that makes these calls and says nothing.
    pub fn calls_item(self, calls: &[&str]) -> String {
        match self {
            Self::Chat => chat::write::calls_item(calls),
            #[cfg(test)]
            Self::Toy => toy::calls_item(calls),
        }
    }

    /// An answer of the model as an item of the next request. `max_bytes`: a longer one is reduced to its calls
    /// or its continuation block; `max_argument_bytes`: so are the arguments of a call.
    pub fn answer_item(
        self,
        spoken: &AssistantTurn,
        max_bytes: usize,
        max_argument_bytes: usize,
    ) -> Box<str> {
        match self {
            Self::Chat => chat::write::answer_item(spoken, max_bytes, max_argument_bytes),
            #[cfg(test)]
            Self::Toy => toy::answer_item(spoken),
        }
    }

    /// A call as it is sent again; longer arguments are left out.
    pub fn write_call(self, call: &ProxyToolCall, max_argument_bytes: usize) -> Cow<'_, str> {
        match self {
            Self::Chat => chat::write::write_call(call, max_argument_bytes),
            #[cfg(test)]
            Self::Toy => Cow::Borrowed(&call.json),
        }
    }

    /// The item that answers a call with a text (not escaped).
    pub fn result_item(self, call: &ProxyToolCall, text: &str) -> Box<str> {
        match self {
            Self::Chat => chat::write::result_item(call, text),
            #[cfg(test)]
            Self::Toy => toy::result_item(call, text),
        }
    }

    /// What stands in the place of a content that is left out beside calls.
    pub const fn empty_content(self) -> &'static str {
        match self {
            Self::Chat => "null",
            #[cfg(test)]
            Self::Toy => "false",
        }
    }

    /// A whole request for one text.
    pub fn text_request(self, request: &TextRequest<'_>) -> Bytes {
        match self {
            Self::Chat => chat::write::text_request(request),
            #[cfg(test)]
            Self::Toy => toy::text_request(request),
        }
    }

    /// The end of an answer of which the proxy has taken out everything: a body, or the last events of a stream.
    pub fn empty_answer(self, streamed: bool, model: &str, usage: Option<Usage>) -> Bytes {
        match self {
            Self::Chat => chat::write::empty_answer(streamed, model, usage),
            #[cfg(test)]
            Self::Toy => Bytes::new(),
        }
    }
}

impl Conversation {
    /// Adds an escaped text at the end of an item: a paragraph of a string, a block of a list. Does nothing to any
    /// other content.
    pub fn append_text(&self, at: usize, escaped: &str, edits: &mut Edits) {
        match &self.items[at].content {
            Content::Text(text) => {
                let gap = if text.span.is_empty() { "" } else { "\\n\\n" };
                edits.insert(text.span.end, format!("{gap}{escaped}"));
            }
            Content::Blocks(blocks, list) => {
                let comma = if blocks.is_empty() { "" } else { "," };
                let block = self.format.text_block(escaped);
                edits.insert(list.end - 1, format!("{comma}{block}"));
            }
            Content::Absent | Content::Null(_) | Content::Other(_) => {}
        }
    }

    /// Asks `model` for one text, and for nothing that would give the answer another shape.
    pub fn ask_for_text(&self, model: &str, limit: AnswerLimit, edits: &mut Edits) {
        match self.format {
            Format::Chat => chat::summary::ask_for_text(self, model, limit, edits),
            #[cfg(test)]
            Format::Toy => toy::ask_for_text(self, model, limit, edits),
        }
    }
}
