//! Reads the blocks of a message. Which item a block belongs to is known only when the whole message is read.

use crate::{
    conversation::{
        Arguments, Block, BlockKind, Call, Content, Conversation, Link, LinkKind, annotation,
    },
    format::{
        index::indexing::{
            IndexFailure, ReadContent, SingleKeys, check_item_count, check_plain_key, read_content,
        },
        values::{skip_value, take_caller, take_raw_text, take_text},
    },
    json::scan::{JsonKind, JsonScanner, JsonString, Span},
};

/// The keys that may occur only once in a block.
const BLOCK_KEYS: SingleKeys = SingleKeys(
    &[
        "type",
        "text",
        "thinking",
        "source",
        "content",
        "tool_use_id",
        "id",
        "name",
        "input",
    ],
    IndexFailure::TwiceInPart,
);

/// The content of a message or of a tool result.
pub(super) type BlocksContent<'a> = ReadContent<ReadBlock<'a>>;

pub(super) struct ContentBlockReader<'a, 'f> {
    pub(super) body: &'a [u8],
    pub(super) found: &'f mut Conversation,
    /// The reader is inside a tool result, which cannot hold another tool result.
    pub(super) in_result: bool,
}

/// A block of a message: its members, as far as they are read.
#[derive(Default)]
pub(super) struct ReadBlock<'a> {
    pub(super) span: Span,
    kind: &'a [u8],
    text: Option<JsonString>,
    thinking: Option<JsonString>,
    source: Source<'a>,
    id: Option<JsonString>,
    name: Option<JsonString>,
    input: Option<Span>,
    /// The call that a result answers.
    pub(super) call_id: Option<JsonString>,
    caller: Option<JsonString>,
    /// The tools that a result loads.
    loaded: Vec<JsonString>,
    /// Where the list or the object in `content` begins, if `type` was not read before it.
    list: Option<usize>,
    /// The content of a tool result.
    pub(super) content: Option<Content>,
    /// Indices of the blocks in `content` that have annotations.
    pub(super) annotated_blocks: Vec<usize>,
    marked: bool,
    pub(super) annotated: bool,
}

/// Where an image or a document comes from.
#[derive(Default)]
struct Source<'a> {
    kind: &'a [u8],
    data: Option<JsonString>,
}

impl ReadBlock<'_> {
    /// Whether the block is a tool result. Blocks inside a tool result are not asked.
    pub(super) fn is_result(&self) -> bool {
        self.kind == b"tool_result"
    }

    /// The call of a `tool_use` block.
    pub(super) fn call(&self) -> Option<Call> {
        (self.kind == b"tool_use").then(|| Call {
            span: self.span,
            id: self.id,
            name: self.name,
            arguments: self.input.map(Arguments::Json),
            listed: true,
            fixed: false,
        })
    }

    /// Whether the block marks the place where another model took over. A `tool_use` before it has no result.
    pub(super) fn is_fallback(&self) -> bool {
        self.kind == b"fallback"
    }

    /// Whether the message of the block must be sent back as it came: later requests depend on the place of the block, or
    /// on what it lists.
    pub(super) fn pins_message(&self) -> bool {
        self.is_fallback() || matches!(self.kind, b"mcp_tool_listing" | b"compaction")
    }

    /// Whether the block is the provider's own summary of what came before it. A compaction without a text has failed.
    pub(super) fn is_history_summary(&self) -> bool {
        self.kind == b"compaction" && matches!(self.content, Some(Content::Text(_)))
    }

    /// `in_answer`: the block is in an answer. Only there, a `tool_use` is a call.
    pub(super) fn block(&self, in_answer: bool) -> Block {
        let kind = match (self.kind, self.text) {
            (b"text" | b"", Some(text)) => BlockKind::Text(text),
            (b"image", _) => BlockKind::Image {
                url: self.source.data,
                low: false,
            },
            // A document that is text counts as such.
            (b"document", _) if matches!(self.source.kind, b"base64" | b"url" | b"file") => {
                BlockKind::Media
            }
            (b"thinking", _) => BlockKind::Reasoning(self.thinking),
            (b"redacted_thinking", _) => BlockKind::Reasoning(None),
            (b"tool_use", _) if in_answer => BlockKind::Call,
            _ => BlockKind::Opaque,
        };
        Block {
            span: self.span,
            kind,
            marked: self.marked,
        }
    }

    /// The tools that a result loads, by their names.
    pub(super) fn loads(&self) -> impl Iterator<Item = Link> {
        let kind = LinkKind::Load;
        self.loaded.iter().map(move |&id| Link { id, kind })
    }

    /// Returns the link of what the server runs or of its result, and the link to the program that made the call.
    pub(super) fn links(&self) -> [Option<Link>; 2] {
        let link = |id: Option<JsonString>, kind| id.map(|id| Link { id, kind });
        let served = match self.kind {
            kind if kind.ends_with(b"_tool_use") => link(self.id, LinkKind::Use),
            kind if kind.ends_with(b"_tool_result") => link(self.call_id, LinkKind::Result),
            _ => None,
        };
        [served, link(self.caller, LinkKind::Caller)]
    }
}

/// The text of a document block that is text; `None` for any other block.
pub(in crate::format) fn find_document_text(body: &[u8], block: Span) -> Option<JsonString> {
    let (mut is_document, mut source) = (false, Source::default());
    let mut scan = JsonScanner::new(body, block.start as usize);
    let read = scan.walk_object(|scan, key| {
        match key.raw_bytes(body) {
            b"type" => is_document = take_raw_text(body, scan)? == b"document",
            b"source" => source = read_source(body, scan)?,
            _ => skip_value(scan)?,
        }
        Ok::<_, IndexFailure>(())
    });
    read.ok()?;
    source
        .data
        .filter(|_| is_document && source.kind == b"text")
}

/// Reads `{"type": "base64", "data": …}`, the same with a `url`, or any other value.
fn read_source<'a>(body: &'a [u8], scan: &mut JsonScanner<'a>) -> Result<Source<'a>, IndexFailure> {
    let mut source = Source::default();
    if scan.peek() != Some(b'{') {
        skip_value(scan)?;
        return Ok(source);
    }
    scan.walk_object(|scan, key| {
        check_plain_key(key)?;
        match key.raw_bytes(body) {
            b"type" => source.kind = take_raw_text(body, scan)?,
            b"data" | b"url" => source.data = take_text(scan)?,
            _ => skip_value(scan)?,
        }
        Ok::<_, IndexFailure>(())
    })?;
    Ok(source)
}

/// Reads `{"tool_references": [{"type": "tool_reference", "tool_name": …}, …]}`: the names of the tools that the server's
/// search found. The list is empty for any other value.
fn read_references(body: &[u8], start: usize) -> Vec<JsonString> {
    let mut names = Vec::new();
    let mut read_reference = |scan: &mut JsonScanner<'_>| {
        let reference = scan.walk_object(|scan, key| match key.raw_bytes(body) {
            b"tool_name" => take_text(scan).map(|name| names.extend(name)),
            _ => skip_value(scan),
        });
        reference.map(drop)
    };
    let mut scan = JsonScanner::new(body, start);
    let read = scan.walk_object(|scan, key| match key.raw_bytes(body) {
        b"tool_references" => scan.walk_array(&mut read_reference).map(drop),
        _ => skip_value(scan),
    });
    // The value was read before, so that only another shape ends it early.
    read.ok();
    names
}

impl<'a> ContentBlockReader<'a, '_> {
    pub(super) fn read_content(
        &mut self,
        scan: &mut JsonScanner<'a>,
    ) -> Result<BlocksContent<'a>, IndexFailure> {
        read_content(scan, |scan, count| {
            let block = self.read_block(scan)?;
            // The blocks are not in the conversation yet.
            check_item_count(self.found, count + 1)?;
            Ok(block)
        })
    }

    fn read_block(&mut self, scan: &mut JsonScanner<'a>) -> Result<ReadBlock<'a>, IndexFailure> {
        let mut read = ReadBlock::default();
        read.span = BLOCK_KEYS.walk_object(self.body, scan, |scan, key| {
            match key {
                b"type" => read.kind = take_raw_text(self.body, scan)?,
                b"text" => read.text = take_text(scan)?,
                b"thinking" => read.thinking = take_text(scan)?,
                b"source" => read.source = read_source(self.body, scan)?,
                b"content" if !self.in_result => self.read_result_content(scan, &mut read)?,
                b"tool_use_id" => read.call_id = take_text(scan)?,
                b"id" => read.id = take_text(scan)?,
                b"name" => read.name = take_text(scan)?,
                b"tool_name" => read.loaded.extend(take_text(scan)?),
                b"caller" => read.caller = take_caller(self.body, scan)?,
                b"input" => read.input = Some(scan.take_value()?.0),
                b"cache_control" => read.marked |= scan.take_value()?.1 != JsonKind::Null,
                key => {
                    read.annotated |= key == annotation::ANNOTATION_KEY;
                    skip_value(scan)?;
                }
            }
            Ok(())
        })?;
        match (read.list.take(), read.kind) {
            (Some(start), b"tool_result") => {
                self.read_result_content(&mut JsonScanner::new(self.body, start), &mut read)?;
            }
            (Some(start), b"tool_search_tool_result") => {
                read.loaded = read_references(self.body, start);
            }
            _ => {}
        }
        Ok(read)
    }

    /// Reads a `content`. A list or an object is skipped, and read later, unless the block is known to be a tool result.
    fn read_result_content(
        &mut self,
        scan: &mut JsonScanner<'a>,
        result: &mut ReadBlock<'a>,
    ) -> Result<(), IndexFailure> {
        if matches!(scan.peek(), Some(b'[' | b'{')) && !result.is_result() {
            result.list = Some(scan.position());
            return Ok(skip_value(scan)?);
        }
        let mut reader = ContentBlockReader {
            body: self.body,
            found: self.found,
            in_result: true,
        };
        result.content = Some(match reader.read_content(scan)? {
            ReadContent::Plain(content) => content,
            ReadContent::Parts(list, blocks) => {
                let first = self.found.blocks.len();
                for read in blocks {
                    if read.annotated {
                        result.annotated_blocks.push(self.found.blocks.len());
                    }
                    if read.kind == b"tool_reference" {
                        result.loaded.extend_from_slice(&read.loaded);
                    }
                    self.found.blocks.push(read.block(false));
                    check_item_count(self.found, 0)?;
                }
                Content::Blocks(first as u32..self.found.blocks.len() as u32, list)
            }
        });
        Ok(())
    }
}
