//! What a message says: its sizes by kind of text, and its digest.
//!
//! The digest mixes in role, text, media, call ids, names, arguments and `tool_call_id`, and
//! nothing else, so that cache markers, annotations, reasoning, key order and spelling do not change
//! it.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128;

use super::{Annotation, Call, Content, Message, Part, PartKind, Role, annotation};
use crate::json::{
    scan::{Kind, Malformed, Scan, Span, Text},
    text::{self, Digester},
};

/// Nesting inside a media part that is followed; what lies deeper counts as spelled.
const MAX_MEDIA_DEPTH: usize = 16;

/// All calls and all parts, and the annotations of this message.
type Listed<'a> = (&'a [Call], &'a [Part], &'a [Annotation]);

/// Fills in `sizes`, `digest` and `short_digest`.
pub(super) fn describe(
    body: &[u8],
    (calls, parts, annotations): Listed<'_>,
    message: &mut Message,
) {
    let values = Values { body, annotations };
    let calls = &calls[message.calls.start as usize..message.calls.end as usize];
    let parts = match &message.content {
        Content::Parts(range, _) => &parts[range.start as usize..range.end as usize],
        _ => &[],
    };
    let mut mix = Mix::default();
    mix.tag(role_tag(message.role));

    let mut answer = 0;
    match &message.content {
        Content::Text(text) => {
            let (sizes, digest) = text::describe(body, *text);
            message.sizes += sizes;
            answer = digest;
            if !text.span.is_empty() {
                mix.digest(b't', answer);
            }
        }
        Content::Parts(..) => {
            let mut alone = 0;
            for part in parts {
                if let PartKind::Text(text) = part.kind {
                    let (sizes, digest) = text::describe(body, text);
                    message.sizes += sizes;
                    mix.digest(b't', digest);
                    alone = digest;
                } else {
                    if part.kind == PartKind::Other {
                        message.sizes += values.measure(part.span);
                    }
                    mix.digest(b'm', values.digest(part.span));
                }
            }
            if message.role == Role::Assistant {
                answer = joined(body, parts, alone);
            }
        }
        Content::Other(span) => {
            message.sizes += values.measure(*span);
            mix.digest(b'm', values.digest(*span));
        }
        Content::Null | Content::Absent => {}
    }
    let mut ids = SmallVec::<[u128; 4]>::new();
    for call in calls {
        for (tag, text) in [(b'i', call.id), (b'n', call.name), (b'a', call.arguments)] {
            let Some(text) = text else { continue };
            let (sizes, digest) = text::describe(body, text);
            mix.digest(tag, digest);
            if tag == b'i' {
                ids.push(digest);
            } else {
                message.sizes += sizes;
            }
        }
    }
    for (tag, text) in [(b'r', message.call_id), (b'N', message.name)] {
        if let Some(text) = text {
            mix.digest(tag, text::describe(body, text).1);
        }
    }
    message.digest = mix.finish();
    message.short_digest = answer_digest(answer, &ids);
}

/// The digest of an answer's text and call ids, as the listener to the answer can know them: the
/// digest of its text ([`text::digest`]; 0 or that of no text where it has none) and of each call
/// id.
pub fn answer_digest(text: u128, call_ids: &[u128]) -> u128 {
    let mut mix = Mix::default();
    if text != 0 && text != text::digest(b"") {
        mix.digest(b't', text);
    }
    for &id in call_ids {
        mix.digest(b'i', id);
    }
    mix.finish()
}

/// The digest of all text parts put together; where there is but one part, that is what it is `alone`.
fn joined(body: &[u8], parts: &[Part], alone: u128) -> u128 {
    if let [
        Part {
            kind: PartKind::Text(_),
            ..
        },
    ] = parts
    {
        return alone;
    }
    let mut digester = Digester::new();
    for part in parts {
        if let PartKind::Text(text) = part.kind {
            digester.push(&body[text.span.range()]);
        }
    }
    digester.finish()
}

const fn role_tag(role: Role) -> u8 {
    match role {
        Role::System => b'S',
        Role::Developer => b'D',
        Role::User => b'U',
        Role::Assistant => b'A',
        Role::Tool => b'T',
        Role::Function => b'F',
        Role::Other => b'?',
    }
}

/// A sequence of tagged digests: those of most messages without an allocation.
#[derive(Default)]
struct Mix(SmallVec<[u8; 128]>);

impl Mix {
    fn tag(&mut self, tag: u8) {
        self.0.push(tag);
    }

    fn digest(&mut self, tag: u8, digest: u128) {
        self.tag(tag);
        self.0.extend_from_slice(&digest.to_le_bytes());
    }

    fn finish(&self) -> u128 {
        xxh3_128(&self.0)
    }
}

/// Values that are more than a text, as they are sent: without annotations.
struct Values<'a> {
    body: &'a [u8],
    annotations: &'a [Annotation],
}

impl Values<'_> {
    fn measure(&self, span: Span) -> text::Sizes {
        annotation::measure(self.body, span, self.annotations)
    }

    /// The digest of any value, whatever the order and spelling of its keys, without cache markers.
    fn digest(&self, span: Span) -> u128 {
        let mut scan = Scan::new(self.body, span.start as usize);
        self.next(&mut scan, MAX_MEDIA_DEPTH)
            .unwrap_or_else(|_| xxh3_128(&self.body[span.range()]))
    }

    fn is_left_out(&self, key: Text) -> bool {
        let name = &self.body[key.span.range()];
        matches!(name, b"cache_control" | b"prompt_cache_breakpoint")
            || annotation::is_one(self.annotations, key)
    }

    fn next(&self, scan: &mut Scan<'_>, depth: usize) -> Result<u128, Malformed> {
        let mut mix = Mix::default();
        match scan.peek() {
            Some(b'{') if depth > 0 => {
                let mut sum = 0u128;
                scan.object(|scan, key| {
                    let value = self.next(scan, depth - 1)?;
                    if !self.is_left_out(key) {
                        let mut member = Mix::default();
                        member.digest(b'k', text::digest(&self.body[key.span.range()]));
                        member.digest(b'v', value);
                        // Members are a set: their order must not matter.
                        sum = sum.wrapping_add(member.finish());
                    }
                    Ok::<_, Malformed>(())
                })?;
                mix.digest(b'{', sum);
            }
            Some(b'[') if depth > 0 => {
                mix.tag(b'[');
                scan.array(|scan| {
                    mix.digest(b',', self.next(scan, depth - 1)?);
                    Ok::<_, Malformed>(())
                })?;
            }
            _ => {
                let (span, kind) = scan.value()?;
                let bytes = &self.body[span.range()];
                let digest = if kind == Kind::String {
                    text::digest(&bytes[1..bytes.len() - 1])
                } else {
                    xxh3_128(bytes)
                };
                mix.digest(b'=', digest);
            }
        }
        Ok(mix.finish())
    }
}
