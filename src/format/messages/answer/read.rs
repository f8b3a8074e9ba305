//! The reader of answers.
//!
//! Holds spans, never copies. A member of an unexpected shape is skipped where spans stay
//! trustworthy, and is an error elsewhere.

use super::{END, EventKind, MessagesAnswer, TokenCounts};
use crate::{
    format::{
        AnswerEvent, AnswerEvents, CallFragment, Finish, FinishKind,
        answer::{
            event_hold::DONE,
            input_changes::{INPUT_CHANGES, read_input_changes},
        },
        values::{
            ObjectSpans, ReadResult, finish_kind, read_list, skip_value, take_index,
            take_nonempty_text, take_text,
        },
    },
    json::scan::{JsonKind, JsonScanner, JsonString, MalformedJson},
    wire::sse::SseMessage,
};

/// Reads the data of an event, or a whole body.
///
/// # Errors
/// The data is not a JSON object.
pub fn read_answer(json: &[u8]) -> Result<MessagesAnswer, MalformedJson> {
    read_named(json, b"")
}

/// Reads the next event of a stream; empty if it cannot be read. `counts` are those of the answer
/// so far.
pub fn read_event(message: &SseMessage, counts: &mut TokenCounts) -> MessagesAnswer {
    let mut answer = read_named(&message.data, &message.name).unwrap_or_default();
    if message.data == DONE {
        answer.events.push(AnswerEvent::End);
    }
    if message.name == "error" && !answer.has_error() {
        answer.events.push(AnswerEvent::Error);
    }
    if answer.kind == EventKind::MessageStart {
        *counts = TokenCounts::default();
    }
    answer.merge_counts(counts);
    answer
}

/// Whether an event only keeps the connection open.
pub fn is_ping(message: &SseMessage) -> bool {
    let answer = read_named(&message.data, &message.name);
    answer.is_ok_and(|answer| answer.kind == EventKind::Ping)
}

/// Whether an event begins a message, without any of its content.
pub fn is_start(message: &SseMessage) -> bool {
    let answer = read_named(&message.data, &message.name);
    answer.is_ok_and(|answer| answer.kind == EventKind::MessageStart)
}

/// `name`: the name of the event, which is used as its type if the data has none.
fn read_named(json: &[u8], name: &[u8]) -> Result<MessagesAnswer, MalformedJson> {
    let mut reader = MessagesAnswerReader {
        json,
        ..MessagesAnswerReader::default()
    };
    let mut scan = JsonScanner::new(json, 0);
    scan.walk_object(|scan, key| reader.read_member(scan, key))?;
    scan.expect_end()?;
    let kind = reader.kind.map_or(name, |kind| kind.raw_bytes(json));
    reader.add_events(kind);
    Ok(reader.answer)
}

#[derive(Default)]
pub(super) struct MessagesAnswerReader<'a> {
    pub(super) json: &'a [u8],
    pub(super) answer: MessagesAnswer,
    kind: Option<JsonString>,
    stop_reason: Option<JsonString>,
}

impl<'a> MessagesAnswerReader<'a> {
    fn read_member(&mut self, scan: &mut JsonScanner<'a>, key: JsonString) -> ReadResult {
        match key.raw_bytes(self.json) {
            b"type" => self.kind = take_text(scan)?,
            b"index" => self.answer.index = take_index(self.json, scan)?,
            b"id" => self.answer.id = take_nonempty_text(scan)?,
            b"model" => self.answer.model = take_nonempty_text(scan)?,
            b"delta" | b"content_block" if scan.peek() == Some(b'{') => {
                self.answer.part = Some(ObjectSpans::read(scan)?);
            }
            b"message" if scan.peek() == Some(b'{') => self.read_begun_message(scan)?,
            b"content" if scan.peek() == Some(b'[') => {
                self.answer.content = read_list(scan, read_block)?;
            }
            b"stop_reason" => self.stop_reason = take_text(scan)?,
            b"usage" => self.read_usage(scan)?,
            INPUT_CHANGES => self.read_input_changes(scan)?,
            b"context_management" => self.read_cleared(scan)?,
            b"error" => {
                if scan.take_value()?.1 != JsonKind::Null {
                    self.answer.events.push(AnswerEvent::Error);
                }
            }
            _ => skip_value(scan)?,
        }
        Ok(())
    }

    fn add_id(&mut self, id: Option<JsonString>) {
        self.answer.events.extend(id.map(AnswerEvent::Id));
    }

    /// Reads the message of a `message_start`: id, usage and model matter, and it has no content yet.
    fn read_begun_message(&mut self, scan: &mut JsonScanner<'a>) -> ReadResult {
        let walked = scan.walk_object(|scan, key| match key.raw_bytes(self.json) {
            b"usage" => self.read_usage(scan),
            b"id" => take_nonempty_text(scan).map(|id| self.add_id(id)),
            b"model" => take_nonempty_text(scan).map(|model| self.answer.model = model),
            INPUT_CHANGES => self.read_input_changes(scan),
            _ => skip_value(scan),
        });
        walked.map(drop)
    }

    /// Reads the changes of the input. They are in the first event of a stream, and again in the last `message_delta` if
    /// another model took over.
    fn read_input_changes(&mut self, scan: &mut JsonScanner<'a>) -> ReadResult {
        let changes = read_input_changes(self.json, scan)?;
        let events = &mut self.answer.events;
        events.extend(changes.map(AnswerEvent::InputChanges));
        Ok(())
    }

    /// Adds the events of what was read. `kind`: the type of the event, or of the whole answer.
    fn add_events(&mut self, kind: &[u8]) {
        let has_content = self.answer.has_message();
        self.answer.kind = match kind {
            b"message_start" => EventKind::MessageStart,
            b"content_block_start" => EventKind::BlockStart,
            b"content_block_delta" => EventKind::BlockDelta,
            b"content_block_stop" => EventKind::BlockStop,
            b"message_delta" => EventKind::MessageDelta,
            _ if kind == END.as_bytes() => EventKind::MessageStop,
            b"ping" => EventKind::Ping,
            b"message" => EventKind::Message,
            _ if has_content => EventKind::Message,
            _ => EventKind::Other,
        };
        match self.answer.kind {
            EventKind::BlockStart => {
                let block = self.answer.part.clone().unwrap_or_default();
                self.add_block(&block);
            }
            EventKind::BlockDelta => self.add_delta(),
            EventKind::MessageDelta => {
                let delta = self.answer.part.as_ref();
                let reason = delta.and_then(|delta| delta.find_text(self.json, b"stop_reason"));
                self.add_finish(reason);
            }
            EventKind::MessageStop => self.answer.events.push(AnswerEvent::End),
            EventKind::Message => {
                self.add_id(self.answer.id);
                let content = self.answer.content.take();
                let blocks = content.iter().flat_map(|(_, blocks)| blocks);
                blocks.for_each(|block| self.add_block(block));
                self.answer.content = content;
                self.add_finish(self.stop_reason);
            }
            EventKind::MessageStart | EventKind::BlockStop | EventKind::Ping | EventKind::Other => {
            }
        }
    }

    fn add_block(&mut self, block: &ObjectSpans) {
        let json = self.json;
        let text = |name: &[u8]| block.find_text(json, name);
        let event = match block.type_name(json) {
            b"text" => text(b"text").map(AnswerEvent::Text),
            b"thinking" => text(b"thinking").map(AnswerEvent::Reasoning),
            b"tool_use" => Some(AnswerEvent::Call(CallFragment {
                span: block.span,
                index: self.answer.index,
                id: text(b"id").filter(|id| !id.span.is_empty()),
                name: text(b"name").filter(|name| !name.span.is_empty()),
                arguments: block
                    .find_member(json, b"input")
                    .map(|member| (member.value, member.kind)),
                ..CallFragment::default()
            })),
            _ => None,
        };
        self.answer.events.extend(event);
    }

    fn add_delta(&mut self) {
        let Some(delta) = &self.answer.part else {
            return;
        };
        let text = |name: &[u8]| delta.find_text(self.json, name);
        let event = match delta.type_name(self.json) {
            b"text_delta" => text(b"text").map(AnswerEvent::Text),
            b"thinking_delta" => text(b"thinking").map(AnswerEvent::Reasoning),
            b"input_json_delta" => {
                let arguments = delta.find_member(self.json, b"partial_json");
                Some(AnswerEvent::Call(CallFragment {
                    span: delta.span,
                    index: self.answer.index,
                    arguments: arguments.map(|member| (member.value, member.kind)),
                    ..CallFragment::default()
                }))
            }
            _ => None,
        };
        self.answer.events.extend(event);
    }

    fn add_finish(&mut self, reason: Option<JsonString>) {
        let Some(reason) = reason.filter(|reason| !reason.span.is_empty()) else {
            return;
        };
        let kind = match reason.raw_bytes(self.json) {
            b"model_context_window_exceeded" => FinishKind::WindowExceeded,
            // The server's own tools paused, or it compacted: the client sends the answer back.
            b"pause_turn" | b"compaction" => FinishKind::CutOff,
            reason => finish_kind(reason),
        };
        self.answer.events.push(AnswerEvent::Finish(Finish {
            reason,
            kind,
            first: true,
        }));
    }
}

fn read_block(scan: &mut JsonScanner<'_>) -> Result<ObjectSpans, MalformedJson> {
    match scan.peek() {
        Some(b'{') => ObjectSpans::read(scan),
        _ => Ok(ObjectSpans {
            span: scan.take_value()?.0,
            ..ObjectSpans::default()
        }),
    }
}
