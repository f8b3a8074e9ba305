//! Indexes the body of a Responses request in one pass.
//!
//! All entries in a row that one answer of the model produced (reasoning, texts, calls) are one item with a block for
//! each; every other entry is an item of its own. `instructions` are the first item, wherever they are in the body. An
//! `input` that is a string is one item of the user without a list, so nothing can be put next to it. The promises of the
//! index of chat completions (`chat/index.rs`) hold here too.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use super::{
    compaction_item,
    entries::Entry,
    followers::Followers,
    kinds::{AnswerPart, CallShape, EntryKind, OutputShape},
    request,
    values::{TextValue, ValuePart, ValueReader},
};
use crate::{
    conversation::{
        Author, Block, BlockKind, Content, Conversation, Field, Format, IndexError, Item, ItemPlace,
    },
    format::{
        index::{
            describe::describe_item,
            indexing::{self, IndexFailure, Role, add_annotations, check_item_count},
            known_prefix::{ListIndexer, PrefixMemory, PrefixesOfAccount},
        },
        values::has_type,
    },
    json::scan::{JsonKind, JsonScanner, JsonString, Span},
};

/// Indexes a request body. If it has compaction entries of the proxy, then the conversation has another body with
/// messages in their place: no provider knows these entries.
pub(in crate::format) fn index_known_body(
    body: Bytes,
    prefixes: PrefixesOfAccount<'_>,
) -> Result<Conversation, IndexError> {
    match unfold_body(&body) {
        Some(unfolded) => index_entries(unfolded, prefixes),
        None => index_entries(body, prefixes),
    }
}

/// The body with messages in the place of compaction entries of the proxy; `None` where there is none.
pub(in crate::format) fn unfold_body(body: &Bytes) -> Option<Bytes> {
    if !compaction_item::may_have_entries(body) {
        return None;
    }
    compaction_item::unfold_entries(&index_entries(body.clone(), None).ok()?)
}

/// Indexes a request body as it came.
fn index_entries(body: Bytes, prefixes: PrefixesOfAccount<'_>) -> Result<Conversation, IndexError> {
    let mut indexer = ResponsesIndexer {
        body: &body,
        memory: PrefixMemory::new(prefixes, &body),
        found: Conversation::new_empty(Format::Responses, body.clone()),
        answer: None,
        followers: Followers::default(),
        shell_calls: HashMap::new(),
        programs: HashSet::new(),
    };
    match indexer.run() {
        Ok(()) => Ok(indexer.found.with_client_texts()),
        Err(failure) => Err(indexing::classify_failure(&body, &failure)),
    }
}

struct ResponsesIndexer<'a> {
    body: &'a [u8],
    memory: PrefixMemory<'a>,
    found: Conversation,
    /// The answer whose entries are being read. Its blocks and calls are the last ones of `found`.
    answer: Option<OpenItem>,
    followers: Followers,
    /// The `call_id` of calls of a local shell, by their `id`.
    shell_calls: HashMap<&'a [u8], JsonString>,
    /// The `call_id` of programs.
    programs: HashSet<&'a [u8]>,
}

/// An item that is not described yet.
struct OpenItem {
    item: Item,
    role: Role,
    first_block: u32,
    first_annotation: usize,
}

impl<'a> ListIndexer<'a> for ResponsesIndexer<'a> {
    fn parts(&mut self) -> (&mut PrefixMemory<'a>, &mut Conversation) {
        (&mut self.memory, &mut self.found)
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

    fn carried_state(&self) -> Option<u32> {
        let is_open = self.answer.is_some();
        let refers = !self.shell_calls.is_empty() || !self.programs.is_empty();
        (!is_open && !refers).then_some(self.followers.0)
    }

    fn resume_with(&mut self, carried: u32) {
        self.answer = None;
        self.followers = Followers(carried);
    }
}

impl<'a> ResponsesIndexer<'a> {
    fn run(&mut self) -> Result<(), IndexFailure> {
        let mut scan = JsonScanner::new(self.body, indexing::find_json_start(self.body));
        let (mut list, mut instructions) = (None, None);
        self.found.span = scan.walk_object(|scan, key| {
            let first = scan.peek();
            let key_bytes = key.raw_bytes(self.body);
            if key_bytes == b"input" && list.is_some() {
                return Err(IndexFailure::Twice("input"));
            }
            let (value, kind) = match (key_bytes, first) {
                (b"input", Some(b'[')) => {
                    let array = self.read_list(scan)?;
                    self.finish_answer()?;
                    list = Some(array);
                    (array, JsonKind::Array)
                }
                (b"input", Some(b'"')) => {
                    let text = scan.take_string()?;
                    let span = text.quoted_span();
                    self.add_item(Role::USER, make_outside(Role::USER, text))?;
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
        let mut item = make_outside(Role::SYSTEM, text);
        describe_item(&mut self.found, Role::SYSTEM.tag, &mut item);
        for annotation in &mut self.found.annotations {
            annotation.message += 1;
        }
        self.found.items.insert(0, item);
        check_item_count(&self.found, 0)
    }

    fn add_message(&mut self, entry: Entry<'a>, role: Role) -> Result<(), IndexFailure> {
        let mut open = self.begin_entry(&entry, role)?;
        open.item.content = self.add_content(entry.content)?;
        self.finish_item(open)
    }

    fn add_output(&mut self, entry: Entry<'a>, shape: OutputShape) -> Result<(), IndexFailure> {
        let mut open = self.begin_entry(&entry, Role::RESULT)?;
        open.item.name = entry.name;
        let caller = entry.caller();
        open.item.read_by_program =
            caller.is_some_and(|it| self.programs.contains(it.id.raw_bytes(self.body)));
        self.found.links.extend(caller);
        open.item.call_id = match shape {
            OutputShape::LocalShell => entry.call_id.or_else(|| {
                let id = entry.id?;
                let call = self.shell_calls.get(id.raw_bytes(self.body));
                Some(call.copied().unwrap_or(id))
            }),
            _ => entry.call_id.or(entry.approval_request_id),
        };
        open.item.content = match (shape, entry.output) {
            (OutputShape::Fixed, _) => Content::Other(entry.span),
            (OutputShape::Shell, TextValue::Parts(list, chunks)) => {
                self.annotate_parts(&chunks, false)?;
                self.add_fixed_blocks(chunks.iter().flat_map(ValuePart::shell_texts), list)
            }
            (OutputShape::Screenshot, TextValue::Object(part)) => {
                self.annotate_parts(std::slice::from_ref(&part), false)?;
                let block = part.block();
                let marked = true;
                self.add_fixed_blocks([Block { marked, ..block }], part.span)
            }
            (_, output) => self.add_content(output)?,
        };
        self.finish_item(open)
    }

    fn add_fixed(&mut self, entry: &Entry<'a>) -> Result<(), IndexFailure> {
        let mut open = self.begin_entry(entry, Role::UNKNOWN)?;
        open.item.stands_apart = has_type(self.body, entry.span.start, "configuration_update");
        open.item.content = Content::Other(entry.span);
        self.finish_item(open)
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
            Some(AnswerPart::Text) => annotated_block = self.add_answer_text(&entry)?,
            Some(AnswerPart::Reasoning) => {
                open.item.sizes += entry.measure_reasoning(self.body);
                let before = &self.found.blocks[open.first_block as usize..];
                self.followers.note_reasoning(&mut open.item, before);
                self.found.blocks.push(block(BlockKind::Reasoning(None)));
            }
            Some(AnswerPart::Call(shape)) => {
                open.item.is_pinned |= shape == CallShape::ToolSearch;
                if let (CallShape::LocalShell, Some(id), Some(call_id)) =
                    (shape, entry.id, entry.call_id)
                {
                    self.shell_calls.insert(id.raw_bytes(self.body), call_id);
                }
                let call = entry.call(shape);
                let program = call.id.filter(|_| shape == CallShape::Program);
                self.programs
                    .extend(program.map(|id| id.raw_bytes(self.body)));
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
                open.item.is_pinned = true;
                self.found.blocks.push(block(BlockKind::Opaque));
            }
        }
        if entry.annotated {
            self.annotate(entry.span, annotated_block)?;
        }
        self.answer = Some(open);
        check_item_count(&self.found, 0)
    }

    fn begin_answer(&mut self, entry: &Entry<'a>) -> OpenItem {
        let mut open = self.begin_item(entry.span, Role::ASSISTANT);
        let last = self.found.items.last();
        let may_follow = entry.id.is_some() && last.is_some_and(|it| it.author.is_tool());
        open.item.follows_reasoning = self.followers.begin_answer(may_follow);
        open
    }

    /// Adds the blocks of an assistant message. Returns the index of the block if the message is a single text.
    fn add_answer_text(&mut self, entry: &Entry<'a>) -> Result<Option<usize>, IndexFailure> {
        let next = self.found.blocks.len();
        let whole = |kind, marked| Block {
            span: entry.span,
            kind,
            marked,
        };
        let block = match &entry.content {
            TextValue::Plain(Content::Text(text)) => whole(BlockKind::Text(*text), false),
            TextValue::Parts(_, parts) if parts.len() == 1 => {
                self.annotate_parts(parts, true)?;
                let part = parts[0].block();
                whole(part.kind, part.marked)
            }
            TextValue::Parts(_, parts) if !parts.is_empty() => {
                self.annotate_parts(parts, true)?;
                // None of these blocks can be removed: the entry must not be empty.
                self.found.blocks.extend(parts.iter().map(|part| Block {
                    marked: true,
                    ..part.block()
                }));
                return Ok(None);
            }
            _ => whole(BlockKind::Opaque, false),
        };
        let is_text = matches!(block.kind, BlockKind::Text(_));
        self.found.blocks.push(block);
        Ok(is_text.then_some(next))
    }

    /// Adds the blocks of a value.
    fn add_content(&mut self, value: TextValue<'a>) -> Result<Content, IndexFailure> {
        Ok(match value {
            TextValue::Plain(content) => content,
            TextValue::Object(part) => Content::Other(part.span),
            TextValue::Parts(list, parts) => {
                let first = self.found.blocks.len() as u32;
                self.annotate_parts(&parts, true)?;
                self.found.blocks.extend(parts.iter().map(ValuePart::block));
                Content::Blocks(first..self.found.blocks.len() as u32, list)
            }
        })
    }

    fn add_fixed_blocks(&mut self, blocks: impl IntoIterator<Item = Block>, list: Span) -> Content {
        let first = self.found.blocks.len() as u32;
        self.found.blocks.extend(blocks);
        Content::FixedBlocks(first..self.found.blocks.len() as u32, list)
    }

    /// Adds the annotations of parts. `are_blocks`: each part becomes a block, and the first part becomes the next block.
    fn annotate_parts(
        &mut self,
        parts: &[ValuePart<'a>],
        are_blocks: bool,
    ) -> Result<(), IndexFailure> {
        let next = self.found.blocks.len();
        let mut annotated = parts.iter().enumerate().filter(|(_, part)| part.annotated);
        annotated
            .try_for_each(|(at, part)| self.annotate(part.span, are_blocks.then_some(next + at)))
    }

    /// Adds the annotations of an object in the item that is read.
    fn annotate(&mut self, object: Span, block: Option<usize>) -> Result<(), IndexFailure> {
        let item = self.found.items.len();
        add_annotations(&mut self.found, object, item, block)
    }

    /// Begins an item of one entry.
    fn begin_entry(&mut self, entry: &Entry<'a>, role: Role) -> Result<OpenItem, IndexFailure> {
        self.finish_answer()?;
        let open = self.begin_item(entry.span, role);
        if entry.annotated {
            self.annotate(entry.span, None)?;
        }
        Ok(open)
    }

    fn begin_item(&mut self, span: Span, role: Role) -> OpenItem {
        if !matches!(role.author, Author::Model | Author::Tool) {
            self.followers.end_row();
        }
        let first_call = self.found.calls.len() as u32;
        let first_link = self.found.links.len() as u32;
        OpenItem {
            item: Item {
                span,
                author: role.author,
                calls: first_call..first_call,
                links: first_link..first_link,
                ..Item::default()
            },
            role,
            first_block: self.found.blocks.len() as u32,
            first_annotation: self.found.annotations.len(),
        }
    }

    fn finish_answer(&mut self) -> Result<(), IndexFailure> {
        let Some(mut open) = self.answer.take() else {
            return Ok(());
        };
        let blocks = open.first_block..self.found.blocks.len() as u32;
        open.item.content = Content::Blocks(blocks, open.item.span);
        open.item.calls.end = self.found.calls.len() as u32;
        self.finish_item(open)
    }

    fn finish_item(&mut self, mut open: OpenItem) -> Result<(), IndexFailure> {
        open.item.links.end = self.found.links.len() as u32;
        self.found.annotations[open.first_annotation..].sort_by_key(|it| it.span.start);
        self.add_item(open.role, open.item)
    }

    fn add_item(&mut self, role: Role, mut item: Item) -> Result<(), IndexFailure> {
        describe_item(&mut self.found, role.tag, &mut item);
        self.found.items.push(item);
        check_item_count(&self.found, 0)
    }
}

/// Makes the item of a text that is outside the list.
fn make_outside(role: Role, text: JsonString) -> Item {
    Item {
        span: text.quoted_span(),
        place: ItemPlace::Outside,
        author: role.author,
        content: Content::Text(text),
        ..Item::default()
    }
}
