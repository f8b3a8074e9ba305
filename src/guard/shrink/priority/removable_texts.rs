//! Chooses the annotated texts to leave out of a prompt that is over its budget, before messages are folded: low priority
//! first, then medium, then high; critical ones never.
//!
//! Within a priority, texts of earlier requests come first if they free enough, since texts of the newest request belong to
//! its question. As little as possible is left out: the smallest text that frees enough, else the largest, of whatever
//! request. Leaving out a text that was sent before loses the prefix cache from there on, so the same request also makes
//! room for requests to come.

use std::collections::BTreeSet;

use crate::conversation::Priority;

/// Priorities of texts that may be left out.
const CLASSES: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(in crate::guard) struct RemovableText {
    /// Its index among the annotated texts, which are in the order of the messages.
    pub(in crate::guard) text: usize,
    pub(in crate::guard) unit: usize,
    /// Whether it is in a bound message, which stays when its unit is removed.
    pub(in crate::guard) is_bound: bool,
    pub(in crate::guard) priority: Priority,
    /// Raw tokens saved, approximately: the tokens of a message are rounded up for the whole message, not for each text.
    pub(in crate::guard) saves: u32,
}

/// All removable texts while a conversation is replayed.
#[derive(Debug, Default)]
pub(in crate::guard) struct RemovableTexts {
    list: Vec<RemovableText>,
    /// The index of the first text that no replayed request has yet.
    next: usize,
    sent: [RemovalPool; CLASSES],
    /// The least raw tokens to free once a text that was sent before is left out.
    jump: u32,
}

/// A removable text, ordered by its saving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PoolEntry {
    /// Raw tokens.
    saves: u32,
    /// Its index in the list.
    at: usize,
}

/// Texts of one priority by their saving.
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

    /// The smallest text that saves `needed` raw tokens, else the largest; the oldest of equal ones.
    fn find_best(&self, needed: u32) -> Option<PoolEntry> {
        let first = |saves| self.by_size.range(PoolEntry { saves, at: 0 }..).next();
        let best = first(needed).or_else(|| first(self.by_size.last()?.saves));
        best.copied()
    }

    fn remove(&mut self, entry: PoolEntry) {
        if self.by_size.remove(&entry) {
            self.sum -= u64::from(entry.saves);
        }
    }

    /// Takes the text of [`Self::find_best`] out of the pool. Returns its index in the list.
    pub(super) fn take_best(&mut self, needed: u32) -> Option<usize> {
        let best = self.find_best(needed)?;
        self.remove(best);
        Some(best.at)
    }
}

/// The better of two entries: the smaller where both save enough, else the larger. Of equal ones the first.
fn choose_better(
    sent: Option<PoolEntry>,
    fresh: Option<PoolEntry>,
    needed: u32,
) -> Option<PoolEntry> {
    let (Some(sent), Some(fresh)) = (sent, fresh) else {
        return sent.or(fresh);
    };
    let both_suffice = sent.saves.min(fresh.saves) >= needed;
    let takes_sent = if both_suffice {
        sent.saves <= fresh.saves
    } else {
        sent.saves >= fresh.saves
    };
    Some(if takes_sent { sent } else { fresh })
}

/// The search for texts to leave out of one request.
pub(in crate::guard) struct RemovalSearch {
    class: usize,
    /// Texts that are new with this request and not left out.
    fresh: [RemovalPool; CLASSES],
    first_fresh: usize,
    /// Raw tokens freed by texts that were sent before.
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

    pub(in crate::guard) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Marks the texts of units before `until` as sent by an earlier request, where they are still part of requests:
    /// `stays` says whether a unit is.
    pub(in crate::guard) fn mark_sent_until(
        &mut self,
        until: usize,
        stays: impl Fn(usize) -> bool,
    ) {
        while let Some(text) = self.list.get(self.next).filter(|it| it.unit < until) {
            if text.is_bound || stays(text.unit) {
                self.sent[text.priority as usize].add_text(text.saves, self.next);
            }
            self.next += 1;
        }
    }

    /// Forgets the texts that are removed with a unit: leaving them out would free nothing more.
    pub(in crate::guard) fn forget_unit(&mut self, unit: usize) {
        let first = self.list.partition_point(|text| text.unit < unit);
        let of_unit = self.list[first..].iter().enumerate();
        for (at, text) in of_unit.take_while(|(_, text)| text.unit == unit) {
            if !text.is_bound {
                let (saves, at) = (text.saves, first + at);
                self.sent[text.priority as usize].remove(PoolEntry { saves, at });
            }
        }
    }

    /// Begins the search for the request that ended before unit `until`.
    pub(in crate::guard) fn begin_search(&mut self, until: usize) -> RemovalSearch {
        let first_fresh = self.next;
        let mut fresh: [RemovalPool; CLASSES] = Default::default();
        while let Some(text) = self.list.get(self.next).filter(|it| it.unit < until) {
            fresh[text.priority as usize].add_text(text.saves, self.next);
            self.next += 1;
        }
        RemovalSearch {
            class: 0,
            fresh,
            first_fresh,
            freed: 0,
        }
    }

    /// The next text to leave out of a request that is `over` raw tokens over its budget.
    pub(in crate::guard) fn take_next(
        &mut self,
        search: &mut RemovalSearch,
        over: u32,
    ) -> Option<RemovableText> {
        while search.class < CLASSES {
            let sent = &mut self.sent[search.class];
            let fresh = &mut search.fresh[search.class];
            let jump = self.jump.saturating_sub(search.freed);
            let best = if over == 0 {
                // Enough is freed. If the prefix cache is lost anyway, more is freed at once.
                if search.freed == 0 || jump == 0 {
                    return None;
                }
                Some(sent.find_best(jump)?)
            } else if sent.sum >= u64::from(over) {
                sent.find_best(over.max(jump))
            } else {
                choose_better(sent.find_best(over), fresh.find_best(over), over)
            };
            if let Some(best) = best {
                sent.remove(best);
                fresh.remove(best);
                let text = self.list[best.at];
                if best.at < search.first_fresh {
                    search.freed = search.freed.saturating_add(text.saves);
                }
                return Some(text);
            }
            search.class += 1;
        }
        None
    }

    /// Ends the search, as the request is sent: later requests count its remaining texts as sent.
    pub(in crate::guard) fn end_search(&mut self, search: RemovalSearch) {
        for (sent, fresh) in self.sent.iter_mut().zip(search.fresh) {
            for entry in fresh.by_size {
                sent.add_text(entry.saves, entry.at);
            }
        }
    }
}
