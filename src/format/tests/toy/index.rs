//! The index of a body of the toy format.

use bytes::Bytes;

use crate::{
    conversation::{
        Author, Block, BlockKind, Call, Content, Conversation, Field, Format, IndexError, Item,
        annotation,
    },
    format::describe::{ItemSource, describe_item},
    json::{
        scan::{JsonKind, JsonScanner, JsonString, MalformedJson, Span},
        text::{self, TextSizes},
    },
};

pub(in crate::format) fn index(body: Bytes) -> Result<Conversation, IndexError> {
    let mut indexer = Indexer {
        body: &body,
        found: Conversation {
            format: Format::Toy,
            body: body.clone(),
            span: Span::default(),
            fields: Vec::new(),
            list: Span::default(),
            items: Vec::new(),
            calls: Vec::new(),
            blocks: Vec::new(),
            annotations: Vec::new(),
        },
    };
    match indexer.read() {
        Ok(()) => Ok(indexer.found),
        Err(malformed) => Err(IndexError::NotJson(malformed.to_string())),
    }
}

struct Indexer<'a> {
    body: &'a [u8],
    found: Conversation,
}

impl<'a> Indexer<'a> {
    fn key(&self, key: JsonString) -> &'a [u8] {
        &self.body[key.span.range()]
    }

    fn read(&mut self) -> Result<(), MalformedJson> {
        self.found.span = JsonScanner::new(self.body, 0).walk_object(|scan, key| {
            let (value, kind) = if self.key(key) == b"log" {
                self.found.list = scan.walk_array(|scan| self.read_entry(scan))?;
                (self.found.list, JsonKind::Array)
            } else {
                scan.take_value()?
            };
            self.found.fields.push(Field { key, value, kind });
            Ok::<_, MalformedJson>(())
        })?;
        Ok(())
    }

    fn read_entry(&mut self, scan: &mut JsonScanner<'a>) -> Result<(), MalformedJson> {
        let (mut author, mut content) = (Author::Unknown, Content::Absent);
        let (mut call_id, mut name) = (None, None);
        let mut sizes = TextSizes::default();
        let first_call = self.found.calls.len() as u32;
        let first_annotation = self.found.annotations.len();
        let span = scan.walk_object(|scan, key| {
            match self.key(key) {
                b"who" => author = take_text(scan)?.map_or(author, |who| author_of(self.key(who))),
                b"says" => content = self.read_content(scan)?,
                b"wants" => self.read_calls(scan)?,
                b"for" => call_id = take_text(scan)?,
                b"alias" => name = take_text(scan)?,
                b"muses" => {
                    if let Some(text) = take_text(scan)? {
                        sizes += text::measure_text(self.key(text));
                    }
                }
                _ => {
                    scan.take_value()?;
                }
            }
            Ok::<_, MalformedJson>(())
        })?;
        let at = self.found.items.len();
        let annotations = &mut self.found.annotations;
        annotation::find_annotations(self.body, span, at, None, annotations)?;
        annotations[first_annotation..].sort_by_key(|annotation| annotation.span.start);
        let mut item = Item {
            span,
            author,
            content,
            calls: first_call..self.found.calls.len() as u32,
            call_id,
            name,
            sizes,
            digest: 0,
            short_digest: 0,
        };
        let listed = ItemSource {
            body: self.body,
            calls: &self.found.calls,
            blocks: &self.found.blocks,
            annotations: &self.found.annotations[first_annotation..],
        };
        describe_item(&listed, author as u8, &mut item);
        self.found.items.push(item);
        Ok(())
    }

    /// The value of `words`.
    fn read_content(&mut self, scan: &mut JsonScanner<'a>) -> Result<Content, MalformedJson> {
        let mut content = Content::Absent;
        scan.walk_object(|scan, _| {
            content = match scan.peek() {
                Some(b'"') => Content::Text(scan.take_string()?),
                Some(b'[') => {
                    let first = self.found.blocks.len() as u32;
                    let span = scan.walk_array(|scan| self.read_block(scan))?;
                    Content::Blocks(first..self.found.blocks.len() as u32, span)
                }
                _ => match scan.take_value()? {
                    (span, JsonKind::False) => Content::Null(span),
                    (span, _) => Content::Other(span),
                },
            };
            Ok::<_, MalformedJson>(())
        })?;
        Ok(content)
    }

    fn read_block(&mut self, scan: &mut JsonScanner<'a>) -> Result<(), MalformedJson> {
        let (mut kind, mut marked) = (BlockKind::Opaque, false);
        let span = scan.walk_object(|scan, key| {
            match self.key(key) {
                b"line" => kind = take_text(scan)?.map_or(kind, BlockKind::Text),
                b"sketch" => kind = self.read_sketch(scan)?,
                b"reel" => {
                    scan.take_value()?;
                    kind = BlockKind::Media;
                }
                name => {
                    marked |= name == b"pin";
                    scan.take_value()?;
                }
            }
            Ok::<_, MalformedJson>(())
        })?;
        let (item, block) = (self.found.items.len(), self.found.blocks.len());
        let annotations = &mut self.found.annotations;
        annotation::find_annotations(self.body, span, item, Some(block), annotations)?;
        self.found.blocks.push(Block { span, kind, marked });
        Ok(())
    }

    fn read_sketch(&self, scan: &mut JsonScanner<'a>) -> Result<BlockKind, MalformedJson> {
        let (mut url, mut low) = (None, false);
        scan.walk_object(|scan, key| {
            let text = take_text(scan)?;
            match self.key(key) {
                b"at" => url = text,
                b"grain" => low = text.is_some_and(|grain| self.key(grain) == b"coarse"),
                _ => {}
            }
            Ok::<_, MalformedJson>(())
        })?;
        Ok(BlockKind::Image { url, low })
    }

    fn read_calls(&mut self, scan: &mut JsonScanner<'a>) -> Result<(), MalformedJson> {
        let listed = scan.peek() == Some(b'[');
        let mut read_call = |scan: &mut JsonScanner<'a>| {
            let (mut id, mut name, mut arguments) = (None, None, None);
            let span = scan.walk_object(|scan, key| {
                match self.key(key) {
                    b"ticket" => id = take_text(scan)?,
                    b"tool" => name = take_text(scan)?,
                    b"with" => arguments = take_text(scan)?,
                    _ => drop(scan.take_value()?),
                }
                Ok::<_, MalformedJson>(())
            })?;
            self.found.calls.push(Call {
                span,
                id,
                name,
                arguments,
                listed,
            });
            Ok::<_, MalformedJson>(())
        };
        match listed {
            true => scan.walk_array(read_call).map(drop),
            false => read_call(scan),
        }
    }
}

fn author_of(who: &[u8]) -> Author {
    match who {
        b"owner" | b"maker" => Author::System,
        b"person" => Author::User,
        b"machine" => Author::Model,
        b"report" => Author::Tool,
        _ => Author::Unknown,
    }
}

/// Takes a value; gives it where it is a string.
fn take_text(scan: &mut JsonScanner<'_>) -> Result<Option<JsonString>, MalformedJson> {
    match scan.peek() {
        Some(b'"') => scan.take_string().map(Some),
        _ => scan.take_value().map(|_| None),
    }
}
