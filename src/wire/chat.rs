//! Chat completions: a request body -> [`Conversation`].

use bytes::Bytes;

use super::scan::Span;

/// Where everything lies in one request body. Holds spans, never copies.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The body as the client sent it (decoded, if it came compressed).
    pub body: Bytes,
    /// Top-level members in their order.
    pub fields: Vec<Field>,
    /// The value of `messages`, brackets included.
    pub array: Span,
    pub messages: Vec<Message>,
    /// All calls of all messages; a message names its range.
    pub calls: Vec<Call>,
    /// All content parts of all messages; a message names its range.
    pub parts: Vec<Part>,
}

/// A string of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// Between the quotes.
    pub span: Span,
    /// Whether a backslash stands in it.
    pub escaped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Object,
    Array,
    String,
    Number,
    True,
    False,
    Null,
}

/// One top-level member of the body.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub key: Text,
    /// The value, quotes or brackets included.
    pub value: Span,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
    /// Legacy answers to a `function_call`.
    Function,
    /// A role we do not know: never removed, never edited.
    Other,
}

#[derive(Clone, Debug)]
pub struct Message {
    /// The object, braces included.
    pub span: Span,
    pub role: Role,
    pub content: Content,
    /// Indices into [`Conversation::calls`]; a legacy `function_call` is one call without an id.
    pub calls: std::ops::Range<u32>,
    /// `tool_call_id`.
    pub call_id: Option<Text>,
    /// `name`: the function's in a tool or function message.
    pub name: Option<Text>,
    /// Characters of all text the model reads in this message (content, names, arguments,
    /// reasoning), by kind of text.
    pub sizes: Sizes,
    /// What was said, and nothing else: role, text (a string and one text part alike), media, call
    /// ids, names, arguments, `tool_call_id`. The same for any spelling of the same JSON.
    pub digest: u128,
    /// For an assistant message: role, text and call ids only, as the answer tap can know them.
    /// See [`answer_digest`].
    pub short_digest: u128,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// No `content` member.
    Absent,
    Null,
    Text(Text),
    /// Indices into [`Conversation::parts`], and the array's span, brackets included.
    Parts(std::ops::Range<u32>, Span),
    /// Something else; never edited.
    Other(Span),
}

/// One call of an assistant message.
#[derive(Clone, Debug)]
pub struct Call {
    pub span: Span,
    pub id: Option<Text>,
    pub name: Option<Text>,
    pub arguments: Option<Text>,
}

/// One content part.
#[derive(Clone, Debug)]
pub struct Part {
    /// The object, braces included.
    pub span: Span,
    pub kind: PartKind,
    /// Carries a `cache_control` or `prompt_cache_breakpoint`: never removed.
    pub marked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    Text(Text),
    /// The URL (a data URL or an address), and whether `detail` is `low`.
    Image {
        url: Option<Text>,
        low: bool,
    },
    /// `input_audio`, `video_url`, `file` and other media.
    Media,
    /// Anything else (`refusal`, `thinking`, …): never edited.
    Other,
}

/// Characters (Unicode scalar values of the decoded text) by kind of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// ASCII.
    pub latin: u32,
    /// Chinese characters and full-width punctuation.
    pub han: u32,
    pub kana: u32,
    pub hangul: u32,
    /// Beyond the basic plane, and pictographs.
    pub emoji: u32,
    /// Cyrillic, accented Latin, Arabic and the rest.
    pub other: u32,
}
