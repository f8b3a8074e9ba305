//! The text of an echoed answer: what is inserted into it or removed from it.

use crate::{
    conversation::{BlockKind, Content, Conversation, Item, edit::Edits},
    guard::{
        inject::echo::RepeatedBlocks, request::estimate::Weights, text::truncate::find_byte_offset,
    },
    json::{
        scan::{JsonString, Span},
        text::{self, TextDigester, TextWalk},
    },
};

/// How much of an answer's text is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EchoCut {
    Nothing,
    /// The first characters, so many of them.
    First(usize),
    /// Only the calls are left.
    All,
}

/// The text of the tool round before the answer, as its record describes it.
#[derive(Clone, Copy)]
pub(super) struct SpokenBefore {
    pub(super) chars: usize,
    pub(super) digest: u128,
}

struct EchoedText {
    text: JsonString,
    chars: usize,
}

pub(super) struct EchoedAnswer<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) message: &'a Item,
    /// The whole of `content`.
    pub(super) span: Span,
    texts: Vec<EchoedText>,
    repeated: &'a RepeatedBlocks<'a>,
}

impl<'a> EchoedAnswer<'a> {
    /// `None` where the content cannot be edited.
    pub(super) fn from_item(
        conversation: &'a Conversation,
        message: &'a Item,
        repeated: &'a RepeatedBlocks<'a>,
    ) -> Option<Self> {
        let texts = conversation.texts_of(message).map(|text| {
            let chars = text::count_chars(conversation.raw_bytes(text))?;
            Some(EchoedText { text, chars })
        });
        let texts: Vec<_> = texts.collect::<Option<_>>()?;
        match message.content {
            Content::Absent | Content::FixedBlocks(..) | Content::Other(_) => return None,
            Content::Blocks(..) if texts.is_empty() => return None,
            Content::Null(_) | Content::Text(_) | Content::Blocks(..) => {}
        }
        Some(Self {
            conversation,
            message,
            span: message.content.span()?,
            texts,
            repeated,
        })
    }

    pub(super) const fn is_null(&self) -> bool {
        matches!(self.message.content, Content::Null(_))
    }

    /// How much is removed if the answer begins with the text of the round. Something must be left: text, media, `added`
    /// text, or `calls`.
    pub(super) fn find_cut(&self, spoken: SpokenBefore, added: bool, calls: bool) -> EchoCut {
        let SpokenBefore { chars, digest } = spoken;
        let mut digester = TextDigester::new();
        self.beginnings(chars).for_each(|raw| digester.push(raw));
        let all: usize = self.texts.iter().map(|text| text.chars).sum();
        if all < chars || digester.finish() != digest {
            return EchoCut::Nothing;
        }
        let parts = self.conversation.blocks_of(self.message);
        let media = parts.len() - self.repeated.len() > self.texts.len();
        if !(added || media || self.has_text_after(chars)) {
            let marked = parts.iter().any(|part| part.marked);
            return if calls && !marked {
                EchoCut::All
            } else {
                EchoCut::Nothing
            };
        }
        // Whole parts are removed only from the front, and only if no part that stays is among them.
        let others = parts.iter().enumerate();
        let others = others.filter(|(at, _)| !self.repeated.contains(*at));
        let mut whole = others.take(self.count_whole_texts(chars, added));
        if whole.all(|(_, part)| matches!(part.kind, BlockKind::Text(_)) && !part.marked) {
            EchoCut::First(chars)
        } else {
            EchoCut::Nothing
        }
    }

    /// For each text, those of its bytes that are among the first `chars` characters of the answer.
    fn beginnings(&self, mut chars: usize) -> impl Iterator<Item = &[u8]> {
        self.texts.iter().map(move |text| {
            let raw = self.conversation.raw_bytes(text.text);
            let taken = chars.min(text.chars);
            chars -= taken;
            &raw[..find_byte_offset(raw, taken)]
        })
    }

    /// Whether anything but white space follows the first characters.
    fn has_text_after(&self, chars: usize) -> bool {
        let texts = self.texts.iter();
        texts
            .flat_map(|it| TextWalk::new(self.conversation.raw_bytes(it.text)))
            .skip(chars)
            .any(|character| !char::from_u32(character.code).is_some_and(char::is_whitespace))
    }

    /// How many texts are removed as whole parts with the first characters. If text is `added`, one part stays for it.
    fn count_whole_texts(&self, chars: usize, added: bool) -> usize {
        if !matches!(self.message.content, Content::Blocks(..)) {
            return 0;
        }
        let mut passed = 0;
        let whole = self.texts.iter().take_while(|text| {
            passed += text.chars;
            passed <= chars
        });
        whole.count().min(self.texts.len() - usize::from(added))
    }

    /// Removes the first `chars` characters, and the repeated blocks.
    pub(super) fn remove_first(&self, chars: usize, added: bool, edits: &mut Edits) {
        let whole = match chars {
            0 => 0,
            _ => self.count_whole_texts(chars, added),
        };
        self.repeated.remove_with_texts(whole, edits);
        let texts = self.texts.iter().zip(self.beginnings(chars));
        for (text, removed) in texts.skip(whole).filter(|it| !it.1.is_empty()) {
            edits.remove(text.text.span.part(0..removed.len()));
        }
    }

    /// Inserts text after `before` characters, the first `removed` of which are removed. Returns whether there was a
    /// place for it.
    pub(super) fn insert_text(
        &self,
        before: usize,
        removed: usize,
        escaped: &str,
        edits: &mut Edits,
    ) -> bool {
        if self.is_null() {
            edits.replace(self.span, format!("\"{escaped}\""));
            return true;
        }
        let first = self.count_whole_texts(removed, true);
        let mut start: usize = self.texts[..first].iter().map(|text| text.chars).sum();
        let last = self.texts.len().saturating_sub(1);
        for (at, text) in self.texts.iter().enumerate().skip(first) {
            let end = start + text.chars;
            if before <= end || at == last {
                let raw = self.conversation.raw_bytes(text.text);
                let offset = find_byte_offset(raw, before.saturating_sub(start));
                edits.insert(text.text.span.start + offset as u32, escaped.to_owned());
                return true;
            }
            start = end;
        }
        false
    }

    /// Raw tokens of the first characters.
    pub(super) fn count_tokens(&self, chars: usize, weights: &Weights) -> u32 {
        let raws = self.beginnings(chars);
        let tokens = raws.map(|raw| weights.text_weight(&text::measure_text(raw)));
        tokens.sum::<f64>() as u32
    }
}
