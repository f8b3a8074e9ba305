//! Arguments of old calls: long values keep their beginning.

use super::{ClearedForm, excludes};
use crate::{
    conversation::{Conversation, Item},
    guard::{
        request::view::RequestView,
        text::arguments::{Keep, cut_arguments},
    },
};

/// Values up to this are left alone; characters.
const VALUE_CHARS: usize = 200;
/// What stays of a longer one.
const KEEP: Keep = Keep::Head {
    most: VALUE_CHARS,
    head: 120,
};

/// Item `at` with long values in the arguments of its calls shortened; `None` where there are
/// none.
pub(super) fn shorten_arguments(view: RequestView<'_>, at: usize) -> Option<ClearedForm> {
    let message = view.item(at);
    let mut form = ClearedForm::default();
    let mut sizes = message.sizes;
    for call in view.conversation.calls_of(message) {
        let name = call.name.map(|name| view.conversation.decode_text(name));
        let name = name.as_deref().unwrap_or_default();
        if excludes(&view.policy.settings.clear, name) {
            continue;
        }
        let cut = call.editable_arguments();
        if let Some(cut) = cut.and_then(|it| cut_arguments(view.conversation, it, KEEP)) {
            sizes -= cut.removed;
            sizes += cut.inserted;
            form.inputs += 1;
            form.edits.merge(cut.edits);
        }
    }
    form.tokens = view.weigh_item(at, &sizes);
    (form.inputs > 0).then_some(form)
}

/// Whether a message has arguments in which there may be a long value.
pub(super) fn has_long_arguments(conversation: &Conversation, message: &Item) -> bool {
    let mut arguments = conversation.calls_of(message).iter();
    arguments.any(|call| {
        call.editable_arguments()
            .is_some_and(|it| it.span().len() > VALUE_CHARS)
    })
}

#[cfg(test)]
mod tests;
