//! Sizes and digests of items.
//!
//! The digest covers author, text, media, calls with ids, names and arguments, and the id and the
//! name of a result. Cache markers, annotations, reasoning, key order and spelling do not change it.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128;

use super::media::find_media;
use crate::{
    conversation::{
        Arguments, Author, Block, BlockKind, Content, Conversation, Item, answer_digest,
        digest::DigestBuilder,
    },
    format::values::find_member,
    json::{
        scan::{JsonKind, JsonScanner, JsonString, MalformedJson, Span},
        text::{self, TextDigester},
    },
};

/// Levels of nesting that are followed inside a media block. Deeper values are digested as spelled.
const MAX_MEDIA_DEPTH: usize = 16;

/// Fills in `sizes`, `digest` and `short_digest` of an item whose calls, blocks and annotations are in `found`. `tag`
/// seeds the digest: there is one for each role that the format distinguishes.
pub(in crate::format) fn describe_item(found: &mut Conversation, tag: u8, item: &mut Item) {
    find_media(found, item);
    let found = &*found;
    let body = &found.body;
    let mut mix = DigestBuilder::default();
    mix.push_tag(tag);

    let mut answer = 0;
    match &item.content {
        Content::Text(text) => {
            let (sizes, digest) = text::measure_and_digest(body, *text);
            item.sizes += sizes;
            answer = digest;
            if !text.span.is_empty() {
                mix.push_digest(b't', answer);
            }
        }
        Content::Blocks(..) | Content::FixedBlocks(..) => {
            let blocks = found.blocks_of(item);
            let (mut texts, mut last_text) = (0, 0);
            for block in blocks {
                if let BlockKind::Text(text) = block.kind {
                    let (sizes, digest) = text::measure_and_digest(body, text);
                    item.sizes += sizes;
                    mix.push_digest(b't', digest);
                    (texts, last_text) = (texts + 1, digest);
                    continue;
                }
                match block.kind {
                    BlockKind::Text(_) | BlockKind::Call | BlockKind::Reasoning(None) => continue,
                    BlockKind::Reasoning(Some(text)) => {
                        item.sizes += text::measure_and_digest(body, text).0;
                        continue;
                    }
                    BlockKind::Opaque => item.sizes += found.measure_around_media(block.span),
                    BlockKind::Image { .. } | BlockKind::Media => {}
                }
                mix.push_digest(b'm', digest_value(found, block.span));
            }
            if item.author == Author::Model {
                answer = match texts {
                    1 => last_text,
                    _ => digest_joined_text(body, blocks),
                };
            }
        }
        Content::Other(span) => {
            item.sizes += found.measure_around_media(*span);
            mix.push_digest(b'm', digest_value(found, *span));
        }
        Content::Null(_) | Content::Absent => {}
    }
    let mut ids = SmallVec::<[u128; 4]>::new();
    for call in found.calls_of(item) {
        if let Some(id) = call.id {
            let digest = text::measure_and_digest(body, id).1;
            mix.push_digest(b'i', digest);
            ids.push(digest);
        }
        if let Some(name) = call.name {
            let (sizes, digest) = text::measure_and_digest(body, name);
            mix.push_digest(b'n', digest);
            item.sizes += sizes;
        }
        if let Some(arguments) = call.arguments {
            let (sizes, digest) = match arguments {
                Arguments::Text(text) => text::measure_and_digest(body, text),
                Arguments::Json(span) => (
                    text::measure_text(found.span_bytes(span)),
                    digest_value(found, span),
                ),
            };
            mix.push_digest(b'a', digest);
            item.sizes += sizes;
        }
    }
    for (tag, text) in [(b'r', item.call_id), (b'N', item.name)] {
        if let Some(text) = text {
            mix.push_digest(tag, text::measure_and_digest(body, text).1);
        }
    }
    item.digest = mix.finish();
    item.short_digest = answer_digest(answer, &ids);
}

impl Conversation {
    /// Returns the digest of a block, whatever the order and spelling of its keys. If the block is sealed reasoning, then
    /// only the seal (`encrypted_content`) is digested: Codex writes the rest anew, with `"content": null` and without
    /// what is empty.
    pub(crate) fn digest_block(&self, block: &Block) -> u128 {
        let seal = match block.kind {
            BlockKind::Reasoning(_) => {
                find_member(&self.body, block.span.start, b"encrypted_content")
            }
            _ => None,
        };
        let seal = seal.filter(|(_, kind)| *kind == JsonKind::String);
        digest_value(self, seal.map_or(block.span, |(span, _)| span))
    }
}

/// The digest of all text blocks as one text.
fn digest_joined_text(body: &[u8], blocks: &[Block]) -> u128 {
    let mut digester = TextDigester::new();
    for block in blocks {
        if let BlockKind::Text(text) = block.kind {
            digester.push(text.raw_bytes(body));
        }
    }
    digester.finish()
}

/// The digest of any value, whatever the order and spelling of its keys, without cache markers and
/// annotations.
fn digest_value(found: &Conversation, span: Span) -> u128 {
    let mut scan = JsonScanner::new(&found.body, span.start as usize);
    digest_next(found, &mut scan, MAX_MEDIA_DEPTH)
        .unwrap_or_else(|_| xxh3_128(found.span_bytes(span)))
}

fn is_ignored(found: &Conversation, key: JsonString, depth: usize) -> bool {
    let name = found.raw_bytes(key);
    matches!(name, b"cache_control" | b"prompt_cache_breakpoint")
        || depth == MAX_MEDIA_DEPTH && found.format.rules().bookkeeping.contains(&name)
        || found.is_annotation_key(key)
}

fn digest_next(
    found: &Conversation,
    scan: &mut JsonScanner<'_>,
    depth: usize,
) -> Result<u128, MalformedJson> {
    let mut mix = DigestBuilder::default();
    match scan.peek() {
        Some(b'{') if depth > 0 => {
            let mut sum = 0u128;
            scan.walk_object(|scan, key| {
                let value = digest_next(found, scan, depth - 1)?;
                if !is_ignored(found, key, depth) {
                    let mut member = DigestBuilder::default();
                    member.push_digest(b'k', text::digest_text(found.raw_bytes(key)));
                    member.push_digest(b'v', value);
                    // Members are a set: their order must not matter.
                    sum = sum.wrapping_add(member.finish());
                }
                Ok::<_, MalformedJson>(())
            })?;
            mix.push_digest(b'{', sum);
        }
        Some(b'[') if depth > 0 => {
            mix.push_tag(b'[');
            scan.walk_array(|scan| {
                mix.push_digest(b',', digest_next(found, scan, depth - 1)?);
                Ok::<_, MalformedJson>(())
            })?;
        }
        Some(b'"') => {
            let text = scan.take_string()?;
            mix.push_digest(b'=', text::measure_and_digest(&found.body, text).1);
        }
        _ => {
            let (span, _) = scan.take_value()?;
            mix.push_digest(b'=', xxh3_128(found.span_bytes(span)));
        }
    }
    Ok(mix.finish())
}
