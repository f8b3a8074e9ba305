//! The units that are still there at one moment of a replay: which may be left out, which are neighbours, and which turns
//! still have an answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use crate::{
    conversation::units::{self, Unit, UnitKind},
    guard::fold::cut_state::CutState,
};

/// Kept while a replay goes on, so that a cut costs time for what is left and not for the whole conversation.
#[derive(Default)]
pub(super) struct KeptUnits {
    /// Units that a cut may leave out or clear, now or later, oldest first.
    unpinned: Vec<usize>,
    /// Those of them that a cut may change now, and pinned messages whose attachments a cut may shorten; oldest first.
    open: Vec<usize>,
    /// Units that wait for a later unit, by that unit: no cut can change them before the later one may be left out.
    waiting: BTreeMap<usize, Vec<usize>>,
    /// Of each unit, whether it is never left out.
    lasting: Vec<bool>,
    /// Of each unit behind the pinned start, the neighbours that take part in the turns.
    neighbours: Vec<Neighbours>,
    /// The last unit with neighbours.
    last: Option<usize>,
    /// Of each unit, its turn.
    turn_of: Vec<usize>,
    turns: Vec<Turn>,
    after_user: bool,
}

#[derive(Clone, Copy, Default)]
struct Neighbours {
    before: Option<usize>,
    after: Option<usize>,
}

/// A limit, the numbers of open and unpinned units before it, and the number of turns. They are the same while nothing
/// changes before the limit.
pub(super) type KeptCounts = [usize; 4];

/// A turn begins with the user's messages.
#[derive(Clone, Default)]
struct Turn {
    /// User messages that may go. A turn may hold any number of them, which are taken out one by one.
    users: BTreeSet<usize>,
    /// User messages that are left out.
    gone: BTreeSet<usize>,
    /// Other units that are there and not pinned.
    answers: usize,
}

impl KeptUnits {
    pub(super) fn new(units: &[Unit]) -> Self {
        Self {
            lasting: units::list_lasting(units),
            ..Self::default()
        }
    }

    /// The counts before `limit`.
    pub(super) fn count_before(&self, limit: usize) -> KeptCounts {
        let (open, unpinned) = (self.list_open(limit), self.list_unpinned(limit));
        [limit, open.len(), unpinned.len(), self.turns.len()]
    }

    /// Whether no cut leaves a unit out.
    pub(super) fn is_lasting(&self, unit: usize) -> bool {
        self.lasting[unit]
    }

    /// Adds the next unit. `may_go`: it can be left out or cleared, but not before the unit `waits_for` may go; `is_in_start`:
    /// it belongs to the pinned start.
    pub(super) fn add_unit(
        &mut self,
        unit: &Unit,
        is_kept: bool,
        may_go: bool,
        waits_for: Option<usize>,
        is_in_start: bool,
    ) {
        let at = self.turn_of.len();
        let is_user = unit.kind == UnitKind::User;
        if self.turns.is_empty() || is_user && !self.after_user {
            self.turns.push(Turn::default());
        }
        if unit.kind != UnitKind::System {
            self.after_user = is_user;
        }
        let newest = self.turns.len() - 1;
        self.turn_of.push(newest);
        self.neighbours.push(Neighbours::default());
        let turn = &mut self.turns[newest];
        if is_user && may_go {
            turn.users.insert(at);
        } else if is_user && !is_kept {
            turn.gone.insert(at);
        } else if !is_user && is_kept && !unit.is_pinned {
            turn.answers += 1;
        }
        if may_go {
            self.unpinned.push(at);
            match waits_for {
                Some(last) => self.waiting.entry(last).or_default().push(at),
                None => self.open.push(at),
            }
        }
        if is_kept && !is_in_start && unit.kind != UnitKind::System {
            self.neighbours[at].before = self.last;
            if let Some(last) = self.last {
                self.neighbours[last].after = Some(at);
            }
            self.last = Some(at);
        }
    }

    /// Lets a cut clear what is attached to a pinned message of the user.
    pub(super) fn open_attachments(&mut self, at: usize) {
        self.open.push(at);
    }

    /// Opens the units that waited for one before `limit`: both may go now.
    pub(super) fn open_waiting_before(&mut self, limit: usize) {
        let later = self.waiting.split_off(&limit);
        let waited = std::mem::replace(&mut self.waiting, later);
        let mut waited: Vec<usize> = waited.into_values().flatten().collect();
        waited.sort_unstable();
        if let Some(&oldest) = waited.first() {
            let first = self.open.partition_point(|&unit| unit < oldest);
            self.open.extend(waited);
            self.open[first..].sort();
        }
    }

    /// Units before `limit` that a cut may leave out or clear, now or later, oldest first.
    pub(super) fn list_unpinned(&self, limit: usize) -> &[usize] {
        list_before(&self.unpinned, limit)
    }

    /// Those of them that a cut may change now.
    pub(super) fn list_open(&self, limit: usize) -> &[usize] {
        list_before(&self.open, limit)
    }

    /// Forgets the open units that no further cut can change, and all units that are left out. `settled` is for the oldest
    /// open units.
    pub(super) fn drop_settled(&mut self, settled: &[bool], state: &CutState) {
        let mut looked_at = self.open[..settled.len()].iter();
        if looked_at.any(|&unit| state.folded[unit]) {
            self.unpinned.retain(|&unit| !state.folded[unit]);
        }
        if settled.contains(&true) {
            let mut settled = settled.iter();
            self.open.retain(|_| settled.next() != Some(&true));
        }
    }

    /// For each row of neighbours in `gone`, which is in order, the unit before and the unit after it, if there are both.
    /// Only units that take part in the turns count.
    pub(super) fn list_neighbours(&self, gone: &[usize]) -> Vec<(usize, usize)> {
        let rows = gone.chunk_by(|&one, &next| self.neighbours[one].after == Some(next));
        let pair = |row: &[usize]| {
            let before = self.neighbours[*row.first()?].before?;
            Some((before, self.neighbours[*row.last()?].after?))
        };
        rows.filter_map(pair).collect()
    }

    /// The unit that would begin the newest turn's answers without the units `gone`, if `unit`, one of these, begins them
    /// now.
    pub(super) fn find_next_of_turn(
        &self,
        unit: usize,
        gone: &[usize],
        units: &[Unit],
    ) -> Option<usize> {
        let Neighbours { before, mut after } = self.neighbours[unit];
        let is_user = |at: usize| units[at].is_user();
        let begins = self.is_of_newest_turn(unit) && !is_user(unit) && before.is_none_or(is_user);
        while let Some(next) = after.filter(|next| begins && gone.binary_search(next).is_ok()) {
            after = self.neighbours[next].after;
        }
        after.filter(|_| begins)
    }

    /// The first unit of the row of answers that ends with `unit`.
    pub(super) fn find_first_answer(&self, unit: usize, units: &[Unit]) -> usize {
        let answers = iter::successors(Some(unit), |&at| self.neighbours[at].before);
        let answers = answers.take_while(|&at| !units[at].is_user());
        answers.last().unwrap_or(unit)
    }

    /// Takes a unit out of the turns.
    pub(super) fn remove_unit(&mut self, at: usize, kind: UnitKind) {
        let Neighbours { before, after } = self.neighbours[at];
        if let Some(before) = before {
            self.neighbours[before].after = after;
        }
        match after {
            Some(after) => self.neighbours[after].before = before,
            None if self.last == Some(at) => self.last = before,
            None => {}
        }
        let turn = &mut self.turns[self.turn_of[at]];
        match kind {
            UnitKind::User => {
                turn.users.remove(&at);
                turn.gone.insert(at);
            }
            _ => turn.answers = turn.answers.saturating_sub(1),
        }
    }

    /// The last user message of the newest turn that is left out.
    pub(super) fn find_gone_question(&self) -> Option<usize> {
        self.turns.last()?.gone.last().copied()
    }

    /// Takes the user message back that [`Self::find_gone_question`] gives, between units that are there.
    pub(super) fn return_user(&mut self, at: usize, before: Option<usize>, after: usize) {
        self.neighbours[at] = Neighbours {
            before,
            after: Some(after),
        };
        if let Some(before) = before {
            self.neighbours[before].after = Some(at);
        }
        self.neighbours[after].before = Some(at);
        for units in [&mut self.unpinned, &mut self.open] {
            units.insert(units.partition_point(|&unit| unit < at), at);
        }
        let turn = &mut self.turns[self.turn_of[at]];
        turn.users.insert(at);
        turn.gone.remove(&at);
    }

    /// Whether a unit is of the turn that began last.
    pub(super) fn is_of_newest_turn(&self, unit: usize) -> bool {
        self.turn_of[unit] + 1 == self.turns.len()
    }

    /// Whether no answer to a user message is left, and the message is not in the newest turn.
    pub(super) fn is_unanswered(&self, user: usize) -> bool {
        self.turns[self.turn_of[user]].answers == 0 && !self.is_of_newest_turn(user)
    }

    /// The units that go with a unit: the last answer of a turn takes the user messages with it.
    pub(super) fn list_parts(&self, unit: usize, kind: UnitKind) -> Vec<usize> {
        let turn = &self.turns[self.turn_of[unit]];
        if kind == UnitKind::User || turn.answers > 1 || self.is_of_newest_turn(unit) {
            return vec![unit];
        }
        turn.users.iter().copied().chain([unit]).collect()
    }
}

/// Those of `units`, which are in order, that are before `limit`.
fn list_before(units: &[usize], limit: usize) -> &[usize] {
    &units[..units.partition_point(|&unit| unit < limit)]
}
