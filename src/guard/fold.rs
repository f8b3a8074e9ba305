//! A cut: which units are folded, and how a session remembers it.

use serde::{Deserialize, Serialize};

use super::clear::sweep::Swept;
use crate::conversation::units::{self, Unit};

/// A cut that was made: remembered by the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FoldMark {
    /// Steps of the grid that were to go. Never falls.
    k: u32,
    /// The first message that is kept, counted without system messages: these come and go, and
    /// what is folded stays.
    boundary: u32,
    /// Raw tokens that went, as they were then.
    removed: u32,
    /// There was no room for a ledger.
    bare: bool,
}

impl FoldMark {
    /// The first message that is kept, counted without system messages.
    pub(super) const fn boundary(self) -> u32 {
        self.boundary
    }

    /// Whether nothing but the counting of its steps tells two cuts apart.
    pub(super) fn is_same_cut(one: Option<Self>, other: Option<Self>) -> bool {
        let shows = |mark: Self| (mark.boundary, mark.bare);
        one.map(shows) == other.map(shows)
    }

    /// The cut that a session remembers, where it lies between two units.
    pub(super) fn to_fold(self, units: &[Unit]) -> Option<Fold> {
        let boundary = units::find_unit_after(units, self.boundary)?;
        (boundary > units::find_pinned_end(units)).then_some(Fold {
            k: self.k,
            boundary,
            removed: self.removed,
            bare: self.bare,
            ..Fold::default()
        })
    }
}

/// What is folded: units from the pinned start up to `boundary`; and how far the rest is cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fold {
    pub(super) k: u32,
    /// Index of the first unit that is kept after the pinned start.
    pub(super) boundary: usize,
    /// Raw tokens that went.
    pub(super) removed: u32,
    /// There is no room for a ledger of what was left out with the last cut.
    pub(super) bare: bool,
    pub(super) swept: Swept,
    /// Index of the first unit that was kept after the first cut that is known.
    pub(super) first: Option<usize>,
}

impl Fold {
    /// What a session remembers of it.
    pub(super) fn to_mark(self, units: &[Unit]) -> Option<FoldMark> {
        let passed =
            &units[units::find_pinned_end(units)..self.boundary.max(units::find_pinned_end(units))];
        // A boundary that only passed what stays has left nothing out.
        passed.iter().any(|unit| !unit.stays).then_some(FoldMark {
            k: self.k,
            boundary: units::count_messages_before(units, self.boundary),
            removed: self.removed,
            bare: self.bare,
        })
    }
}
