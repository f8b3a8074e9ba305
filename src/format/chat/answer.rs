//! Answers of chat completions.
//!
//! Reads a chunk of a stream and an answer in one piece alike; of the choices only the first is
//! looked into. Holds spans, never copies. What has another shape than expected is passed over
//! where that is possible and an error where spans could not be trusted.

mod assemble;
mod calls;
mod edits;
mod rewriter;
mod usage;
mod whole;

use smallvec::SmallVec;

pub use self::{
    rewriter::{Rewriter, Verdict},
    whole::{Whole, add_prompt_tokens},
};
use crate::{
    format::{AnswerEvent, CallPart, Finish},
    json::scan::{Kind, Malformed, Scan, Span, Text},
};

/// The data of the event behind the last chunk of a stream.
const DONE: &[u8] = b"[DONE]";

/// A chunk of a stream, or a whole answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub events: SmallVec<[AnswerEvent; 2]>,
    /// A string that is not empty.
    id: Option<Text>,
    /// How many choices there are; `None` without a list of them.
    choices: Option<u32>,
    /// The `delta`, or the `message`, of the choice with index 0, or without one.
    first: Option<Message>,
}

/// Where the members of a delta or a message lie.
#[derive(Clone, Debug, Default)]
struct Message {
    span: Span,
    members: SmallVec<[Member; 4]>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    key: Text,
    value: Span,
    kind: Kind,
}

impl Member {
    /// Key and value.
    const fn span(self) -> Span {
        Span {
            start: self.key.quoted().start,
            end: self.value.end,
        }
    }
}

impl Message {
    fn member(&self, json: &[u8], name: &[u8]) -> Option<Member> {
        let mut members = self.members.iter();
        members
            .find(|member| &json[member.key.span.range()] == name)
            .copied()
    }
}

impl Answer {
    /// Whether this is a chunk with usage and without choices, as `include_usage` makes it.
    pub fn is_usage_only(&self) -> bool {
        let reports = |event: &AnswerEvent| match event {
            AnswerEvent::Usage(report) => report.usage.is_some(),
            _ => false,
        };
        self.choices == Some(0) && !self.has_error() && self.events.iter().any(reports)
    }

    pub fn has_error(&self) -> bool {
        let is_error = |event: &AnswerEvent| matches!(event, AnswerEvent::Error);
        self.events.iter().any(is_error)
    }

    /// Whether this is the marker behind the last event.
    pub fn is_end(&self) -> bool {
        matches!(self.events[..], [AnswerEvent::End])
    }

    /// Whether the first choice has a message, or a delta.
    pub fn has_message(&self) -> bool {
        let message = self.first.as_ref();
        message.is_some_and(|message| !message.span.is_empty())
    }

    /// Why the first choice ended, if it did.
    pub fn finish(&self) -> Option<Finish> {
        self.events.iter().find_map(|event| match event {
            AnswerEvent::Finish(finish) if finish.first => Some(*finish),
            _ => None,
        })
    }

    fn texts(&self) -> impl Iterator<Item = Text> {
        self.events.iter().filter_map(|event| match event {
            AnswerEvent::Text(text) => Some(*text),
            _ => None,
        })
    }

    fn calls(&self) -> impl Iterator<Item = &CallPart> {
        self.events.iter().filter_map(|event| match event {
            AnswerEvent::Call(call) => Some(call),
            _ => None,
        })
    }
}

/// Whether the beginning of an event can be that of one that must be known whole: the marker behind the
/// last one, or with `usage` a chunk with usage and without choices. What holds for a beginning holds for
/// every shorter one.
pub fn may_be_special(beginning: &[u8], usage: bool) -> bool {
    may_be_done(beginning) || (usage && !has_choices(beginning))
}

/// Whether all lines of data are empty, but for one that says `[DONE]` as far as it came. A comment goes
/// out at once, since somebody may wait for it.
fn may_be_done(beginning: &[u8]) -> bool {
    let mut lines = beginning.split(|byte| matches!(byte, b'\n' | b'\r'));
    let partial = lines.next_back().unwrap_or_default();
    let mut done = false;
    let mut is_possible = |line: &[u8], whole: bool| {
        let Some(data) = line.strip_prefix(b"data:") else {
            return !line.starts_with(b":");
        };
        let data = data.trim_ascii();
        let says = !data.is_empty();
        let possible =
            !(says && done) && (data == DONE || !says || !whole && DONE.starts_with(data));
        done |= says;
        possible
    };
    lines.all(|line| is_possible(line, true)) && is_possible(partial, false)
}

/// Whether there is a `"choices":[` with something in it.
fn has_choices(beginning: &[u8]) -> bool {
    const KEY: &[u8] = b"\"choices\"";
    memchr::memmem::find_iter(beginning, KEY).any(|at| {
        let rest = beginning[at + KEY.len()..].trim_ascii_start();
        let rest = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        let rest = rest.and_then(|rest| rest.strip_prefix(b"["));
        let first = rest.and_then(|rest| rest.trim_ascii_start().first());
        first.is_some_and(|first| *first != b']')
    })
}

/// Reads the data of an event, or a whole body.
///
/// # Errors
/// This is no JSON object, and not the marker behind the last event.
pub fn read(json: &[u8]) -> Result<Answer, Malformed> {
    let mut answer = Answer::default();
    if json.trim_ascii() == DONE {
        answer.events.push(AnswerEvent::End);
        return Ok(answer);
    }
    let mut scan = Scan::new(json, 0);
    scan.object(|scan, key| match &json[key.span.range()] {
        b"choices" => read_choices(json, scan, &mut answer),
        b"usage" => usage::read(json, scan, &mut answer.events),
        b"x_groq" => read_groq(json, scan, &mut answer.events),
        b"id" => {
            answer.id = read_filled(scan)?;
            Ok(())
        }
        b"error" => {
            if scan.value()?.1 != Kind::Null {
                answer.events.push(AnswerEvent::Error);
            }
            Ok(())
        }
        _ => skip(scan),
    })?;
    scan.end()?;
    Ok(answer)
}

type Events = SmallVec<[AnswerEvent; 2]>;

fn skip(scan: &mut Scan<'_>) -> Result<(), Malformed> {
    scan.value().map(|_| ())
}

/// A string; `None` for one that is empty and for any other value.
fn read_filled(scan: &mut Scan<'_>) -> Result<Option<Text>, Malformed> {
    Ok(read_string(scan)?.filter(|text| !text.span.is_empty()))
}

fn read_string(scan: &mut Scan<'_>) -> Result<Option<Text>, Malformed> {
    if scan.peek() == Some(b'"') {
        return scan.string().map(Some);
    }
    skip(scan)?;
    Ok(None)
}

/// A whole number that is not negative; `None` for any other value.
fn read_index(json: &[u8], scan: &mut Scan<'_>) -> Result<Option<(u64, Span)>, Malformed> {
    let (span, _) = scan.value()?;
    let number = std::str::from_utf8(&json[span.range()]).ok();
    Ok(number
        .and_then(|number| number.parse().ok())
        .map(|number| (number, span)))
}

fn read_groq(json: &[u8], scan: &mut Scan<'_>, events: &mut Events) -> Result<(), Malformed> {
    if scan.peek() != Some(b'{') {
        return skip(scan);
    }
    let walked = scan.object(|scan, key| match &json[key.span.range()] {
        b"usage" => usage::read(json, scan, events),
        _ => skip(scan),
    });
    walked.map(|_| ())
}

fn read_choices(json: &[u8], scan: &mut Scan<'_>, answer: &mut Answer) -> Result<(), Malformed> {
    if scan.peek() != Some(b'[') {
        return skip(scan);
    }
    let mut choices = 0;
    scan.array(|scan| {
        choices += 1;
        read_choice(json, scan, answer)
    })?;
    answer.choices = Some(choices);
    Ok(())
}

fn read_choice(json: &[u8], scan: &mut Scan<'_>, answer: &mut Answer) -> Result<(), Malformed> {
    if scan.peek() != Some(b'{') {
        return skip(scan);
    }
    let before = answer.events.len();
    let (mut message, mut index) = (None, 0);
    scan.object(|scan, key| {
        match &json[key.span.range()] {
            b"index" => index = read_index(json, scan)?.map_or(0, |(index, _)| index),
            b"delta" | b"message" if scan.peek() == Some(b'{') => {
                message = Some(read_message(json, scan, &mut answer.events)?);
            }
            b"finish_reason" => {
                let reason = read_filled(scan)?;
                let finish = reason.map(|reason| Finish {
                    reason,
                    first: true,
                });
                answer.events.extend(finish.map(AnswerEvent::Finish));
            }
            // Kimi reports here.
            b"usage" => usage::read(json, scan, &mut answer.events)?,
            _ => skip(scan)?,
        }
        Ok::<_, Malformed>(())
    })?;
    if index == 0 && answer.first.is_none() {
        answer.first = Some(message.unwrap_or_default());
    } else {
        drop_choice(&mut answer.events, before);
    }
    Ok(())
}

/// Leaves of another choice than the first that it ended, and what it cost.
fn drop_choice(events: &mut Events, before: usize) {
    let mut at = 0;
    events.retain(|event| {
        at += 1;
        if at <= before {
            return true;
        }
        if let AnswerEvent::Finish(finish) = event {
            finish.first = false;
        }
        matches!(event, AnswerEvent::Finish(_) | AnswerEvent::Usage(_))
    });
}

/// A `delta` or a `message`.
fn read_message(
    json: &[u8],
    scan: &mut Scan<'_>,
    events: &mut Events,
) -> Result<Message, Malformed> {
    let mut message = Message::default();
    message.span = scan.object(|scan, key| {
        let mut inner = scan.clone();
        let (value, kind) = scan.value()?;
        message.members.push(Member { key, value, kind });
        match (&json[key.span.range()], kind) {
            (b"content", Kind::String) => events.push(AnswerEvent::Text(inner.string()?)),
            (b"content", Kind::Array) => {
                inner.array(|scan| read_part(json, scan, events))?;
            }
            (b"reasoning_content" | b"reasoning", Kind::String) => {
                events.push(AnswerEvent::Reasoning(inner.string()?));
            }
            (b"tool_calls", Kind::Array) => {
                inner.array(|scan| read_call(json, scan, events))?;
            }
            (b"function_call", Kind::Object) => {
                let mut call = CallPart {
                    legacy: true,
                    ..CallPart::default()
                };
                call.span = read_function(json, &mut inner, &mut call)?;
                events.push(AnswerEvent::Call(call));
            }
            _ => {}
        }
        Ok::<_, Malformed>(())
    })?;
    Ok(message)
}

/// A content part, of which the text counts.
fn read_part(json: &[u8], scan: &mut Scan<'_>, events: &mut Events) -> Result<(), Malformed> {
    if scan.peek() != Some(b'{') {
        return skip(scan);
    }
    let (mut kind, mut text) = (None, None);
    scan.object(|scan, key| {
        match &json[key.span.range()] {
            b"type" => kind = read_string(scan)?,
            b"text" => text = read_string(scan)?,
            _ => skip(scan)?,
        }
        Ok::<_, Malformed>(())
    })?;
    let is_text = kind.is_none_or(|kind| &json[kind.span.range()] == b"text");
    events.extend(text.filter(|_| is_text).map(AnswerEvent::Text));
    Ok(())
}

/// An element of `tool_calls`.
fn read_call(json: &[u8], scan: &mut Scan<'_>, events: &mut Events) -> Result<(), Malformed> {
    if scan.peek() != Some(b'{') {
        return skip(scan);
    }
    let mut call = CallPart::default();
    call.span = scan.object(|scan, key| {
        match &json[key.span.range()] {
            b"index" => call.index = read_index(json, scan)?,
            b"id" => call.id = read_filled(scan)?,
            b"function" if scan.peek() == Some(b'{') => {
                read_function(json, scan, &mut call)?;
            }
            _ => skip(scan)?,
        }
        Ok::<_, Malformed>(())
    })?;
    events.push(AnswerEvent::Call(call));
    Ok(())
}

fn read_function(json: &[u8], scan: &mut Scan<'_>, call: &mut CallPart) -> Result<Span, Malformed> {
    scan.object(|scan, key| {
        match &json[key.span.range()] {
            b"name" => call.name = read_filled(scan)?,
            b"arguments" => call.arguments = Some(scan.value()?),
            _ => skip(scan)?,
        }
        Ok::<_, Malformed>(())
    })
}

#[cfg(test)]
mod tests;
