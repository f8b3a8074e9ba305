//! The reader of answers.
//!
//! Holds spans, never copies. What has another shape than expected is passed over where that is possible
//! and an error where spans could not be trusted.

use super::{AnswerEvents, ChatAnswer, DONE, Member, MessageSpans, usage};
use crate::{
    format::{AnswerEvent, CallFragment, Finish, FinishKind},
    json::scan::{JsonKind, JsonScanner, JsonString, MalformedJson, Span},
};

/// Reads the data of an event, or a whole body.
///
/// # Errors
/// This is no JSON object, and not the marker behind the last event.
pub fn read_answer(json: &[u8]) -> Result<ChatAnswer, MalformedJson> {
    let mut answer = ChatAnswer::default();
    if json.trim_ascii() == DONE {
        answer.events.push(AnswerEvent::End);
        return Ok(answer);
    }
    let mut scan = JsonScanner::new(json, 0);
    scan.walk_object(|scan, key| match &json[key.span.range()] {
        b"choices" => read_choices(json, scan, &mut answer),
        b"usage" => usage::read_usage(json, scan, &mut answer.events),
        b"x_groq" => read_groq(json, scan, &mut answer.events),
        b"id" => {
            answer.id = read_nonempty_string(scan)?;
            Ok(())
        }
        b"error" => {
            if scan.take_value()?.1 != JsonKind::Null {
                answer.events.push(AnswerEvent::Error);
            }
            Ok(())
        }
        _ => skip_value(scan),
    })?;
    scan.expect_end()?;
    Ok(answer)
}

pub(super) fn skip_value(scan: &mut JsonScanner<'_>) -> Result<(), MalformedJson> {
    scan.take_value().map(|_| ())
}

/// A string; `None` for one that is empty and for any other value.
fn read_nonempty_string(scan: &mut JsonScanner<'_>) -> Result<Option<JsonString>, MalformedJson> {
    Ok(read_string(scan)?.filter(|text| !text.span.is_empty()))
}

fn read_string(scan: &mut JsonScanner<'_>) -> Result<Option<JsonString>, MalformedJson> {
    if scan.peek() == Some(b'"') {
        return scan.take_string().map(Some);
    }
    skip_value(scan)?;
    Ok(None)
}

/// A whole number that is not negative; `None` for any other value.
fn read_index(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
) -> Result<Option<(u64, Span)>, MalformedJson> {
    let (span, _) = scan.take_value()?;
    let number = std::str::from_utf8(&json[span.range()]).ok();
    Ok(number
        .and_then(|number| number.parse().ok())
        .map(|number| (number, span)))
}

fn read_groq(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
    events: &mut AnswerEvents,
) -> Result<(), MalformedJson> {
    if scan.peek() != Some(b'{') {
        return skip_value(scan);
    }
    let walked = scan.walk_object(|scan, key| match &json[key.span.range()] {
        b"usage" => usage::read_usage(json, scan, events),
        _ => skip_value(scan),
    });
    walked.map(|_| ())
}

fn read_choices(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
    answer: &mut ChatAnswer,
) -> Result<(), MalformedJson> {
    if scan.peek() != Some(b'[') {
        return skip_value(scan);
    }
    let mut choices = 0;
    scan.walk_array(|scan| {
        choices += 1;
        read_choice(json, scan, answer)
    })?;
    answer.choices = Some(choices);
    Ok(())
}

fn read_choice(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
    answer: &mut ChatAnswer,
) -> Result<(), MalformedJson> {
    if scan.peek() != Some(b'{') {
        return skip_value(scan);
    }
    let before = answer.events.len();
    let (mut message, mut index) = (None, 0);
    scan.walk_object(|scan, key| {
        match &json[key.span.range()] {
            b"index" => index = read_index(json, scan)?.map_or(0, |(index, _)| index),
            b"delta" | b"message" if scan.peek() == Some(b'{') => {
                message = Some(read_message(json, scan, &mut answer.events)?);
            }
            b"finish_reason" => {
                let reason = read_nonempty_string(scan)?;
                let finish = reason.map(|reason| Finish {
                    reason,
                    kind: finish_kind(&json[reason.span.range()]),
                    first: true,
                });
                answer.events.extend(finish.map(AnswerEvent::Finish));
            }
            // Kimi reports here.
            b"usage" => usage::read_usage(json, scan, &mut answer.events)?,
            _ => skip_value(scan)?,
        }
        Ok::<_, MalformedJson>(())
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
fn drop_choice(events: &mut AnswerEvents, before: usize) {
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
    scan: &mut JsonScanner<'_>,
    events: &mut AnswerEvents,
) -> Result<MessageSpans, MalformedJson> {
    let mut message = MessageSpans::default();
    message.span = scan.walk_object(|scan, key| {
        let mut inner = scan.clone();
        let (value, kind) = scan.take_value()?;
        message.members.push(Member { key, value, kind });
        match (&json[key.span.range()], kind) {
            (b"content", JsonKind::String) => events.push(AnswerEvent::Text(inner.take_string()?)),
            (b"content", JsonKind::Array) => {
                inner.walk_array(|scan| read_part(json, scan, events))?;
            }
            (b"reasoning_content" | b"reasoning", JsonKind::String) => {
                events.push(AnswerEvent::Reasoning(inner.take_string()?));
            }
            (b"tool_calls", JsonKind::Array) => {
                inner.walk_array(|scan| read_call(json, scan, events))?;
            }
            (b"function_call", JsonKind::Object) => {
                let mut call = CallFragment {
                    legacy: true,
                    ..CallFragment::default()
                };
                call.span = read_function(json, &mut inner, &mut call)?;
                events.push(AnswerEvent::Call(call));
            }
            _ => {}
        }
        Ok::<_, MalformedJson>(())
    })?;
    Ok(message)
}

/// A content part, of which the text counts.
fn read_part(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
    events: &mut AnswerEvents,
) -> Result<(), MalformedJson> {
    if scan.peek() != Some(b'{') {
        return skip_value(scan);
    }
    let (mut kind, mut text) = (None, None);
    scan.walk_object(|scan, key| {
        match &json[key.span.range()] {
            b"type" => kind = read_string(scan)?,
            b"text" => text = read_string(scan)?,
            _ => skip_value(scan)?,
        }
        Ok::<_, MalformedJson>(())
    })?;
    let is_text = kind.is_none_or(|kind| &json[kind.span.range()] == b"text");
    events.extend(text.filter(|_| is_text).map(AnswerEvent::Text));
    Ok(())
}

/// An element of `tool_calls`.
fn read_call(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
    events: &mut AnswerEvents,
) -> Result<(), MalformedJson> {
    if scan.peek() != Some(b'{') {
        return skip_value(scan);
    }
    let mut call = CallFragment::default();
    call.span = scan.walk_object(|scan, key| {
        match &json[key.span.range()] {
            b"index" => call.index = read_index(json, scan)?,
            b"id" => call.id = read_nonempty_string(scan)?,
            b"function" if scan.peek() == Some(b'{') => {
                read_function(json, scan, &mut call)?;
            }
            _ => skip_value(scan)?,
        }
        Ok::<_, MalformedJson>(())
    })?;
    events.push(AnswerEvent::Call(call));
    Ok(())
}

fn read_function(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
    call: &mut CallFragment,
) -> Result<Span, MalformedJson> {
    scan.walk_object(|scan, key| {
        match &json[key.span.range()] {
            b"name" => call.name = read_nonempty_string(scan)?,
            b"arguments" => call.arguments = Some(scan.take_value()?),
            _ => skip_value(scan)?,
        }
        Ok::<_, MalformedJson>(())
    })
}
