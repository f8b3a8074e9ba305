//! The texts that caps and shares are about, and what takes their place.

use super::{Shortening, may_be_capped};
use crate::{
    conversation::{Annotation, BlockKind, Content, Conversation, Priority},
    guard::{Policy, estimate::Weights, fence, prompt_placement::is_decodable},
    json::{
        scan::{JsonString, Span},
        text::{self, TextSizes},
    },
};

/// Characters of a name that are shown.
const NAME_CHARS: usize = 64;

/// One text: a message whose content is a string, or a text part.
pub(super) struct PromptText {
    pub(super) message: usize,
    /// Messages up to and with its own, system ones apart; 0 for a system message.
    pub(super) said: u32,
    /// Its place among the parts of the message.
    pub(super) part: Option<usize>,
    pub(super) text: JsonString,
    pub(super) name: Option<String>,
    /// None where nobody annotated it so that it is understood.
    pub(super) priority: Option<Priority>,
    /// Whether it has a decoded form.
    pub(super) sound: bool,
    /// Raw tokens as it came.
    pub(super) before: u32,
    /// As it goes.
    pub(super) tokens: u32,
    pub(super) sizes: TextSizes,
    pub(super) with: Option<(Shortening, TextReplacement)>,
}

/// What takes the place of some bytes of a text.
pub(super) struct TextReplacement {
    /// Within the text.
    pub(super) gone: std::ops::Range<usize>,
    /// Escaped.
    pub(super) text: String,
    /// Of the whole text with it.
    pub(super) sizes: TextSizes,
}

/// All annotated texts, in their order; where `plain`, also those of system messages that are not.
pub(super) fn list_prompt_texts(
    conversation: &Conversation,
    weights: &Weights,
    plain: bool,
) -> Vec<PromptText> {
    let mut pieces = Vec::new();
    let mut said = 0;
    for (at, message) in conversation.items.iter().enumerate() {
        let system = message.author.is_system();
        said += u32::from(!system);
        let place = if system { 0 } else { said };
        let annotations = conversation.annotations_of(at);
        if annotations.is_empty() && !(plain && system) || !may_be_capped(message.author) {
            continue;
        }
        let whole = annotations.iter().find(|it| it.part.is_none());
        let mut add = |part: Option<usize>, text, annotation: Option<&Annotation>| {
            if annotation.is_some() || (plain && system) {
                pieces.push(PromptText {
                    message: at,
                    said: place,
                    part,
                    ..PromptText::from_text(conversation, text, annotation, weights)
                });
            }
        };
        match &message.content {
            Content::Text(text) => add(None, *text, whole),
            Content::Blocks(parts, _) => {
                // Those of the parts, in the order of the parts; the first of each counts.
                let mut own = annotations.iter().filter_map(|it| Some((it.part?, it)));
                let mut next = own.next();
                for (place, part) in conversation.blocks_of(message).iter().enumerate() {
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

impl PromptText {
    /// Of a text whose place is still to be said.
    fn from_text(
        conversation: &Conversation,
        text: JsonString,
        annotation: Option<&Annotation>,
        weights: &Weights,
    ) -> Self {
        let raw = conversation.raw_bytes(text);
        let sizes = text::measure_text(raw);
        let tokens = weights.count_text_tokens(&sizes);
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
            name: name.map(|name| conversation.decode_text(name).into_owned()),
            priority,
            sound: is_decodable(raw),
            before: tokens,
            tokens,
            sizes,
            with: None,
        }
    }

    /// What a text of its name may have; raw tokens.
    pub(super) fn find_cap<'a>(&self, policy: Policy<'a>) -> Option<&'a u32> {
        policy.settings.caps.get(self.name.as_deref()?)
    }

    /// Its name, as it may stand in a prompt: short, one line, and nothing that looks like a fence.
    pub(super) fn shown_name(&self) -> Option<String> {
        let name = self.name.as_deref()?;
        let seen = |c: char| if c.is_control() { ' ' } else { c };
        let name: String = name.chars().take(NAME_CHARS).map(seen).collect();
        let name = fence::neutralize_tags(name.trim()).into_owned();
        (!name.is_empty()).then_some(name)
    }
}

impl TextReplacement {
    /// A short text in the place of a whole one; `None` where that would save nothing.
    pub(super) fn new_placeholder(
        conversation: &Conversation,
        piece: &PromptText,
        weights: &Weights,
    ) -> Option<Self> {
        let says = match piece.shown_name() {
            Some(name) => format!("[Left out by the context guard: {name}]"),
            None => "[Left out by the context guard]".to_owned(),
        };
        let text = text::escape_text(&says);
        let sizes = text::measure_text(text.as_bytes());
        let saves = weights.count_text_tokens(&sizes) < piece.tokens;
        (saves && piece.sound).then(|| Self {
            gone: 0..conversation.raw_bytes(piece.text).len(),
            text,
            sizes,
        })
    }

    /// What of the body goes.
    pub(super) const fn replaced_span(&self, text: JsonString) -> Span {
        let start = text.span.start as usize;
        Span::new(start + self.gone.start, start + self.gone.end)
    }
}
