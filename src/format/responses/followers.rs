//! Answers that rest on the reasoning of the answer before.
//!
//! A provider that knows the ids of entries refuses an answer without the reasoning that led to it. An answer without
//! reasoning of its own, behind outputs, may rest on the reasoning of the answer before these outputs.

use crate::conversation::{Block, BlockKind, Item};

/// Answers that may follow one reasoning. They are left out together, so a longer row would take too much with it.
const MAX_FOLLOWERS: u32 = 32;

/// How many answers may still follow the newest reasoning; 0 where none can.
#[derive(Default)]
pub(super) struct Followers(pub(super) u32);

impl Followers {
    /// Whether an answer follows it. `may_follow`: it has an id, and stands behind an output.
    pub(super) const fn begin_answer(&mut self, may_follow: bool) -> bool {
        let follows = may_follow && self.0 > 0;
        self.0 = if follows { self.0 - 1 } else { 0 };
        follows
    }

    /// Notes reasoning of an answer behind those blocks. An answer that begins with texts and then reasons does not follow
    /// the reasoning before it.
    pub(super) fn note_reasoning(&mut self, answer: &mut Item, before: &[Block]) {
        let is_text = |block: &Block| matches!(block.kind, BlockKind::Text(_));
        answer.follows_reasoning &= !before.iter().all(is_text);
        if !answer.follows_reasoning {
            self.0 = MAX_FOLLOWERS;
        }
    }

    /// A message ends the row.
    pub(super) const fn end_row(&mut self) {
        self.0 = 0;
    }
}
