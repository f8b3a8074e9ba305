//! Finds answers that depend on the reasoning of the answer before.
//!
//! A provider that knows the ids of entries refuses an answer without the reasoning that led to it. An answer without
//! reasoning of its own, behind outputs, may depend on the reasoning of the answer before these outputs.

use crate::conversation::{Block, BlockKind, Item};

/// Answers that may follow one reasoning. All of them are left out together, so a longer row would take too much with it.
const MAX_FOLLOWERS: u32 = 32;

/// How many answers may still follow the newest reasoning; 0 where none can.
#[derive(Default)]
pub(super) struct Followers(pub(super) u32);

impl Followers {
    /// Begins an answer. Returns whether it follows the newest reasoning. `may_follow`: the answer has an id, and is
    /// behind an output.
    pub(super) const fn begin_answer(&mut self, may_follow: bool) -> bool {
        let follows = may_follow && self.0 > 0;
        self.0 = if follows { self.0 - 1 } else { 0 };
        follows
    }

    /// Notes that an answer has reasoning behind the blocks `before`. An answer that has nothing but texts before its
    /// reasoning does not follow the reasoning of an earlier answer.
    pub(super) fn note_reasoning(&mut self, answer: &mut Item, before: &[Block]) {
        let is_text = |block: &Block| matches!(block.kind, BlockKind::Text(_));
        answer.follows_reasoning &= !before.iter().all(is_text);
        if !answer.follows_reasoning {
            self.0 = MAX_FOLLOWERS;
        }
    }

    /// Ends the row: a message came that is neither an answer nor an output.
    pub(super) const fn end_row(&mut self) {
        self.0 = 0;
    }
}
