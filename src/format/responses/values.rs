//! Reads the values of an entry that hold texts: `content`, `output` and `summary`.

use crate::{
    conversation::{Block, BlockKind, Content, Conversation, annotation},
    format::{
        index::indexing::{IndexFailure, ReadContent, SingleKeys, check_item_count, read_content},
        values::{skip_value, take_raw_text, take_text},
    },
    json::scan::{JsonKind, JsonScanner, JsonString, Span},
};

/// The keys that may occur only once in a part.
const PART_KEYS: SingleKeys = SingleKeys(
    &["type", "text", "image_url", "detail", "stdout", "stderr"],
    IndexFailure::TwiceInPart,
);

/// A value with texts.
pub(super) enum TextValue<'a> {
    /// Any value that is neither an object nor a list of objects.
    Plain(Content),
    Parts(Span, Vec<ValuePart<'a>>),
    Object(ValuePart<'a>),
}

impl Default for TextValue<'_> {
    fn default() -> Self {
        Self::Plain(Content::Absent)
    }
}

/// An object in a list, or an object that is the whole value.
#[derive(Default)]
pub(super) struct ValuePart<'a> {
    pub(super) span: Span,
    kind: &'a [u8],
    text: Option<JsonString>,
    image: Option<JsonString>,
    low: bool,
    stdout: Option<JsonString>,
    stderr: Option<JsonString>,
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

    /// Returns the texts that a command wrote, from one chunk of its output. They are marked, so that the chunk around
    /// them stays.
    pub(super) fn shell_texts(&self) -> impl Iterator<Item = Block> {
        let span = self.span;
        let texts = [self.stdout, self.stderr].into_iter().flatten();
        texts.map(move |text| Block {
            span,
            kind: BlockKind::Text(text),
            marked: true,
        })
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
    pub(super) fn read_value(
        &self,
        scan: &mut JsonScanner<'a>,
    ) -> Result<TextValue<'a>, IndexFailure> {
        if scan.peek() == Some(b'{') {
            return self.read_part(scan).map(TextValue::Object);
        }
        let read = read_content(scan, |scan, count| {
            let part = self.read_part(scan)?;
            // A chunk of a shell has two texts.
            check_item_count(self.found, 2 * (count + 1))?;
            Ok(part)
        })?;
        Ok(match read {
            ReadContent::Plain(content) => TextValue::Plain(content),
            ReadContent::Parts(list, parts) => TextValue::Parts(list, parts),
        })
    }

    fn read_part(&self, scan: &mut JsonScanner<'a>) -> Result<ValuePart<'a>, IndexFailure> {
        let mut part = ValuePart::default();
        part.span = PART_KEYS.walk_object(self.body, scan, |scan, key| {
            match key {
                b"type" => part.kind = take_raw_text(self.body, scan)?,
                b"text" => part.text = take_text(scan)?,
                b"image_url" => part.image = take_text(scan)?,
                b"detail" => part.low = take_raw_text(self.body, scan)? == b"low",
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
            Ok(())
        })?;
        Ok(part)
    }
}
