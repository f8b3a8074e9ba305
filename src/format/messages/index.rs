//! Indexes the body of a Messages request in one pass.
//!
//! A user entry with tool results becomes several items: one for each result, and one for each run of other blocks
//! between and behind them. Every other entry is one item. The top-level `system` is the first item, wherever it
//! stands in the body. What the index of chat completions promises holds here too.

use std::collections::HashSet;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    blocks::{ContentBlockReader, ReadBlock, ReadContent},
    encoded::measure_encoded,
};
use crate::{
    conversation::{
        Author, BlockKind, Content, Conversation, Field, Format, IndexError, Item, ItemPlace,
        LinkKind, SharedEntry, annotation,
    },
    format::{
        index::{
            describe::describe_item,
            indexing::{self, IndexFailure, Role, SeenKeys, check_item_count, check_plain_key},
        },
        values::{skip_value, take_text},
    },
    json::scan::{JsonKind, JsonScanner, JsonString, Span},
};

/// The keys of a message that may stand in it only once.
const MESSAGE_KEYS: &[&str] = &["role", "content"];

/// Indexes a request body.
pub fn index_body(body: Bytes) -> Result<Conversation, IndexError> {
    let mut indexer = MessagesIndexer {
        body: &body,
        found: Conversation::new_empty(Format::Messages, body.clone()),
        served: HashSet::new(),
        called_by_program: HashSet::new(),
    };
    match indexer.run() {
        Ok(()) => Ok(indexer.found),
        Err(failure) => Err(indexing::classify_failure(&body, &failure)),
    }
}

struct MessagesIndexer<'a> {
    body: &'a [u8],
    found: Conversation,
    /// Ids of what the server runs.
    served: HashSet<&'a [u8]>,
    /// Ids of the calls of the last answer that a program made.
    called_by_program: HashSet<&'a [u8]>,
}

/// An entry of `messages`.
struct Entry {
    role: Role,
    span: Span,
    content: ReadContent,
    annotated: bool,
}

/// An object with an annotation: an item, or one of the blocks.
struct AnnotatedObject {
    span: Span,
    item: usize,
    block: Option<usize>,
}

/// What one entry becomes.
#[derive(Default)]
struct EntryItems {
    items: SmallVec<[Item; 2]>,
    annotated: Vec<AnnotatedObject>,
}

impl<'a> MessagesIndexer<'a> {
    fn run(&mut self) -> Result<(), IndexFailure> {
        let mut scan = JsonScanner::new(self.body, indexing::find_json_start(self.body));
        let mut messages = None;
        self.found.span = scan.walk_object(|scan, key| {
            let first = scan.peek();
            let (value, kind) = match (self.raw_bytes(key), first) {
                (b"messages", Some(b'[')) => {
                    if messages.is_some() {
                        return Err(IndexFailure::Twice("messages"));
                    }
                    let array = scan.walk_array(|scan| self.read_entry(scan))?;
                    messages = Some(array);
                    (array, JsonKind::Array)
                }
                (b"system", Some(b'"')) => (self.read_system(scan)?, JsonKind::String),
                (b"system", Some(b'[')) => (self.read_system(scan)?, JsonKind::Array),
                _ => scan.take_value()?,
            };
            indexing::add_field(&mut self.found, Field { key, value, kind })
        })?;
        scan.expect_end()?;
        self.found.list = messages.ok_or(IndexFailure::Shape("no array of messages"))?;
        Ok(())
    }

    fn raw_bytes(&self, text: JsonString) -> &'a [u8] {
        &self.body[text.span.range()]
    }

    fn read_content(&mut self, scan: &mut JsonScanner<'a>) -> Result<ReadContent, IndexFailure> {
        let mut reader = ContentBlockReader {
            body: self.body,
            found: &mut self.found,
            in_result: false,
        };
        reader.read_content(scan)
    }

    /// Reads the top-level `system` and makes it the first item.
    fn read_system(&mut self, scan: &mut JsonScanner<'a>) -> Result<Span, IndexFailure> {
        scan.peek();
        let start = scan.position();
        let content = self.read_content(scan)?;
        let span = Span::new(start, scan.position());
        let entry = Entry {
            role: Role::SYSTEM,
            span,
            content,
            annotated: false,
        };
        let mut made = EntryItems::default();
        self.add_whole(entry, &mut made);
        let known = self.found.annotations.len();
        self.finish_items(&mut made)?;
        // The messages that were read before it move one place on.
        let annotations = &mut self.found.annotations;
        for annotation in &mut annotations[..known] {
            annotation.message += 1;
        }
        for annotation in &mut annotations[known..] {
            annotation.message = 0;
        }
        annotations.rotate_left(known);
        for mut item in made.items {
            item.place = ItemPlace::Outside;
            item.is_bound = false;
            self.found.items.insert(0, item);
        }
        check_item_count(&self.found, 0)?;
        Ok(span)
    }

    fn read_entry(&mut self, scan: &mut JsonScanner<'a>) -> Result<(), IndexFailure> {
        if scan.peek() != Some(b'{') {
            return Err(IndexFailure::Shape("a message that is not an object"));
        }
        let mut seen = SeenKeys::default();
        let (mut role, mut annotated) = (Role::UNKNOWN, false);
        let mut content = ReadContent::Plain(Content::Absent);
        let span = scan.walk_object(|scan, key| {
            check_plain_key(key)?;
            let key = self.raw_bytes(key);
            seen.mark_once(MESSAGE_KEYS, key, IndexFailure::Twice)?;
            match key {
                b"role" => role = self.read_role(scan)?,
                b"content" => content = self.read_content(scan)?,
                key => {
                    annotated |= key == annotation::ANNOTATION_KEY;
                    skip_value(scan)?;
                }
            }
            Ok::<_, IndexFailure>(())
        })?;
        let entry = Entry {
            role,
            span,
            content,
            annotated,
        };
        let mut made = EntryItems::default();
        match &entry.content {
            ReadContent::Blocks(_, blocks)
                if role == Role::USER && blocks.iter().any(|read| read.result.is_some()) =>
            {
                self.add_parts(entry, &mut made);
            }
            _ => self.add_whole(entry, &mut made),
        }
        self.finish_items(&mut made)?;
        self.found.items.extend(made.items);
        check_item_count(&self.found, 0)
    }

    fn read_role(&self, scan: &mut JsonScanner<'a>) -> Result<Role, IndexFailure> {
        Ok(match take_text(scan)?.map(|role| self.raw_bytes(role)) {
            Some(b"system") => Role::SYSTEM,
            Some(b"user") => Role::USER,
            Some(b"assistant") => Role::ASSISTANT,
            _ => Role::UNKNOWN,
        })
    }

    /// Adds an entry that is one item.
    fn add_whole(&mut self, entry: Entry, made: &mut EntryItems) {
        let (first_call, at) = (self.found.calls.len() as u32, self.found.items.len());
        let first_link = self.found.links.len() as u32;
        let is_answer = entry.role == Role::ASSISTANT;
        self.called_by_program.clear();
        let content = match entry.content {
            ReadContent::Plain(content) => content,
            ReadContent::Blocks(list, blocks) => {
                let first = self.found.blocks.len() as u32;
                for mut read in blocks {
                    if is_answer {
                        self.add_links(&read);
                    }
                    if let Some(call) = read.call.take_if(|_| is_answer) {
                        self.found.calls.push(call);
                        self.found.blocks.push(read.block);
                    } else {
                        self.add_block(read, at, made);
                    }
                }
                Content::Blocks(first..self.found.blocks.len() as u32, list)
            }
        };
        if entry.annotated {
            made.annotated.push(AnnotatedObject {
                span: entry.span,
                item: at,
                block: None,
            });
        }
        let in_list = |item: &Item| item.place != ItemPlace::Outside;
        made.items.push(Item {
            span: entry.span,
            author: entry.role.author,
            is_bound: entry.role == Role::SYSTEM && self.found.items.last().is_some_and(in_list),
            content,
            calls: first_call..self.found.calls.len() as u32,
            links: first_link..self.found.links.len() as u32,
            ..Item::default()
        });
    }

    /// Adds what a block of an answer refers to.
    fn add_links(&mut self, read: &ReadBlock) {
        for link in read.links.into_iter().flatten() {
            let id = self.raw_bytes(link.id);
            let call = read.call.as_ref().and_then(|call| call.id);
            match (link.kind, call) {
                (LinkKind::Use, _) => drop(self.served.insert(id)),
                (LinkKind::Caller, Some(call)) if self.served.contains(id) => {
                    self.called_by_program.insert(self.raw_bytes(call));
                }
                _ => {}
            }
            self.found.links.push(link);
        }
    }

    /// Adds a user entry with tool results.
    fn add_parts(&mut self, entry: Entry, made: &mut EntryItems) {
        let ReadContent::Blocks(list, blocks) = entry.content else {
            return;
        };
        let place = ItemPlace::Part(SharedEntry {
            span: entry.span,
            blocks: list,
        });
        let first = self.found.items.len();
        for mut read in blocks {
            let (span, at) = (read.block.span, first + made.items.len());
            if let Some(result) = read.result.take() {
                let own = read.annotated.then_some((span, None));
                let blocks = result.annotated.iter();
                let blocks = blocks.map(|&block| (self.found.blocks[block].span, Some(block)));
                let objects = own.into_iter().chain(blocks);
                made.annotated
                    .extend(objects.map(|(span, block)| AnnotatedObject {
                        span,
                        item: at,
                        block,
                    }));
                let by_program = |id| self.called_by_program.contains(self.raw_bytes(id));
                made.items.push(Item {
                    span,
                    place,
                    author: Author::Tool,
                    content: result.content,
                    call_id: result.call_id,
                    read_by_program: result.call_id.is_some_and(by_program),
                    ..Item::default()
                });
                continue;
            }
            let next = self.found.blocks.len() as u32;
            match made.items.last_mut() {
                Some(Item {
                    author: Author::User,
                    span: run,
                    content: Content::Blocks(blocks, _),
                    ..
                }) => {
                    run.end = span.end;
                    blocks.end = next + 1;
                    self.add_block(read, at - 1, made);
                }
                _ => {
                    made.items.push(Item {
                        span,
                        place,
                        author: Author::User,
                        content: Content::Blocks(next..next + 1, list),
                        ..Item::default()
                    });
                    self.add_block(read, at, made);
                }
            }
        }
        if entry.annotated {
            made.annotated.push(AnnotatedObject {
                span: entry.span,
                item: first,
                block: None,
            });
        }
    }

    /// Adds a block of item `item`.
    fn add_block(&mut self, read: ReadBlock, item: usize, made: &mut EntryItems) {
        if read.annotated {
            made.annotated.push(AnnotatedObject {
                span: read.block.span,
                item,
                block: Some(self.found.blocks.len()),
            });
        }
        self.found.blocks.push(read.into_content());
    }

    /// Adds the annotations of new items, and describes them.
    fn finish_items(&mut self, made: &mut EntryItems) -> Result<(), IndexFailure> {
        let first_annotation = self.found.annotations.len();
        for object in &made.annotated {
            self.add_annotations(object, made)?;
        }
        self.found.annotations[first_annotation..].sort_by_key(|it| it.span.start);
        for item in &mut made.items {
            let tag = Role::from_author(item.author).tag;
            describe_item(&self.found, tag, item);
            for block in self.found.blocks_of(item) {
                if item.author == Author::Model && block.kind == BlockKind::Opaque {
                    item.sizes -= measure_encoded(self.body, block.span);
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn add_annotations(
        &mut self,
        object: &AnnotatedObject,
        made: &EntryItems,
    ) -> Result<(), IndexFailure> {
        let annotations = &mut self.found.annotations;
        let first = annotations.len();
        let (item, block) = (object.item, object.block);
        annotation::find_annotations(self.body, object.span, item, block, annotations)?;
        // An annotation of an entry with several items belongs to the one beside it.
        if let Some(Item {
            place: ItemPlace::Part(entry),
            ..
        }) = made.items.first()
            && object.span == entry.span
        {
            let last = item + made.items.len() - 1;
            for annotation in &mut annotations[first..] {
                if annotation.span.start > entry.blocks.start {
                    annotation.message = last as u32;
                }
            }
        }
        check_item_count(&self.found, 0)
    }
}
