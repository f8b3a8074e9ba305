//! The reader of answers.
//!
//! Holds spans, never copies. What has another shape than expected is passed over where that is possible
//! and an error where spans could not be trusted.

use super::{Answer, DONE, Events, Member, MessageSpans, usage};
use crate::{
    format::{AnswerEvent, CallPart, Finish, FinishKind},
    json::scan::{Kind, Malformed, Scan, Span, Text},
};

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

pub(super) fn skip(scan: &mut Scan<'_>) -> Result<(), Malformed> {
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
                    kind: finish_kind(&json[reason.span.range()]),
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

/// Of reasons to cut an answer off there are as many spellings as providers, and an answer that is taken for cut
/// off ends a client's loop.
fn finish_kind(reason: &[u8]) -> FinishKind {
    const CUT_OFF: [&str; 7] = [
        "length",
        "max",
        "filter",
        "safety",
        "sensitive",
        "error",
        "window",
    ];
    let reason = String::from_utf8_lossy(reason).to_ascii_lowercase();
    match &*reason {
        "tool_calls" | "function_call" | "tool_use" => FinishKind::Calls,
        "refusal" | "recitation" | "insufficient_system_resource" | "cancelled" => {
            FinishKind::CutOff
        }
        _ if CUT_OFF.iter().any(|word| reason.contains(word)) => FinishKind::CutOff,
        _ => FinishKind::Other,
    }
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
) -> Result<MessageSpans, Malformed> {
    let mut message = MessageSpans::default();
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
