//! The texts that have caps, priorities or a share, and their replacements.

use super::Shortening;
use crate::{
    conversation::{Annotation, Author, BlockKind, Content, Conversation, Priority},
    guard::{
        request::{estimate::Weights, policy::Policy},
        text::{fence, truncate::text_cut::TextReplacement},
    },
    json::{
        scan::JsonString,
        text::{self, TextSizes},
    },
};

/// Characters of a name that are shown.
const NAME_CHARS: usize = 64;

/// One text: a message whose content is a string, or a text part.
pub(super) struct PromptText {
    pub(super) message: usize,
    /// Number of messages up to and including its own, without system messages; 0 for a text of a system message.
    pub(super) place: u32,
    /// Its index among the parts of the message.
    pub(super) part: Option<usize>,
    pub(super) text: JsonString,
    pub(super) name: Option<String>,
    /// `None` without an annotation, or with one that was not understood: such a text is never left out.
    pub(super) priority: Option<Priority>,
    /// Whether it can be decoded, and so edited.
    pub(super) decodable: bool,
    /// Raw tokens of the text as it came.
    pub(super) before: u32,
    /// Raw tokens and sizes of the text as it goes out.
    pub(super) tokens: u32,
    pub(super) sizes: TextSizes,
    pub(super) replacement: Option<(Shortening, TextReplacement)>,
}

/// All annotated texts of system and user messages, in order. With `plain` also system texts without an annotation.
pub(super) fn list_prompt_texts(
    conversation: &Conversation,
    weights: &Weights,
    plain: bool,
) -> Vec<PromptText> {
    let mut texts = Vec::new();
    let mut messages = conversation.summarised;
    for (at, message) in conversation.items.iter().enumerate() {
        let system = message.is_pinned_system();
        messages += u32::from(!message.author.is_system());
        let annotations = conversation.annotations_of(at);
        let has_caps = matches!(message.author, Author::System | Author::User);
        if annotations.is_empty() && !(plain && system) || !has_caps {
            continue;
        }
        let of_message = annotations.iter().find(|it| it.part.is_none());
        let mut add = |part: Option<usize>, text: JsonString, annotation: Option<&Annotation>| {
            if annotation.is_some() || (plain && system) {
                let raw = conversation.raw_bytes(text);
                let sizes = text::measure_text(raw);
                let tokens = weights.count_text_tokens(&sizes);
                let name = annotation.and_then(|it| it.name);
                texts.push(PromptText {
                    message: at,
                    place: if system { 0 } else { messages },
                    part,
                    text,
                    name: name.map(|name| conversation.decode_text(name).into_owned()),
                    priority: annotation.and_then(Annotation::effective_priority),
                    decodable: text::is_decodable(raw),
                    before: tokens,
                    tokens,
                    sizes,
                    replacement: None,
                });
            }
        };
        match &message.content {
            Content::Text(text) => add(None, *text, of_message),
            Content::Blocks(parts, _) => {
                // Annotations are in the order of the parts. The first one of a part counts.
                let mut of_parts = annotations.iter().filter_map(|it| Some((it.part?, it)));
                let mut next = of_parts.next();
                for (index, part) in conversation.blocks_of(message).iter().enumerate() {
                    let block = parts.start + index as u32;
                    let mut of_part = None;
                    while let Some((at, annotation)) = next.filter(|(at, _)| *at <= block) {
                        if at == block {
                            of_part = of_part.or(Some(annotation));
                        }
                        next = of_parts.next();
                    }
                    if let BlockKind::Text(text) = part.kind {
                        add(Some(index), text, of_part.or(of_message));
                    }
                }
            }
            _ => {}
        }
    }
    texts
}

impl PromptText {
    /// The configured cap of its name; tokens.
    pub(super) fn find_cap(&self, policy: Policy<'_>) -> Option<u32> {
        policy.settings.caps.get(self.name.as_deref()?).copied()
    }

    /// The name as it may be shown in a prompt: short, one line, and without anything that looks like a fence.
    pub(super) fn shown_name(&self) -> Option<String> {
        let name = self.name.as_deref()?.chars().take(NAME_CHARS);
        let name: String = name.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let name = fence::neutralize_tags(name.trim()).into_owned();
        (!name.is_empty()).then_some(name)
    }
}

impl TextReplacement {
    /// Makes a placeholder for a whole text; `None` if that would save nothing or the text cannot be edited.
    pub(super) fn new_placeholder(
        conversation: &Conversation,
        replaced: &PromptText,
        weights: &Weights,
    ) -> Option<Self> {
        let name = replaced.shown_name().map(|name| format!(": {name}"));
        let placeholder = format!(
            "[Left out by the context guard{}]",
            name.unwrap_or_default()
        );
        let text = text::escape_text(&placeholder);
        let sizes = text::measure_text(text.as_bytes());
        let saves = weights.count_text_tokens(&sizes) < replaced.tokens;
        (saves && replaced.decodable).then(|| Self {
            removed: 0..conversation.raw_bytes(replaced.text).len(),
            text,
            sizes,
        })
    }
}
