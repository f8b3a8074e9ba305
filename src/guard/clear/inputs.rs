//! Arguments of old calls: long values keep their beginning.
//!
//! Arguments are JSON inside of a JSON string, so every place of the inner text is mapped to its
//! place in the body. What is cut lies between characters of both, and the marker needs no escape
//! in either: so the arguments stay valid, and all but the shortened values stays byte for byte.
//! Arguments that are not JSON, or that have half a surrogate pair, are left alone.

use serde::de::IgnoredAny;

use super::{Small, excludes, weigh};
use crate::{
    guard::{Policy, place, truncate},
    wire::{
        chat::{Conversation, Message},
        scan::{Malformed, Scan, Span, Text},
        text::{self, Sizes, Walk},
    },
};

/// Values up to this are left alone; characters.
const VALUE_CHARS: usize = 200;
/// What a longer one keeps of its beginning; characters. With the marker it is within the limit.
const HEAD_CHARS: usize = 120;
/// Levels of nesting; serde_json follows no more.
const MAX_DEPTH: usize = 128;

/// Whether a message has arguments in which there may be a long value.
pub(super) fn long(conversation: &Conversation, message: &Message) -> bool {
    let mut arguments = conversation.calls(message).iter();
    arguments.any(|call| call.arguments.is_some_and(|it| it.span.len() > VALUE_CHARS))
}

/// Message `at` with long values in the arguments of its calls shortened; `None` where there are
/// none.
pub(super) fn shorten(
    conversation: &Conversation,
    at: usize,
    policy: &Policy<'_>,
) -> Option<Small> {
    let message = &conversation.messages[at];
    let mut small = Small::default();
    let mut sizes = message.sizes;
    for call in conversation.calls(message) {
        let name = call.name.map(|name| conversation.shown(name));
        if excludes(&policy.settings.clear, name.as_deref().unwrap_or_default()) {
            continue;
        }
        let Some(arguments) = call.arguments else {
            continue;
        };
        let cuts = cuts(conversation.raw(arguments));
        small.inputs += usize::from(!cuts.is_empty());
        for (span, marker) in cuts {
            let start = arguments.span.start as usize;
            let span = Span::new(start + span.start as usize, start + span.end as usize);
            sizes = less(sizes, text::measure(conversation.bytes(span)));
            sizes += text::measure(marker.as_bytes());
            small.edits.replace(span, marker);
        }
    }
    small.tokens = weigh(conversation, at, &sizes, policy);
    (small.inputs > 0).then_some(small)
}

/// What is cut of arguments as they are spelled in the body, and what goes there.
fn cuts(raw: &[u8]) -> Vec<(Span, String)> {
    if raw.len() <= VALUE_CHARS || !place::sound(raw) {
        return Vec::new();
    }
    let (inner, places) = decoded(raw);
    if serde_json::from_slice::<IgnoredAny>(&inner).is_err() {
        return Vec::new();
    }
    let mut values = Vec::new();
    if walk(&mut Scan::new(&inner, 0), MAX_DEPTH, &mut values).is_err() {
        return Vec::new();
    }
    let cuts = values.into_iter().filter_map(|value| {
        let text = &inner[value.span.range()];
        let chars = length(text).filter(|&chars| chars > VALUE_CHARS)?;
        let start = value.span.start as usize + truncate::offset(text, HEAD_CHARS);
        let end = value.span.end as usize;
        let left_out = chars - HEAD_CHARS;
        let span = Span::new(places[start] as usize, places[end] as usize);
        Some((span, format!("... [{left_out} characters left out]")))
    });
    cuts.collect()
}

/// The decoded text, and where each of its bytes is spelled; one place more for its end.
fn decoded(raw: &[u8]) -> (Vec<u8>, Vec<u32>) {
    let mut inner = Vec::with_capacity(raw.len());
    let mut places = Vec::with_capacity(raw.len() + 1);
    for character in Walk::new(raw) {
        let letter = char::from_u32(character.code).unwrap_or(char::REPLACEMENT_CHARACTER);
        let mut bytes = [0; 4];
        let bytes = letter.encode_utf8(&mut bytes).as_bytes();
        inner.extend_from_slice(bytes);
        places.extend(bytes.iter().map(|_| character.at as u32));
    }
    places.push(raw.len() as u32);
    (inner, places)
}

/// Gathers the strings that are values, at any depth.
fn walk(scan: &mut Scan<'_>, depth: usize, values: &mut Vec<Text>) -> Result<(), Malformed> {
    let Some(deeper) = depth.checked_sub(1) else {
        return Err(Malformed::TooDeep);
    };
    match scan.peek() {
        Some(b'"') => values.push(scan.string()?),
        Some(b'{') => {
            scan.object(|scan, _| walk(scan, deeper, values))?;
        }
        Some(b'[') => {
            scan.array(|scan| walk(scan, deeper, values))?;
        }
        _ => {
            scan.value()?;
        }
    }
    Ok(())
}

/// Characters of a text; `None` where it has no decoded form.
fn length(text: &[u8]) -> Option<usize> {
    if text.len() <= VALUE_CHARS {
        return Some(text.len());
    }
    let mut walk = Walk::new(text);
    let chars = walk.by_ref().count();
    walk.sound().then_some(chars)
}

fn less(sizes: Sizes, gone: Sizes) -> Sizes {
    Sizes {
        latin: sizes.latin.saturating_sub(gone.latin),
        han: sizes.han.saturating_sub(gone.han),
        kana: sizes.kana.saturating_sub(gone.kana),
        hangul: sizes.hangul.saturating_sub(gone.hangul),
        emoji: sizes.emoji.saturating_sub(gone.emoji),
        other: sizes.other.saturating_sub(gone.other),
    }
}

#[cfg(test)]
mod tests;
