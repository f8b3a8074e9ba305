//! A result, or the media of a user message, as they are when cleared.
//!
//! Content stays a string or an array. Of an array the first text becomes the placeholder and the
//! others go; an image becomes a part of text, never nothing. Parts with a cache breakpoint keep
//! their place and their marker: a text of theirs is shortened, and media of theirs stay.

use bytes::Bytes;

use super::{FRAME, RESULT, Small};
use crate::{
    guard::{Policy, estimate, place},
    json::{
        scan::Span,
        text::{self, Sizes},
    },
    wire::{
        chat::{Content, Conversation, Part, PartKind},
        edit::Edits,
    },
};

/// What stands in the place of an image, and of other media.
const IMAGE: &str = "[An old image was left out here by the context guard to save room.]";
const MEDIA: &str = "[An old attachment was left out here by the context guard to save room.]";
/// In the place of a text that cannot be removed.
const REST: &str = "...";

/// Message `at`, a tool result, as it would be; `None` where it cannot be edited.
pub(super) fn result(conversation: &Conversation, at: usize, policy: &Policy<'_>) -> Option<Small> {
    let message = &conversation.messages[at];
    let mut small = Small::default();
    match &message.content {
        Content::Text(text) if message.calls.is_empty() => {
            // Only a \u escape can be half of a pair.
            if text.respelled && !place::sound(conversation.raw(*text)) {
                return None;
            }
            small.edits.replace(text.span, RESULT);
            let sizes = text::measure(RESULT.as_bytes());
            let tokens = policy.weights().text(&sizes).ceil() as u32;
            small.tokens = tokens.saturating_add(FRAME);
        }
        Content::Parts(..) if message.calls.is_empty() => {
            let mut emptying = Emptying::new(conversation, policy, RESULT);
            for part in conversation.parts(message) {
                emptying.part(part)?;
            }
            small.tokens = emptying.tokens();
            small.edits = emptying.edits;
        }
        _ => return None,
    }
    Some(small)
}

/// Message `at`, the user's, without its media; `None` where it has none that can go. Its `tokens`
/// are raw ones as it would go out with them: caps may have shortened its text.
pub(super) fn media(
    conversation: &Conversation,
    at: usize,
    policy: &Policy<'_>,
    tokens: u32,
) -> Option<Small> {
    let message = &conversation.messages[at];
    let mut small = Small::default();
    let mut sizes = Sizes::default();
    let mut gone = 0u32;
    for part in conversation.parts(message) {
        let Some(with) = notice(part).filter(|_| !part.marked) else {
            continue;
        };
        gone = gone.saturating_add(weight(conversation, part, policy));
        sizes += text::measure(with.as_bytes());
        small.edits.replace(part.span, text_part(with));
        small.media += 1;
    }
    let notices = policy.weights().text(&sizes).ceil() as u32;
    small.tokens = tokens.saturating_sub(gone).saturating_add(notices);
    (small.media > 0).then_some(small)
}

/// The parts of a result on their way out.
struct Emptying<'a> {
    conversation: &'a Conversation,
    policy: &'a Policy<'a>,
    /// What is to stand for all of it, until it does.
    placeholder: Option<&'static str>,
    edits: Edits,
    /// Of what stays.
    sizes: Sizes,
    media: u32,
}

impl<'a> Emptying<'a> {
    fn new(
        conversation: &'a Conversation,
        policy: &'a Policy<'a>,
        placeholder: &'static str,
    ) -> Self {
        Self {
            conversation,
            policy,
            placeholder: Some(placeholder),
            edits: Edits::default(),
            sizes: Sizes::default(),
            media: 0,
        }
    }

    /// `None` where the part must not be edited, and so nothing of the result may be.
    fn part(&mut self, part: &Part) -> Option<()> {
        let conversation = self.conversation;
        match part.kind {
            PartKind::Text(text) => {
                let raw = conversation.raw(text);
                if !place::sound(raw) {
                    return None;
                }
                let with = match self.placeholder.take() {
                    Some(placeholder) => placeholder,
                    None if !part.marked && self.drop_part(part) => return Some(()),
                    None => REST,
                };
                // An empty text stays one.
                let with = if raw.is_empty() && with == REST {
                    ""
                } else {
                    with
                };
                self.edits.replace(text.span, with);
                self.sizes += text::measure(with.as_bytes());
            }
            PartKind::Other => self.sizes += text::measure(conversation.bytes(part.span)),
            PartKind::Image { .. } | PartKind::Media if part.marked => {
                let tokens = weight(conversation, part, self.policy);
                self.media = self.media.saturating_add(tokens);
            }
            PartKind::Image { .. } | PartKind::Media => {
                let with = notice(part)?;
                self.edits.replace(part.span, text_part(with));
                self.sizes += text::measure(with.as_bytes());
            }
        }
        Some(())
    }

    /// Removes a part with the comma before it: one that stays stands there.
    fn drop_part(&mut self, part: &Part) -> bool {
        let start = part.span.start as usize;
        let before = &self.conversation.body[..start];
        let Some(comma) = memchr::memrchr(b',', before) else {
            return false;
        };
        self.edits.remove(Span::new(comma, part.span.end as usize));
        true
    }

    fn tokens(&self) -> u32 {
        let tokens = self.policy.weights().text(&self.sizes).ceil() as u32;
        tokens.saturating_add(FRAME).saturating_add(self.media)
    }
}

/// What stands in the place of a medium.
const fn notice(part: &Part) -> Option<&'static str> {
    match part.kind {
        PartKind::Image { .. } => Some(IMAGE),
        PartKind::Media => Some(MEDIA),
        PartKind::Text(_) | PartKind::Other => None,
    }
}

fn text_part(text: &str) -> Bytes {
    Bytes::from(format!(r#"{{"type":"text","text":"{text}"}}"#))
}

/// Raw tokens of a medium.
fn weight(conversation: &Conversation, part: &Part, policy: &Policy<'_>) -> u32 {
    estimate::part_tokens(conversation, part, policy.profile)
}
