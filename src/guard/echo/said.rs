//! The text of an echoed answer, and what is put into it or taken from it.

use crate::{
    guard::{estimate::Weights, truncate::offset},
    json::{
        scan::{Span, Text},
        text::{self, Digester, Walk},
    },
    wire::{
        chat::{Content, Conversation, Message, PartKind},
        edit::Edits,
    },
};

/// How much of what was said goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Nothing,
    /// So many characters at its beginning.
    First(usize),
    /// Nothing is left beside the calls.
    All,
}

/// One text of an answer.
struct Piece {
    text: Text,
    chars: usize,
}

/// The text of an answer.
pub(super) struct Said<'a> {
    conversation: &'a Conversation,
    pub(super) message: &'a Message,
    /// The whole of `content`.
    pub(super) span: Span,
    pieces: Vec<Piece>,
}

impl<'a> Said<'a> {
    /// `None` where there is no content that text can be put into, or taken from.
    pub(super) fn of(
        conversation: &'a Conversation,
        message: &'a Message,
        content: Option<Span>,
    ) -> Option<Self> {
        let texts: Vec<Text> = match &message.content {
            Content::Text(text) => vec![*text],
            Content::Null => Vec::new(),
            Content::Parts(..) => {
                let parts = conversation.parts(message).iter();
                let texts: Vec<_> = parts
                    .filter_map(|part| match part.kind {
                        PartKind::Text(text) => Some(text),
                        _ => None,
                    })
                    .collect();
                if texts.is_empty() {
                    return None;
                }
                texts
            }
            Content::Absent | Content::Other(_) => return None,
        };
        let mut pieces = Vec::with_capacity(texts.len());
        for text in texts {
            let mut walk = Walk::new(conversation.raw(text));
            let chars = walk.by_ref().count();
            if !walk.sound() {
                return None;
            }
            pieces.push(Piece { text, chars });
        }
        Some(Self {
            conversation,
            message,
            span: content?,
            pieces,
        })
    }

    /// How much goes where the text begins with so many characters of that digest. Something must
    /// be left: text, what is `added`, or `calls`.
    pub(super) fn cut(&self, chars: usize, digest: u128, added: bool, calls: bool) -> Cut {
        let mut digester = Digester::new();
        let mut left = chars;
        for piece in &self.pieces {
            let raw = self.conversation.raw(piece.text);
            let taken = left.min(piece.chars);
            digester.push(&raw[..offset(raw, taken)]);
            left -= taken;
        }
        if left > 0 || digester.finish() != digest {
            return Cut::Nothing;
        }
        let parts = self.conversation.parts(self.message);
        let media = parts.len() > self.pieces.len();
        if !(added || media || self.says_after(chars)) {
            let marked = parts.iter().any(|part| part.marked);
            return if calls && !marked {
                Cut::All
            } else {
                Cut::Nothing
            };
        }
        // Whole parts go only from the front, where nothing else stands among them.
        let gone = self.gone(chars, added);
        let plain = parts
            .iter()
            .take(gone)
            .all(|part| matches!(part.kind, PartKind::Text(_)) && !part.marked);
        if plain {
            Cut::First(chars)
        } else {
            Cut::Nothing
        }
    }

    /// Whether anything but white space is said after so many characters.
    fn says_after(&self, chars: usize) -> bool {
        let raws = self.pieces.iter().map(|it| self.conversation.raw(it.text));
        raws.flat_map(Walk::new)
            .skip(chars)
            .any(|character| !char::from_u32(character.code).is_some_and(char::is_whitespace))
    }

    /// How many pieces go whole, as parts, with so many characters. One stays to be added to.
    fn gone(&self, chars: usize, added: bool) -> usize {
        if !matches!(self.message.content, Content::Parts(..)) {
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
    pub(super) fn take(&self, chars: usize, added: bool, edits: &mut Edits) {
        let gone = self.gone(chars, added);
        let parts = self.conversation.parts(self.message);
        if let (Some(first), Some(next), true) = (parts.first(), parts.get(gone), gone > 0) {
            edits.remove(Span {
                start: first.span.start,
                end: next.span.start,
            });
        }
        let mut left = chars;
        for (at, piece) in self.pieces.iter().enumerate() {
            let taken = left.min(piece.chars);
            left -= taken;
            if at >= gone && taken > 0 {
                let start = piece.text.span.start;
                let len = offset(self.conversation.raw(piece.text), taken) as u32;
                edits.remove(Span {
                    start,
                    end: start + len,
                });
            }
        }
    }

    /// Puts text in after so many characters, `gone` of which are taken out. Returns whether
    /// there was a place for it.
    pub(super) fn put(&self, before: usize, gone: usize, escaped: &str, edits: &mut Edits) -> bool {
        if self.message.content == Content::Null {
            edits.replace(self.span, format!("\"{escaped}\""));
            return true;
        }
        let first = self.gone(gone, true);
        let mut start = self.pieces[..first]
            .iter()
            .map(|piece| piece.chars)
            .sum::<usize>();
        let last = self.pieces.len().saturating_sub(1);
        for (at, piece) in self.pieces.iter().enumerate().skip(first) {
            let end = start + piece.chars;
            if before <= end || at == last {
                let raw = self.conversation.raw(piece.text);
                let place = offset(raw, before.saturating_sub(start));
                edits.insert(piece.text.span.start + place as u32, escaped.to_owned());
                return true;
            }
            start = end;
        }
        false
    }

    /// Raw tokens of the first characters.
    pub(super) fn tokens(&self, chars: usize, weights: &Weights) -> u32 {
        let mut left = chars;
        let mut tokens = 0.0;
        for piece in &self.pieces {
            let raw = self.conversation.raw(piece.text);
            let taken = left.min(piece.chars);
            tokens += weights.text(&text::measure(&raw[..offset(raw, taken)]));
            left -= taken;
        }
        tokens as u32
    }
}
