//! What an item says: its sizes by kind of text, and its digest.
//!
//! The digest mixes in author, text, media, calls with ids, names and arguments, and the id and the name of a
//! result. Nothing else: cache markers, annotations, reasoning, key order and spelling do not change it.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    conversation::{
        Annotation, Author, Block, BlockKind, Call, Content, Item, annotation, answer_digest,
        digest::DigestBuilder,
    },
    json::{
        scan::{JsonKind, JsonScanner, JsonString, MalformedJson, Span},
        text::{self, TextDigester},
    },
};

/// Nesting inside a media block that is followed; what lies deeper counts as spelled.
const MAX_MEDIA_DEPTH: usize = 16;

/// What an item is described from.
pub(super) struct ItemSource<'a> {
    pub(super) body: &'a [u8],
    /// All calls and blocks so far; the item names its own.
    pub(super) calls: &'a [Call],
    pub(super) blocks: &'a [Block],
    /// Those of this item.
    pub(super) annotations: &'a [Annotation],
}

/// Fills in `sizes`, `digest` and `short_digest`. The digest is seeded with `tag`, one for each kind of author
/// that the format tells apart.
pub(super) fn describe_item(listed: &ItemSource<'_>, tag: u8, item: &mut Item) {
    let &ItemSource {
        body, annotations, ..
    } = listed;
    let values = Values { body, annotations };
    let calls = &listed.calls[item.calls.start as usize..item.calls.end as usize];
    let blocks = match &item.content {
        Content::Blocks(range, _) => &listed.blocks[range.start as usize..range.end as usize],
        _ => &[],
    };
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
        Content::Blocks(..) => {
            let mut alone = 0;
            for block in blocks {
                if let BlockKind::Text(text) = block.kind {
                    let (sizes, digest) = text::measure_and_digest(body, text);
                    item.sizes += sizes;
                    mix.push_digest(b't', digest);
                    alone = digest;
                } else {
                    if block.kind == BlockKind::Opaque {
                        item.sizes += values.measure_span(block.span);
                    }
                    mix.push_digest(b'm', values.digest_value(block.span));
                }
            }
            if item.author == Author::Model {
                answer = digest_joined_text(body, blocks, alone);
            }
        }
        Content::Other(span) => {
            item.sizes += values.measure_span(*span);
            mix.push_digest(b'm', values.digest_value(*span));
        }
        Content::Null(_) | Content::Absent => {}
    }
    let mut ids = SmallVec::<[u128; 4]>::new();
    for call in calls {
        for (tag, text) in [(b'i', call.id), (b'n', call.name), (b'a', call.arguments)] {
            let Some(text) = text else { continue };
            let (sizes, digest) = text::measure_and_digest(body, text);
            mix.push_digest(tag, digest);
            if tag == b'i' {
                ids.push(digest);
            } else {
                item.sizes += sizes;
            }
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

/// The digest of all text blocks put together; where there is but one block, that is what it is `alone`.
fn digest_joined_text(body: &[u8], blocks: &[Block], alone: u128) -> u128 {
    if let [
        Block {
            kind: BlockKind::Text(_),
            ..
        },
    ] = blocks
    {
        return alone;
    }
    let mut digester = TextDigester::new();
    for block in blocks {
        if let BlockKind::Text(text) = block.kind {
            digester.push(&body[text.span.range()]);
        }
    }
    digester.finish()
}

/// Values that are more than a text, as they are sent: without annotations.
struct Values<'a> {
    body: &'a [u8],
    annotations: &'a [Annotation],
}

impl Values<'_> {
    fn measure_span(&self, span: Span) -> text::TextSizes {
        annotation::measure_without_annotations(self.body, span, self.annotations)
    }

    /// The digest of any value, whatever the order and spelling of its keys, without cache markers.
    fn digest_value(&self, span: Span) -> u128 {
        let mut scan = JsonScanner::new(self.body, span.start as usize);
        self.digest_next(&mut scan, MAX_MEDIA_DEPTH)
            .unwrap_or_else(|_| xxh3_128(&self.body[span.range()]))
    }

    fn is_left_out(&self, key: JsonString) -> bool {
        let name = &self.body[key.span.range()];
        matches!(name, b"cache_control" | b"prompt_cache_breakpoint")
            || annotation::is_annotation_key(self.annotations, key)
    }

    fn digest_next(&self, scan: &mut JsonScanner<'_>, depth: usize) -> Result<u128, MalformedJson> {
        let mut mix = DigestBuilder::default();
        match scan.peek() {
            Some(b'{') if depth > 0 => {
                let mut sum = 0u128;
                scan.walk_object(|scan, key| {
                    let value = self.digest_next(scan, depth - 1)?;
                    if !self.is_left_out(key) {
                        let mut member = DigestBuilder::default();
                        member.push_digest(b'k', text::digest_text(&self.body[key.span.range()]));
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
                    mix.push_digest(b',', self.digest_next(scan, depth - 1)?);
                    Ok::<_, MalformedJson>(())
                })?;
            }
            _ => {
                let (span, kind) = scan.take_value()?;
                let bytes = &self.body[span.range()];
                let digest = if kind == JsonKind::String {
                    text::digest_text(&bytes[1..bytes.len() - 1])
                } else {
                    xxh3_128(bytes)
                };
                mix.push_digest(b'=', digest);
            }
        }
        Ok(mix.finish())
    }
}
