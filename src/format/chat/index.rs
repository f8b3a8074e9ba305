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
        Annotation, Author, Block, BlockKind, Call, Content, Conversation, Field, Format,
        IndexError, Item, annotation,
    },
    format::describe::{ItemSource, describe_item},
    json::{
        scan::{JsonKind, JsonScanner, JsonString, MalformedJson, Span},
        text::{self, TextSizes},
    },
};

/// Top-level members that are followed; a body with more of them is none we know.
const MAX_FIELDS: usize = 256;
/// Messages, calls, parts and annotations of one body that are followed. Each takes some three bytes at least
/// in the body and up to 128 in the index: without a bound a small body would fill the memory.
const MAX_ITEMS: usize = 1 << 18;

/// Indexes a request body.
pub fn index_body(body: Bytes) -> Result<Conversation, IndexError> {
    match ChatIndexer::run(&body) {
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
        Err(stop) => Err(classify_failure(&body, &stop)),
    }
}

/// Tells JSON that we cannot follow from what is no JSON.
fn classify_failure(body: &[u8], stop: &IndexFailure) -> IndexError {
    let json = body.strip_prefix(BOM).unwrap_or(body);
    match serde_json::from_slice::<IgnoredAny>(json) {
        // Deeper than serde_json follows: not for us to refuse.
        Err(error) if !error.to_string().starts_with("recursion limit") => {
            IndexError::NotJson(error.to_string())
        }
        _ => IndexError::Unguardable(stop.to_string()),
    }
}

const BOM: &[u8] = b"\xEF\xBB\xBF";

#[derive(Debug, thiserror::Error)]
enum IndexFailure {
    #[error(transparent)]
    Malformed(#[from] MalformedJson),
    #[error("{0} stands twice")]
    Twice(&'static str),
    #[error("{0}")]
    Shape(&'static str),
}

#[derive(Default)]
struct ChatIndexer<'a> {
    body: &'a [u8],
    span: Span,
    fields: Vec<Field>,
    list: Span,
    items: Vec<Item>,
    calls: Vec<Call>,
    blocks: Vec<Block>,
    annotations: Vec<Annotation>,
}

impl<'a> ChatIndexer<'a> {
    fn run(body: &'a [u8]) -> Result<Self, IndexFailure> {
        let start = if body.starts_with(BOM) { BOM.len() } else { 0 };
        let mut scan = JsonScanner::new(body, start);
        let mut this = Self {
            body,
            ..Self::default()
        };
        let mut messages = None;
        this.span = scan.walk_object(|scan, key| {
            let kind = scan.peek();
            let (value, kind) = if this.is_key(key, "messages") && kind == Some(b'[') {
                if messages.is_some() {
                    return Err(IndexFailure::Twice("messages"));
                }
                let array = this.read_messages(scan)?;
                messages = Some(array);
                (array, JsonKind::Array)
            } else {
                scan.take_value()?
            };
            this.add_field(Field { key, value, kind })
        })?;
        scan.expect_end()?;
        this.list = messages.ok_or(IndexFailure::Shape("no array of messages"))?;
        Ok(this)
    }

    fn add_field(&mut self, field: Field) -> Result<(), IndexFailure> {
        if self.fields.len() == MAX_FIELDS {
            return Err(IndexFailure::Shape("more than 256 members"));
        }
        // A key spelled with escapes could hide one we act upon.
        let twice = self
            .fields
            .iter()
            .any(|other| self.span_bytes(other.key.span) == self.span_bytes(field.key.span));
        if twice || field.key.has_escapes() {
            return Err(IndexFailure::Twice(
                "a top-level key (or its escaped spelling)",
            ));
        }
        self.fields.push(field);
        Ok(())
    }

    fn span_bytes(&self, span: Span) -> &'a [u8] {
        &self.body[span.range()]
    }

    fn is_key(&self, key: JsonString, name: &str) -> bool {
        self.span_bytes(key.span) == name.as_bytes()
    }

    fn read_messages(&mut self, scan: &mut JsonScanner<'a>) -> Result<Span, IndexFailure> {
        // Messages of agents are a few hundred bytes and more: one allocation for most bodies.
        self.items.reserve(self.body.len() / 1024);
        scan.walk_array(|scan| {
            if scan.peek() != Some(b'{') {
                return Err(IndexFailure::Shape("a message that is not an object"));
            }
            let message = self.read_message(scan)?;
            self.items.push(message);
            self.check_item_count()
        })
    }

    fn check_item_count(&self) -> Result<(), IndexFailure> {
        let said = self.items.len() + self.calls.len() + self.blocks.len();
        if said + self.annotations.len() > MAX_ITEMS {
            return Err(IndexFailure::Shape(
                "more than 262,144 messages, calls, parts and annotations",
            ));
        }
        Ok(())
    }

    fn read_message(&mut self, scan: &mut JsonScanner<'a>) -> Result<Item, IndexFailure> {
        let mut seen = SeenKeys::default();
        let mut role = Role::default();
        let mut content = Content::Absent;
        let (mut call_id, mut name) = (None, None);
        let first_call = self.calls.len() as u32;
        let first_annotation = self.annotations.len();
        let mut annotated = false;
        let mut reasoning = TextSizes::default();
        let span = scan.walk_object(|scan, key| {
            check_plain_key(key)?;
            match self.span_bytes(key.span) {
                b"role" => {
                    seen.mark_once(1, "role")?;
                    role = self.read_role(scan)?;
                }
                b"content" => {
                    seen.mark_once(2, "content")?;
                    content = self.read_content(scan)?;
                }
                b"tool_calls" => {
                    seen.mark_once(4, "tool_calls")?;
                    self.read_tool_calls(scan)?;
                }
                b"function_call" => {
                    seen.mark_once(8, "function_call")?;
                    self.read_function_call(scan)?;
                }
                b"tool_call_id" => {
                    seen.mark_once(16, "tool_call_id")?;
                    call_id = read_optional_text(scan)?;
                }
                b"name" => {
                    seen.mark_once(32, "name")?;
                    name = read_optional_text(scan)?;
                }
                b"reasoning_content" => {
                    if let Some(text) = read_optional_text(scan)? {
                        reasoning += text::measure_and_digest(self.body, text).0;
                    }
                }
                annotation::ANNOTATION_KEY => {
                    annotated = true;
                    scan.take_value()?;
                }
                _ => {
                    scan.take_value()?;
                }
            }
            Ok::<_, IndexFailure>(())
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
            self.add_annotations(span, None)?;
            self.annotations[first_annotation..].sort_by_key(|it| it.span.start);
        }
        let annotations = &self.annotations[first_annotation..];
        let listed = ItemSource {
            body: self.body,
            calls: &self.calls,
            blocks: &self.blocks,
            annotations,
        };
        describe_item(&listed, role.tag, &mut message);
        if role == FUNCTION {
            // It answers the call without an id, whatever it says.
            message.call_id = None;
        }
        Ok(message)
    }

    /// Notes the annotations of the message that is being read, or of a part of it.
    #[cold]
    fn add_annotations(&mut self, object: Span, part: Option<usize>) -> Result<(), IndexFailure> {
        let message = self.items.len();
        annotation::find_annotations(self.body, object, message, part, &mut self.annotations)?;
        self.check_item_count()
    }

    fn read_role(&self, scan: &mut JsonScanner<'a>) -> Result<Role, IndexFailure> {
        let (span, kind) = scan.take_value()?;
        if kind != JsonKind::String {
            return Ok(Role::default());
        }
        Ok(match self.span_bytes(span) {
            b"\"system\"" => Role::new(Author::System, b'S'),
            b"\"developer\"" => Role::new(Author::System, b'D'),
            b"\"user\"" => Role::new(Author::User, b'U'),
            b"\"assistant\"" => Role::new(Author::Model, b'A'),
            b"\"tool\"" => Role::new(Author::Tool, b'T'),
            b"\"function\"" => FUNCTION,
            _ => Role::default(),
        })
    }

    fn read_content(&mut self, scan: &mut JsonScanner<'a>) -> Result<Content, IndexFailure> {
        match scan.peek() {
            Some(b'"') => Ok(Content::Text(scan.take_string()?)),
            Some(b'[') => {
                let first = self.blocks.len() as u32;
                let first_annotation = self.annotations.len();
                let mut known = true;
                let span = scan.walk_array(|scan| {
                    if scan.peek() == Some(b'{') {
                        let part = self.read_part(scan)?;
                        self.blocks.push(part);
                        self.check_item_count()?;
                    } else {
                        scan.take_value()?;
                        known = false;
                    }
                    Ok::<_, IndexFailure>(())
                })?;
                if !known {
                    self.blocks.truncate(first as usize);
                    let astray = &mut self.annotations[first_annotation..];
                    astray.iter_mut().for_each(Annotation::mark_odd);
                    return Ok(Content::Other(span));
                }
                Ok(Content::Blocks(first..self.blocks.len() as u32, span))
            }
            _ => {
                let (span, kind) = scan.take_value()?;
                Ok(if kind == JsonKind::Null {
                    Content::Null(span)
                } else {
                    Content::Other(span)
                })
            }
        }
    }

    fn read_part(&mut self, scan: &mut JsonScanner<'a>) -> Result<Block, IndexFailure> {
        let mut seen = SeenKeys::default();
        let (mut kind, mut text, mut image) = (None, None, None);
        let (mut marked, mut annotated) = (false, false);
        let span = scan.walk_object(|scan, key| {
            check_plain_key(key)?;
            match self.span_bytes(key.span) {
                b"type" => {
                    seen.mark_once(1, "type of a part")?;
                    kind = read_optional_text(scan)?;
                }
                b"text" => {
                    seen.mark_once(2, "text of a part")?;
                    text = read_optional_text(scan)?;
                }
                b"image_url" => {
                    seen.mark_once(4, "image_url of a part")?;
                    image = Some(self.read_image(scan)?);
                }
                b"cache_control" | b"prompt_cache_breakpoint" => {
                    marked |= scan.take_value()?.1 != JsonKind::Null;
                }
                annotation::ANNOTATION_KEY => {
                    annotated = true;
                    scan.take_value()?;
                }
                _ => {
                    scan.take_value()?;
                }
            }
            Ok::<_, IndexFailure>(())
        })?;
        if annotated {
            self.add_annotations(span, Some(self.blocks.len()))?;
        }
        let kind = match (kind.map(|kind| self.span_bytes(kind.span)), text, image) {
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
    fn read_image(
        &self,
        scan: &mut JsonScanner<'a>,
    ) -> Result<(Option<JsonString>, bool), IndexFailure> {
        if scan.peek() != Some(b'{') {
            return Ok((read_optional_text(scan)?, false));
        }
        let (mut url, mut low) = (None, false);
        scan.walk_object(|scan, key| {
            check_plain_key(key)?;
            match self.span_bytes(key.span) {
                b"url" => url = read_optional_text(scan)?,
                b"detail" => {
                    low = read_optional_text(scan)?
                        .is_some_and(|text| self.span_bytes(text.span) == b"low");
                }
                _ => {
                    scan.take_value()?;
                }
            }
            Ok::<_, IndexFailure>(())
        })?;
        Ok((url, low))
    }

    fn read_tool_calls(&mut self, scan: &mut JsonScanner<'a>) -> Result<(), IndexFailure> {
        match scan.peek() {
            Some(b'[') => {
                scan.walk_array(|scan| {
                    if scan.peek() != Some(b'{') {
                        return Err(IndexFailure::Shape("a call that is not an object"));
                    }
                    let call = self.read_tool_call(scan)?;
                    self.calls.push(call);
                    self.check_item_count()
                })?;
                Ok(())
            }
            _ => match scan.take_value()?.1 {
                JsonKind::Null => Ok(()),
                _ => Err(IndexFailure::Shape("tool_calls that is not an array")),
            },
        }
    }

    fn read_tool_call(&mut self, scan: &mut JsonScanner<'a>) -> Result<Call, IndexFailure> {
        let mut id = None;
        let (mut name, mut arguments) = (None, None);
        let span = scan.walk_object(|scan, key| {
            check_plain_key(key)?;
            match self.span_bytes(key.span) {
                b"id" => id = read_optional_text(scan)?,
                // `custom` calls carry `input` where functions carry `arguments`.
                b"function" | b"custom" if scan.peek() == Some(b'{') => {
                    (name, arguments) = self.read_function(scan)?.1;
                }
                _ => {
                    scan.take_value()?;
                }
            }
            Ok::<_, IndexFailure>(())
        })?;
        Ok(Call {
            span,
            id,
            name,
            arguments,
            listed: true,
        })
    }

    fn read_function_call(&mut self, scan: &mut JsonScanner<'a>) -> Result<(), IndexFailure> {
        if scan.peek() != Some(b'{') {
            scan.take_value()?;
            return Ok(());
        }
        let (span, (name, arguments)) = self.read_function(scan)?;
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
    fn read_function(
        &self,
        scan: &mut JsonScanner<'a>,
    ) -> Result<(Span, (Option<JsonString>, Option<JsonString>)), IndexFailure> {
        let (mut name, mut arguments) = (None, None);
        let span = scan.walk_object(|scan, key| {
            check_plain_key(key)?;
            match self.span_bytes(key.span) {
                b"name" => name = read_optional_text(scan)?,
                b"arguments" | b"input" => arguments = read_optional_text(scan)?,
                _ => {
                    scan.take_value()?;
                }
            }
            Ok::<_, IndexFailure>(())
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
struct SeenKeys(u8);

impl SeenKeys {
    fn mark_once(&mut self, bit: u8, name: &'static str) -> Result<(), IndexFailure> {
        if self.0 & bit != 0 {
            return Err(IndexFailure::Twice(name));
        }
        self.0 |= bit;
        Ok(())
    }
}

/// A key spelled with escapes could hide one we act upon.
const fn check_plain_key(key: JsonString) -> Result<(), IndexFailure> {
    if key.has_escapes() {
        return Err(IndexFailure::Shape("an escaped key in a message"));
    }
    Ok(())
}

/// Takes a value; gives it where it is a string.
fn read_optional_text(scan: &mut JsonScanner<'_>) -> Result<Option<JsonString>, MalformedJson> {
    if scan.peek() == Some(b'"') {
        scan.take_string().map(Some)
    } else {
        scan.take_value().map(|_| None)
    }
}
