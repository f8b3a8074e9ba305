//! Indexes the body of a Messages request in one pass.
//!
//! A user entry with tool results becomes several items: one for each result, and one for each run of other blocks
//! between and behind them. Every other entry is one item. The top-level `system` is the first item, wherever it is in
//! the body. The promises of the index of chat completions (`chat/index.rs`) hold here too.

use std::collections::HashSet;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::blocks::{BlocksContent, ContentBlockReader, ReadBlock};
use crate::{
    conversation::{
        Author, Content, Conversation, Field, Format, IndexError, Item, ItemPlace, LinkKind,
        SharedEntry, annotation,
    },
    format::{
        index::{
            describe::describe_item,
            indexing::{
                self, IndexFailure, ReadContent, Role, SingleKeys, add_annotations,
                check_item_count,
            },
            known_prefix::{ListIndexer, PrefixMemory, PrefixesOfAccount},
        },
        values::{skip_value, take_raw_text},
    },
    json::scan::{JsonKind, JsonScanner, JsonString, Span},
};

/// What one entry becomes.
type EntryItems = SmallVec<[Item; 2]>;

/// The keys that may occur only once in a message.
const MESSAGE_KEYS: SingleKeys = SingleKeys(&["role", "content"], IndexFailure::Twice);

/// Indexes a request body.
pub fn index_body(body: Bytes) -> Result<Conversation, IndexError> {
    index_known_body(body, None)
}

/// Indexes a request body, and copies the index of the known prefix of its list.
pub(in crate::format) fn index_known_body(
    body: Bytes,
    prefixes: PrefixesOfAccount<'_>,
) -> Result<Conversation, IndexError> {
    let mut indexer = MessagesIndexer {
        body: &body,
        memory: PrefixMemory::new(prefixes, &body),
        found: Conversation::new_empty(Format::Messages, body.clone()),
        served: HashSet::new(),
        called_by_program: HashSet::new(),
    };
    match indexer.run() {
        Ok(()) => Ok(indexer.found.with_client_texts()),
        Err(failure) => Err(indexing::classify_failure(&body, &failure)),
    }
}

struct MessagesIndexer<'a> {
    body: &'a [u8],
    memory: PrefixMemory<'a>,
    found: Conversation,
    /// Ids of what the server runs.
    served: HashSet<&'a [u8]>,
    /// Ids of the calls in the last answer that a program made.
    called_by_program: HashSet<&'a [u8]>,
}

impl<'a> ListIndexer<'a> for MessagesIndexer<'a> {
    fn parts(&mut self) -> (&mut PrefixMemory<'a>, &mut Conversation) {
        (&mut self.memory, &mut self.found)
    }

    fn read_entry(&mut self, scan: &mut JsonScanner<'a>) -> Result<(), IndexFailure> {
        if scan.peek() != Some(b'{') {
            return Err(IndexFailure::Shape("a message that is not an object"));
        }
        let (mut role, mut annotated) = (Role::UNKNOWN, false);
        let mut content = ReadContent::Plain(Content::Absent);
        let span = MESSAGE_KEYS.walk_object(self.body, scan, |scan, key| {
            match key {
                b"role" => role = self.read_role(scan)?,
                b"content" => content = self.read_content(scan)?,
                key => {
                    annotated |= key == annotation::ANNOTATION_KEY;
                    skip_value(scan)?;
                }
            }
            Ok(())
        })?;
        let (first, first_annotation) = (self.found.items.len(), self.found.annotations.len());
        let has_result = |blocks: &[ReadBlock<'_>]| blocks.iter().any(ReadBlock::is_result);
        let is_history_summary = matches!(&content, ReadContent::Parts(_, blocks)
            if blocks.iter().any(ReadBlock::is_history_summary));
        let mut items = match content {
            ReadContent::Parts(list, blocks) if role == Role::USER && has_result(&blocks) => {
                self.make_parts(span, list, blocks)?
            }
            content => smallvec![self.make_item(role, span, content)?],
        };
        if is_history_summary {
            (items[0].is_history_summary, items[0].is_pinned) = (true, true);
        }
        if annotated {
            let known = self.found.annotations.len();
            add_annotations(&mut self.found, span, first, None)?;
            // In an entry with several items, an annotation behind the list belongs to the last item, any other one to
            // the first.
            for annotation in &mut self.found.annotations[known..] {
                if let ItemPlace::Part(entry) = items[0].place
                    && annotation.span.start > entry.blocks.start
                {
                    annotation.message = (first + items.len() - 1) as u32;
                }
            }
        }
        self.found.annotations[first_annotation..].sort_by_key(|it| it.span.start);
        for mut item in items {
            self.describe(&mut item);
            self.found.items.push(item);
        }
        check_item_count(&self.found, 0)
    }
}

impl<'a> MessagesIndexer<'a> {
    fn run(&mut self) -> Result<(), IndexFailure> {
        let mut scan = JsonScanner::new(self.body, indexing::find_json_start(self.body));
        let mut messages = None;
        self.found.span = scan.walk_object(|scan, key| {
            let first = scan.peek();
            let (value, kind) = match (key.raw_bytes(self.body), first) {
                (b"messages", Some(b'[')) => {
                    if messages.is_some() {
                        return Err(IndexFailure::Twice("messages"));
                    }
                    let array = self.read_list(scan)?;
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

    fn read_content(
        &mut self,
        scan: &mut JsonScanner<'a>,
    ) -> Result<BlocksContent<'a>, IndexFailure> {
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
        let known = self.found.annotations.len();
        let mut item = self.make_item(Role::SYSTEM, span, content)?;
        self.found.annotations[known..].sort_by_key(|it| it.span.start);
        self.describe(&mut item);
        // The messages that were read before it move one place on.
        let annotations = &mut self.found.annotations;
        for annotation in &mut annotations[..known] {
            annotation.message += 1;
        }
        for annotation in &mut annotations[known..] {
            annotation.message = 0;
        }
        annotations.rotate_left(known);
        (item.place, item.is_bound) = (ItemPlace::Outside, false);
        self.found.items.insert(0, item);
        check_item_count(&self.found, 0)?;
        Ok(span)
    }

    fn read_role(&self, scan: &mut JsonScanner<'a>) -> Result<Role, IndexFailure> {
        Ok(match take_raw_text(self.body, scan)? {
            b"system" => Role::SYSTEM,
            b"user" => Role::USER,
            b"assistant" => Role::ASSISTANT,
            _ => Role::UNKNOWN,
        })
    }

    /// Makes an entry one item.
    fn make_item(
        &mut self,
        role: Role,
        span: Span,
        content: BlocksContent<'a>,
    ) -> Result<Item, IndexFailure> {
        let (first_call, at) = (self.found.calls.len() as u32, self.found.items.len());
        let first_link = self.found.links.len() as u32;
        let is_answer = role == Role::ASSISTANT;
        let mut is_pinned = false;
        self.called_by_program.clear();
        let content = match content {
            ReadContent::Plain(content) => content,
            ReadContent::Parts(list, blocks) => {
                let first = self.found.blocks.len() as u32;
                is_pinned = is_answer && blocks.iter().any(ReadBlock::pins_message);
                let fallback = blocks.iter().rposition(ReadBlock::is_fallback);
                for (place, read) in blocks.iter().enumerate() {
                    let is_answer = is_answer && fallback.is_none_or(|fallback| place > fallback);
                    if is_answer {
                        self.add_links(read);
                    }
                    if let Some(call) = read.call().filter(|_| is_answer) {
                        self.found.calls.push(call);
                        self.found.blocks.push(read.block(true));
                    } else {
                        self.add_block(read, at)?;
                    }
                }
                Content::Blocks(first..self.found.blocks.len() as u32, list)
            }
        };
        let in_list = |item: &Item| item.place != ItemPlace::Outside;
        Ok(Item {
            span,
            author: role.author,
            is_bound: role == Role::SYSTEM && self.found.items.last().is_some_and(in_list),
            is_pinned,
            content,
            calls: first_call..self.found.calls.len() as u32,
            links: first_link..self.found.links.len() as u32,
            ..Item::default()
        })
    }

    /// Adds what a block of an answer refers to.
    fn add_links(&mut self, read: &ReadBlock<'a>) {
        for link in read.links().into_iter().flatten() {
            let id = link.id.raw_bytes(self.body);
            let call = read.call().and_then(|call| call.id);
            match (link.kind, call) {
                (LinkKind::Use, _) => drop(self.served.insert(id)),
                (LinkKind::Caller, Some(call)) if self.served.contains(id) => {
                    self.called_by_program.insert(call.raw_bytes(self.body));
                }
                _ => {}
            }
            self.found.links.push(link);
        }
        self.found.links.extend(read.loads());
    }

    /// Makes the items of a user entry with tool results.
    fn make_parts(
        &mut self,
        span: Span,
        list: Span,
        blocks: Vec<ReadBlock<'a>>,
    ) -> Result<EntryItems, IndexFailure> {
        let place = ItemPlace::Part(SharedEntry { span, blocks: list });
        let first = self.found.items.len();
        let mut items = EntryItems::new();
        for read in blocks {
            let (span, at) = (read.span, first + items.len());
            if read.is_result() {
                if read.annotated {
                    add_annotations(&mut self.found, span, at, None)?;
                }
                for &block in &read.annotated_blocks {
                    let span = self.found.blocks[block].span;
                    add_annotations(&mut self.found, span, at, Some(block))?;
                }
                let first_link = self.found.links.len() as u32;
                self.found.links.extend(read.loads());
                let by_program =
                    |id: JsonString| self.called_by_program.contains(id.raw_bytes(self.body));
                items.push(Item {
                    span,
                    place,
                    author: Author::Tool,
                    content: read.content.unwrap_or(Content::Absent),
                    call_id: read.call_id,
                    read_by_program: read.call_id.is_some_and(by_program),
                    links: first_link..self.found.links.len() as u32,
                    ..Item::default()
                });
                continue;
            }
            let next = self.found.blocks.len() as u32;
            match items.last_mut() {
                Some(Item {
                    author: Author::User,
                    span: run,
                    content: Content::Blocks(blocks, _),
                    ..
                }) => {
                    run.end = span.end;
                    blocks.end = next + 1;
                    self.add_block(&read, at - 1)?;
                }
                _ => {
                    items.push(Item {
                        span,
                        place,
                        author: Author::User,
                        content: Content::Blocks(next..next + 1, list),
                        ..Item::default()
                    });
                    self.add_block(&read, at)?;
                }
            }
        }
        Ok(items)
    }

    /// Adds a block of item `item`.
    fn add_block(&mut self, read: &ReadBlock<'a>, item: usize) -> Result<(), IndexFailure> {
        if read.annotated {
            let block = self.found.blocks.len();
            add_annotations(&mut self.found, read.span, item, Some(block))?;
        }
        self.found.blocks.push(read.block(false));
        Ok(())
    }

    fn describe(&mut self, item: &mut Item) {
        let tag = Role::from_author(item.author).tag;
        describe_item(&mut self.found, tag, item);
    }
}
