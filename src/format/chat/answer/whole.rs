//! Removes from whole answers what is not for the client, and adds to their usage.

use bytes::Bytes;

use super::{
    ChatAnswer,
    current::{ChatAnswerState, ChatEvent},
    read_answer,
};
use crate::{
    conversation::edit::Edits,
    format::{
        ResponseSummarizer, RewrittenAnswer,
        answer_rewriter::{AnswerState, FormatRewriter},
    },
    json::scan::JsonKind,
    wire::sse::SseMessage,
};

impl FormatRewriter<ChatAnswerState> {
    /// Takes the next answer in one piece; `None` if it cannot be read.
    pub fn take_whole(
        &mut self,
        json: &Bytes,
        summarizer: &mut ResponseSummarizer,
    ) -> Option<RewrittenAnswer> {
        let message = SseMessage {
            name: Bytes::new(),
            data: json.clone(),
        };
        let mut event = ChatEvent::new(Bytes::new(), message, read_answer(json).ok()?);
        self.current.calls.whole = true;
        self.current.take_event(&mut event);
        self.current.settle_calls();
        if self.current.is_for_proxy() {
            let joined = &mut self.joined;
            for (_, text) in joined.visible_texts(&event, &mut self.current, summarizer) {
                joined.earlier_content.extend_from_slice(&text);
            }
            return Some(RewrittenAnswer::ForProxy(self.begin_answer(summarizer)));
        }
        let (joined, mut edits) = (&mut self.joined, Edits::default());
        joined.edit_event(&event, &mut self.current, false, &mut edits, summarizer);
        let earlier = std::mem::take(&mut joined.earlier_content);
        insert_text(json, &event.answer, earlier, &mut edits);
        Some(RewrittenAnswer::ForClient {
            json: edits.apply(json).to_bytes(),
            turn: self.to_assistant_turn(),
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
