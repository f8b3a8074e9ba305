//! Annotations: members that a client adds to a message, or to a part of one, for the proxy only:
//! `"plimsoll": {"name": "schema", "priority": "low"}`. No provider sees them.
//!
//! An object with an annotation is walked a second time to find the comma to remove with it; other
//! objects cost nothing. An annotation that cannot be read is removed too, and has no effect.

use super::{Conversation, ItemPlace, edit::Edits};
use crate::json::{
    scan::{JsonScanner, JsonString, MalformedJson, Span},
    text::{self, TextSizes},
};

/// The key of an annotation, on messages and on content parts.
pub(crate) const ANNOTATION_KEY: &[u8] = b"plimsoll";

/// One annotation, removed from every request before it is sent.
#[derive(Clone, Debug)]
pub struct Annotation {
    /// Index of its message.
    pub message: u32,
    /// Index into [`Conversation::blocks`], if it stands on a part.
    pub part: Option<u32>,
    /// The member, with the comma to remove.
    pub span: Span,
    pub name: Option<JsonString>,
    pub priority: Option<Priority>,
    /// It is not an object, is a duplicate, or has unknown members or values.
    pub odd: bool,
}

/// The order in which texts are removed, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    Low,
    Medium,
    High,
    /// Never removed.
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
    /// Removes its effect, for an annotation in a content that is not understood.
    pub(crate) const fn mark_odd(&mut self) {
        self.part = None;
        self.name = None;
        self.priority = None;
        self.odd = true;
    }
}

impl Conversation {
    pub fn take_out_annotations(&self, edits: &mut Edits) {
        for annotation in &self.annotations {
            edits.remove(annotation.span);
        }
    }

    /// Annotations in the order of the body, with all that are near this position. An item outside the list is the
    /// first, wherever it stands in the body.
    fn annotations_around(&self, position: u32) -> &[Annotation] {
        let outside = self.items.first();
        let Some(outside) = outside.filter(|item| item.place == ItemPlace::Outside) else {
            return &self.annotations;
        };
        let own = self.annotations.partition_point(|it| it.message == 0);
        let (own, others) = self.annotations.split_at(own);
        match outside.span.range().contains(&(position as usize)) {
            true => own,
            false => others,
        }
    }

    /// Annotations of a message and its parts, in the order of the body.
    pub fn annotations_of(&self, message: usize) -> &[Annotation] {
        let annotations = &self.annotations;
        let first = |at| annotations.partition_point(|it| (it.message as usize) < at);
        &annotations[first(message)..first(message + 1)]
    }

    /// How many annotations were not fully understood.
    pub fn odd_annotations(&self) -> usize {
        self.annotations.iter().filter(|it| it.odd).count()
    }

    /// The sizes of a value as it is sent: without annotations.
    pub fn measure_span(&self, span: Span) -> TextSizes {
        let mut sent = Vec::new();
        let mut at = span.start as usize;
        let annotations = self.annotations_around(span.start);
        let first = annotations.partition_point(|it| it.span.start < span.start);
        let inside = annotations[first..].iter();
        for annotation in inside.take_while(|it| it.span.end <= span.end) {
            sent.extend_from_slice(&self.body[at..annotation.span.start as usize]);
            at = annotation.span.end as usize;
        }
        let rest = &self.body[at..span.end as usize];
        if sent.is_empty() {
            return text::measure_text(rest);
        }
        sent.extend_from_slice(rest);
        text::measure_text(&sent)
    }

    /// Whether a key is that of an annotation.
    pub(crate) fn is_annotation_key(&self, key: JsonString) -> bool {
        let at = key.span.start;
        let annotations = self.annotations_around(at);
        let next = annotations.partition_point(|it| it.span.end <= at);
        let annotation = annotations.get(next);
        annotation.is_some_and(|it| it.span.start <= at)
    }
}

/// Adds the annotations of one object to `found`. The object is known to be valid JSON.
pub(crate) fn find_annotations(
    body: &[u8],
    object: Span,
    message: usize,
    part: Option<usize>,
    found: &mut Vec<Annotation>,
) -> Result<(), MalformedJson> {
    let first = found.len();
    // Whether a member that stays came before, and where the last member ended.
    let (mut kept, mut end) = (false, object.start);
    JsonScanner::new(body, object.start as usize).walk_object(|scan, key| {
        let start = key.quoted_span().start;
        if let (false, Some(before)) = (kept, found[first..].last_mut()) {
            // Without a member before it, an annotation extends to the next member.
            before.span.end = start;
        }
        if &body[key.span.range()] == ANNOTATION_KEY {
            let mut value = parse_annotation(body, scan)?;
            if found.len() > first {
                value = AnnotationValue::default();
            }
            found.push(Annotation {
                message: message as u32,
                part: part.map(|part| part as u32),
                span: Span {
                    start: if kept { end } else { start },
                    end: scan.position() as u32,
                },
                name: value.name,
                priority: value.priority,
                odd: !value.understood,
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
    let mut value = AnnotationValue::default();
    if scan.peek() != Some(b'{') {
        scan.take_value()?;
        return Ok(value);
    }
    value.understood = true;
    scan.walk_object(|scan, key| {
        let is_text = scan.peek() == Some(b'"');
        match &body[key.span.range()] {
            b"name" if is_text && value.name.is_none() => value.name = Some(scan.take_string()?),
            b"priority" if is_text && value.priority.is_none() => {
                let word = scan.take_string()?;
                value.priority = Priority::from_word(&body[word.span.range()]);
                value.understood &= value.priority.is_some();
            }
            _ => {
                scan.take_value()?;
                value.understood = false;
            }
        }
        Ok::<_, MalformedJson>(())
    })?;
    Ok(value)
}

#[cfg(test)]
mod tests;
