//! Items before they are described, and what they are made of.

use super::values::ValuePart;
use crate::{
    conversation::{Author, Block, BlockKind, Content, Item, ItemPlace},
    json::scan::{JsonString, Span},
};

/// An item that is not described yet.
pub(super) struct OpenItem {
    pub(super) item: Item,
    pub(super) tag: u8,
    pub(super) first_block: u32,
    pub(super) annotated: Vec<AnnotatedObject>,
}

/// An object with an annotation: an entry, or one of the blocks.
pub(super) struct AnnotatedObject {
    pub(super) span: Span,
    pub(super) block: Option<usize>,
}

/// A text that stands beside the list.
pub(super) fn make_outside(author: Author, text: JsonString) -> Item {
    Item {
        span: text.quoted_span(),
        place: ItemPlace::Outside,
        author,
        content: Content::Text(text),
        ..Item::default()
    }
}

/// Notes the annotations of objects that are no blocks.
pub(super) fn note_frames(parts: &[ValuePart<'_>], open: &mut OpenItem) {
    let annotated = parts.iter().filter(|part| part.annotated);
    open.annotated.extend(annotated.map(|part| AnnotatedObject {
        span: part.span,
        block: None,
    }));
}

/// What a command wrote. The chunk around the texts stays.
pub(super) fn shell_texts(chunk: &ValuePart<'_>) -> impl Iterator<Item = Block> {
    let span = chunk.span;
    let texts = [chunk.stdout, chunk.stderr].into_iter().flatten();
    texts.map(move |text| Block {
        span,
        kind: BlockKind::Text(text),
        marked: true,
    })
}
