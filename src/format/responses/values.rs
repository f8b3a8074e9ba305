//! Reads the values of an entry that hold texts: `content`, `output` and `summary`.

use crate::{
    conversation::{Block, BlockKind, Content, annotation},
    format::{
        index::indexing::{IndexFailure, SeenKeys, check_item_count, check_plain_key},
        values::{skip_value, take_text},
    },
    json::scan::{JsonKind, JsonScanner, JsonString, Span},
};

use crate::conversation::Conversation;

/// The keys of a part that may stand in it only once.
const PART_KEYS: &[&str] = &["type", "text", "image_url", "detail", "stdout", "stderr"];

/// A value with texts.
pub(super) enum TextValue<'a> {
    /// A single value that is no list of objects.
    Plain(Content),
    Parts(Span, Vec<ValuePart<'a>>),
    Object(ValuePart<'a>),
}

/// An object of a list, or one in the place of it.
pub(super) struct ValuePart<'a> {
    pub(super) span: Span,
    kind: &'a [u8],
    text: Option<JsonString>,
    image: Option<JsonString>,
    low: bool,
    pub(super) stdout: Option<JsonString>,
    pub(super) stderr: Option<JsonString>,
    pub(super) marked: bool,
    pub(super) annotated: bool,
}

impl ValuePart<'_> {
    pub(super) const fn block(&self) -> Block {
        let kind = match (self.kind, self.text) {
            (b"input_text" | b"output_text" | b"text" | b"", Some(text)) => BlockKind::Text(text),
            (b"input_image" | b"computer_screenshot", _) => BlockKind::Image {
                url: self.image,
                low: self.low,
            },
            (b"input_file" | b"input_audio", _) => BlockKind::Media,
            _ => BlockKind::Opaque,
        };
        Block {
            span: self.span,
            kind,
            marked: self.marked,
        }
    }

    /// The text of a part of any type.
    pub(super) const fn any_text(&self) -> Option<JsonString> {
        self.text
    }
}

pub(super) struct ValueReader<'a, 'f> {
    pub(super) body: &'a [u8],
    /// What is indexed so far, for the bound on it.
    pub(super) found: &'f Conversation,
}

impl<'a> ValueReader<'a, '_> {
    fn raw_bytes(&self, text: JsonString) -> &'a [u8] {
        &self.body[text.span.range()]
    }

    pub(super) fn read_value(
        &self,
        scan: &mut JsonScanner<'a>,
    ) -> Result<TextValue<'a>, IndexFailure> {
        let plain = match scan.peek() {
            Some(b'"') => Content::Text(scan.take_string()?),
            Some(b'[') => return self.read_parts(scan),
            Some(b'{') => return self.read_part(scan).map(TextValue::Object),
            _ => match scan.take_value()? {
                (span, JsonKind::Null) => Content::Null(span),
                (span, _) => Content::Other(span),
            },
        };
        Ok(TextValue::Plain(plain))
    }

    fn read_parts(&self, scan: &mut JsonScanner<'a>) -> Result<TextValue<'a>, IndexFailure> {
        let mut parts = Vec::new();
        let mut all_objects = true;
        let span = scan.walk_array(|scan| {
            if scan.peek() != Some(b'{') {
                all_objects = false;
                return Ok(skip_value(scan)?);
            }
            parts.push(self.read_part(scan)?);
            // A chunk of a shell has two texts.
            check_item_count(self.found, 2 * parts.len())
        })?;
        Ok(match all_objects {
            true => TextValue::Parts(span, parts),
            false => TextValue::Plain(Content::Other(span)),
        })
    }

    fn read_part(&self, scan: &mut JsonScanner<'a>) -> Result<ValuePart<'a>, IndexFailure> {
        let mut seen = SeenKeys::default();
        let mut part = ValuePart {
            span: Span::default(),
            kind: b"",
            text: None,
            image: None,
            low: false,
            stdout: None,
            stderr: None,
            marked: false,
            annotated: false,
        };
        part.span = scan.walk_object(|scan, key| {
            check_plain_key(key)?;
            let key = self.raw_bytes(key);
            seen.mark_once(PART_KEYS, key, IndexFailure::TwiceInPart)?;
            match key {
                b"type" => part.kind = take_text(scan)?.map_or(b"", |it| self.raw_bytes(it)),
                b"text" => part.text = take_text(scan)?,
                b"image_url" => part.image = take_text(scan)?,
                b"detail" => {
                    part.low = take_text(scan)?.is_some_and(|it| self.raw_bytes(it) == b"low");
                }
                b"stdout" => part.stdout = take_text(scan)?,
                b"stderr" => part.stderr = take_text(scan)?,
                b"prompt_cache_breakpoint" | b"cache_control" => {
                    part.marked |= scan.take_value()?.1 != JsonKind::Null;
                }
                key => {
                    part.annotated |= key == annotation::ANNOTATION_KEY;
                    skip_value(scan)?;
                }
            }
            Ok::<_, IndexFailure>(())
        })?;
        Ok(part)
    }
}
