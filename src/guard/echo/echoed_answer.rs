//! The text of an echoed answer, and what is put into it or taken from it.

use crate::{
    conversation::{BlockKind, Content, Conversation, Item, edit::Edits},
    guard::{estimate::Weights, truncate::find_byte_offset},
    json::{
        scan::{JsonString, Span},
        text::{self, TextDigester, TextWalk},
    },
};

/// How much of what was said goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EchoCut {
    Nothing,
    /// So many characters at its beginning.
    First(usize),
    /// Nothing is left beside the calls.
    All,
}

/// What was spoken in a turn before the answer, as its record says.
#[derive(Clone, Copy)]
pub(super) struct SpokenBefore {
    pub(super) chars: usize,
    pub(super) digest: u128,
}

/// One text of an answer.
struct EchoedText {
    text: JsonString,
    chars: usize,
}

/// The text of an answer.
pub(super) struct EchoedAnswer<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) message: &'a Item,
    /// The whole of `content`.
    pub(super) span: Span,
    pieces: Vec<EchoedText>,
}

impl<'a> EchoedAnswer<'a> {
    /// `None` where there is no content that text can be put into, or taken from.
    pub(super) fn from_item(conversation: &'a Conversation, message: &'a Item) -> Option<Self> {
        let pieces = conversation.texts_of(message).map(|text| {
            let mut walk = TextWalk::new(conversation.raw_bytes(text));
            let chars = walk.by_ref().count();
            walk.is_sound().then_some(EchoedText { text, chars })
        });
        let pieces: Vec<_> = pieces.collect::<Option<_>>()?;
        match message.content {
            Content::Absent | Content::Other(_) => return None,
            Content::Blocks(..) if pieces.is_empty() => return None,
            Content::Null(_) | Content::Text(_) | Content::Blocks(..) => {}
        }
        Some(Self {
            conversation,
            message,
            span: message.content.span()?,
            pieces,
        })
    }

    /// Nothing is said, though there is a place for it.
    pub(super) const fn is_null(&self) -> bool {
        matches!(self.message.content, Content::Null(_))
    }

    /// How much goes where the text begins with what was spoken. Something must
    /// be left: text, what is `added`, or `calls`.
    pub(super) fn find_cut(&self, spoken: SpokenBefore, added: bool, calls: bool) -> EchoCut {
        let SpokenBefore { chars, digest } = spoken;
        let mut digester = TextDigester::new();
        self.beginnings(chars).for_each(|raw| digester.push(raw));
        let all: usize = self.pieces.iter().map(|piece| piece.chars).sum();
        if all < chars || digester.finish() != digest {
            return EchoCut::Nothing;
        }
        let parts = self.conversation.blocks_of(self.message);
        let media = parts.len() > self.pieces.len();
        if !(added || media || self.says_after(chars)) {
            let marked = parts.iter().any(|part| part.marked);
            return if calls && !marked {
                EchoCut::All
            } else {
                EchoCut::Nothing
            };
        }
        // Whole parts go only from the front, where nothing else stands among them.
        let gone = self.count_whole_texts(chars, added);
        let plain = parts
            .iter()
            .take(gone)
            .all(|part| matches!(part.kind, BlockKind::Text(_)) && !part.marked);
        if plain {
            EchoCut::First(chars)
        } else {
            EchoCut::Nothing
        }
    }

    /// Of each piece, the bytes that are among the first characters of the whole.
    fn beginnings(&self, mut chars: usize) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(move |piece| {
            let raw = self.conversation.raw_bytes(piece.text);
            let taken = chars.min(piece.chars);
            chars -= taken;
            &raw[..find_byte_offset(raw, taken)]
        })
    }

    /// Whether anything but white space is said after so many characters.
    fn says_after(&self, chars: usize) -> bool {
        let raws = self
            .pieces
            .iter()
            .map(|it| self.conversation.raw_bytes(it.text));
        raws.flat_map(TextWalk::new)
            .skip(chars)
            .any(|character| !char::from_u32(character.code).is_some_and(char::is_whitespace))
    }

    /// How many pieces go whole, as parts, with so many characters. One stays to be added to.
    fn count_whole_texts(&self, chars: usize, added: bool) -> usize {
        if !matches!(self.message.content, Content::Blocks(..)) {
            return 0;
        }
        let mut passed = 0;
        let whole = self.pieces.iter().take_while(|piece| {
            passed += piece.chars;
            passed <= chars
        });
        let whole = whole.count();
        if added {
            whole.min(self.pieces.len() - 1)
        } else {
            whole
        }
    }

    /// Takes out the first characters.
    pub(super) fn take_out_first(&self, chars: usize, added: bool, edits: &mut Edits) {
        let gone = self.count_whole_texts(chars, added);
        let parts = self.conversation.blocks_of(self.message);
        if let (Some(first), Some(next), true) = (parts.first(), parts.get(gone), gone > 0) {
            edits.remove(Span {
                start: first.span.start,
                end: next.span.start,
            });
        }
        let pieces = self.pieces.iter().zip(self.beginnings(chars));
        for (piece, taken) in pieces.skip(gone).filter(|it| !it.1.is_empty()) {
            let start = piece.text.span.start;
            edits.remove(Span {
                start,
                end: start + taken.len() as u32,
            });
        }
    }

    /// Puts text in after so many characters, `gone` of which are taken out. Returns whether
    /// there was a place for it.
    pub(super) fn insert_text(
        &self,
        before: usize,
        gone: usize,
        escaped: &str,
        edits: &mut Edits,
    ) -> bool {
        if self.is_null() {
            edits.replace(self.span, format!("\"{escaped}\""));
            return true;
        }
        let first = self.count_whole_texts(gone, true);
        let mut start = self.pieces[..first]
            .iter()
            .map(|piece| piece.chars)
            .sum::<usize>();
        let last = self.pieces.len().saturating_sub(1);
        for (at, piece) in self.pieces.iter().enumerate().skip(first) {
            let end = start + piece.chars;
            if before <= end || at == last {
                let raw = self.conversation.raw_bytes(piece.text);
                let place = find_byte_offset(raw, before.saturating_sub(start));
                edits.insert(piece.text.span.start + place as u32, escaped.to_owned());
                return true;
            }
            start = end;
        }
        false
    }

    /// Raw tokens of the first characters.
    pub(super) fn tokens(&self, chars: usize, weights: &Weights) -> u32 {
        let tokens = self
            .beginnings(chars)
            .map(|raw| weights.text_weight(&text::measure_text(raw)));
        tokens.sum::<f64>() as u32
    }
}
