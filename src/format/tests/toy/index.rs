//! The index of a body of the toy format.

use bytes::Bytes;

use crate::{
    conversation::{
        Author, Block, BlockKind, Call, Content, Conversation, Field, Format, Item, Unindexed,
        annotation,
    },
    format::describe::{Listed, describe},
    json::{
        scan::{Kind, Malformed, Scan, Span, Text},
        text::{self, Sizes},
    },
};

pub(in crate::format) fn index(body: Bytes) -> Result<Conversation, Unindexed> {
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
        Err(malformed) => Err(Unindexed::NotJson(malformed.to_string())),
    }
}

struct Indexer<'a> {
    body: &'a [u8],
    found: Conversation,
}

impl<'a> Indexer<'a> {
    fn key(&self, key: Text) -> &'a [u8] {
        &self.body[key.span.range()]
    }

    fn read(&mut self) -> Result<(), Malformed> {
        self.found.span = Scan::new(self.body, 0).object(|scan, key| {
            let (value, kind) = if self.key(key) == b"log" {
                self.found.list = scan.array(|scan| self.read_entry(scan))?;
                (self.found.list, Kind::Array)
            } else {
                scan.value()?
            };
            self.found.fields.push(Field { key, value, kind });
            Ok::<_, Malformed>(())
        })?;
        Ok(())
    }

    fn read_entry(&mut self, scan: &mut Scan<'a>) -> Result<(), Malformed> {
        let (mut author, mut content) = (Author::Unknown, Content::Absent);
        let (mut call_id, mut name) = (None, None);
        let mut sizes = Sizes::default();
        let first_call = self.found.calls.len() as u32;
        let first_annotation = self.found.annotations.len();
        let span = scan.object(|scan, key| {
            match self.key(key) {
                b"who" => author = take_text(scan)?.map_or(author, |who| author_of(self.key(who))),
                b"says" => content = self.read_content(scan)?,
                b"wants" => self.read_calls(scan)?,
                b"for" => call_id = take_text(scan)?,
                b"alias" => name = take_text(scan)?,
                b"muses" => {
                    if let Some(text) = take_text(scan)? {
                        sizes += text::measure(self.key(text));
                    }
                }
                _ => {
                    scan.value()?;
                }
            }
            Ok::<_, Malformed>(())
        })?;
        let at = self.found.items.len();
        let annotations = &mut self.found.annotations;
        annotation::find(self.body, span, at, None, annotations)?;
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
        let listed = Listed {
            body: self.body,
            calls: &self.found.calls,
            blocks: &self.found.blocks,
            annotations: &self.found.annotations[first_annotation..],
        };
        describe(&listed, author as u8, &mut item);
        self.found.items.push(item);
        Ok(())
    }

    /// The value of `words`.
    fn read_content(&mut self, scan: &mut Scan<'a>) -> Result<Content, Malformed> {
        let mut content = Content::Absent;
        scan.object(|scan, _| {
            content = match scan.peek() {
                Some(b'"') => Content::Text(scan.string()?),
                Some(b'[') => {
                    let first = self.found.blocks.len() as u32;
                    let span = scan.array(|scan| self.read_block(scan))?;
                    Content::Blocks(first..self.found.blocks.len() as u32, span)
                }
                _ => match scan.value()? {
                    (span, Kind::False) => Content::Null(span),
                    (span, _) => Content::Other(span),
                },
            };
            Ok::<_, Malformed>(())
        })?;
        Ok(content)
    }

    fn read_block(&mut self, scan: &mut Scan<'a>) -> Result<(), Malformed> {
        let (mut kind, mut marked) = (BlockKind::Opaque, false);
        let span = scan.object(|scan, key| {
            match self.key(key) {
                b"line" => kind = take_text(scan)?.map_or(kind, BlockKind::Text),
                b"sketch" => kind = self.read_sketch(scan)?,
                b"reel" => {
                    scan.value()?;
                    kind = BlockKind::Media;
                }
                name => {
                    marked |= name == b"pin";
                    scan.value()?;
                }
            }
            Ok::<_, Malformed>(())
        })?;
        let (item, block) = (self.found.items.len(), self.found.blocks.len());
        let annotations = &mut self.found.annotations;
        annotation::find(self.body, span, item, Some(block), annotations)?;
        self.found.blocks.push(Block { span, kind, marked });
        Ok(())
    }

    fn read_sketch(&self, scan: &mut Scan<'a>) -> Result<BlockKind, Malformed> {
        let (mut url, mut low) = (None, false);
        scan.object(|scan, key| {
            let text = take_text(scan)?;
            match self.key(key) {
                b"at" => url = text,
                b"grain" => low = text.is_some_and(|grain| self.key(grain) == b"coarse"),
                _ => {}
            }
            Ok::<_, Malformed>(())
        })?;
        Ok(BlockKind::Image { url, low })
    }

    fn read_calls(&mut self, scan: &mut Scan<'a>) -> Result<(), Malformed> {
        let listed = scan.peek() == Some(b'[');
        let mut read_call = |scan: &mut Scan<'a>| {
            let (mut id, mut name, mut arguments) = (None, None, None);
            let span = scan.object(|scan, key| {
                match self.key(key) {
                    b"ticket" => id = take_text(scan)?,
                    b"tool" => name = take_text(scan)?,
                    b"with" => arguments = take_text(scan)?,
                    _ => drop(scan.value()?),
                }
                Ok::<_, Malformed>(())
            })?;
            self.found.calls.push(Call {
                span,
                id,
                name,
                arguments,
                listed,
            });
            Ok::<_, Malformed>(())
        };
        match listed {
            true => scan.array(read_call).map(drop),
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
fn take_text(scan: &mut Scan<'_>) -> Result<Option<Text>, Malformed> {
    match scan.peek() {
        Some(b'"') => scan.string().map(Some),
        _ => scan.value().map(|_| None),
    }
}
