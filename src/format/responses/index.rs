//! Indexes the body of a Responses request in one pass.
//!
//! All entries in a row that one answer of the model produced (reasoning, texts, calls) are one item with a block for
//! each; every other entry is an item of its own. `instructions` are the first item, wherever they stand in the body.
//! An `input` that is a string is one item of the user beside an empty list: nothing can be put next to it. What the
//! index of chat completions promises holds here too.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use super::{
    entries::Entry,
    followers::Followers,
    kinds::{AnswerPart, CallShape, EntryKind, MessageRole, OutputShape},
    open_item::{AnnotatedObject, OpenItem, make_outside, note_frames, shell_texts},
    request, unfold_body,
    values::{TextValue, ValuePart, ValueReader},
};
use crate::{
    conversation::{
        Author, Block, BlockKind, Content, Conversation, Field, Format, IndexError, Item,
        annotation,
    },
    format::{
        index::{
            describe::describe_item,
            indexing::{self, IndexFailure, check_item_count},
        },
        values::has_type,
    },
    json::scan::{JsonKind, JsonScanner, JsonString, Span},
};

/// The letters of authors in digests. Sessions are found by these, so they never change.
const SYSTEM: u8 = b'S';
const DEVELOPER: u8 = b'D';
const USER: u8 = b'U';
const MODEL: u8 = b'A';
const OUTPUT: u8 = b'T';
const FIXED: u8 = b'?';

/// Indexes a request body. Where it has compaction entries of the proxy, the conversation has another body with messages
/// in their place: no provider knows them.
pub(in crate::format) fn index_body(body: Bytes) -> Result<Conversation, IndexError> {
    match unfold_body(&body) {
        Some(unfolded) => index_entries(unfolded),
        None => index_entries(body),
    }
}

/// Indexes a request body as it came.
pub(super) fn index_entries(body: Bytes) -> Result<Conversation, IndexError> {
    let mut indexer = ResponsesIndexer {
        body: &body,
        found: Conversation::new_empty(Format::Responses, body.clone()),
        answer: None,
        followers: Followers::default(),
        shell_calls: HashMap::new(),
        programs: HashSet::new(),
    };
    match indexer.run() {
        Ok(()) => Ok(indexer.found),
        Err(failure) => Err(indexing::classify_failure(&body, &failure)),
    }
}

struct ResponsesIndexer<'a> {
    body: &'a [u8],
    found: Conversation,
    /// The answer whose entries are being read. Its blocks and calls are the last ones of `found`.
    answer: Option<OpenItem>,
    followers: Followers,
    /// The `call_id` of calls of a local shell, by their `id`.
    shell_calls: HashMap<&'a [u8], JsonString>,
    /// The `call_id` of programs.
    programs: HashSet<&'a [u8]>,
}

impl<'a> ResponsesIndexer<'a> {
    fn run(&mut self) -> Result<(), IndexFailure> {
        let mut scan = JsonScanner::new(self.body, indexing::find_json_start(self.body));
        let (mut list, mut instructions) = (None, None);
        self.found.span = scan.walk_object(|scan, key| {
            let first = scan.peek();
            let key_bytes = self.raw_bytes(key);
            if key_bytes == b"input" && list.is_some() {
                return Err(IndexFailure::Twice("input"));
            }
            let (value, kind) = match (key_bytes, first) {
                (b"input", Some(b'[')) => {
                    let array = scan.walk_array(|scan| self.read_entry(scan))?;
                    self.finish_answer()?;
                    list = Some(array);
                    (array, JsonKind::Array)
                }
                (b"input", Some(b'"')) => {
                    let text = scan.take_string()?;
                    let span = text.quoted_span();
                    self.add_item(USER, make_outside(Author::User, text))?;
                    list = Some(span);
                    (span, JsonKind::String)
                }
                (b"instructions", Some(b'"')) => {
                    let text = scan.take_string()?;
                    instructions = Some(text);
                    (text.quoted_span(), JsonKind::String)
                }
                _ => scan.take_value()?,
            };
            indexing::add_field(&mut self.found, Field { key, value, kind })
        })?;
        scan.expect_end()?;
        self.found.list = list.ok_or(IndexFailure::Shape("no input"))?;
        if let Some(text) = instructions {
            self.add_instructions(text)?;
        }
        request::leave_out_unread_reasoning(&mut self.found);
        Ok(())
    }

    /// Makes the instructions the first item.
    fn add_instructions(&mut self, text: JsonString) -> Result<(), IndexFailure> {
        let mut item = make_outside(Author::System, text);
        describe_item(&self.found, SYSTEM, &mut item);
        for annotation in &mut self.found.annotations {
            annotation.message += 1;
        }
        self.found.items.insert(0, item);
        check_item_count(&self.found, 0)
    }

    fn read_entry(&mut self, scan: &mut JsonScanner<'a>) -> Result<(), IndexFailure> {
        if scan.peek() != Some(b'{') {
            return Err(IndexFailure::Shape("an entry that is not an object"));
        }
        let reader = ValueReader {
            body: self.body,
            found: &self.found,
        };
        let entry = Entry::read(&reader, scan)?;
        match entry.kind {
            EntryKind::Answer(part) => self.extend_answer(entry, Some(part)),
            EntryKind::Unknown if self.answer.is_some() => self.extend_answer(entry, None),
            EntryKind::Message(role) => self.add_message(entry, role),
            EntryKind::Output(shape) => self.add_output(entry, shape),
            EntryKind::Fixed | EntryKind::Unknown => self.add_fixed(&entry),
        }
    }

    fn add_message(&mut self, entry: Entry<'a>, role: MessageRole) -> Result<(), IndexFailure> {
        self.finish_answer()?;
        let (author, tag) = match role {
            MessageRole::User => (Author::User, USER),
            MessageRole::System => (Author::System, SYSTEM),
            MessageRole::Developer => (Author::System, DEVELOPER),
        };
        let mut open = self.begin_item(entry.span, author, tag);
        open.item.content = self.add_content(entry.content, &mut open);
        self.finish_item(open, entry.annotated.then_some(entry.span))
    }

    fn add_output(&mut self, entry: Entry<'a>, shape: OutputShape) -> Result<(), IndexFailure> {
        self.finish_answer()?;
        let mut open = self.begin_item(entry.span, Author::Tool, OUTPUT);
        open.item.name = entry.name;
        let caller = entry.caller();
        open.item.read_by_program =
            caller.is_some_and(|it| self.programs.contains(self.raw_bytes(it.id)));
        self.found.links.extend(caller);
        open.item.call_id = match shape {
            OutputShape::LocalShell => entry.call_id.or_else(|| {
                let id = entry.id?;
                let call = self.shell_calls.get(self.raw_bytes(id));
                Some(call.copied().unwrap_or(id))
            }),
            _ => entry.call_id.or(entry.approval_request_id),
        };
        open.item.content = match (shape, entry.output) {
            (OutputShape::Fixed, _) => Content::Other(entry.span),
            (OutputShape::Shell, TextValue::Parts(list, chunks)) => {
                note_frames(&chunks, &mut open);
                self.add_fixed_blocks(chunks.iter().flat_map(shell_texts), list)
            }
            (OutputShape::Screenshot, TextValue::Object(part)) => {
                note_frames(std::slice::from_ref(&part), &mut open);
                let block = part.block();
                let marked = true;
                self.add_fixed_blocks([Block { marked, ..block }], part.span)
            }
            (_, output) => self.add_content(output, &mut open),
        };
        self.finish_item(open, entry.annotated.then_some(entry.span))
    }

    fn add_fixed(&mut self, entry: &Entry<'a>) -> Result<(), IndexFailure> {
        self.finish_answer()?;
        let mut open = self.begin_item(entry.span, Author::Unknown, FIXED);
        open.item.stands_apart = has_type(self.body, entry.span.start, "configuration_update");
        open.item.content = Content::Other(entry.span);
        self.finish_item(open, entry.annotated.then_some(entry.span))
    }

    /// Adds an entry to the open answer, or begins one. `part`: `None` for an entry of an unknown type.
    fn extend_answer(
        &mut self,
        entry: Entry<'a>,
        part: Option<AnswerPart>,
    ) -> Result<(), IndexFailure> {
        let mut open = match self.answer.take() {
            Some(open) => open,
            None => self.begin_answer(&entry),
        };
        open.item.span.end = entry.span.end;
        self.found.links.extend(entry.caller());
        let block = |kind| Block {
            span: entry.span,
            kind,
            marked: false,
        };
        let mut annotated_block = None;
        match part {
            Some(AnswerPart::Text) => annotated_block = self.add_answer_text(&entry, &mut open),
            Some(AnswerPart::Reasoning) => {
                open.item.sizes += entry.measure_reasoning(self.body);
                let before = &self.found.blocks[open.first_block as usize..];
                self.followers.note_reasoning(&mut open.item, before);
                self.found.blocks.push(block(BlockKind::Reasoning(None)));
            }
            Some(AnswerPart::Call(shape)) => {
                open.item.stays |= shape == CallShape::ToolSearch;
                if let (CallShape::LocalShell, Some(id), Some(call_id)) =
                    (shape, entry.id, entry.call_id)
                {
                    self.shell_calls.insert(self.raw_bytes(id), call_id);
                }
                let call = entry.call(shape);
                let program = call.id.filter(|_| shape == CallShape::Program);
                self.programs.extend(program.map(|id| self.raw_bytes(id)));
                self.found.calls.push(call);
                self.found.blocks.push(block(BlockKind::Call));
            }
            Some(AnswerPart::Image) => {
                let (url, low, marked) = (entry.result, false, true);
                let image = block(BlockKind::Image { url, low });
                self.found.blocks.push(Block { marked, ..image });
            }
            Some(AnswerPart::ServerCall) => self.found.blocks.push(block(BlockKind::Opaque)),
            Some(AnswerPart::ToolSearch | AnswerPart::NewType) | None => {
                open.item.stays = true;
                self.found.blocks.push(block(BlockKind::Opaque));
            }
        }
        if entry.annotated {
            open.annotated.push(AnnotatedObject {
                span: entry.span,
                block: annotated_block,
            });
        }
        self.answer = Some(open);
        check_item_count(&self.found, 0)
    }

    fn begin_answer(&mut self, entry: &Entry<'a>) -> OpenItem {
        let mut open = self.begin_item(entry.span, Author::Model, MODEL);
        let last = self.found.items.last();
        let may_follow = entry.id.is_some() && last.is_some_and(|it| it.author.is_tool());
        open.item.follows_reasoning = self.followers.begin_answer(may_follow);
        open
    }

    fn raw_bytes(&self, text: JsonString) -> &'a [u8] {
        &self.body[text.span.range()]
    }

    /// Adds the blocks of an assistant message. Returns the block of an only text.
    fn add_answer_text(&mut self, entry: &Entry<'a>, open: &mut OpenItem) -> Option<usize> {
        let next = self.found.blocks.len();
        let whole = |kind, marked| Block {
            span: entry.span,
            kind,
            marked,
        };
        let block = match &entry.content {
            TextValue::Plain(Content::Text(text)) => whole(BlockKind::Text(*text), false),
            TextValue::Parts(_, parts) if parts.len() == 1 => {
                self.note_parts(parts, open);
                let part = parts[0].block();
                whole(part.kind, part.marked)
            }
            TextValue::Parts(_, parts) if !parts.is_empty() => {
                self.note_parts(parts, open);
                // None of them can go: the entry must not be empty.
                self.found.blocks.extend(parts.iter().map(|part| Block {
                    marked: true,
                    ..part.block()
                }));
                return None;
            }
            _ => whole(BlockKind::Opaque, false),
        };
        let is_text = matches!(block.kind, BlockKind::Text(_));
        self.found.blocks.push(block);
        is_text.then_some(next)
    }

    /// Adds the blocks of a value.
    fn add_content(&mut self, value: TextValue<'a>, open: &mut OpenItem) -> Content {
        match value {
            TextValue::Plain(content) => content,
            TextValue::Object(part) => Content::Other(part.span),
            TextValue::Parts(list, parts) => {
                let first = self.found.blocks.len() as u32;
                self.note_parts(&parts, open);
                self.found.blocks.extend(parts.iter().map(ValuePart::block));
                Content::Blocks(first..self.found.blocks.len() as u32, list)
            }
        }
    }

    fn add_fixed_blocks(&mut self, blocks: impl IntoIterator<Item = Block>, list: Span) -> Content {
        let first = self.found.blocks.len() as u32;
        self.found.blocks.extend(blocks);
        Content::FixedBlocks(first..self.found.blocks.len() as u32, list)
    }

    /// Notes the annotations of parts that become the next blocks.
    fn note_parts(&self, parts: &[ValuePart<'a>], open: &mut OpenItem) {
        let next = self.found.blocks.len();
        let annotated = parts.iter().enumerate().filter(|(_, part)| part.annotated);
        open.annotated
            .extend(annotated.map(|(at, part)| AnnotatedObject {
                span: part.span,
                block: Some(next + at),
            }));
    }

    fn begin_item(&mut self, span: Span, author: Author, tag: u8) -> OpenItem {
        if !matches!(author, Author::Model | Author::Tool) {
            self.followers.end_row();
        }
        let first_call = self.found.calls.len() as u32;
        let first_link = self.found.links.len() as u32;
        OpenItem {
            item: Item {
                span,
                author,
                calls: first_call..first_call,
                links: first_link..first_link,
                ..Item::default()
            },
            tag,
            first_block: self.found.blocks.len() as u32,
            annotated: Vec::new(),
        }
    }

    fn finish_answer(&mut self) -> Result<(), IndexFailure> {
        let Some(mut open) = self.answer.take() else {
            return Ok(());
        };
        let blocks = open.first_block..self.found.blocks.len() as u32;
        open.item.content = Content::Blocks(blocks, open.item.span);
        open.item.calls.end = self.found.calls.len() as u32;
        self.finish_item(open, None)
    }

    /// Adds an item with its annotations. `annotated`: the entry that has one.
    fn finish_item(
        &mut self,
        mut open: OpenItem,
        annotated: Option<Span>,
    ) -> Result<(), IndexFailure> {
        open.item.links.end = self.found.links.len() as u32;
        let entry = annotated.map(|span| AnnotatedObject { span, block: None });
        open.annotated.extend(entry);
        if !open.annotated.is_empty() {
            self.add_annotations(&open.annotated)?;
        }
        self.add_item(open.tag, open.item)
    }

    fn add_item(&mut self, tag: u8, mut item: Item) -> Result<(), IndexFailure> {
        describe_item(&self.found, tag, &mut item);
        self.found.items.push(item);
        check_item_count(&self.found, 0)
    }

    #[cold]
    fn add_annotations(&mut self, objects: &[AnnotatedObject]) -> Result<(), IndexFailure> {
        let item = self.found.items.len();
        let annotations = &mut self.found.annotations;
        let first = annotations.len();
        for object in objects {
            let (span, block) = (object.span, object.block);
            annotation::find_annotations(self.body, span, item, block, annotations)?;
        }
        annotations[first..].sort_by_key(|it| it.span.start);
        check_item_count(&self.found, 0)
    }
}
