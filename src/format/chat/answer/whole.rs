//! Removes from whole answers what is not for the client, and adds to their usage.

use std::collections::VecDeque;

use bytes::Bytes;

use super::ChatAnswer;
use crate::{
    conversation::edit::Edits,
    format::{
        RewrittenAnswer,
        answer_rewriter::{BlockAnswer, FormatRewriter, ParsedEvent},
    },
    json::scan::JsonKind,
    wire::sse::SseMessage,
};

impl FormatRewriter<ChatAnswer> {
    /// Takes the next answer in one piece, a message; `None` if it cannot be read.
    pub(super) fn take_message(&mut self, json: &Bytes) -> Option<RewrittenAnswer> {
        let message = SseMessage {
            name: Bytes::new(),
            data: json.clone(),
        };
        let mut event = ParsedEvent::new(Bytes::new(), message, ChatAnswer::read_whole(json)?);
        self.current.take_event(&mut event);
        self.current.settle(&mut VecDeque::new());
        self.current.decide_event(&mut event);
        let joined = &mut self.joined;
        if self.current.is_for_proxy() {
            let texts = joined.take_texts(&event);
            let texts: Vec<_> = texts.map(|(_, text)| text.into_owned()).collect();
            joined.earlier_content.extend(texts.concat());
            return Some(RewrittenAnswer::ForProxy(self.begin_answer()));
        }
        let mut edits = Edits::default();
        ChatAnswer::edit_event(joined, &event, &self.current, false, &mut edits);
        joined.edit_model(json, &event.answer, &mut edits);
        let earlier = std::mem::take(&mut joined.earlier_content);
        insert_text(json, &event.answer, earlier, &mut edits);
        Some(RewrittenAnswer::ForClient {
            json: edits.apply(json).to_bytes(),
            said: self.to_model_answer(),
        })
    }
}

/// Inserts the text of earlier answers into an answer that has no text.
fn insert_text(json: &[u8], answer: &ChatAnswer, text: Vec<u8>, edits: &mut Edits) {
    let message = answer.first.as_ref();
    let Some(message) = message.filter(|it| !text.is_empty() && !it.span.is_empty()) else {
        return;
    };
    let comma_unless = |is_last: bool| -> &[u8] { if is_last { b"" } else { b"," } };
    let string = [b"\"", &text[..], b"\""].concat();
    match message.find_member(json, b"content") {
        Some(content) if content.kind == JsonKind::Array => {
            let inside = &json[content.value.start as usize + 1..content.value.end as usize - 1];
            let comma = comma_unless(inside.trim_ascii().is_empty());
            let part = [br#"{"type":"text","text":"#, &string[..], b"}", comma].concat();
            edits.insert(content.value.start + 1, part);
        }
        Some(content) => edits.replace(content.value, string),
        None => {
            let comma = comma_unless(message.members.is_empty());
            let member = [br#""content":"#, &string[..], comma].concat();
            edits.insert(message.span.start + 1, member);
        }
    }
}
