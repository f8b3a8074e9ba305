//! Takes what is not for the client out of answers in one piece, and adds to their usage.

use bytes::Bytes;

use super::{Answer, AnswerEvent, Rewriter, current::TakenEvent, edits::Joined, read};
use crate::{
    conversation::edit::Edits,
    format::{Listener, Spoken},
    json::scan::Kind,
    wire::event,
};

/// What became of a whole answer.
pub enum Whole {
    /// It was for the proxy alone.
    Round(Spoken),
    /// The answer as the client gets it, and what it said.
    Last { json: Bytes, spoken: Spoken },
}

/// A whole answer with the prompt tokens of what the client sent; `None` where nothing is added.
pub fn add_prompt_tokens(json: &Bytes, left_out: u32) -> Option<Bytes> {
    let answer = read(json).ok()?;
    let mut edits = Edits::default();
    let joined = Joined::new(Some(left_out));
    for event in &answer.events {
        if let AnswerEvent::Usage(report) = event {
            joined.add_usage(report, &mut edits);
        }
    }
    (!edits.is_empty()).then(|| edits.apply(json).to_bytes())
}

impl Rewriter {
    /// Takes the next answer in one piece; `None` where it cannot be read.
    pub fn take_whole(&mut self, json: &Bytes, listener: &mut Listener) -> Option<Whole> {
        let message = event::Message {
            name: Bytes::new(),
            data: json.clone(),
        };
        let mut event = TakenEvent::new(Bytes::new(), message, read(json).ok()?);
        self.current.calls.whole = true;
        self.current.take_event(&mut event);
        self.current.settle();
        if self.current.is_own() {
            for (_, text) in self
                .joined
                .visible_texts(&event, &mut self.current, listener)
            {
                self.joined.earlier.extend_from_slice(&text);
            }
            return Some(Whole::Round(self.begin_answer(listener)));
        }
        let (joined, mut edits) = (&mut self.joined, Edits::default());
        joined.edit_event(&event, &mut self.current, false, &mut edits, listener);
        let earlier = std::mem::take(&mut joined.earlier);
        put_text(json, &event.answer, earlier, &mut edits);
        Some(Whole::Last {
            json: edits.apply(json).to_bytes(),
            spoken: self.spoken(),
        })
    }
}

/// Puts the text of earlier answers into one that has none of its own.
fn put_text(json: &[u8], answer: &Answer, text: Vec<u8>, edits: &mut Edits) {
    let message = answer.first.as_ref();
    let Some(message) = message.filter(|it| !text.is_empty() && !it.span.is_empty()) else {
        return;
    };
    let string = [b"\"", &text[..], b"\""].concat();
    match message.member(json, b"content") {
        Some(content) if content.kind == Kind::Array => {
            let inside = &json[content.value.start as usize + 1..content.value.end as usize - 1];
            let comma: &[u8] = match inside.trim_ascii().is_empty() {
                true => b"",
                false => b",",
            };
            let part = [br#"{"type":"text","text":"#, &string[..], b"}", comma].concat();
            edits.insert(content.value.start + 1, part);
        }
        Some(content) => edits.replace(content.value, string),
        None => {
            let comma: &[u8] = match message.members.is_empty() {
                true => b"",
                false => b",",
            };
            let member = [br#""content":"#, &string[..], comma].concat();
            edits.insert(message.span.start + 1, member);
        }
    }
}
