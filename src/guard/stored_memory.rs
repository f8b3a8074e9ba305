//! The guard's memory as a session stores it.
//!
//! Releases before version 7 of a session's state remembered a cut as one boundary, up to which all is left out,
//! and two up to which results and media are cleared. Those fields are still stored, empty, so that one layout is
//! read for all versions. What is remembered since stands behind them, see `session::state`.

use serde::{Deserialize, Serialize};

use super::{GuardMemory, cut_state::CutMark, ground::Ground, result_limits::KeyedLimit};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct StoredMemory {
    ground: StoredGround,
    fold: Option<StoredFold>,
    swept: StoredSweep,
    tight: Vec<KeyedLimit>,
    texts: u64,
}

/// Window, usual budget, low water, fixed part, and the step and rules of clearing.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct StoredGround(u32, u32, u32, u32, u32, u64);

/// Steps of a grid, the first message that is kept, the tokens that went, and whether there was no ledger.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct StoredFold(u32, u32, u32, bool);

/// The first messages whose results and whose media are not cleared.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct StoredSweep(u32, u32);

impl From<GuardMemory> for StoredMemory {
    fn from(memory: GuardMemory) -> Self {
        Self {
            tight: memory.tight,
            texts: memory.texts,
            ..Self::default()
        }
    }
}

impl From<StoredMemory> for GuardMemory {
    fn from(stored: StoredMemory) -> Self {
        let StoredGround(window, ..) = stored.ground;
        let folded = stored.fold.map(|StoredFold(_, boundary, ..)| boundary);
        let StoredSweep(results, media) = stored.swept;
        // A release before does not say at which message the session's last request ended.
        let planned = if window == 0 { 0 } else { u32::MAX };
        let cut = CutMark::from_boundaries(folded, results, media);
        Self {
            ground: Ground::of_window(window),
            cut: Some(cut).filter(|cut| *cut != CutMark::default()),
            planned,
            tight: stored.tight,
            texts: stored.texts,
            ..Self::default()
        }
    }
}

/// What is remembered of the cuts, stored behind the fields of releases before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCuts {
    ground: Ground,
    cut: Option<CutMark>,
    planned: u32,
}

impl GuardMemory {
    pub fn to_stored_cuts(&self) -> StoredCuts {
        StoredCuts {
            ground: self.ground,
            cut: self.cut.clone(),
            planned: self.planned,
        }
    }

    pub fn restore_cuts(&mut self, stored: StoredCuts) {
        self.ground = stored.ground;
        self.cut = stored.cut;
        self.planned = stored.planned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_of_a_release_before_is_kept() {
        let ground = (8_192u32, 6_000u32, 500u32, 512u32, 0u32, 7u64);
        let fold = Some((3u32, 9u32, 4_000u32, true));
        let stored = (ground, fold, (11u32, 0u32), Vec::<KeyedLimit>::new(), 5u64);
        let bytes = postcard::to_allocvec(&stored).unwrap();
        let memory: GuardMemory = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(memory.boundary(), Some(9));
        assert_eq!(memory.cut, Some(CutMark::from_boundaries(Some(9), 11, 0)));
        assert_eq!(memory.texts, 5);
        let again: GuardMemory =
            postcard::from_bytes(&postcard::to_allocvec(&memory).unwrap()).unwrap();
        assert_eq!(again.cut, None, "cuts are stored behind the other fields");
    }
}
