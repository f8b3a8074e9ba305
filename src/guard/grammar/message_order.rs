//! The order of the messages that stay, and where bound messages stand in it.
//!
//! A bound message (a system entry in the midst of the list) is valid only behind a message of the user or a result, and
//! before an answer or at the end. It never goes. Where the messages around it go, it stands at the next place that its
//! format allows, so that bound messages keep their order, and stay where they are until the next cut. Several in a row
//! are one to the provider.

use crate::{
    conversation::{Author, Conversation, edit::Edits},
    guard::grammar::outline::OutlineItem,
};

/// The messages of the edited conversation.
#[derive(Clone, Debug, Default)]
pub(in crate::guard) struct MessageOrder {
    pub(in crate::guard) outline: Vec<OutlineItem>,
    moved: Vec<MovedMessage>,
}

/// A bound message that stands elsewhere than the client put it.
#[derive(Clone, Copy, Debug)]
struct MovedMessage {
    from: usize,
    /// The message before it now.
    behind: usize,
}

/// Messages that are put in order one after the other.
struct OrderInMaking<'a> {
    conversation: &'a Conversation,
    order: MessageOrder,
    /// Bound messages without a place so far.
    waiting: Vec<usize>,
    /// The last message that is no system message.
    last: Option<OutlineItem>,
}

impl MessageOrder {
    /// Arranges what is not `removed`, with a preface before message `preface.0` by the author `preface.1`. Adds to
    /// `removed` the bound messages that do not stand where the client put them.
    pub(in crate::guard) fn arrange(
        conversation: &Conversation,
        removed: &mut [bool],
        preface: Option<(usize, OutlineItem)>,
    ) -> Self {
        let mut making = OrderInMaking {
            conversation,
            order: Self::default(),
            waiting: Vec::new(),
            last: None,
        };
        for (at, item) in conversation.items.iter().enumerate() {
            if let Some((_, preface)) = preface.filter(|preface| preface.0 == at) {
                making.add_message(preface);
            }
            match (item.is_bound, removed[at]) {
                (true, _) => making.waiting.push(at),
                (false, true) => {}
                (false, false) => making.add_message(OutlineItem::Client(at)),
            }
        }
        if let Some((_, preface)) = preface.filter(|preface| preface.0 == removed.len()) {
            making.add_message(preface);
        }
        making.place_waiting(None);
        let without_place = making.waiting.iter().copied();
        let moved = making.order.moved.iter().map(|moved| moved.from);
        without_place.chain(moved).for_each(|at| removed[at] = true);
        making.order
    }

    /// Puts the moved messages where they stand now: behind what is inserted at their places so far. Their cache
    /// markers are unset, since markers must not change their order.
    pub(in crate::guard) fn insert_moved(&self, conversation: &Conversation, edits: &mut Edits) {
        for moved in &self.moved {
            conversation.repeat_behind(moved.behind, moved.from, edits);
            conversation.unset_cache_markers(moved.from, edits);
        }
    }

    /// The bound messages that stand elsewhere, each with the message before it now.
    pub(in crate::guard) fn list_moved(&self) -> impl Iterator<Item = (usize, usize)> {
        self.moved.iter().map(|moved| (moved.from, moved.behind))
    }

    pub(in crate::guard) fn count_moved(&self) -> usize {
        self.moved.len()
    }
}

impl OrderInMaking<'_> {
    fn add_message(&mut self, message: OutlineItem) {
        if !message.role(self.conversation).is_system() {
            self.place_waiting(Some(message));
            self.last = Some(message);
        }
        self.order.outline.push(message);
    }

    /// Places the bound messages that may stand before `next`, or at the end of the list.
    fn place_waiting(&mut self, next: Option<OutlineItem>) {
        let role = |item: OutlineItem| item.role(self.conversation);
        let is_accepted = matches!(self.last.map(role), Some(Author::User | Author::Tool))
            && matches!(next.map(role), None | Some(Author::Model));
        let first = match is_accepted {
            true => 0,
            false => self.find_untouched(next),
        };
        for from in self.waiting.drain(first..) {
            if let Some(OutlineItem::Client(behind)) = self.last
                && from < behind
            {
                self.order.moved.push(MovedMessage { from, behind });
            }
            self.order.outline.push(OutlineItem::Client(from));
        }
    }

    /// The first waiting message that stands between the same messages as in the client's list. It stays there, even if no
    /// rule known here allows it.
    fn find_untouched(&self, next: Option<OutlineItem>) -> usize {
        let Some(OutlineItem::Client(before)) = self.last else {
            return self.waiting.len();
        };
        let after = self.conversation.find_last_bound(before) + 1;
        let was_next = match next {
            Some(OutlineItem::Client(next)) => next == after,
            Some(_) => false,
            None => after == self.conversation.items.len(),
        };
        match was_next {
            true => self.waiting.partition_point(|&at| at < before),
            false => self.waiting.len(),
        }
    }
}
