//! What of ours belongs into an answer that the client echoes: calls that were kept from it, text
//! that was taken out of it, and text that stands in a round before it.
//!
//! What cannot be put in without touching what the client said is left out whole: an answer with
//! other calls than it had, text with half a surrogate pair, a part with a cache breakpoint.

use super::{
    estimate::Weights,
    record::{OwnCall, What},
    rounds,
    truncate::offset,
};
use crate::wire::{
    chat::{Content, Conversation, Message, PartKind},
    edit::Edits,
    scan::{Kind, Malformed, Scan, Span, Text},
    text::{self, Digester, Walk},
};

/// What becomes of one echoed answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Echo {
    pub(super) edits: Edits,
    /// Calls of ours that were put in.
    pub(super) calls: u32,
    /// Their results, which follow the message.
    pub(super) results: u32,
    /// Raw tokens of calls, results and text.
    pub(super) tokens: u32,
    /// Raw tokens that were left out, since they stand in a round.
    pub(super) spared: u32,
    /// Records that could not be put in.
    pub(super) left_out: usize,
}

/// Puts the records of an answer into message `at`. What was spoken in a round is left out here
/// only where the `round` stands before it.
pub(super) fn echo(
    conversation: &Conversation,
    at: usize,
    records: &[&What],
    round: bool,
    weights: &Weights,
) -> Echo {
    let mut echo = Echo::default();
    let message = &conversation.messages[at];
    let members = Members::of(conversation, message);
    let mut added = Vec::new();
    let mut spoken = None;
    for record in records {
        match record {
            What::Calls {
                theirs,
                calls,
                results,
            } => {
                let fits = members.lists(*theirs)
                    && echo.add_calls(conversation, message, calls, results, weights);
                echo.left_out += usize::from(!fits);
            }
            What::Text { before_chars, text } => added.push((*before_chars as usize, &**text)),
            What::Spoken { chars, digest } if round => spoken = Some((*chars as usize, *digest)),
            What::Spoken { .. } => echo.left_out += 1,
            What::Prompt(_) | What::Round(_) => {}
        }
    }
    if !added.is_empty() || spoken.is_some() {
        let said = Said::of(conversation, message, &members);
        echo.say(said.as_ref(), &added, spoken, weights);
    }
    echo
}

impl Echo {
    /// Puts calls between the client's, and their results after the message; not where they do
    /// not fit together.
    fn add_calls(
        &mut self,
        conversation: &Conversation,
        message: &Message,
        calls: &[OwnCall],
        results: &[Box<str>],
        weights: &Weights,
    ) -> bool {
        let Some(tokens) = rounds::step(calls, results, weights) else {
            return false;
        };
        let theirs = conversation.calls(message);
        for call in calls {
            match (theirs.get(call.before as usize), theirs.last()) {
                (Some(next), _) => self
                    .edits
                    .insert(next.span.start, format!("{},", call.json)),
                (None, Some(last)) => self.edits.insert(last.span.end, format!(",{}", call.json)),
                (None, None) => return false,
            }
        }
        for result in results {
            self.edits.insert(message.span.end, format!(",{result}"));
        }
        self.calls += calls.len() as u32;
        self.results += results.len() as u32;
        self.tokens = self.tokens.saturating_add(tokens);
        true
    }

    /// Puts text in, and leaves out what was spoken before.
    fn say(
        &mut self,
        said: Option<&Said<'_>>,
        added: &[(usize, &str)],
        spoken: Option<(usize, u128)>,
        weights: &Weights,
    ) {
        let Some(said) = said else {
            self.left_out += added.len() + usize::from(spoken.is_some());
            return;
        };
        let adds = added.iter().any(|(_, text)| !text.trim().is_empty());
        let calls = self.calls > 0 || !said.message.calls.is_empty();
        let spoken = spoken.filter(|&(chars, _)| chars > 0);
        let cut = spoken.map_or(Cut::Nothing, |(chars, digest)| {
            said.cut(chars, digest, adds, calls)
        });
        self.left_out += usize::from(spoken.is_some() && cut == Cut::Nothing);
        let gone = match cut {
            Cut::Nothing => 0,
            Cut::All => {
                self.edits.replace(said.span, "null");
                self.spared = said.tokens(usize::MAX, weights);
                self.left_out += added.len();
                return;
            }
            Cut::First(chars) => {
                said.take(chars, adds, &mut self.edits);
                self.spared = said.tokens(chars, weights);
                chars
            }
        };
        let whole: String;
        let mut added = added;
        let all;
        if said.message.content == Content::Null && !added.is_empty() {
            // One string takes the place of `null`.
            whole = added.iter().map(|(_, text)| *text).collect();
            all = [(0, whole.as_str())];
            added = &all;
        }
        for (before, text) in added {
            let escaped = text::escape(text);
            let tokens = rounds::tokens(&escaped, weights);
            if said.put((*before).max(gone), gone, &escaped, &mut self.edits) {
                self.tokens = self.tokens.saturating_add(tokens);
            } else {
                self.left_out += 1;
            }
        }
    }
}

/// How much of what was said goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Nothing,
    /// So many characters at its beginning.
    First(usize),
    /// Nothing is left beside the calls.
    All,
}

/// The members of an echoed answer that are edited.
#[derive(Default)]
struct Members {
    content: Option<Span>,
    calls: Option<usize>,
    legacy: bool,
}

impl Members {
    fn of(conversation: &Conversation, message: &Message) -> Self {
        let mut members = Self::default();
        let walked =
            Scan::new(&conversation.body, message.span.start as usize).object(|scan, key| {
                match conversation.raw(key) {
                    b"content" => members.content = Some(scan.value()?.0),
                    b"tool_calls" if scan.peek() == Some(b'[') => {
                        let mut calls = 0;
                        scan.array(|scan| {
                            calls += 1;
                            scan.value().map(|_| ())
                        })?;
                        members.calls = Some(calls);
                    }
                    b"function_call" => members.legacy |= scan.value()?.1 != Kind::Null,
                    _ => {
                        scan.value()?;
                    }
                }
                Ok::<_, Malformed>(())
            });
        match walked {
            Ok(_) => members,
            Err(_) => Self::default(),
        }
    }

    /// Whether the answer has exactly so many calls, all of them in `tool_calls`.
    fn lists(&self, theirs: u32) -> bool {
        !self.legacy && theirs > 0 && self.calls == Some(theirs as usize)
    }
}

/// One text of an answer.
struct Piece {
    text: Text,
    chars: usize,
}

/// The text of an answer.
struct Said<'a> {
    conversation: &'a Conversation,
    message: &'a Message,
    /// The whole of `content`.
    span: Span,
    pieces: Vec<Piece>,
}

impl<'a> Said<'a> {
    /// `None` where there is no content that text can be put into, or taken from.
    fn of(conversation: &'a Conversation, message: &'a Message, members: &Members) -> Option<Self> {
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
            span: members.content?,
            pieces,
        })
    }

    /// How much goes where the text begins with so many characters of that digest. Something must
    /// be left: text, what is `added`, or `calls`.
    fn cut(&self, chars: usize, digest: u128, added: bool, calls: bool) -> Cut {
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
    fn take(&self, chars: usize, added: bool, edits: &mut Edits) {
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
    fn put(&self, before: usize, gone: usize, escaped: &str, edits: &mut Edits) -> bool {
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
    fn tokens(&self, chars: usize, weights: &Weights) -> u32 {
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

#[cfg(test)]
mod tests;
