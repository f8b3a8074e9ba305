//! Takes what is not for the client out of answers in one piece, and adds to their usage.

use bytes::Bytes;

use super::{
    Answer, AnswerEvent, Rewriter,
    edits::{Joined, take_calls, take_members},
    read,
    rewriter::Event,
};
use crate::{
    format::{Listener, Spoken},
    json::scan::Kind,
    wire::{edit::Edits, event},
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
    Joined::new(Some(left_out)).add_reports(&answer, &mut edits);
    (!edits.is_empty()).then(|| edits.apply(json).to_bytes())
}

impl Joined {
    fn add_reports(&self, answer: &Answer, edits: &mut Edits) {
        for event in &answer.events {
            if let AnswerEvent::Usage(report) = event {
                self.add_usage(report, edits);
            }
        }
    }
}

impl Rewriter {
    /// Takes the next answer in one piece; `None` where it cannot be read. `earlier` is what the client is to
    /// see of the answers before, as JSON spells it.
    pub fn take_whole(
        &mut self,
        json: &Bytes,
        earlier: &mut Vec<u8>,
        listener: &mut Listener,
    ) -> Option<Whole> {
        let message = event::Message {
            name: Bytes::new(),
            data: json.clone(),
        };
        let mut event = Event::new(message, read(json).ok()?);
        self.current.take(&mut event);
        self.current.settle();
        let texts = self.joined.texts(&event, &mut self.current, listener);
        if self.current.is_own() {
            for (_, visible) in texts {
                earlier.extend_from_slice(&visible);
            }
            return Some(Whole::Round(self.begin_answer(listener)));
        }
        let answer = &event.answer;
        let mut edits = Edits::default();
        self.joined.keep_first_id(json, answer, &mut edits);
        self.joined.add_reports(answer, &mut edits);
        if let Some(message) = &answer.first {
            let gone = take_calls(json, message, &event, &self.current.calls, &mut edits);
            take_members(message, &gone, &mut edits);
        }
        let mut earlier = std::mem::take(earlier);
        for (text, visible) in texts {
            let visible = [std::mem::take(&mut earlier), visible.into_owned()].concat();
            if visible != json[text.span.range()] {
                edits.replace(text.span, visible);
            }
        }
        put_text(json, answer, earlier, &mut edits);
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
