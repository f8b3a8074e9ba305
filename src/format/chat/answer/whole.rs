//! Takes what is not for the client out of answers in one piece, and adds to their usage.

use bytes::Bytes;

use super::{
    AnswerEvent, ChatAnswer, Rewriter, current::ParsedEvent, edits::JoinedResponse, read_answer,
};
use crate::{
    conversation::edit::Edits,
    format::{AssistantTurn, ResponseSummarizer},
    json::scan::JsonKind,
    wire::sse,
};

/// What became of a whole answer.
pub enum RewrittenAnswer {
    /// It was for the proxy alone.
    ForProxy(AssistantTurn),
    /// The answer as the client gets it, and what it said.
    ForClient { json: Bytes, spoken: AssistantTurn },
}

/// A whole answer with the prompt tokens of what the client sent; `None` where nothing is added.
pub fn add_prompt_tokens(json: &Bytes, left_out: u32) -> Option<Bytes> {
    let answer = read_answer(json).ok()?;
    let mut edits = Edits::default();
    let joined = JoinedResponse::new(Some(left_out));
    for event in &answer.events {
        if let AnswerEvent::Usage(report) = event {
            joined.add_usage(report, &mut edits);
        }
    }
    (!edits.is_empty()).then(|| edits.apply(json).to_bytes())
}

impl Rewriter {
    /// Takes the next answer in one piece; `None` where it cannot be read.
    pub fn take_whole(
        &mut self,
        json: &Bytes,
        listener: &mut ResponseSummarizer,
    ) -> Option<RewrittenAnswer> {
        let message = sse::SseMessage {
            name: Bytes::new(),
            data: json.clone(),
        };
        let mut event = ParsedEvent::new(Bytes::new(), message, read_answer(json).ok()?);
        self.current.calls.whole = true;
        self.current.take_event(&mut event);
        self.current.settle_answer();
        if self.current.is_for_proxy() {
            for (_, text) in self
                .joined
                .visible_texts(&event, &mut self.current, listener)
            {
                self.joined.earlier.extend_from_slice(&text);
            }
            return Some(RewrittenAnswer::ForProxy(self.begin_answer(listener)));
        }
        let (joined, mut edits) = (&mut self.joined, Edits::default());
        joined.edit_event(&event, &mut self.current, false, &mut edits, listener);
        let earlier = std::mem::take(&mut joined.earlier);
        insert_text(json, &event.answer, earlier, &mut edits);
        Some(RewrittenAnswer::ForClient {
            json: edits.apply(json).to_bytes(),
            spoken: self.to_assistant_turn(),
        })
    }
}

/// Puts the text of earlier answers into one that has none of its own.
fn insert_text(json: &[u8], answer: &ChatAnswer, text: Vec<u8>, edits: &mut Edits) {
    let message = answer.first.as_ref();
    let Some(message) = message.filter(|it| !text.is_empty() && !it.span.is_empty()) else {
        return;
    };
    let string = [b"\"", &text[..], b"\""].concat();
    match message.find_member(json, b"content") {
        Some(content) if content.kind == JsonKind::Array => {
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
