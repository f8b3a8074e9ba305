//! The edits of a fold: messages go, and the preface takes their place.

use crate::{
    config::profile::Acceptance,
    conversation::{Author, Content, NewItems, edit::Edits, units::UnitKind},
    guard::{
        grammar::{message_order::MessageOrder, outline::OutlineItem},
        inject::placed_injections::PlacedInjections,
        request::view::RequestView,
    },
    json::text,
};

/// The model's message that is inserted between a preface at the end of a user message and the next user message, if the
/// profile demands that roles alternate. The preface itself is never a message of the model: models imitate what they see
/// themselves say.
const ACKNOWLEDGEMENT: &str = "Understood.";

/// The edits of a fold.
#[derive(Clone, Debug, Default)]
pub(in crate::guard) struct AppliedFold {
    /// The number of removed messages.
    pub(in crate::guard) messages: usize,
    /// A preface takes their place.
    pub(in crate::guard) prefaced: bool,
    /// Edits that insert bound messages at their new places are not among them: `order` has these places.
    pub(in crate::guard) edits: Edits,
    pub(in crate::guard) order: MessageOrder,
}

/// Removes the messages of folded units, except system messages, and inserts the preface in their place. `folded` has an
/// entry for each unit. If `is_always_sent`, then the preface is inserted even if nothing is removed.
pub(in crate::guard) fn apply_fold(
    view: RequestView<'_>,
    injected: &PlacedInjections<'_>,
    folded: &[bool],
    preface: &str,
    is_always_sent: bool,
) -> AppliedFold {
    let mut removed = RemovedUnits::from_fold(view, folded);
    let place = if removed.has_any() || is_always_sent {
        removed.choose_place(injected)
    } else {
        PrefacePlace::default()
    };
    let item = place.author.map(OutlineItem::Injected);
    let preface_item = item.map(|item| (removed.count_messages_before_preface(), item));
    let order = MessageOrder::arrange(view.conversation, &mut removed.messages, preface_item);
    let gone = removed.messages.iter().filter(|removed| **removed).count();
    let mut folding = AppliedFold {
        messages: gone - order.count_moved(),
        order,
        ..AppliedFold::default()
    };
    view.conversation
        .remove_items(|at| removed.messages[at], &mut folding.edits);
    let preface = text::escape_text(preface);
    folding.prefaced = removed.insert_preface(place, &preface, &mut folding.edits);
    folding
}

/// Where the preface is inserted; nowhere by default.
#[derive(Clone, Copy, Default)]
struct PrefacePlace {
    /// The user message to which the preface is appended as a paragraph.
    paragraph: Option<usize>,
    /// The author of a message that is inserted. A message of the user is the preface; a message of the model is the
    /// acknowledgement that separates two user messages.
    author: Option<Author>,
}

/// The units that a fold removes.
struct RemovedUnits<'a> {
    view: RequestView<'a>,
    pinned: usize,
    /// By unit.
    removed: Vec<bool>,
    /// For each message, whether it is removed from its place. Bound messages that cannot stay where the client put them are
    /// included.
    messages: Vec<bool>,
}

impl<'a> RemovedUnits<'a> {
    fn from_fold(view: RequestView<'a>, folded: &[bool]) -> Self {
        let pinned = view.count_pinned();
        let units = view.units.iter().zip(folded).enumerate();
        let removed: Vec<bool> = units
            .map(|(at, (unit, folded))| at >= pinned && *folded && !unit.is_pinned)
            .collect();
        let mut messages = vec![false; view.conversation.items.len()];
        for (unit, _) in view.units.iter().zip(&removed).filter(|it| *it.1) {
            messages[unit.unbound_messages()].fill(true);
        }
        Self {
            view,
            pinned,
            removed,
            messages,
        }
    }

    fn has_any(&self) -> bool {
        self.removed.contains(&true)
    }

    /// The messages before the preface: the pinned start without what is bound to its last message.
    fn count_messages_before_preface(&self) -> usize {
        let last_pinned = self.pinned.checked_sub(1);
        last_pinned.map_or(0, |unit| self.view.units[unit].unbound_messages().end)
    }

    fn choose_place(&self, injected: &PlacedInjections<'_>) -> PrefacePlace {
        let strict = self.view.policy.profile.adjacent_users == Acceptance::No;
        let units = self.view.units;
        let last_pinned = self.pinned.checked_sub(1).map(|unit| &units[unit]);
        let user = last_pinned.filter(|unit| unit.kind == UnitKind::User);
        // System messages do not belong to the turns.
        let mut kept = (self.pinned..units.len()).filter(|&unit| !self.removed[unit]);
        let tail = kept.find(|&unit| units[unit].kind != UnitKind::System);
        let tail_is_user = tail.is_some_and(|unit| units[unit].kind == UnitKind::User);
        let is_answered = |before: usize| injected.answers_behind(before, |at| !self.messages[at]);
        let before = self.count_messages_before_preface().checked_sub(1);
        // If nothing is removed, then two user messages in a row come from the client, and are not separated. A tool round
        // behind the pinned start begins with an answer, which separates them.
        let parts_users = tail_is_user && self.has_any() && !before.is_some_and(is_answered);
        let takes_text = |at: &usize| {
            matches!(
                self.view.item(*at).content,
                Content::Text(_) | Content::Blocks(..)
            )
        };
        match user.map(|unit| unit.messages.start) {
            Some(first) if strict => PrefacePlace {
                paragraph: Some(first).filter(takes_text),
                author: parts_users.then_some(Author::Model),
            },
            None if strict && tail_is_user => PrefacePlace::default(),
            _ => PrefacePlace {
                paragraph: None,
                author: Some(Author::User),
            },
        }
    }

    /// Inserts the escaped preface. Returns whether there was a place for it.
    fn insert_preface(&self, place: PrefacePlace, preface: &str, edits: &mut Edits) -> bool {
        let conversation = self.view.conversation;
        if let Some(at) = place.paragraph {
            conversation.append_text(at, preface, edits);
        }
        let Some(author) = place.author else {
            return place.paragraph.is_some();
        };
        let preface = match author {
            Author::Model => ACKNOWLEDGEMENT,
            _ => preface,
        };
        let entry = conversation.format.text_item(author, preface);
        let block = conversation.format.text_block(preface);
        let new = NewItems {
            entries: &entry,
            blocks: (author == Author::User).then_some(&*block),
        };
        let before = self.count_messages_before_preface().checked_sub(1);
        if before.is_some_and(|before| conversation.insert_after(before, &new, edits)) {
            return true;
        }
        // No pinned message is in the list: the preface is inserted before the first message that is kept.
        let kept = before.map_or(0, |before| before + 1)..self.messages.len();
        let mut kept = kept.filter(|&at| !self.messages[at]);
        kept.next()
            .is_some_and(|at| conversation.insert_before(at, &entry, edits))
    }
}
