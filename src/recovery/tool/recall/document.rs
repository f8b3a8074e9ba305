//! The text that a call of `recall` looks into: one message, or all that were left out, in numbered lines.

use std::ops::Range;

use regex::Regex;

use crate::{
    conversation::{Author, BlockKind, Conversation, Item, units},
    guard::{
        ToolNames,
        recall_id::{EARLIER, RecallId},
    },
    json::text::TextSizes,
};

/// Longer lines count as several, so that any part of a text can be asked for.
const MAX_LINE_CHARS: usize = 500;
/// Bytes of the next part of such a line in which a match may end.
const OVERLAP: usize = 200;

pub(super) struct Document {
    pub(super) messages: Vec<MessageText>,
    pub(super) lines: Vec<NumberedLine>,
    /// Characters by kind of text, about.
    pub(super) sizes: TextSizes,
    /// The document is everything that was left out, and not one message.
    pub(super) is_earlier: bool,
}

/// One message as text.
pub(super) struct MessageText {
    /// Messages before this one, without system messages.
    pub(super) place: usize,
    pub(super) author: String,
    pub(super) text: String,
}

pub(super) struct NumberedLine {
    /// An index of [`Document::messages`].
    pub(super) message: usize,
    /// The line's number in its message, from 1. Later cuts do not change the number.
    pub(super) number: usize,
    /// The line's place in the text of its message, in bytes, without the line end.
    pub(super) bytes: Range<usize>,
}

impl Document {
    /// `None` if there is no message at that place.
    pub(super) fn from_message(conversation: &Conversation, place: usize) -> Option<Self> {
        let at = list_messages(conversation).nth(place)?;
        Some(Self::new(conversation, [(place, at)].into_iter(), false))
    }

    pub(super) fn from_left_out(conversation: &Conversation, left_out: &[Range<u32>]) -> Self {
        let is_left_out = |place: usize| left_out.iter().any(|it| it.contains(&(place as u32)));
        let messages = list_messages(conversation).enumerate();
        let messages = messages.filter(|(place, _)| is_left_out(*place));
        Self::new(conversation, messages, true)
    }

    fn new(
        conversation: &Conversation,
        messages: impl Iterator<Item = (usize, usize)>,
        is_earlier: bool,
    ) -> Self {
        let units = units::split_units(conversation);
        let mut document = Self {
            messages: Vec::new(),
            lines: Vec::new(),
            sizes: TextSizes::default(),
            is_earlier,
        };
        let mut tools = ToolNames::default();
        for (place, at) in messages {
            let item = &conversation.items[at];
            let author = match item.author {
                Author::Tool => match tools.name_tool(conversation, &units, at) {
                    name if name.is_empty() => "tool result".to_owned(),
                    name => format!("result of {name}"),
                },
                Author::Model => "assistant".to_owned(),
                _ if item.by_client => "client".to_owned(),
                _ => "user".to_owned(),
            };
            let text = render_message(conversation, item);
            document.sizes += item.sizes;
            document.split_lines(&text);
            document.messages.push(MessageText {
                place,
                author,
                text,
            });
        }
        document
    }

    fn split_lines(&mut self, text: &str) {
        let message = self.messages.len();
        let first = self.lines.len();
        let mut start = 0;
        let mut push = |bytes| {
            let number = self.lines.len() - first + 1;
            self.lines.push(NumberedLine {
                message,
                number,
                bytes,
            });
        };
        for line in text.split_inclusive('\n') {
            let end = start + line.trim_end_matches('\n').len();
            let mut from = start;
            while let Some((chars, _)) = text[from..end].char_indices().nth(MAX_LINE_CHARS) {
                let bytes = from..from + chars;
                from = bytes.end;
                push(bytes);
            }
            push(from..end);
            start += line.len();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// What the model reads at the head of an answer.
    pub(super) fn title(&self) -> String {
        match &self.messages[..] {
            [only] if !self.is_earlier => self.name_message(only),
            [] => format!("{EARLIER} (no message was left out as a whole so far)"),
            all => format!("{EARLIER} ({} messages left out)", all.len()),
        }
    }

    fn name_message(&self, message: &MessageText) -> String {
        let id = RecallId::of_message(message.place);
        format!("{id}, {}", message.author)
    }

    /// Returns the heading of these lines, which must all be lines of one message.
    pub(super) fn heading(&self, lines: &Range<usize>) -> String {
        let (first, last) = (&self.lines[lines.start], &self.lines[lines.end - 1]);
        let name = if self.is_earlier {
            self.name_message(&self.messages[first.message]) + ": "
        } else {
            String::new()
        };
        match (first.number, last.number) {
            (first, last) if first == last => format!("[{name}line {first}]\n"),
            (first, last) => format!("[{name}lines {first}-{last}]\n"),
        }
    }

    /// The name of a line in a sentence about the document.
    pub(super) fn name_line(&self, line: usize) -> String {
        let line = &self.lines[line];
        if self.is_earlier {
            let id = RecallId::of_message(self.messages[line.message].place);
            format!("{id} line {}", line.number)
        } else {
            line.number.to_string()
        }
    }

    pub(super) fn line_text(&self, line: usize) -> &str {
        let line = &self.lines[line];
        &self.messages[line.message].text[line.bytes.clone()]
    }

    /// Whether a match begins in a line. Each line is searched alone, with [`OVERLAP`] bytes of its next part, so that
    /// the time of a whole search is linear.
    pub(super) fn matches(&self, at: usize, pattern: &Regex) -> bool {
        let line = &self.lines[at];
        let text = &self.messages[line.message].text;
        let next = self.lines.get(at + 1);
        let continued =
            next.filter(|next| next.message == line.message && next.bytes.start == line.bytes.end);
        let mut end = continued.map_or(line.bytes.end, |next| {
            next.bytes.end.min(line.bytes.end + OVERLAP)
        });
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let found = pattern.find(&text[line.bytes.start..end]);
        found.is_some_and(|found| found.start() < line.bytes.len() || line.bytes.is_empty())
    }
}

/// The indices of all messages but system messages.
fn list_messages(conversation: &Conversation) -> impl Iterator<Item = usize> + '_ {
    let items = conversation.items.iter().enumerate();
    items
        .filter(|(_, item)| !item.author.is_system())
        .map(|(at, _)| at)
}

/// The decoded text of the message at a place: its texts, and its calls with their arguments.
pub(super) fn render_place(conversation: &Conversation, place: usize) -> Option<String> {
    let at = list_messages(conversation).nth(place)?;
    Some(render_message(conversation, &conversation.items[at]))
}

fn render_message(conversation: &Conversation, item: &Item) -> String {
    let mut parts: Vec<String> = Vec::new();
    let texts = conversation.texts_of(item);
    parts.extend(texts.map(|text| conversation.decode_text(text).into_owned()));
    let documents = conversation.blocks_of(item).iter();
    let documents = documents.filter(|it| it.kind == BlockKind::Opaque);
    let documents = documents.filter_map(|it| conversation.find_document_text(it.span));
    parts.extend(documents.map(|text| conversation.decode_text(text).into_owned()));
    let media = conversation.blocks_of(item).iter();
    let media = media.filter(|it| matches!(it.kind, BlockKind::Image { .. } | BlockKind::Media));
    parts.extend(media.map(|_| "[an image or attachment, which cannot be recalled]".to_owned()));
    for call in conversation.calls_of(item) {
        let (name, arguments) = conversation.decode_call(call);
        parts.push(format!("call of {name}: {arguments}"));
    }
    parts.join("\n")
}
