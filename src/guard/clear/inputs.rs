//! Arguments of old calls: long values keep their beginning.

use super::{Small, excludes, weigh};
use crate::{
    guard::{
        Policy,
        arguments::{Arguments, Keep, less},
    },
    json::{scan::Span, text},
    wire::chat::{Conversation, Message},
};

/// Values up to this are left alone; characters.
const VALUE_CHARS: usize = 200;
/// What stays of a longer one.
const KEEP: Keep = Keep::Head {
    most: VALUE_CHARS,
    head: 120,
};

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
        let raw = conversation.raw(arguments);
        let read = (raw.len() > VALUE_CHARS).then(|| Arguments::read(raw));
        let cuts = read.flatten().map_or_else(Vec::new, |it| it.cuts(KEEP));
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

#[cfg(test)]
mod tests;
