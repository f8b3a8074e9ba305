//! Takes what is ours out of answers in one piece, without any I/O.

use bytes::Bytes;

use super::{
    assemble::ANSWERS_ONLY,
    edits::{Session, take_calls},
    one::One,
};
use crate::{
    json::scan::{Kind, Span},
    relay::{Before, Sifting, Spoken},
    wire::{
        chat::answer::{self, Answer, Said},
        edit::Edits,
    },
};

/// Sifts the answers of one response, one after another.
pub(in crate::relay) struct Sifter {
    sifting: Sifting,
    session: Session,
    /// What the client is to see of the answers before, as JSON spells it.
    text: Vec<u8>,
}

pub(in crate::relay) enum Sifted {
    /// The answer was for us alone.
    Round(Spoken),
    /// The answer as the client gets it, and as it was.
    Last { json: Bytes, spoken: Spoken },
}

impl Sifter {
    pub(in crate::relay) fn new(sifting: Sifting) -> Self {
        Self {
            sifting,
            session: Session::default(),
            text: Vec::new(),
        }
    }

    pub(in crate::relay) const fn before(&self) -> Before {
        self.session.visible.before()
    }

    /// Takes the next answer; `None` where it cannot be read.
    pub(in crate::relay) fn answer(&mut self, json: &Bytes) -> Option<Sifted> {
        let answer = answer::read(json).ok()?;
        let mut one = One::new(self.sifting);
        one.report(&answer);
        one.error = answer.error;
        let empty = Said::default();
        let first = answer.first.as_ref();
        let said = first
            .and_then(|first| first.said.as_ref())
            .unwrap_or(&empty);
        let slots = one.calls.take(json, &said.calls);
        one.calls.settle();
        if let Some(finish) = first.and_then(|first| first.finish) {
            one.finish = String::from_utf8_lossy(&json[finish.span.range()]).into();
        }
        let mut texts = Vec::new();
        for (at, text) in said.texts.iter().enumerate() {
            let last = at + 1 == said.texts.len();
            let visible = one.visible(&json[text.span.range()], last);
            texts.push(self.session.visible.say(visible));
        }
        let call = |slot| {
            let at = slots.iter().position(|found| *found == Some(slot))?;
            String::from_utf8(json[said.calls[at].span.range()].to_vec()).ok()
        };
        let spoken = one.spoken(message(json, said), call);
        if one.is_ours() {
            self.text.extend(texts.concat());
            self.session.turn(spoken.usage);
            return Some(Sifted::Round(spoken));
        }
        let mut edits = Edits::default();
        self.session.as_one(json, &answer, &mut edits);
        let gone = take_calls(json, said, (&one.calls, &slots), false, &mut edits);
        if gone.contains(&true) {
            let members: Vec<_> = said.members.iter().map(|member| member.span()).collect();
            edits.take_out(&members, |at| gone[at]);
        }
        self.put_text(json, &answer, texts, &mut edits);
        let json = edits.apply(json).to_bytes();
        Some(Sifted::Last { json, spoken })
    }

    /// Puts the text of all answers into the last.
    fn put_text(&mut self, json: &[u8], answer: &Answer, texts: Vec<Vec<u8>>, edits: &mut Edits) {
        let Some(said) = answer.first.as_ref().and_then(|first| first.said.as_ref()) else {
            return;
        };
        let mut earlier = std::mem::take(&mut self.text);
        for (text, visible) in said.texts.iter().zip(texts) {
            let visible = [std::mem::take(&mut earlier), visible].concat();
            if visible != json[text.span.range()] {
                edits.replace(text.span, visible);
            }
        }
        if earlier.is_empty() {
            return;
        }
        let string = [b"\"", &earlier[..], b"\""].concat();
        match said.member(json, b"content") {
            Some(content) if content.kind == Kind::Array => {
                let inside =
                    &json[content.value.start as usize + 1..content.value.end as usize - 1];
                let comma: &[u8] = if inside.trim_ascii().is_empty() {
                    b""
                } else {
                    b","
                };
                let part = [br#"{"type":"text","text":"#, &string[..], b"}", comma].concat();
                edits.insert(content.value.start + 1, part);
            }
            Some(content) => edits.replace(content.value, string),
            None => {
                let comma: &[u8] = if said.members.is_empty() { b"" } else { b"," };
                let member = [br#""content":"#, &string[..], comma].concat();
                edits.insert(said.span.start + 1, member);
            }
        }
    }
}

/// The message as a request would carry it; its values are the provider's bytes.
fn message(json: &[u8], said: &Said) -> String {
    let mut out = br#"{"role":"assistant""#.to_vec();
    for member in &said.members {
        let key = &json[member.key.span.range()];
        let value = &json[member.value.range()];
        let hollow = match member.kind {
            Kind::Null => true,
            Kind::String | Kind::Array | Kind::Object => {
                value[1..value.len() - 1].trim_ascii().is_empty()
                    && (member.kind != Kind::String || value.len() == 2)
            }
            _ => false,
        };
        if !hollow && key != b"role" && !ANSWERS_ONLY.contains(&key) {
            let Span { start, end } = member.span();
            out.push(b',');
            out.extend_from_slice(&json[start as usize..end as usize]);
        }
    }
    out.push(b'}');
    if said.members.is_empty() || out.len() > super::assemble::MAX_BYTES {
        return String::new();
    }
    String::from_utf8(out).unwrap_or_default()
}
