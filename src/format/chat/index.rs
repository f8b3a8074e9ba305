//! The one pass over the body of a chat completions request: every top-level field and every message, with what
//! each message says, its sizes by kind of text and its digest. What the index promises:
//!
//! - spans are exact, whatever the spelling: white space, key order, escapes, a byte order mark;
//! - a body that is JSON but no conversation we can follow (`messages` missing or not an array, a
//!   message that is not an object, a key twice, nesting beyond 1,024 levels, more than 262,144
//!   messages, calls, parts and annotations) is
//!   [`Unindexed::Unguardable`]: it goes on as it came;
//! - a body that is not JSON is [`Unindexed::NotJson`], with the place;
//! - an empty `messages` is a conversation without messages, numbers may be of any length, and
//!   half a surrogate pair in a text is indexed like any other text.

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::{
    conversation::{
        Annotation, Author, Block, BlockKind, Call, Content, Conversation, Field, Format, Item,
        Unindexed, annotation,
    },
    format::describe::{Listed, describe},
    json::{
        scan::{Kind, Malformed, Scan, Span, Text},
        text::{self, Sizes},
    },
};

/// Top-level members that are followed; a body with more of them is none we know.
const MAX_FIELDS: usize = 256;
/// Messages, calls, parts and annotations of one body that are followed. Each takes some three bytes at least
/// in the body and up to 128 in the index: without a bound a small body would fill the memory.
const MAX_ITEMS: usize = 1 << 18;

/// Indexes a request body.
pub fn index(body: Bytes) -> Result<Conversation, Unindexed> {
    match Indexer::run(&body) {
        Ok(found) => Ok(Conversation {
            format: Format::Chat,
            body: body.clone(),
            span: found.span,
            fields: found.fields,
            list: found.list,
            items: found.items,
            calls: found.calls,
            blocks: found.blocks,
            annotations: found.annotations,
        }),
        Err(stop) => Err(unindexed(&body, &stop)),
    }
}

/// Tells JSON that we cannot follow from what is no JSON.
fn unindexed(body: &[u8], stop: &Stop) -> Unindexed {
    let json = body.strip_prefix(BOM).unwrap_or(body);
    match serde_json::from_slice::<IgnoredAny>(json) {
        // Deeper than serde_json follows: not for us to refuse.
        Err(error) if !error.to_string().starts_with("recursion limit") => {
            Unindexed::NotJson(error.to_string())
        }
        _ => Unindexed::Unguardable(stop.to_string()),
    }
}

const BOM: &[u8] = b"\xEF\xBB\xBF";

#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("{0} stands twice")]
    Twice(&'static str),
    #[error("{0}")]
    Shape(&'static str),
}

#[derive(Default)]
struct Indexer<'a> {
    body: &'a [u8],
    span: Span,
    fields: Vec<Field>,
    list: Span,
    items: Vec<Item>,
    calls: Vec<Call>,
    blocks: Vec<Block>,
    annotations: Vec<Annotation>,
}

impl<'a> Indexer<'a> {
    fn run(body: &'a [u8]) -> Result<Self, Stop> {
        let start = if body.starts_with(BOM) { BOM.len() } else { 0 };
        let mut scan = Scan::new(body, start);
        let mut this = Self {
            body,
            ..Self::default()
        };
        let mut messages = None;
        this.span = scan.object(|scan, key| {
            let kind = scan.peek();
            let (value, kind) = if this.is(key, "messages") && kind == Some(b'[') {
                if messages.is_some() {
                    return Err(Stop::Twice("messages"));
                }
                let array = this.array(scan)?;
                messages = Some(array);
                (array, Kind::Array)
            } else {
                scan.value()?
            };
            this.field(Field { key, value, kind })
        })?;
        scan.end()?;
        this.list = messages.ok_or(Stop::Shape("no array of messages"))?;
        Ok(this)
    }

    fn field(&mut self, field: Field) -> Result<(), Stop> {
        if self.fields.len() == MAX_FIELDS {
            return Err(Stop::Shape("more than 256 members"));
        }
        // A key spelled with escapes could hide one we act upon.
        let twice = self
            .fields
            .iter()
            .any(|other| self.bytes(other.key.span) == self.bytes(field.key.span));
        if twice || field.key.escaped() {
            return Err(Stop::Twice("a top-level key (or its escaped spelling)"));
        }
        self.fields.push(field);
        Ok(())
    }

    fn bytes(&self, span: Span) -> &'a [u8] {
        &self.body[span.range()]
    }

    fn is(&self, key: Text, name: &str) -> bool {
        self.bytes(key.span) == name.as_bytes()
    }

    fn array(&mut self, scan: &mut Scan<'a>) -> Result<Span, Stop> {
        // Messages of agents are a few hundred bytes and more: one allocation for most bodies.
        self.items.reserve(self.body.len() / 1024);
        scan.array(|scan| {
            if scan.peek() != Some(b'{') {
                return Err(Stop::Shape("a message that is not an object"));
            }
            let message = self.message(scan)?;
            self.items.push(message);
            self.bounded()
        })
    }

    fn bounded(&self) -> Result<(), Stop> {
        let said = self.items.len() + self.calls.len() + self.blocks.len();
        if said + self.annotations.len() > MAX_ITEMS {
            return Err(Stop::Shape(
                "more than 262,144 messages, calls, parts and annotations",
            ));
        }
        Ok(())
    }

    fn message(&mut self, scan: &mut Scan<'a>) -> Result<Item, Stop> {
        let mut seen = Seen::default();
        let mut role = Role::default();
        let mut content = Content::Absent;
        let (mut call_id, mut name) = (None, None);
        let first_call = self.calls.len() as u32;
        let first_annotation = self.annotations.len();
        let mut annotated = false;
        let mut reasoning = Sizes::default();
        let span = scan.object(|scan, key| {
            plain(key)?;
            match self.bytes(key.span) {
                b"role" => {
                    seen.once(1, "role")?;
                    role = self.role(scan)?;
                }
                b"content" => {
                    seen.once(2, "content")?;
                    content = self.content(scan)?;
                }
                b"tool_calls" => {
                    seen.once(4, "tool_calls")?;
                    self.tool_calls(scan)?;
                }
                b"function_call" => {
                    seen.once(8, "function_call")?;
                    self.function_call(scan)?;
                }
                b"tool_call_id" => {
                    seen.once(16, "tool_call_id")?;
                    call_id = optional(scan)?;
                }
                b"name" => {
                    seen.once(32, "name")?;
                    name = optional(scan)?;
                }
                b"reasoning_content" => {
                    if let Some(text) = optional(scan)? {
                        reasoning += text::describe(self.body, text).0;
                    }
                }
                annotation::KEY => {
                    annotated = true;
                    scan.value()?;
                }
                _ => {
                    scan.value()?;
                }
            }
            Ok::<_, Stop>(())
        })?;
        let mut message = Item {
            span,
            author: role.author,
            content,
            calls: first_call..self.calls.len() as u32,
            call_id,
            name,
            sizes: reasoning,
            digest: 0,
            short_digest: 0,
        };
        if annotated {
            self.annotate(span, None)?;
            self.annotations[first_annotation..].sort_by_key(|it| it.span.start);
        }
        let annotations = &self.annotations[first_annotation..];
        let listed = Listed {
            body: self.body,
            calls: &self.calls,
            blocks: &self.blocks,
            annotations,
        };
        describe(&listed, role.tag, &mut message);
        if role == FUNCTION {
            // It answers the call without an id, whatever it says.
            message.call_id = None;
        }
        Ok(message)
    }

    /// Notes the annotations of the message that is being read, or of a part of it.
    #[cold]
    fn annotate(&mut self, object: Span, part: Option<usize>) -> Result<(), Stop> {
        let message = self.items.len();
        annotation::find(self.body, object, message, part, &mut self.annotations)?;
        self.bounded()
    }

    fn role(&self, scan: &mut Scan<'a>) -> Result<Role, Stop> {
        let (span, kind) = scan.value()?;
        if kind != Kind::String {
            return Ok(Role::default());
        }
        Ok(match self.bytes(span) {
            b"\"system\"" => Role::new(Author::System, b'S'),
            b"\"developer\"" => Role::new(Author::System, b'D'),
            b"\"user\"" => Role::new(Author::User, b'U'),
            b"\"assistant\"" => Role::new(Author::Model, b'A'),
            b"\"tool\"" => Role::new(Author::Tool, b'T'),
            b"\"function\"" => FUNCTION,
            _ => Role::default(),
        })
    }

    fn content(&mut self, scan: &mut Scan<'a>) -> Result<Content, Stop> {
        match scan.peek() {
            Some(b'"') => Ok(Content::Text(scan.string()?)),
            Some(b'[') => {
                let first = self.blocks.len() as u32;
                let first_annotation = self.annotations.len();
                let mut known = true;
                let span = scan.array(|scan| {
                    if scan.peek() == Some(b'{') {
                        let part = self.part(scan)?;
                        self.blocks.push(part);
                        self.bounded()?;
                    } else {
                        scan.value()?;
                        known = false;
                    }
                    Ok::<_, Stop>(())
                })?;
                if !known {
                    self.blocks.truncate(first as usize);
                    let astray = &mut self.annotations[first_annotation..];
                    astray.iter_mut().for_each(Annotation::forget);
                    return Ok(Content::Other(span));
                }
                Ok(Content::Blocks(first..self.blocks.len() as u32, span))
            }
            _ => {
                let (span, kind) = scan.value()?;
                Ok(if kind == Kind::Null {
                    Content::Null(span)
                } else {
                    Content::Other(span)
                })
            }
        }
    }

    fn part(&mut self, scan: &mut Scan<'a>) -> Result<Block, Stop> {
        let mut seen = Seen::default();
        let (mut kind, mut text, mut image) = (None, None, None);
        let (mut marked, mut annotated) = (false, false);
        let span = scan.object(|scan, key| {
            plain(key)?;
            match self.bytes(key.span) {
                b"type" => {
                    seen.once(1, "type of a part")?;
                    kind = optional(scan)?;
                }
                b"text" => {
                    seen.once(2, "text of a part")?;
                    text = optional(scan)?;
                }
                b"image_url" => {
                    seen.once(4, "image_url of a part")?;
                    image = Some(self.image(scan)?);
                }
                b"cache_control" | b"prompt_cache_breakpoint" => {
                    marked |= scan.value()?.1 != Kind::Null;
                }
                annotation::KEY => {
                    annotated = true;
                    scan.value()?;
                }
                _ => {
                    scan.value()?;
                }
            }
            Ok::<_, Stop>(())
        })?;
        if annotated {
            self.annotate(span, Some(self.blocks.len()))?;
        }
        let kind = match (kind.map(|kind| self.bytes(kind.span)), text, image) {
            (Some(b"text") | None, Some(text), _) => BlockKind::Text(text),
            (Some(b"image_url"), _, Some((url, low))) => BlockKind::Image { url, low },
            (
                Some(
                    b"image_url" | b"input_audio" | b"audio" | b"video_url" | b"file" | b"file_url"
                    | b"image" | b"document",
                ),
                ..,
            ) => BlockKind::Media,
            _ => BlockKind::Opaque,
        };
        Ok(Block { span, kind, marked })
    }

    /// `{"url": …, "detail": …}`, or the URL itself as some clients send it.
    fn image(&self, scan: &mut Scan<'a>) -> Result<(Option<Text>, bool), Stop> {
        if scan.peek() != Some(b'{') {
            return Ok((optional(scan)?, false));
        }
        let (mut url, mut low) = (None, false);
        scan.object(|scan, key| {
            plain(key)?;
            match self.bytes(key.span) {
                b"url" => url = optional(scan)?,
                b"detail" => {
                    low = optional(scan)?.is_some_and(|text| self.bytes(text.span) == b"low");
                }
                _ => {
                    scan.value()?;
                }
            }
            Ok::<_, Stop>(())
        })?;
        Ok((url, low))
    }

    fn tool_calls(&mut self, scan: &mut Scan<'a>) -> Result<(), Stop> {
        match scan.peek() {
            Some(b'[') => {
                scan.array(|scan| {
                    if scan.peek() != Some(b'{') {
                        return Err(Stop::Shape("a call that is not an object"));
                    }
                    let call = self.tool_call(scan)?;
                    self.calls.push(call);
                    self.bounded()
                })?;
                Ok(())
            }
            _ => match scan.value()?.1 {
                Kind::Null => Ok(()),
                _ => Err(Stop::Shape("tool_calls that is not an array")),
            },
        }
    }

    fn tool_call(&mut self, scan: &mut Scan<'a>) -> Result<Call, Stop> {
        let mut id = None;
        let (mut name, mut arguments) = (None, None);
        let span = scan.object(|scan, key| {
            plain(key)?;
            match self.bytes(key.span) {
                b"id" => id = optional(scan)?,
                // `custom` calls carry `input` where functions carry `arguments`.
                b"function" | b"custom" if scan.peek() == Some(b'{') => {
                    (name, arguments) = self.function(scan)?.1;
                }
                _ => {
                    scan.value()?;
                }
            }
            Ok::<_, Stop>(())
        })?;
        Ok(Call {
            span,
            id,
            name,
            arguments,
            listed: true,
        })
    }

    fn function_call(&mut self, scan: &mut Scan<'a>) -> Result<(), Stop> {
        if scan.peek() != Some(b'{') {
            scan.value()?;
            return Ok(());
        }
        let (span, (name, arguments)) = self.function(scan)?;
        self.calls.push(Call {
            span,
            id: None,
            name,
            arguments,
            listed: false,
        });
        Ok(())
    }

    #[expect(clippy::type_complexity, reason = "a span and two texts, used twice")]
    fn function(&self, scan: &mut Scan<'a>) -> Result<(Span, (Option<Text>, Option<Text>)), Stop> {
        let (mut name, mut arguments) = (None, None);
        let span = scan.object(|scan, key| {
            plain(key)?;
            match self.bytes(key.span) {
                b"name" => name = optional(scan)?,
                b"arguments" | b"input" => arguments = optional(scan)?,
                _ => {
                    scan.value()?;
                }
            }
            Ok::<_, Stop>(())
        })?;
        Ok((span, (name, arguments)))
    }
}

/// The role of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Role {
    author: Author,
    /// Its letter in digests: sessions are found by them, so it never changes.
    tag: u8,
}

/// The legacy result of a `function_call`.
const FUNCTION: Role = Role::new(Author::Tool, b'F');

impl Role {
    const fn new(author: Author, tag: u8) -> Self {
        Self { author, tag }
    }
}

impl Default for Role {
    /// One that is not known.
    fn default() -> Self {
        Self::new(Author::Unknown, b'?')
    }
}

/// Keys of one object that were met already.
#[derive(Default)]
struct Seen(u8);

impl Seen {
    fn once(&mut self, bit: u8, name: &'static str) -> Result<(), Stop> {
        if self.0 & bit != 0 {
            return Err(Stop::Twice(name));
        }
        self.0 |= bit;
        Ok(())
    }
}

/// A key spelled with escapes could hide one we act upon.
const fn plain(key: Text) -> Result<(), Stop> {
    if key.escaped() {
        return Err(Stop::Shape("an escaped key in a message"));
    }
    Ok(())
}

/// Takes a value; gives it where it is a string.
fn optional(scan: &mut Scan<'_>) -> Result<Option<Text>, Malformed> {
    if scan.peek() == Some(b'"') {
        scan.string().map(Some)
    } else {
        scan.value().map(|_| None)
    }
}
