//! Indexes the body of a chat completions request in one pass: every top-level field and every
//! message, with its content, calls, sizes by kind of text and digests. What the index promises:
//!
//! - Spans are exact, whatever the spelling: white space, key order, escapes, a byte order mark.
//! - A body that is JSON but not a conversation that the proxy understands (`messages` missing or
//!   not an array, a message that is not an object, a key twice, nesting beyond 1,024 levels, more
//!   than 262,144 messages, calls, parts and annotations) is [`IndexError::Unguardable`] and is
//!   forwarded as it came.
//! - A body that is not JSON is [`IndexError::NotJson`], with the position.
//! - An empty `messages` is a conversation without messages, numbers may be of any length, and
//!   half a surrogate pair in a text is indexed like any other text.

use bytes::Bytes;

use super::reasoning_members::{REASONING_MEMBERS, SIGNED_MEMBER, measure_reasoning};
use crate::{
    conversation::{
        Annotation, Arguments, Block, BlockKind, Call, Content, Conversation, Field, Format,
        IndexError, Item, annotation,
    },
    format::{
        index::{
            describe::describe_item,
            indexing::{
                self, IndexFailure, ReadContent, Role, SingleKeys, add_annotations,
                check_item_count, check_plain_key, read_content,
            },
            known_prefix::{ListIndexer, PrefixMemory, PrefixesOfAccount},
        },
        values::{skip_value, take_raw_text, take_text},
    },
    json::scan::{JsonKind, JsonScanner, JsonString, Span},
};

/// The keys that may occur only once in a message, or in a part.
const MESSAGE_KEYS: SingleKeys = SingleKeys(
    &[
        "role",
        "content",
        "tool_calls",
        "function_call",
        "tool_call_id",
        "name",
    ],
    IndexFailure::Twice,
);
const PART_KEYS: SingleKeys = SingleKeys(&["type", "text", "image_url"], IndexFailure::TwiceInPart);

/// Indexes a request body.
pub fn index_body(body: Bytes) -> Result<Conversation, IndexError> {
    index_known_body(body, None)
}

/// Indexes a request body, and copies the index of the known prefix of its list.
pub(in crate::format) fn index_known_body(
    body: Bytes,
    prefixes: PrefixesOfAccount<'_>,
) -> Result<Conversation, IndexError> {
    let mut indexer = ChatIndexer {
        body: &body,
        memory: PrefixMemory::new(prefixes, &body),
        found: Conversation::new_empty(Format::Chat, body.clone()),
        signs_call: false,
    };
    match indexer.run() {
        Ok(()) => Ok(indexer.found.with_client_texts()),
        Err(failure) => Err(indexing::classify_failure(&body, &failure)),
    }
}

struct ChatIndexer<'a> {
    body: &'a [u8],
    memory: PrefixMemory<'a>,
    found: Conversation,
    /// A call of the message that is being read has a signature.
    signs_call: bool,
}

impl<'a> ListIndexer<'a> for ChatIndexer<'a> {
    fn parts(&mut self) -> (&mut PrefixMemory<'a>, &mut Conversation) {
        (&mut self.memory, &mut self.found)
    }

    fn read_entry(&mut self, scan: &mut JsonScanner<'a>) -> Result<(), IndexFailure> {
        if scan.peek() != Some(b'{') {
            return Err(IndexFailure::Shape("a message that is not an object"));
        }
        let message = self.read_message(scan)?;
        self.found.items.push(message);
        check_item_count(&self.found, 0)
    }
}

impl<'a> ChatIndexer<'a> {
    fn run(&mut self) -> Result<(), IndexFailure> {
        let mut scan = JsonScanner::new(self.body, indexing::find_json_start(self.body));
        let mut messages = None;
        self.found.span = scan.walk_object(|scan, key| {
            let (value, kind) =
                if key.raw_bytes(self.body) == b"messages" && scan.peek() == Some(b'[') {
                    if messages.is_some() {
                        return Err(IndexFailure::Twice("messages"));
                    }
                    let array = self.read_messages(scan)?;
                    messages = Some(array);
                    (array, JsonKind::Array)
                } else {
                    scan.take_value()?
                };
            indexing::add_field(&mut self.found, Field { key, value, kind })
        })?;
        scan.expect_end()?;
        self.found.list = messages.ok_or(IndexFailure::Shape("no array of messages"))?;
        Ok(())
    }

    fn read_messages(&mut self, scan: &mut JsonScanner<'a>) -> Result<Span, IndexFailure> {
        // Messages of agents mostly have a few hundred bytes or more: one allocation for most bodies.
        self.found.items.reserve(self.body.len() / 1024);
        self.read_list(scan)
    }

    fn read_message(&mut self, scan: &mut JsonScanner<'a>) -> Result<Item, IndexFailure> {
        let mut role = Role::UNKNOWN;
        let first_call = self.found.calls.len() as u32;
        let first_annotation = self.found.annotations.len();
        let (mut annotated, mut reasons) = (false, false);
        let mut message = Item::default();
        message.span = MESSAGE_KEYS.walk_object(self.body, scan, |scan, key| {
            match key {
                b"role" => role = self.read_role(scan)?,
                b"content" => message.content = self.read_content(scan)?,
                b"tool_calls" => self.read_tool_calls(scan, &mut message)?,
                b"function_call" => self.read_function_call(scan)?,
                b"tool_call_id" => message.call_id = take_text(scan)?,
                b"name" => message.name = take_text(scan)?,
                key => {
                    annotated |= key == annotation::ANNOTATION_KEY;
                    reasons |= REASONING_MEMBERS.contains(&key) || key == SIGNED_MEMBER;
                    skip_value(scan)?;
                }
            }
            Ok(())
        })?;
        if reasons || self.signs_call {
            self.signs_call = false;
            message.sizes += measure_reasoning(self.body, message.span.start);
        }
        message.author = role.author;
        message.calls = first_call..self.found.calls.len() as u32;
        if annotated {
            let at = self.found.items.len();
            add_annotations(&mut self.found, message.span, at, None)?;
            self.found.annotations[first_annotation..].sort_by_key(|it| it.span.start);
        }
        describe_item(&mut self.found, role.tag, &mut message);
        if role == Role::FUNCTION_RESULT {
            // It answers the legacy call, which has no id.
            message.call_id = None;
        }
        Ok(message)
    }

    fn read_role(&self, scan: &mut JsonScanner<'a>) -> Result<Role, IndexFailure> {
        Ok(match take_raw_text(self.body, scan)? {
            b"system" => Role::SYSTEM,
            b"developer" => Role::DEVELOPER,
            b"user" => Role::USER,
            b"assistant" => Role::ASSISTANT,
            b"tool" => Role::RESULT,
            b"function" => Role::FUNCTION_RESULT,
            _ => Role::UNKNOWN,
        })
    }

    fn read_content(&mut self, scan: &mut JsonScanner<'a>) -> Result<Content, IndexFailure> {
        let first = self.found.blocks.len();
        let first_annotation = self.found.annotations.len();
        let read = read_content(scan, |scan, _| {
            let part = self.read_part(scan)?;
            self.found.blocks.push(part);
            check_item_count(&self.found, 0)
        })?;
        Ok(match read {
            ReadContent::Parts(list, _) => {
                Content::Blocks(first as u32..self.found.blocks.len() as u32, list)
            }
            // If the list also has elements that are not objects, then the blocks read from its objects are dropped.
            ReadContent::Plain(content) => {
                self.found.blocks.truncate(first);
                let annotations = &mut self.found.annotations[first_annotation..];
                annotations.iter_mut().for_each(Annotation::mark_odd);
                content
            }
        })
    }

    fn read_part(&mut self, scan: &mut JsonScanner<'a>) -> Result<Block, IndexFailure> {
        let (mut kind, mut text, mut image) = (None, None, None);
        let (mut marked, mut annotated) = (false, false);
        let span = PART_KEYS.walk_object(self.body, scan, |scan, key| {
            match key {
                b"type" => kind = take_text(scan)?,
                b"text" => text = take_text(scan)?,
                b"image_url" => image = Some(self.read_image(scan)?),
                b"cache_control" | b"prompt_cache_breakpoint" => {
                    marked |= scan.take_value()?.1 != JsonKind::Null;
                }
                key => {
                    annotated |= key == annotation::ANNOTATION_KEY;
                    skip_value(scan)?;
                }
            }
            Ok(())
        })?;
        if annotated {
            let (message, part) = (self.found.items.len(), self.found.blocks.len());
            add_annotations(&mut self.found, span, message, Some(part))?;
        }
        let kind = match (kind.map(|kind| kind.raw_bytes(self.body)), text, image) {
            (Some(b"text") | None, Some(text), _) => BlockKind::Text(text),
            (Some(b"image_url"), _, Some((url, low))) => BlockKind::Image { url, low },
            (
                Some(
                    b"image_url" | b"input_audio" | b"audio" | b"video_url" | b"file" | b"file_url"
                    | b"image" | b"document",
                ),
                ..,
            ) => BlockKind::Media,
            _ => BlockKind::Opaque,
        };
        Ok(Block { span, kind, marked })
    }

    /// Reads `{"url": …, "detail": …}`, or the URL itself as some clients send it. Returns the URL, and whether `detail`
    /// is `low`.
    fn read_image(
        &self,
        scan: &mut JsonScanner<'a>,
    ) -> Result<(Option<JsonString>, bool), IndexFailure> {
        if scan.peek() != Some(b'{') {
            return Ok((take_text(scan)?, false));
        }
        let (mut url, mut low) = (None, false);
        scan.walk_object(|scan, key| {
            check_plain_key(key)?;
            match key.raw_bytes(self.body) {
                b"url" => url = take_text(scan)?,
                b"detail" => low = take_raw_text(self.body, scan)? == b"low",
                _ => skip_value(scan)?,
            }
            Ok::<_, IndexFailure>(())
        })?;
        Ok((url, low))
    }

    /// Reads the calls of a message. If they are not a list, or if one of them is not an object, then the message is
    /// never removed.
    fn read_tool_calls(
        &mut self,
        scan: &mut JsonScanner<'a>,
        message: &mut Item,
    ) -> Result<(), IndexFailure> {
        let mut skip_unknown = |scan: &mut JsonScanner<'a>, found: &Conversation| {
            let (span, kind) = scan.take_value()?;
            if kind != JsonKind::Null {
                message.is_pinned = true;
                message.sizes += found.measure_span(span);
            }
            Ok(())
        };
        if scan.peek() != Some(b'[') {
            return skip_unknown(scan, &self.found);
        }
        let walked = scan.walk_array(|scan| {
            if scan.peek() != Some(b'{') {
                return skip_unknown(scan, &self.found);
            }
            let call = self.read_tool_call(scan)?;
            self.found.calls.push(call);
            check_item_count(&self.found, 0)
        });
        walked.map(drop)
    }

    fn read_tool_call(&mut self, scan: &mut JsonScanner<'a>) -> Result<Call, IndexFailure> {
        let mut call = Call {
            listed: true,
            ..Call::default()
        };
        call.span = scan.walk_object(|scan, key| {
            check_plain_key(key)?;
            match key.raw_bytes(self.body) {
                b"id" => call.id = take_text(scan)?,
                // `custom` calls carry `input` where functions carry `arguments`.
                b"function" | b"custom" if scan.peek() == Some(b'{') => {
                    (call.name, call.arguments) = (None, None);
                    self.read_function(scan, &mut call)?;
                }
                key => {
                    self.signs_call |= key == SIGNED_MEMBER;
                    skip_value(scan)?;
                }
            }
            Ok::<_, IndexFailure>(())
        })?;
        Ok(call)
    }

    fn read_function_call(&mut self, scan: &mut JsonScanner<'a>) -> Result<(), IndexFailure> {
        if scan.peek() != Some(b'{') {
            return Ok(skip_value(scan)?);
        }
        let mut call = Call::default();
        call.span = self.read_function(scan, &mut call)?;
        self.found.calls.push(call);
        Ok(())
    }

    /// Reads name and arguments; returns the span of the function.
    fn read_function(
        &self,
        scan: &mut JsonScanner<'a>,
        call: &mut Call,
    ) -> Result<Span, IndexFailure> {
        scan.walk_object(|scan, key| {
            check_plain_key(key)?;
            match key.raw_bytes(self.body) {
                b"name" => call.name = take_text(scan)?,
                b"arguments" | b"input" => {
                    call.arguments = take_text(scan)?.map(Arguments::Text);
                }
                _ => skip_value(scan)?,
            }
            Ok(())
        })
    }
}
