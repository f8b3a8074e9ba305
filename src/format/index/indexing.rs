//! What the indexers of all formats share: limits, checks of keys, and the error of a body that cannot be indexed.

use serde::de::IgnoredAny;

use crate::{
    conversation::{Author, Content, Conversation, Field, IndexError, annotation},
    format::values::skip_value,
    json::scan::{JsonKind, JsonScanner, JsonString, MalformedJson, Span},
};

/// Top-level members that are indexed; a body with more is unguardable.
const MAX_FIELDS: usize = 256;
/// Messages, calls, parts and annotations of one body that are indexed. Each takes three bytes or
/// more in the body and up to 144 in the index, so without a bound a small body would fill the memory.
const MAX_ITEMS: usize = 1 << 18;
const BOM: &[u8] = b"\xEF\xBB\xBF";

#[derive(Debug, thiserror::Error)]
pub(in crate::format) enum IndexFailure {
    #[error(transparent)]
    Malformed(#[from] MalformedJson),
    #[error("{0} occurs twice")]
    Twice(&'static str),
    #[error("{0} of a part occurs twice")]
    TwiceInPart(&'static str),
    #[error("{0}")]
    Shape(&'static str),
}

/// Returns [`IndexError::NotJson`] for a body that is not JSON, and [`IndexError::Unguardable`] for JSON that is not
/// understood.
pub(in crate::format) fn classify_failure(body: &[u8], failure: &IndexFailure) -> IndexError {
    match serde_json::from_slice::<IgnoredAny>(&body[find_json_start(body)..]) {
        // It may be valid JSON, nested deeper than serde_json follows.
        Err(error) if !error.to_string().starts_with("recursion limit") => {
            IndexError::NotJson(error.to_string())
        }
        _ => IndexError::Unguardable(failure.to_string()),
    }
}

/// The beginning of the JSON, after a byte order mark.
pub(in crate::format) fn find_json_start(body: &[u8]) -> usize {
    if body.starts_with(BOM) { BOM.len() } else { 0 }
}

pub(in crate::format) fn add_field(
    found: &mut Conversation,
    field: Field,
) -> Result<(), IndexFailure> {
    if found.fields.len() == MAX_FIELDS {
        return Err(IndexFailure::Shape("more than 256 members"));
    }
    let key = |field: &Field| found.raw_bytes(field.key);
    let is_twice = found.fields.iter().any(|other| key(other) == key(&field));
    // A key spelled with escapes could hide one that the proxy acts upon.
    if is_twice || field.key.has_escapes {
        return Err(IndexFailure::Twice(
            "a top-level key (or its escaped spelling)",
        ));
    }
    found.fields.push(field);
    Ok(())
}

/// Fails where the index of a body would be too large with `more` blocks.
pub(in crate::format) fn check_item_count(
    found: &Conversation,
    more: usize,
) -> Result<(), IndexFailure> {
    let count = found.items.len() + found.calls.len() + found.blocks.len() + more;
    if count + found.annotations.len() > MAX_ITEMS {
        Err(IndexFailure::Shape(
            "more than 262,144 messages, calls, parts and annotations",
        ))
    } else {
        Ok(())
    }
}

/// Adds the annotations in an object of the item with this index: the item itself, or the block at `block`.
#[cold]
pub(in crate::format) fn add_annotations(
    found: &mut Conversation,
    object: Span,
    item: usize,
    block: Option<usize>,
) -> Result<(), IndexFailure> {
    annotation::find_annotations(&found.body, object, item, block, &mut found.annotations)?;
    check_item_count(found, 0)
}

/// The content of an item or of a result.
pub(in crate::format) enum ReadContent<P> {
    /// Anything but a list of objects.
    Plain(Content),
    /// The list, brackets included, and its parts.
    Parts(Span, Vec<P>),
}

/// Reads any value as a content. `read_part` reads an object of a list; it gets the number of objects before that one.
pub(in crate::format) fn read_content<'a, P>(
    scan: &mut JsonScanner<'a>,
    mut read_part: impl FnMut(&mut JsonScanner<'a>, usize) -> Result<P, IndexFailure>,
) -> Result<ReadContent<P>, IndexFailure> {
    match scan.peek() {
        Some(b'"') => return Ok(ReadContent::Plain(Content::Text(scan.take_string()?))),
        Some(b'[') => {}
        _ => {
            let content = match scan.take_value()? {
                (span, JsonKind::Null) => Content::Null(span),
                (span, _) => Content::Other(span),
            };
            return Ok(ReadContent::Plain(content));
        }
    }
    let (mut parts, mut all_objects) = (Vec::new(), true);
    let list = scan.walk_array(|scan| {
        if scan.peek() != Some(b'{') {
            all_objects = false;
            return Ok(skip_value(scan)?);
        }
        parts.push(read_part(scan, parts.len())?);
        Ok::<_, IndexFailure>(())
    })?;
    Ok(if all_objects {
        ReadContent::Parts(list, parts)
    } else {
        ReadContent::Plain(Content::Other(list))
    })
}

/// A key spelled with escapes could hide one that the proxy acts upon.
pub(in crate::format) const fn check_plain_key(key: JsonString) -> Result<(), IndexFailure> {
    if key.has_escapes {
        Err(IndexFailure::Shape("an escaped key in a message"))
    } else {
        Ok(())
    }
}

/// The keys that may occur only once in an object, at most 16, and the error for a key that occurs twice.
pub(in crate::format) struct SingleKeys(
    pub(in crate::format) &'static [&'static str],
    pub(in crate::format) fn(&'static str) -> IndexFailure,
);

impl SingleKeys {
    /// Walks an object. `read` takes the value of each key; it gets the key as spelled. Fails if one of the keys occurs
    /// twice, or if a key has escapes.
    pub(in crate::format) fn walk_object<'a>(
        &self,
        body: &'a [u8],
        scan: &mut JsonScanner<'a>,
        mut read: impl FnMut(&mut JsonScanner<'a>, &'a [u8]) -> Result<(), IndexFailure>,
    ) -> Result<Span, IndexFailure> {
        let Self(keys, twice) = self;
        // A bit for each of the keys that was read.
        let mut seen: u16 = 0;
        scan.walk_object(|scan, key| {
            check_plain_key(key)?;
            let key = key.raw_bytes(body);
            if let Some(at) = keys.iter().position(|name| name.as_bytes() == key) {
                if seen & (1 << at) != 0 {
                    return Err(twice(keys[at]));
                }
                seen |= 1 << at;
            }
            read(scan, key)
        })
    }
}

/// The role of an item: its author, and its letter in digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) struct Role {
    pub(in crate::format) author: Author,
    /// The letter of the role in digests. Sessions are found by digests, so the letter never changes.
    pub(in crate::format) tag: u8,
}

impl Role {
    pub(in crate::format) const SYSTEM: Self = Self::new(Author::System, b'S');
    pub(in crate::format) const DEVELOPER: Self = Self::new(Author::System, b'D');
    pub(in crate::format) const USER: Self = Self::new(Author::User, b'U');
    pub(in crate::format) const ASSISTANT: Self = Self::new(Author::Model, b'A');
    pub(in crate::format) const RESULT: Self = Self::new(Author::Tool, b'T');
    /// The legacy result of a `function_call`.
    pub(in crate::format) const FUNCTION_RESULT: Self = Self::new(Author::Tool, b'F');
    pub(in crate::format) const UNKNOWN: Self = Self::new(Author::Unknown, b'?');

    const fn new(author: Author, tag: u8) -> Self {
        Self { author, tag }
    }

    /// The usual role of an author.
    pub(in crate::format) const fn from_author(author: Author) -> Self {
        match author {
            Author::System => Self::SYSTEM,
            Author::User => Self::USER,
            Author::Model => Self::ASSISTANT,
            Author::Tool => Self::RESULT,
            Author::Unknown => Self::UNKNOWN,
        }
    }
}
