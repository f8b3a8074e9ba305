//! Annotations: members that a client adds to a message, or to a part of one, for the proxy only:
//! `"plimsoll": {"name": "schema", "priority": "low"}`. No provider sees them.
//!
//! An object with an annotation is walked a second time to find the comma to remove with it; other
//! objects cost nothing. An annotation that cannot be read is removed too, and has no effect.

use super::{
    Conversation, ItemPlace,
    edit::{Edits, splice_bytes},
};
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
    /// Index into [`Conversation::blocks`], if it is a member of a part.
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
    /// Medium, if the annotation names no priority; `None` for one that was not understood.
    pub(crate) fn effective_priority(&self) -> Option<Priority> {
        self.priority.or((!self.odd).then_some(Priority::Medium))
    }

    /// Reads name and priority. Of a member that occurs twice, the first one counts.
    fn read_value(&mut self, body: &[u8], scan: &mut JsonScanner<'_>) -> Result<(), MalformedJson> {
        if scan.peek() != Some(b'{') {
            self.odd = true;
            return scan.take_value().map(drop);
        }
        scan.walk_object(|scan, key| {
            let is_text = scan.peek() == Some(b'"');
            match &body[key.span.range()] {
                b"name" if is_text && self.name.is_none() => self.name = Some(scan.take_string()?),
                b"priority" if is_text && self.priority.is_none() => {
                    let word = scan.take_string()?;
                    self.priority = Priority::from_word(&body[word.span.range()]);
                    self.odd |= self.priority.is_none();
                }
                _ => {
                    scan.take_value()?;
                    self.odd = true;
                }
            }
            Ok(())
        })
        .map(drop)
    }

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

    /// The list of annotations in which one at this position would be, in the order of the body. The annotations of an item
    /// outside the list come first, wherever that item is in the body, so they are a list of their own.
    fn annotations_around(&self, position: u32) -> &[Annotation] {
        let outside = self.items.first();
        let Some(outside) = outside.filter(|item| item.place == ItemPlace::Outside) else {
            return &self.annotations;
        };
        let own = self.annotations.partition_point(|it| it.message == 0);
        let (own, others) = self.annotations.split_at(own);
        if outside.span.range().contains(&(position as usize)) {
            own
        } else {
            others
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
        let annotations = self.annotations_around(span.start);
        let first = annotations.partition_point(|it| it.span.start < span.start);
        let inside = annotations[first..].iter();
        let mut inside = inside.take_while(|it| it.span.end <= span.end).peekable();
        if inside.peek().is_none() {
            return text::measure_text(self.span_bytes(span));
        }
        let removed = inside.map(|it| (it.span, &b""[..]));
        text::measure_text(&splice_bytes(&self.body, span, removed))
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
            let mut annotation = Annotation {
                message: message as u32,
                part: part.map(|part| part as u32),
                span: Span::default(),
                name: None,
                priority: None,
                odd: false,
            };
            annotation.read_value(body, scan)?;
            if found.len() > first {
                (annotation.name, annotation.priority, annotation.odd) = (None, None, true);
            }
            annotation.span = Span {
                start: if kept { end } else { start },
                end: scan.position() as u32,
            };
            found.push(annotation);
        } else {
            scan.take_value()?;
            kept = true;
        }
        end = scan.position() as u32;
        Ok::<_, MalformedJson>(())
    })?;
    Ok(())
}

#[cfg(test)]
mod tests;
