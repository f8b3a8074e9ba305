//! The texts that caps and shares are about, and what takes their place.

use super::{How, may_be_capped};
use crate::{
    conversation::{Annotation, BlockKind, Content, Conversation, Priority},
    guard::{Policy, estimate::Weights, fence, place::sound},
    json::{
        scan::{Span, Text},
        text::{self, Sizes},
    },
};

/// Characters of a name that are shown.
const NAME_CHARS: usize = 64;

/// One text: a message whose content is a string, or a text part.
pub(super) struct Piece {
    pub(super) message: usize,
    /// Messages up to and with its own, system ones apart; 0 for a system message.
    pub(super) said: u32,
    /// Its place among the parts of the message.
    pub(super) part: Option<usize>,
    pub(super) text: Text,
    pub(super) name: Option<String>,
    /// None where nobody annotated it so that it is understood.
    pub(super) priority: Option<Priority>,
    /// Whether it has a decoded form.
    pub(super) sound: bool,
    /// Raw tokens as it came.
    pub(super) before: u32,
    /// As it goes.
    pub(super) tokens: u32,
    pub(super) sizes: Sizes,
    pub(super) with: Option<(How, With)>,
}

/// What takes the place of some bytes of a text.
pub(super) struct With {
    /// Within the text.
    pub(super) gone: std::ops::Range<usize>,
    /// Escaped.
    pub(super) text: String,
    /// Of the whole text with it.
    pub(super) sizes: Sizes,
}

/// All annotated texts, in their order; where `plain`, also those of system messages that are not.
pub(super) fn all(conversation: &Conversation, weights: &Weights, plain: bool) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut said = 0;
    for (at, message) in conversation.items.iter().enumerate() {
        let system = message.author.instructs();
        said += u32::from(!system);
        let place = if system { 0 } else { said };
        let annotations = conversation.annotations_of(at);
        if annotations.is_empty() && !(plain && system) || !may_be_capped(message.author) {
            continue;
        }
        let whole = annotations.iter().find(|it| it.part.is_none());
        let mut add = |part: Option<usize>, text, annotation: Option<&Annotation>| {
            if annotation.is_some() || (plain && system) {
                pieces.push(Piece {
                    message: at,
                    said: place,
                    part,
                    ..Piece::read(conversation, text, annotation, weights)
                });
            }
        };
        match &message.content {
            Content::Text(text) => add(None, *text, whole),
            Content::Blocks(parts, _) => {
                // Those of the parts, in the order of the parts; the first of each counts.
                let mut own = annotations.iter().filter_map(|it| Some((it.part?, it)));
                let mut next = own.next();
                for (place, part) in conversation.blocks(message).iter().enumerate() {
                    let index = parts.start + place as u32;
                    let mut of_part = None;
                    while let Some((at, annotation)) = next.filter(|(at, _)| *at <= index) {
                        if at == index {
                            of_part = of_part.or(Some(annotation));
                        }
                        next = own.next();
                    }
                    if let BlockKind::Text(text) = part.kind {
                        add(Some(place), text, of_part.or(whole));
                    }
                }
            }
            _ => {}
        }
    }
    pieces
}

impl Piece {
    /// Of a text whose place is still to be said.
    fn read(
        conversation: &Conversation,
        text: Text,
        annotation: Option<&Annotation>,
        weights: &Weights,
    ) -> Self {
        let raw = conversation.raw(text);
        let sizes = text::measure(raw);
        let tokens = weights.whole(&sizes);
        let name = annotation.and_then(|it| it.name);
        let priority = annotation.and_then(|it| {
            // One that was not understood gives nothing up.
            it.priority.or((!it.odd).then_some(Priority::Medium))
        });
        Self {
            message: 0,
            said: 0,
            part: None,
            text,
            name: name.map(|name| conversation.shown(name).into_owned()),
            priority,
            sound: sound(raw),
            before: tokens,
            tokens,
            sizes,
            with: None,
        }
    }

    /// What a text of its name may have; raw tokens.
    pub(super) fn cap<'a>(&self, policy: Policy<'a>) -> Option<&'a u32> {
        policy.settings.caps.get(self.name.as_deref()?)
    }

    /// Its name, as it may stand in a prompt: short, one line, and nothing that looks like a fence.
    pub(super) fn shown_name(&self) -> Option<String> {
        let name = self.name.as_deref()?;
        let seen = |c: char| if c.is_control() { ' ' } else { c };
        let name: String = name.chars().take(NAME_CHARS).map(seen).collect();
        let name = fence::neutral(name.trim()).into_owned();
        (!name.is_empty()).then_some(name)
    }
}

impl With {
    /// A short text in the place of a whole one; `None` where that would save nothing.
    pub(super) fn placeholder(
        conversation: &Conversation,
        piece: &Piece,
        weights: &Weights,
    ) -> Option<Self> {
        let says = match piece.shown_name() {
            Some(name) => format!("[Left out by the context guard: {name}]"),
            None => "[Left out by the context guard]".to_owned(),
        };
        let text = text::escape(&says);
        let sizes = text::measure(text.as_bytes());
        let saves = weights.whole(&sizes) < piece.tokens;
        (saves && piece.sound).then(|| Self {
            gone: 0..conversation.raw(piece.text).len(),
            text,
            sizes,
        })
    }

    /// What of the body goes.
    pub(super) const fn span(&self, text: Text) -> Span {
        let start = text.span.start as usize;
        Span::new(start + self.gone.start, start + self.gone.end)
    }
}
