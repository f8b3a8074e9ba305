//! Reads the blocks of a message. To which item a block belongs is known once the message is read.

use crate::{
    conversation::{
        Arguments, Block, BlockKind, Call, Content, Conversation, Link, LinkKind, annotation,
    },
    format::{
        index::indexing::{IndexFailure, SeenKeys, check_item_count, check_plain_key},
        values::{skip_value, take_caller, take_text},
    },
    json::scan::{JsonKind, JsonScanner, JsonString, Span},
};

/// The keys of a block that may stand in it only once.
const BLOCK_KEYS: &[&str] = &[
    "type",
    "text",
    "thinking",
    "source",
    "content",
    "tool_use_id",
    "id",
    "name",
    "input",
];

/// A block of a message.
pub(super) struct ReadBlock {
    pub(super) block: Block,
    /// The call of a `tool_use` block.
    pub(super) call: Option<Call>,
    pub(super) result: Option<ToolResult>,
    /// What an answer refers to with it.
    pub(super) links: [Option<Link>; 2],
    pub(super) annotated: bool,
}

/// What a `tool_result` block holds.
pub(super) struct ToolResult {
    pub(super) call_id: Option<JsonString>,
    pub(super) content: Content,
    /// Indices of its blocks with annotations.
    pub(super) annotated: Vec<usize>,
}

/// The content of a message or of a tool result.
pub(super) enum ReadContent {
    /// Anything but a list of blocks.
    Plain(Content),
    Blocks(Span, Vec<ReadBlock>),
}

pub(super) struct ContentBlockReader<'a, 'f> {
    pub(super) body: &'a [u8],
    pub(super) found: &'f mut Conversation,
    /// It reads the content of a tool result, in which no other one stands.
    pub(super) in_result: bool,
}

/// The members of a block, as far as they are read.
#[derive(Default)]
struct Members<'a> {
    kind: &'a [u8],
    text: Option<JsonString>,
    thinking: Option<JsonString>,
    source: Source<'a>,
    id: Option<JsonString>,
    name: Option<JsonString>,
    input: Option<Span>,
    call_id: Option<JsonString>,
    caller: Option<JsonString>,
    /// Where a list begins that is the content of a block of a kind not known yet.
    list: Option<usize>,
    content: Option<Content>,
    annotated: Vec<usize>,
}

/// Where an image or a document comes from.
#[derive(Default)]
struct Source<'a> {
    kind: &'a [u8],
    data: Option<JsonString>,
}

impl Members<'_> {
    const fn block_kind(&self) -> BlockKind {
        match (self.kind, self.text) {
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
            (b"tool_use", _) => BlockKind::Call,
            _ => BlockKind::Opaque,
        }
    }

    /// What the server runs, or its result; and the program that made it run.
    fn links(&self) -> [Option<Link>; 2] {
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
        match &body[key.span.range()] {
            b"type" => {
                is_document =
                    take_text(scan)?.is_some_and(|it| body[it.span.range()] == *b"document")
            }
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

/// `{"type": "base64", "data": …}`, or with a `url`, or anything else.
fn read_source<'a>(body: &'a [u8], scan: &mut JsonScanner<'a>) -> Result<Source<'a>, IndexFailure> {
    let mut source = Source::default();
    if scan.peek() != Some(b'{') {
        skip_value(scan)?;
        return Ok(source);
    }
    scan.walk_object(|scan, key| {
        check_plain_key(key)?;
        match &body[key.span.range()] {
            b"type" => source.kind = take_text(scan)?.map_or(b"", |it| &body[it.span.range()]),
            b"data" | b"url" => source.data = take_text(scan)?,
            _ => skip_value(scan)?,
        }
        Ok::<_, IndexFailure>(())
    })?;
    Ok(source)
}

impl<'a> ContentBlockReader<'a, '_> {
    fn raw_bytes(&self, text: JsonString) -> &'a [u8] {
        &self.body[text.span.range()]
    }

    pub(super) fn read_content(
        &mut self,
        scan: &mut JsonScanner<'a>,
    ) -> Result<ReadContent, IndexFailure> {
        let plain = match scan.peek() {
            Some(b'"') => Content::Text(scan.take_string()?),
            Some(b'[') => return self.read_blocks(scan),
            _ => match scan.take_value()? {
                (span, JsonKind::Null) => Content::Null(span),
                (span, _) => Content::Other(span),
            },
        };
        Ok(ReadContent::Plain(plain))
    }

    fn read_blocks(&mut self, scan: &mut JsonScanner<'a>) -> Result<ReadContent, IndexFailure> {
        let mut blocks = Vec::new();
        let mut all_objects = true;
        let span = scan.walk_array(|scan| {
            if scan.peek() != Some(b'{') {
                all_objects = false;
                return Ok(skip_value(scan)?);
            }
            blocks.push(self.read_block(scan)?);
            // The blocks are not among those of the conversation yet.
            check_item_count(self.found, blocks.len())
        })?;
        Ok(match all_objects {
            true => ReadContent::Blocks(span, blocks),
            false => ReadContent::Plain(Content::Other(span)),
        })
    }

    fn read_block(&mut self, scan: &mut JsonScanner<'a>) -> Result<ReadBlock, IndexFailure> {
        let mut seen = SeenKeys::default();
        let mut members = Members::default();
        let (mut marked, mut annotated) = (false, false);
        let span = scan.walk_object(|scan, key| {
            check_plain_key(key)?;
            let key = self.raw_bytes(key);
            seen.mark_once(BLOCK_KEYS, key, IndexFailure::TwiceInPart)?;
            match key {
                b"type" => members.kind = take_text(scan)?.map_or(b"", |it| self.raw_bytes(it)),
                b"text" => members.text = take_text(scan)?,
                b"thinking" => members.thinking = take_text(scan)?,
                b"source" => members.source = read_source(self.body, scan)?,
                b"content" if !self.in_result => self.read_result_content(scan, &mut members)?,
                b"tool_use_id" => members.call_id = take_text(scan)?,
                b"id" => members.id = take_text(scan)?,
                b"name" => members.name = take_text(scan)?,
                b"caller" => members.caller = take_caller(self.body, scan)?,
                b"input" => members.input = Some(scan.take_value()?.0),
                b"cache_control" => marked |= scan.take_value()?.1 != JsonKind::Null,
                key => {
                    annotated |= key == annotation::ANNOTATION_KEY;
                    skip_value(scan)?;
                }
            }
            Ok::<_, IndexFailure>(())
        })?;
        let result = (members.kind == b"tool_result" && !self.in_result)
            .then(|| self.finish_result(&mut members));
        let call = (members.kind == b"tool_use").then(|| Call {
            span,
            id: members.id,
            name: members.name,
            arguments: members.input.map(Arguments::Json),
            listed: true,
            fixed: false,
        });
        let kind = members.block_kind();
        Ok(ReadBlock {
            block: Block { span, kind, marked },
            call,
            result: result.transpose()?,
            links: members.links(),
            annotated,
        })
    }

    /// Reads a `content`. A list is read once it is known to belong to a tool result.
    fn read_result_content(
        &mut self,
        scan: &mut JsonScanner<'a>,
        members: &mut Members<'a>,
    ) -> Result<(), IndexFailure> {
        if scan.peek() == Some(b'[') && members.kind != b"tool_result" {
            members.list = Some(scan.position());
            return Ok(skip_value(scan)?);
        }
        let mut reader = ContentBlockReader {
            body: self.body,
            found: self.found,
            in_result: true,
        };
        members.content = Some(match reader.read_content(scan)? {
            ReadContent::Plain(content) => content,
            ReadContent::Blocks(list, blocks) => {
                let first = self.found.blocks.len();
                for read in blocks {
                    if read.annotated {
                        members.annotated.push(self.found.blocks.len());
                    }
                    self.found.blocks.push(read.into_content());
                    check_item_count(self.found, 0)?;
                }
                Content::Blocks(first as u32..self.found.blocks.len() as u32, list)
            }
        });
        Ok(())
    }

    fn finish_result(&mut self, members: &mut Members<'a>) -> Result<ToolResult, IndexFailure> {
        if let Some(start) = members.list.take() {
            self.read_result_content(&mut JsonScanner::new(self.body, start), members)?;
        }
        Ok(ToolResult {
            call_id: members.call_id,
            content: members.content.take().unwrap_or(Content::Absent),
            annotated: std::mem::take(&mut members.annotated),
        })
    }
}

impl ReadBlock {
    /// The block where it is neither a call nor a result.
    pub(super) fn into_content(self) -> Block {
        let kind = match self.block.kind {
            BlockKind::Call => BlockKind::Opaque,
            kind => kind,
        };
        Block { kind, ..self.block }
    }
}
