//! The order of the messages that stay, and the places of bound messages in it.
//!
//! A bound message (a system entry in the midst of the list) is valid only behind a message of the user or a result, and
//! before an answer or at the end. It is never left out. If the messages around it are, it moves to the next place that its
//! format allows. Bound messages keep their order, and stay where they are until the next cut. The provider takes several in
//! a row for one.

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

/// A bound message that is at another place than where the client put it.
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
    /// The last message that is not a system message.
    last: Option<OutlineItem>,
}

impl MessageOrder {
    /// Arranges the messages that are not `removed`, with the preface `preface.1` before message `preface.0`. Adds to
    /// `removed` the bound messages that are not where the client put them.
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

    /// Inserts the moved messages at their new places, behind what is inserted there so far. Their cache markers are unset,
    /// since markers must not change their order.
    pub(in crate::guard) fn insert_moved(&self, conversation: &Conversation, edits: &mut Edits) {
        for moved in &self.moved {
            conversation.repeat_behind(moved.behind, moved.from, edits);
            conversation.unset_cache_markers(moved.from, edits);
        }
    }

    /// Lists the bound messages that have moved, each with the message before it now.
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
        let first = if is_accepted {
            0
        } else {
            self.find_untouched(next)
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

    /// Finds the first waiting message that is still between the same messages as in the client's list. It stays there, even
    /// if no rule known here allows it.
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
        if was_next {
            self.waiting.partition_point(|&at| at < before)
        } else {
            self.waiting.len()
        }
    }
}
