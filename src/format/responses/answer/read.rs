//! The reader of answers.
//!
//! Holds spans, never copies. A member of an unexpected shape is skipped where spans stay trustworthy, and is an error
//! elsewhere. The encrypted reasoning of an item is complete in the event that ends the item.

use super::{ENDS, EventKind, OutputItem, ResponsesAnswer};
use crate::{
    format::{
        AnswerEvent, AnswerEvents, CallFragment, Finish, FinishKind, InputChanges,
        answer::{
            event_hold::DONE,
            input_changes::{INPUT_CHANGES, read_input_changes},
            usage::read_usage,
        },
        responses::kinds::{CallShape, EntryType},
        values::{
            ReadResult, finish_kind, read_list, skip_value, take_index, take_nonempty_text,
            take_raw_text, take_text, walk_if_object,
        },
    },
    json::scan::{JsonKind, JsonScanner, JsonString, MalformedJson, Span},
    wire::sse::SseMessage,
};

/// Reads the data of an event, or a whole body.
///
/// # Errors
/// The data is not a JSON object.
pub fn read_answer(json: &[u8]) -> Result<ResponsesAnswer, MalformedJson> {
    read_named(json, b"")
}

/// Reads an event of a stream; empty if it cannot be read. Some gateways send no last event but the marker behind it.
pub fn read_event(message: &SseMessage) -> ResponsesAnswer {
    if message.data == DONE {
        return ResponsesAnswer {
            kind: EventKind::End,
            events: [AnswerEvent::End].into_iter().collect(),
            ..ResponsesAnswer::default()
        };
    }
    let mut answer = read_named(&message.data, &message.name).unwrap_or_default();
    if message.name == "error" && answer.events.is_empty() {
        answer.events.push(AnswerEvent::Error);
    }
    answer
}

/// Whether an event says nothing but that an answer will come.
pub fn is_keepalive(message: &SseMessage) -> bool {
    let answer = read_named(&message.data, &message.name);
    answer.is_ok_and(|answer| matches!(answer.kind, EventKind::Begin | EventKind::Keepalive))
}

/// The kind of a part of a content or of a summary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PartKind {
    Text,
    Reasoning,
    Other,
}

/// `name`: the name of the event, which is used as its type if the data has none.
fn read_named(json: &[u8], name: &[u8]) -> Result<ResponsesAnswer, MalformedJson> {
    let mut reader = ResponsesReader {
        json,
        ..ResponsesReader::default()
    };
    let mut scan = JsonScanner::new(json, 0);
    scan.walk_object(|scan, key| reader.read_member(scan, key))?;
    scan.expect_end()?;
    let kind = reader.kind.map_or(name, |kind| kind.raw_bytes(json));
    reader.add_events(kind);
    Ok(reader.answer)
}

#[derive(Default)]
struct ResponsesReader<'a> {
    json: &'a [u8],
    answer: ResponsesAnswer,
    kind: Option<JsonString>,
    delta: Option<JsonString>,
    text: Option<JsonString>,
    status: Option<JsonString>,
    /// Why the answer is incomplete.
    cut_reason: Option<JsonString>,
    has_error: bool,
    input_changes: Option<InputChanges>,
    compresses_images: bool,
}

impl<'a> ResponsesReader<'a> {
    fn read_member(&mut self, scan: &mut JsonScanner<'a>, key: JsonString) -> ReadResult {
        match key.raw_bytes(self.json) {
            b"type" => self.kind = take_text(scan)?,
            b"sequence_number" => self.answer.sequence_number = take_index(self.json, scan)?,
            b"output_index" => self.answer.output_index = take_index(self.json, scan)?,
            b"delta" => self.delta = take_text(scan)?,
            // The answer itself has a member of this name too, an object.
            b"text" => self.text = take_text(scan)?,
            b"part" => {
                let (kind, text) = self.read_part(scan)?;
                self.text = text.filter(|_| kind == PartKind::Text);
                self.answer.is_other_part = kind == PartKind::Other;
            }
            b"item" if scan.peek() == Some(b'{') => {
                self.answer.item = Some(self.read_item(scan)?);
            }
            b"response" if scan.peek() == Some(b'{') => {
                scan.walk_object(|scan, key| self.read_response_member(scan, key))?;
            }
            _ => self.read_response_member(scan, key)?,
        }
        Ok(())
    }

    /// Reads a member of the answer, which is the whole body, or a part of an event.
    fn read_response_member(&mut self, scan: &mut JsonScanner<'a>, key: JsonString) -> ReadResult {
        match key.raw_bytes(self.json) {
            b"id" => self.answer.response.id = take_nonempty_text(scan)?,
            b"model" => self.answer.response.model = take_nonempty_text(scan)?,
            b"output" if scan.peek() == Some(b'[') => {
                self.answer.response.output = read_list(scan, |scan| match scan.peek() {
                    Some(b'{') => self.read_item(scan),
                    _ => Ok(OutputItem {
                        span: scan.take_value()?.0,
                        ..OutputItem::default()
                    }),
                })?;
            }
            b"status" => self.status = take_text(scan)?,
            b"store" => {
                self.answer.response.is_unstored = scan.take_value()?.1 == JsonKind::False;
            }
            b"incomplete_details" => {
                walk_if_object(scan, |scan, key| match key.raw_bytes(self.json) {
                    b"reason" => take_text(scan).map(|reason| self.cut_reason = reason),
                    _ => skip_value(scan),
                })?;
            }
            b"usage" => {
                let report = read_usage(self.json, scan)?;
                self.answer.events.extend(report.map(AnswerEvent::Usage));
            }
            INPUT_CHANGES => {
                let changes = read_input_changes(self.json, scan)?;
                self.input_changes = changes.or(self.input_changes.take());
            }
            b"image" => {
                walk_if_object(scan, |scan, key| match key.raw_bytes(self.json) {
                    b"context_compression" => {
                        let mode = take_raw_text(self.json, scan)?;
                        self.compresses_images = mode == b"enabled";
                        Ok(())
                    }
                    _ => skip_value(scan),
                })?;
            }
            b"error" => self.has_error |= scan.take_value()?.1 != JsonKind::Null,
            _ => skip_value(scan)?,
        }
        Ok(())
    }

    fn read_item(&self, scan: &mut JsonScanner<'a>) -> Result<OutputItem, MalformedJson> {
        let mut item = OutputItem::default();
        let mut kind = EntryType {
            role: b"assistant",
            ..EntryType::default()
        };
        let (mut own_id, mut call_id) = (None, None);
        item.span = scan.walk_object(|scan, key| {
            match key.raw_bytes(self.json) {
                b"type" => kind.name = take_raw_text(self.json, scan)?,
                b"execution" => kind.execution = take_raw_text(self.json, scan)?,
                b"id" => {
                    own_id = take_text(scan)?;
                    let start = key.quoted_span().start as usize;
                    item.id_member = Some(Span::new(start, scan.position()));
                }
                b"call_id" => call_id = take_text(scan)?,
                b"name" => item.name = take_text(scan)?,
                b"arguments" => item.arguments = take_text(scan)?,
                b"input" | b"code" | b"action" | b"actions" | b"operation" => {
                    item.input = Some(scan.take_value()?);
                }
                b"encrypted_content" => {
                    item.is_encrypted = take_nonempty_text(scan)?.is_some();
                }
                b"content" | b"summary" if scan.peek() == Some(b'[') => {
                    scan.walk_array(|scan| {
                        let (kind, text) = self.read_part(scan)?;
                        item.texts.extend(text);
                        item.has_other_part |= kind == PartKind::Other;
                        Ok::<_, MalformedJson>(())
                    })?;
                }
                _ => skip_value(scan)?,
            }
            Ok::<_, MalformedJson>(())
        })?;
        kind.has_call_id = call_id.is_some();
        item.kind = kind.kind();
        // An approval is answered by its own id.
        item.call_id = match item.call_shape() {
            Some(CallShape::Approval) => own_id,
            _ => call_id,
        };
        Ok(item)
    }

    /// Reads a part of a content. Returns its text too, if the model wrote one for the user or for itself.
    fn read_part(
        &self,
        scan: &mut JsonScanner<'a>,
    ) -> Result<(PartKind, Option<JsonString>), MalformedJson> {
        let (mut kind, mut text) = (None, None);
        walk_if_object(scan, |scan, key| {
            match key.raw_bytes(self.json) {
                b"type" => kind = take_text(scan)?,
                b"text" => text = take_text(scan)?,
                _ => skip_value(scan)?,
            }
            Ok(())
        })?;
        let kind = match kind.map_or(&b""[..], |kind| kind.raw_bytes(self.json)) {
            b"output_text" => PartKind::Text,
            b"summary_text" | b"reasoning_text" => PartKind::Reasoning,
            _ => PartKind::Other,
        };
        Ok((kind, text.filter(|_| kind != PartKind::Other)))
    }

    /// Adds the events of what was read. `kind`: the type of the event; empty for a whole answer.
    fn add_events(&mut self, kind: &[u8]) {
        let is_end = ENDS.iter().any(|end| end.as_bytes() == kind);
        self.answer.kind = match kind {
            b"response.created" | b"response.in_progress" | b"response.queued" => EventKind::Begin,
            b"response.output_item.added" => EventKind::ItemBegin,
            b"response.output_item.done" => EventKind::ItemEnd,
            _ if is_end => EventKind::End,
            _ if self.answer.output_index.is_some() => EventKind::ItemPart,
            b"" if self.answer.has_message() || self.status.is_some() => EventKind::Response,
            // Some servers keep a connection open by events of their own.
            b"keepalive" | b"ping" if !self.has_error => EventKind::Keepalive,
            _ => EventKind::Other,
        };
        match self.answer.kind {
            EventKind::Begin => self.answer.events.clear(),
            EventKind::ItemBegin | EventKind::ItemEnd => {
                if let Some(item) = self.answer.item.take() {
                    self.add_call(&item);
                    self.answer.item = Some(item);
                }
            }
            EventKind::ItemPart => self.add_part(kind),
            EventKind::End => {
                match kind {
                    b"response.failed" => self.answer.events.push(AnswerEvent::Error),
                    _ => self.add_finish(),
                }
                self.answer.events.push(AnswerEvent::End);
            }
            EventKind::Response => {
                let output = self.answer.response.output.take();
                for item in output.iter().flat_map(|(_, items)| items) {
                    self.add_item(item);
                }
                self.answer.response.output = output;
                if self.has_error {
                    self.answer.events.push(AnswerEvent::Error)
                } else {
                    self.add_finish()
                }
            }
            EventKind::Other if kind == b"error" || self.has_error => {
                self.answer.events.push(AnswerEvent::Error);
            }
            EventKind::Keepalive | EventKind::Other => {}
        }
        if matches!(self.answer.kind, EventKind::End | EventKind::Response) {
            let id = self.answer.response.id.map(AnswerEvent::Id);
            self.answer.events.extend(id);
        }
        if self.compresses_images {
            let changes = self.input_changes.get_or_insert_default();
            changes.note_compressed_images();
        }
        let changes = self.input_changes.take().map(AnswerEvent::InputChanges);
        self.answer.events.extend(changes);
    }

    fn add_part(&mut self, kind: &[u8]) {
        let event = match kind {
            b"response.output_text.delta" => self.delta.map(AnswerEvent::Text),
            b"response.reasoning_summary_text.delta" | b"response.reasoning_text.delta" => {
                self.delta.map(AnswerEvent::Reasoning)
            }
            b"response.output_text.done" | b"response.content_part.done" => {
                self.answer.repeated_text = self.text;
                None
            }
            b"response.refusal.delta" => {
                self.answer.is_other_part = true;
                None
            }
            _ => None,
        };
        self.answer.events.extend(event);
    }

    fn add_item(&mut self, item: &OutputItem) {
        let texts = item.texts.iter().copied();
        if item.is_message() {
            self.answer.events.extend(texts.map(AnswerEvent::Text));
        } else if item.is_reasoning() {
            self.answer.events.extend(texts.map(AnswerEvent::Reasoning));
        }
        self.add_call(item);
    }

    fn add_call(&mut self, item: &OutputItem) {
        if item.is_call() {
            self.answer.events.push(AnswerEvent::Call(CallFragment {
                span: item.span,
                index: self.answer.output_index,
                id: item.call_id.filter(|id| !id.span.is_empty()),
                name: item.name.filter(|name| !name.span.is_empty()),
                arguments: match item.arguments {
                    Some(text) => Some((text.quoted_span(), JsonKind::String)),
                    None => item.input,
                },
                ..CallFragment::default()
            }));
        }
    }

    /// Adds the finish reason. The status of an answer says how the answer ended, but not whether there were calls.
    /// Without a status, the type of the last event says the same.
    fn add_finish(&mut self) {
        let Some(status) = self.status.or(self.kind) else {
            return;
        };
        let output = self.answer.response.output.as_ref();
        let has_calls = output.is_some_and(|(_, items)| items.iter().any(OutputItem::is_call));
        let name = status.raw_bytes(self.json);
        let name = name.strip_prefix(b"response.").unwrap_or(name);
        let (reason, kind) = match (name, self.cut_reason) {
            (b"failed", _) => {
                self.answer.events.push(AnswerEvent::Error);
                return;
            }
            // Answers in the background: nothing has ended.
            (b"queued" | b"in_progress", _) => return,
            (b"incomplete", Some(reason)) => (reason, FinishKind::CutOff),
            (b"incomplete", None) => (status, FinishKind::CutOff),
            (b"completed", _) if has_calls => (status, FinishKind::Calls),
            _ => (status, finish_kind(name)),
        };
        self.answer.events.push(AnswerEvent::Finish(Finish {
            reason,
            kind,
            first: true,
        }));
    }
}
