//! The index of a body of the toy format.

use bytes::Bytes;

use crate::{
    conversation::{
        Arguments, Author, Block, BlockKind, Call, Content, Conversation, Field, Format,
        IndexError, Item, annotation,
    },
    format::{
        index::{PrefixesOfAccount, describe::describe_item},
        values::{ReadResult, skip_value, take_text},
    },
    json::{
        scan::{JsonKind, JsonScanner, MalformedJson},
        text,
    },
};

pub(in crate::format) fn index_known_body(
    body: Bytes,
    _: PrefixesOfAccount<'_>,
) -> Result<Conversation, IndexError> {
    let mut indexer = Indexer {
        body: &body,
        found: Conversation::new_empty(Format::Toy, body.clone()),
    };
    match indexer.read() {
        Ok(()) => Ok(indexer.found.with_client_texts()),
        Err(malformed) => Err(IndexError::NotJson(malformed.to_string())),
    }
}

struct Indexer<'a> {
    body: &'a [u8],
    found: Conversation,
}

impl<'a> Indexer<'a> {
    fn read(&mut self) -> ReadResult {
        self.found.span = JsonScanner::new(self.body, 0).walk_object(|scan, key| {
            let (value, kind) = if key.raw_bytes(self.body) == b"log" {
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

    fn read_entry(&mut self, scan: &mut JsonScanner<'a>) -> ReadResult {
        let mut item = Item::default();
        let first_call = self.found.calls.len() as u32;
        let first_annotation = self.found.annotations.len();
        item.span = scan.walk_object(|scan, key| {
            match key.raw_bytes(self.body) {
                b"who" => {
                    if let Some(who) = take_text(scan)? {
                        item.author = author_of(who.raw_bytes(self.body));
                    }
                }
                b"says" => item.content = self.read_content(scan)?,
                b"wants" => self.read_calls(scan)?,
                b"for" => item.call_id = take_text(scan)?,
                b"alias" => item.name = take_text(scan)?,
                b"muses" => {
                    if let Some(text) = take_text(scan)? {
                        item.sizes += text::measure_text(text.raw_bytes(self.body));
                    }
                }
                _ => skip_value(scan)?,
            }
            Ok::<_, MalformedJson>(())
        })?;
        item.calls = first_call..self.found.calls.len() as u32;
        let at = self.found.items.len();
        let annotations = &mut self.found.annotations;
        annotation::find_annotations(self.body, item.span, at, None, annotations)?;
        annotations[first_annotation..].sort_by_key(|annotation| annotation.span.start);
        describe_item(&mut self.found, item.author as u8, &mut item);
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

    fn read_block(&mut self, scan: &mut JsonScanner<'a>) -> ReadResult {
        let (mut kind, mut marked) = (BlockKind::Opaque, false);
        let span = scan.walk_object(|scan, key| {
            match key.raw_bytes(self.body) {
                b"line" => kind = take_text(scan)?.map_or(kind, BlockKind::Text),
                b"sketch" => kind = self.read_sketch(scan)?,
                b"reel" => {
                    skip_value(scan)?;
                    kind = BlockKind::Media;
                }
                name => {
                    marked |= name == b"pin";
                    skip_value(scan)?;
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
            match key.raw_bytes(self.body) {
                b"at" => url = text,
                b"grain" => low = text.is_some_and(|grain| grain.raw_bytes(self.body) == b"coarse"),
                _ => {}
            }
            Ok::<_, MalformedJson>(())
        })?;
        Ok(BlockKind::Image { url, low })
    }

    fn read_calls(&mut self, scan: &mut JsonScanner<'a>) -> ReadResult {
        let listed = scan.peek() == Some(b'[');
        let mut read_call = |scan: &mut JsonScanner<'a>| {
            let mut call = Call {
                listed,
                ..Call::default()
            };
            call.span = scan.walk_object(|scan, key| {
                match key.raw_bytes(self.body) {
                    b"ticket" => call.id = take_text(scan)?,
                    b"tool" => call.name = take_text(scan)?,
                    b"with" => call.arguments = take_text(scan)?.map(Arguments::Text),
                    _ => skip_value(scan)?,
                }
                Ok::<_, MalformedJson>(())
            })?;
            self.found.calls.push(call);
            Ok::<_, MalformedJson>(())
        };
        if listed {
            scan.walk_array(read_call).map(drop)
        } else {
            read_call(scan)
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
