//! The reader of answers.
//!
//! Holds spans, never copies. A member of an unexpected shape is skipped where spans stay
//! trustworthy, and is an error elsewhere.

use super::{ChatAnswer, DONE};
use crate::{
    format::{
        AnswerEvent, AnswerEvents, CallFragment, Finish,
        answer::usage,
        values::{
            ObjectSpans, ReadResult, finish_kind, skip_value, take_index, take_nonempty_text,
            take_text, walk_if_object,
        },
    },
    json::scan::{JsonKind, JsonScanner, MalformedJson, Span},
    wire::sse::SseMessage,
};

/// Reads the data of an event, or a whole body.
///
/// # Errors
/// The data is neither a JSON object nor the end marker of a stream.
pub fn read_answer(json: &[u8]) -> Result<ChatAnswer, MalformedJson> {
    let answer = ChatAnswer::default();
    let mut reader = ChatAnswerReader { json, answer };
    if json.trim_ascii() == DONE {
        reader.answer.events.push(AnswerEvent::End);
        return Ok(reader.answer);
    }
    let mut scan = JsonScanner::new(json, 0);
    scan.walk_object(|scan, key| {
        match key.raw_bytes(json) {
            b"choices" => reader.read_choices(scan)?,
            b"usage" => reader.read_usage(scan)?,
            b"x_groq" => reader.read_groq(scan)?,
            b"id" => reader.answer.id = take_nonempty_text(scan)?,
            b"model" => reader.answer.model = take_nonempty_text(scan)?,
            b"error" => {
                if scan.take_value()?.1 != JsonKind::Null {
                    reader.answer.events.push(AnswerEvent::Error);
                }
            }
            _ => skip_value(scan)?,
        }
        Ok::<_, MalformedJson>(())
    })?;
    scan.expect_end()?;
    Ok(reader.answer)
}

/// Reads an event of a stream; empty if it cannot be read.
pub fn read_event(message: &SseMessage) -> ChatAnswer {
    let mut answer = read_answer(&message.data).unwrap_or_default();
    if message.name == "error" && !answer.has_error() {
        answer.events.push(AnswerEvent::Error);
    }
    answer
}

pub(super) struct ChatAnswerReader<'a> {
    pub(super) json: &'a [u8],
    pub(super) answer: ChatAnswer,
}

impl<'a> ChatAnswerReader<'a> {
    /// Reads the value of a `usage`; skips what is not an object.
    fn read_usage(&mut self, scan: &mut JsonScanner<'_>) -> ReadResult {
        self.answer.has_usage |= scan.peek() != Some(b'n');
        let report = usage::read_usage(self.json, scan)?;
        self.answer.events.extend(report.map(AnswerEvent::Usage));
        Ok(())
    }

    fn read_groq(&mut self, scan: &mut JsonScanner<'_>) -> ReadResult {
        let walked = walk_if_object(scan, |scan, key| match key.raw_bytes(self.json) {
            b"usage" => self.read_usage(scan),
            _ => skip_value(scan),
        });
        walked.map(drop)
    }

    fn read_choices(&mut self, scan: &mut JsonScanner<'_>) -> ReadResult {
        if scan.peek() != Some(b'[') {
            return skip_value(scan);
        }
        let mut choices = 0;
        scan.walk_array(|scan| {
            choices += 1;
            self.read_choice(scan)
        })?;
        self.answer.choices = Some(choices);
        Ok(())
    }

    fn read_choice(&mut self, scan: &mut JsonScanner<'_>) -> ReadResult {
        let first_event = self.answer.events.len();
        let (mut message, mut index) = (None, 0);
        let choice = walk_if_object(scan, |scan, key| {
            match key.raw_bytes(self.json) {
                b"index" => index = take_index(self.json, scan)?.map_or(0, |(index, _)| index),
                b"delta" | b"message" if scan.peek() == Some(b'{') => {
                    message = Some(self.read_message(scan)?);
                }
                b"finish_reason" => {
                    let finish = take_nonempty_text(scan)?.map(|reason| Finish {
                        reason,
                        kind: finish_kind(reason.raw_bytes(self.json)),
                        first: true,
                    });
                    self.answer.events.extend(finish.map(AnswerEvent::Finish));
                }
                // Kimi reports its usage here.
                b"usage" => self.read_usage(scan)?,
                _ => skip_value(scan)?,
            }
            Ok(())
        })?;
        if choice.is_some() && index == 0 && self.answer.first.is_none() {
            self.answer.first = Some(message.unwrap_or_default());
        } else {
            self.drop_choice(first_event);
        }
        Ok(())
    }

    /// Of a choice after the first one, keeps the finish reason and the usage only.
    fn drop_choice(&mut self, first_event: usize) {
        let mut at = 0;
        self.answer.events.retain(|event| {
            at += 1;
            if at <= first_event {
                return true;
            }
            if let AnswerEvent::Finish(finish) = event {
                finish.first = false;
            }
            matches!(event, AnswerEvent::Finish(_) | AnswerEvent::Usage(_))
        });
    }

    /// Reads a `delta` or a `message`.
    fn read_message(&mut self, scan: &mut JsonScanner<'_>) -> Result<ObjectSpans, MalformedJson> {
        let message = ObjectSpans::read(scan)?;
        for member in &message.members {
            let mut scan = JsonScanner::new(self.json, member.value.start as usize);
            match (member.key.raw_bytes(self.json), member.kind) {
                (b"content", JsonKind::String) => {
                    let text = scan.take_string()?;
                    self.answer.events.push(AnswerEvent::Text(text));
                }
                (b"content", JsonKind::Array) => {
                    scan.walk_array(|scan| self.read_part(scan))?;
                }
                (b"reasoning_content" | b"reasoning", JsonKind::String) => {
                    let text = scan.take_string()?;
                    self.answer.events.push(AnswerEvent::Reasoning(text));
                }
                (b"tool_calls", JsonKind::Array) => {
                    scan.walk_array(|scan| self.read_call(scan))?;
                }
                (b"function_call", JsonKind::Object) => {
                    let mut call = CallFragment {
                        legacy: true,
                        ..CallFragment::default()
                    };
                    call.span = self.read_function(&mut scan, &mut call)?;
                    self.answer.events.push(AnswerEvent::Call(call));
                }
                _ => {}
            }
        }
        Ok(message)
    }

    /// Reads a content part; only text counts.
    fn read_part(&mut self, scan: &mut JsonScanner<'_>) -> ReadResult {
        let (mut kind, mut text) = (None, None);
        walk_if_object(scan, |scan, key| {
            match key.raw_bytes(self.json) {
                b"type" => kind = take_text(scan)?,
                b"text" => text = take_text(scan)?,
                _ => skip_value(scan)?,
            }
            Ok(())
        })?;
        let is_text = kind.is_none_or(|kind| kind.raw_bytes(self.json) == b"text");
        let text = text.filter(|_| is_text).map(AnswerEvent::Text);
        self.answer.events.extend(text);
        Ok(())
    }

    /// Reads an element of `tool_calls`.
    fn read_call(&mut self, scan: &mut JsonScanner<'_>) -> ReadResult {
        let mut call = CallFragment::default();
        let span = walk_if_object(scan, |scan, key| {
            match key.raw_bytes(self.json) {
                b"index" => call.index = take_index(self.json, scan)?,
                b"id" => call.id = take_nonempty_text(scan)?,
                b"function" if scan.peek() == Some(b'{') => {
                    self.read_function(scan, &mut call)?;
                }
                _ => skip_value(scan)?,
            }
            Ok(())
        })?;
        let call = span.map(|span| CallFragment { span, ..call });
        self.answer.events.extend(call.map(AnswerEvent::Call));
        Ok(())
    }

    fn read_function(
        &self,
        scan: &mut JsonScanner<'_>,
        call: &mut CallFragment,
    ) -> Result<Span, MalformedJson> {
        scan.walk_object(|scan, key| {
            match key.raw_bytes(self.json) {
                b"name" => call.name = take_nonempty_text(scan)?,
                b"arguments" => call.arguments = Some(scan.take_value()?),
                _ => skip_value(scan)?,
            }
            Ok(())
        })
    }
}
