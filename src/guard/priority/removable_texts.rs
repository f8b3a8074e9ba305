//! Which annotated texts go where a prompt is over its budget, before anything without an annotation is
//! folded: the low ones first, then medium, then high; critical ones never.
//!
//! Of one priority, texts that were sent before go first where they free enough: what the newest message
//! brings is about the question. As little goes as possible: the smallest that frees enough, or the largest
//! where none does. So it does not matter which of two stands first. Where a text goes that was sent before,
//! what follows it in the provider's cache is lost, so the same request makes room for some that follow.

use std::collections::BTreeSet;

use crate::conversation::Priority;

/// Priorities of texts that may go.
const CLASSES: usize = 3;

/// A text that may go.
#[derive(Clone, Copy, Debug)]
pub(in crate::guard) struct RemovableText {
    /// Its index among the annotated texts, which are in the order of the messages.
    pub(in crate::guard) text: usize,
    pub(in crate::guard) unit: usize,
    pub(in crate::guard) priority: Priority,
    /// Raw tokens, about: each message is rounded up as a whole.
    pub(in crate::guard) saves: u32,
}

/// All of them, on their way through a replay.
#[derive(Debug, Default)]
pub(in crate::guard) struct RemovableTexts {
    list: Vec<RemovableText>,
    /// The first that no request had yet.
    next: usize,
    sent: [RemovalPool; CLASSES],
    /// Raw tokens that are freed at least where a text goes that was sent before.
    jump: u32,
}

/// A text that may go, in the order of what it saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PoolEntry {
    /// Raw tokens.
    saves: u32,
    /// Its place in the list.
    at: usize,
}

/// Texts of one priority by what they save.
#[derive(Clone, Debug, Default)]
pub(super) struct RemovalPool {
    by_size: BTreeSet<PoolEntry>,
    sum: u64,
}

impl RemovalPool {
    pub(super) fn add_text(&mut self, saves: u32, at: usize) {
        if self.by_size.insert(PoolEntry { saves, at }) {
            self.sum += u64::from(saves);
        }
    }

    /// The smallest that saves so much; the largest where none does. The oldest of equal ones.
    fn find_best(&self, needed: u32) -> Option<PoolEntry> {
        let first = |saves: u32| {
            self.by_size
                .range(PoolEntry { saves, at: 0 }..)
                .next()
                .copied()
        };
        first(needed).or_else(|| first(self.by_size.last()?.saves))
    }

    fn remove(&mut self, entry: PoolEntry) {
        if self.by_size.remove(&entry) {
            self.sum -= u64::from(entry.saves);
        }
    }

    /// Takes what [`Self::find`] finds.
    pub(super) fn take_best(&mut self, needed: u32) -> Option<usize> {
        let found = self.find_best(needed)?;
        self.remove(found);
        Some(found.at)
    }
}

/// The one of two pools' finds that leaves more: the smaller where both suffice, else the larger.
fn choose_better(
    one: Option<PoolEntry>,
    other: Option<PoolEntry>,
    needed: u32,
) -> Option<PoolEntry> {
    let (Some(one), Some(other)) = (one, other) else {
        return one.or(other);
    };
    let both = one.saves.min(other.saves) >= needed;
    let takes_one = match both {
        true => one.saves <= other.saves,
        false => one.saves >= other.saves,
    };
    Some(if takes_one { one } else { other })
}

/// What was found of one request.
pub(in crate::guard) struct RemovalSearch {
    class: usize,
    /// The newest message's own texts, not looked at yet or left.
    fresh: [RemovalPool; CLASSES],
    first_fresh: usize,
    /// Raw tokens that texts sent before freed.
    freed: u32,
}

impl RemovableTexts {
    pub(in crate::guard) fn new(list: Vec<RemovableText>, jump: u32) -> Self {
        Self {
            list,
            jump,
            ..Self::default()
        }
    }

    /// Whether no text may go: so it is for nearly every conversation, which pays nothing then.
    pub(in crate::guard) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Texts of units before `until` were sent with an earlier request; those that `stays` denies are
    /// part of no request any more.
    pub(in crate::guard) fn mark_sent_until(
        &mut self,
        until: usize,
        stays: impl Fn(usize) -> bool,
    ) {
        while let Some(spare) = self.list.get(self.next).filter(|it| it.unit < until) {
            if stays(spare.unit) {
                self.sent[spare.priority as usize].add_text(spare.saves, self.next);
            }
            self.next += 1;
        }
    }

    /// Begins with the request that ended before unit `until`.
    pub(in crate::guard) fn begin_search(&mut self, until: usize) -> RemovalSearch {
        let first_fresh = self.next;
        let mut fresh: [RemovalPool; CLASSES] = Default::default();
        while let Some(spare) = self.list.get(self.next).filter(|it| it.unit < until) {
            fresh[spare.priority as usize].add_text(spare.saves, self.next);
            self.next += 1;
        }
        RemovalSearch {
            class: 0,
            fresh,
            first_fresh,
            freed: 0,
        }
    }

    /// The next text that goes of a request that is `over` raw tokens over its budget.
    pub(in crate::guard) fn take_next(
        &mut self,
        search: &mut RemovalSearch,
        over: u32,
    ) -> Option<RemovableText> {
        while search.class < CLASSES {
            let sent = &mut self.sent[search.class];
            let fresh = &mut search.fresh[search.class];
            let jump = self.jump.saturating_sub(search.freed);
            let found = if over == 0 {
                // Enough is freed; what follows has lost its cache, so more goes at once.
                let needed = if search.freed > 0 { jump } else { 0 };
                return self.take_sent(search, needed);
            } else if sent.sum >= u64::from(over) {
                sent.find_best(over.max(jump))
            } else {
                choose_better(sent.find_best(over), fresh.find_best(over), over)
            };
            if let Some(found) = found {
                sent.remove(found);
                fresh.remove(found);
                return Some(self.record_taken(search, found.at));
            }
            search.class += 1;
        }
        None
    }

    fn take_sent(&mut self, search: &mut RemovalSearch, needed: u32) -> Option<RemovableText> {
        if needed == 0 {
            return None;
        }
        let at = self.sent[search.class].take_best(needed)?;
        Some(self.record_taken(search, at))
    }

    fn record_taken(&self, search: &mut RemovalSearch, at: usize) -> RemovableText {
        let spare = self.list[at];
        if at < search.first_fresh {
            search.freed = search.freed.saturating_add(spare.saves);
        }
        spare
    }

    /// The request goes out: what is left of its own was sent from now on.
    pub(in crate::guard) fn end_search(&mut self, search: RemovalSearch) {
        for (sent, fresh) in self.sent.iter_mut().zip(search.fresh) {
            for entry in fresh.by_size {
                sent.add_text(entry.saves, entry.at);
            }
        }
    }
}
