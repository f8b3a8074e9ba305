//! Span edits and the edited body, a rope of slices.
//!
//! The rope shares the memory of the client's body and holds new text between its slices, so bytes
//! that no edit touches are never copied or changed.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use crate::json::scan::Span;

/// Replacements of spans of one body, in any order.
///
/// Of two that overlap, the one that begins first wins and the other is dropped. Insertions at one
/// position keep their order.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    edits: Vec<NewEdit>,
}

#[derive(Clone, Debug)]
struct NewEdit {
    span: Span,
    with: NewBytes,
}

#[derive(Clone, Debug)]
enum NewBytes {
    Given(Bytes),
    /// A comma and this element of a list, with the edits inside it applied.
    Element(Span),
}

/// One replaced span; an empty span is an insertion, an empty `with` a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub span: Span,
    pub with: Bytes,
}

impl Edits {
    pub fn replace(&mut self, span: Span, with: impl Into<Bytes>) {
        let with = NewBytes::Given(with.into());
        self.edits.push(NewEdit { span, with });
    }

    /// Inserts an element of a list after another one that ends at `at`, with a comma before it. All edits inside the
    /// element apply to the inserted one, whenever they are added. The caller removes the element from its old place.
    pub fn insert_element(&mut self, at: u32, element: Span) {
        let span = Span { start: at, end: at };
        let with = NewBytes::Element(element);
        self.edits.push(NewEdit { span, with });
    }

    pub fn insert(&mut self, at: u32, with: impl Into<Bytes>) {
        self.replace(Span { start: at, end: at }, with);
    }

    pub fn remove(&mut self, span: Span) {
        self.replace(span, Bytes::new());
    }

    /// Removes elements of an array, or members of an object, each with a comma. `items` are all of them, in their order.
    /// Text that is inserted at the start of a removed element stays if no element before that one is kept.
    pub fn remove_items(&mut self, items: &[Span], is_removed: impl Fn(usize) -> bool) {
        let mut has_kept = false;
        for (at, item) in items.iter().enumerate() {
            if !is_removed(at) {
                has_kept = true;
                continue;
            }
            // The comma before the element is removed too; if no element before it is kept, the comma after it.
            let (start, end) = match (has_kept, items.get(at + 1)) {
                (true, _) => (items[at - 1].end, item.end),
                (false, Some(next)) => (item.start, next.start),
                (false, None) => (item.start, item.end),
            };
            self.remove(Span { start, end });
        }
    }

    pub fn merge(&mut self, other: Self) {
        self.edits.extend(other.edits);
    }

    /// Translates edits of a body in which `len` bytes are in the place of `head` to edits of the body before that
    /// replacement. Edits within these bytes are dropped.
    pub(crate) fn move_behind(mut self, head: Span, len: u32) -> Self {
        let until = head.start + len;
        let move_place = |at: &mut u32| match *at {
            place if place <= head.start => true,
            place if place >= until => {
                *at = place - until + head.end;
                true
            }
            _ => false,
        };
        let move_span = |span: &mut Span| move_place(&mut span.start) && move_place(&mut span.end);
        self.edits.retain_mut(|edit| {
            let is_moved = match &mut edit.with {
                NewBytes::Given(_) => true,
                NewBytes::Element(element) => move_span(element),
            };
            is_moved && move_span(&mut edit.span)
        });
        self
    }

    /// The spans that are replaced, in any order.
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        self.edits.iter().map(|edit| edit.span)
    }

    pub const fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// The edits in the order of the body, without overlaps.
    pub fn ordered_edits(&self, body: &Bytes) -> Vec<Edit> {
        let mut edits: Vec<&NewEdit> = self.edits.iter().collect();
        edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
        let new_bytes = |edit: &NewEdit| match &edit.with {
            NewBytes::Given(bytes) => bytes.clone(),
            NewBytes::Element(element) => edit_element(body, *element, &edits),
        };
        let apart = drop_overlapping(edits.iter().copied());
        apart
            .map(|edit| Edit {
                span: edit.span,
                with: new_bytes(edit),
            })
            .collect()
    }

    /// A part of the body as the edits inside it leave it.
    pub fn apply_to_part(&self, body: &Bytes, part: Span) -> Vec<u8> {
        let edits = self.ordered_edits(body);
        let inside = edits
            .iter()
            .filter(|it| part.start <= it.span.start && it.span.end <= part.end);
        splice_bytes(body, part, inside.map(|it| (it.span, &*it.with)))
    }

    pub fn apply(&self, body: &Bytes) -> Rope {
        let mut rope = Rope::default();
        let mut at = 0;
        for edit in self.ordered_edits(body) {
            let start = (edit.span.start as usize).min(body.len());
            let end = (edit.span.end as usize).min(body.len());
            rope.push(body.slice(at..start));
            rope.push(edit.with);
            at = end;
        }
        rope.push(body.slice(at..));
        rope
    }
}

/// Drops the second of two edits that overlap; `edits` are in the order of the body.
fn drop_overlapping<'a>(
    edits: impl Iterator<Item = &'a NewEdit>,
) -> impl Iterator<Item = &'a NewEdit> {
    edits
        .scan(0, |end, edit| {
            let is_apart = edit.span.start >= *end;
            if is_apart {
                *end = edit.span.end;
            }
            Some(is_apart.then_some(edit))
        })
        .flatten()
}

/// A comma and an element of a list as the edits inside it leave it. `edits` are in the order of the body.
fn edit_element(body: &Bytes, element: Span, edits: &[&NewEdit]) -> Bytes {
    let first = edits.partition_point(|edit| edit.span.start <= element.start);
    let inside = edits[first..].iter().copied();
    let inside = inside
        .take_while(|edit| edit.span.start < element.end)
        .filter(|edit| edit.span.end < element.end);
    let given = drop_overlapping(inside).filter_map(|edit| match &edit.with {
        NewBytes::Given(with) => Some((edit.span, &**with)),
        NewBytes::Element(_) => None,
    });
    [b",", &*splice_bytes(body, element, given)].concat().into()
}

/// A part of a body with some spans replaced. The spans are in order and do not overlap.
pub(crate) fn splice_bytes<'a>(
    body: &[u8],
    part: Span,
    replaced: impl Iterator<Item = (Span, &'a [u8])>,
) -> Vec<u8> {
    let mut left = Vec::new();
    let mut at = part.start;
    for (span, with) in replaced {
        left.extend_from_slice(&body[at as usize..span.start as usize]);
        left.extend_from_slice(with);
        at = span.end;
    }
    left.extend_from_slice(&body[at as usize..part.end as usize]);
    left
}

/// A body in slices. A clone is cheap, so a retry can send it again.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    slices: VecDeque<Bytes>,
    len: u64,
}

impl Rope {
    fn push(&mut self, slice: Bytes) {
        if !slice.is_empty() {
            self.len += slice.len() as u64;
            self.slices.push_back(slice);
        }
    }

    /// Bytes left.
    pub const fn len(&self) -> u64 {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The body in one piece; copies it unless it has one slice.
    pub fn to_bytes(&self) -> Bytes {
        if let (Some(only), 1) = (self.slices.front(), self.slices.len()) {
            return only.clone();
        }
        let mut whole = BytesMut::with_capacity(self.len as usize);
        for slice in &self.slices {
            whole.extend_from_slice(slice);
        }
        whole.freeze()
    }
}

impl From<Bytes> for Rope {
    fn from(body: Bytes) -> Self {
        let mut rope = Self::default();
        rope.push(body);
        rope
    }
}

impl Body for Rope {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let slice = self.slices.pop_front();
        self.len -= slice.as_ref().map_or(0, |slice| slice.len() as u64);
        Poll::Ready(slice.map(|slice| Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.slices.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edits_apply_in_the_order_of_the_body() {
        let body = Bytes::from_static(b"0123456789");
        let mut edits = Edits::default();
        edits.remove(Span::new(7, 9));
        edits.replace(Span::new(2, 4), "ab");
        edits.insert(4, "<");
        edits.insert(4, ">");
        let rope = edits.apply(&body);
        assert_eq!(rope.to_bytes(), "01ab<>4569");
        assert_eq!(rope.len(), 10);
    }

    #[test]
    fn a_moved_element_has_the_edits_inside_it() {
        let body = Bytes::from_static(b"[{a1},{b2},{c3},{d4}]");
        let mut edits = Edits::default();
        edits.replace(Span::new(3, 4), "x");
        edits.insert_element(15, Span::new(6, 10));
        edits.remove(Span::new(5, 10));
        edits.insert(10, "!");
        edits.replace(Span::new(8, 9), "y");
        assert_eq!(edits.apply(&body).to_bytes(), "[{ax}!,{c3},{by},{d4}]");
    }

    #[test]
    fn edits_of_a_body_with_another_head_move_behind_that_of_the_first() {
        let (client, other) = ("{[a1,b2,c3,d4],e}", "{[x,c3,d4],e}");
        let mut edits = Edits::default();
        edits.insert(1, "0");
        edits.insert(3, ",n");
        edits.remove(Span::new(6, 9));
        edits.insert_element(6, Span::new(7, 9));
        edits.replace(Span::new(11, 12), "f");
        let of_other = edits.apply(&Bytes::from_static(other.as_bytes()));
        let head = Span::new(2, 7);
        let mut moved = edits.move_behind(head, 1);
        moved.replace(head, "x");
        let moved = moved.apply(&Bytes::from_static(client.as_bytes()));
        assert_eq!(moved.to_bytes(), of_other.to_bytes());
        assert_eq!(moved.to_bytes(), "{0[x,n,c3,d4],f}");
    }

    #[test]
    fn a_body_without_edits_is_not_copied() {
        let body = Bytes::from(vec![b'x'; 100]);
        let rope = Edits::default().apply(&body);
        assert_eq!(rope.to_bytes().as_ptr(), body.as_ptr());
    }

    #[test]
    fn removed_items_take_their_commas_with_them() {
        let text = "[10, 11 ,12 , 13]";
        let items: Vec<_> = [(1, 3), (5, 7), (9, 11), (14, 16)]
            .map(|(start, end)| Span::new(start, end))
            .into();
        for gone in 0u32..16 {
            let mut edits = Edits::default();
            edits.remove_items(&items, |at| gone >> at & 1 == 1);
            let left = edits.apply(&Bytes::from_static(text.as_bytes())).to_bytes();
            let left: Vec<u32> = serde_json::from_slice(&left).unwrap();
            let kept: Vec<u32> = (0..4)
                .filter(|at| gone >> at & 1 == 0)
                .map(|at| 10 + at)
                .collect();
            assert_eq!(left, kept);
        }
        Edits::default().remove_items(&[], |_| true);
    }

    proptest! {
        #[test]
        fn bytes_outside_the_edits_are_kept(len in 0usize..200, places in prop::collection::vec((0u32..220, 0u32..40, "[A-Z]{0,5}"), 0..8)) {
            let body = Bytes::from((0..len).map(|at| b'a' + (at % 26) as u8).collect::<Vec<_>>());
            let mut edits = Edits::default();
            for (start, length, with) in places {
                edits.replace(Span { start, end: start + length }, with);
            }
            let whole = edits.apply(&body).to_bytes();
            let ordered = edits.ordered_edits(&body);
            let untouched = (0..len as u32).filter(|at| !ordered.iter().any(|edit| edit.span.start <= *at && *at < edit.span.end));
            let expected: Vec<u8> = untouched.map(|at| body[at as usize]).collect();
            let kept: Vec<u8> = whole.iter().copied().filter(u8::is_ascii_lowercase).collect();
            prop_assert_eq!(kept, expected);
        }
    }
}
