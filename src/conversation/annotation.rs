//! Annotations: what a client says of a message, or of a part of one, to us and to no provider:
//! `"plimsoll": {"name": "schema", "priority": "low"}`.
//!
//! An object that has one is walked a second time to find the comma that goes with it, so that all
//! the others cost nothing. What cannot be read is an annotation all the same, and says nothing.

use super::{Conversation, edit::Edits};
use crate::json::{
    scan::{JsonScanner, JsonString, MalformedJson, Span},
    text::{self, TextSizes},
};

/// The key of an annotation, on messages and on content parts.
pub(crate) const ANNOTATION_KEY: &[u8] = b"plimsoll";

/// One annotation. Taken out of every request before it is sent.
#[derive(Clone, Debug)]
pub struct Annotation {
    /// Index of its message.
    pub message: u32,
    /// Index into [`Conversation::blocks`], where it stands on a part.
    pub part: Option<u32>,
    /// The member, with the comma that goes with it.
    pub span: Span,
    pub name: Option<JsonString>,
    pub priority: Option<Priority>,
    /// Something of it was not understood: it is no object, stands twice, or says what we do not
    /// know.
    pub odd: bool,
}

/// What may go first when there is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    Low,
    Medium,
    High,
    /// Never goes.
    Critical,
}

impl Priority {
    const fn from_word(word: &[u8]) -> Option<Self> {
        Some(match word {
            b"low" => Self::Low,
            b"medium" => Self::Medium,
            b"high" => Self::High,
            b"critical" => Self::Critical,
            _ => return None,
        })
    }
}

impl Annotation {
    /// Says nothing any more: what it stood on is no part that we know.
    pub(crate) const fn mark_odd(&mut self) {
        self.part = None;
        self.name = None;
        self.priority = None;
        self.odd = true;
    }
}

impl Conversation {
    /// Takes all annotations out.
    pub fn take_out_annotations(&self, edits: &mut Edits) {
        for annotation in &self.annotations {
            edits.remove(annotation.span);
        }
    }

    /// Annotations of a message and its parts, in the order of the body.
    pub fn annotations_of(&self, message: usize) -> &[Annotation] {
        let first = |message: usize| {
            let before = |it: &Annotation| (it.message as usize) < message;
            self.annotations.partition_point(before)
        };
        &self.annotations[first(message)..first(message + 1)]
    }

    /// Annotations of which something was not understood.
    pub fn odd_annotations(&self) -> usize {
        self.annotations.iter().filter(|it| it.odd).count()
    }

    /// Characters of a value as it is sent.
    pub fn measure_span(&self, span: Span) -> TextSizes {
        measure_without_annotations(&self.body, span, &self.annotations)
    }
}

/// Characters of a value without the annotations in it; these in the order of the body.
pub(crate) fn measure_without_annotations(
    body: &[u8],
    span: Span,
    annotations: &[Annotation],
) -> TextSizes {
    let mut sizes = TextSizes::default();
    let mut at = span.start as usize;
    let first = annotations.partition_point(|it| it.span.start < span.start);
    let inside = annotations[first..].iter();
    for annotation in inside.take_while(|it| it.span.end <= span.end) {
        sizes += text::measure_text(&body[at..annotation.span.start as usize]);
        at = annotation.span.end as usize;
    }
    sizes += text::measure_text(&body[at..span.end as usize]);
    sizes
}

/// Whether a key is that of one of these annotations; these in the order of the body.
pub(crate) fn is_annotation_key(annotations: &[Annotation], key: JsonString) -> bool {
    let at = key.span.start;
    let next = annotations.partition_point(|it| it.span.end <= at);
    let near = annotations.get(next);
    near.is_some_and(|it| it.span.start <= at)
}

/// Notes the annotations of one object, which was walked before.
pub(crate) fn find_annotations(
    body: &[u8],
    object: Span,
    message: usize,
    part: Option<usize>,
    found: &mut Vec<Annotation>,
) -> Result<(), MalformedJson> {
    let first = found.len();
    // Whether a member that stays came before, and where the last one ended.
    let (mut kept, mut end) = (false, object.start);
    JsonScanner::new(body, object.start as usize).walk_object(|scan, key| {
        let start = key.quoted_span().start;
        if let (false, Some(before)) = (kept, found[first..].last_mut()) {
            // With no member before them, annotations go up to the next one.
            before.span.end = start;
        }
        if &body[key.span.range()] == ANNOTATION_KEY {
            let mut says = parse_annotation(body, scan)?;
            if found.len() > first {
                says = AnnotationValue::default();
            }
            found.push(Annotation {
                message: message as u32,
                part: part.map(|part| part as u32),
                span: Span {
                    start: if kept { end } else { start },
                    end: scan.position() as u32,
                },
                name: says.name,
                priority: says.priority,
                odd: !says.understood,
            });
        } else {
            scan.take_value()?;
            kept = true;
        }
        end = scan.position() as u32;
        Ok::<_, MalformedJson>(())
    })?;
    Ok(())
}

/// What an annotation says.
#[derive(Default)]
struct AnnotationValue {
    name: Option<JsonString>,
    priority: Option<Priority>,
    understood: bool,
}

fn parse_annotation(
    body: &[u8],
    scan: &mut JsonScanner<'_>,
) -> Result<AnnotationValue, MalformedJson> {
    let mut says = AnnotationValue::default();
    if scan.peek() != Some(b'{') {
        scan.take_value()?;
        return Ok(says);
    }
    says.understood = true;
    scan.walk_object(|scan, key| {
        let text = scan.peek() == Some(b'"');
        match &body[key.span.range()] {
            b"name" if text && says.name.is_none() => says.name = Some(scan.take_string()?),
            b"priority" if text && says.priority.is_none() => {
                let word = scan.take_string()?;
                says.priority = Priority::from_word(&body[word.span.range()]);
                says.understood &= says.priority.is_some();
            }
            _ => {
                scan.take_value()?;
                says.understood = false;
            }
        }
        Ok::<_, MalformedJson>(())
    })?;
    Ok(says)
}

#[cfg(test)]
mod tests;
