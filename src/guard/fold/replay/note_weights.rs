//! What the note weighs that stands for what is gone: the preface and its ledger.

use crate::{
    conversation::units::Unit,
    guard::{
        fold::{cut_state::CutState, ledger, preface::PrefaceBase},
        request::{budget, policy::Policy, view::RequestView},
    },
};

/// The part of the usual budget that what the user said may take, and the most that it may; raw tokens.
const SAID_SHARE: u32 = 10;
const MAX_SAID_TOKENS: u32 = 4_000;
/// The same of words.
const WORDS_SHARE: u32 = 50;
const MAX_WORDS_TOKENS: u32 = 2_000;
/// Raw tokens that frame a preface.
pub(in crate::guard) const PREFACE_FRAME: u32 = 8;

/// What a preface and its ledger weigh; raw tokens.
pub(in crate::guard) struct NoteWeights {
    /// A preface without its ledger.
    pub(in crate::guard) preface: u32,
    /// What a ledger may take for what the user said, for words, and what frames both. By the usual budget, so that they
    /// are the same in every process.
    said_room: u32,
    words_room: u32,
    ledger_frame: u32,
    /// The preface stands even if nothing is left out.
    pub(in crate::guard) stands_always: bool,
    /// The first unit of which the preface does not speak without a ledger.
    pub(in crate::guard) begins: usize,
    /// A user message before it of which the preface does not speak either.
    pub(in crate::guard) question: Option<usize>,
}

impl NoteWeights {
    pub(in crate::guard) fn new(view: RequestView<'_>, base: &PrefaceBase<'_>) -> Self {
        let weights = view.token_weights();
        let preface = weights.count_plain_tokens(&base.text);
        let room = |share: u32, most: u32| (usual_tokens(&view.policy) / share).min(most);
        Self {
            preface: preface.saturating_add(PREFACE_FRAME),
            said_room: room(SAID_SHARE, MAX_SAID_TOKENS),
            words_room: room(WORDS_SHARE, MAX_WORDS_TOKENS),
            ledger_frame: ledger::weigh_frame(&base.ledger_head(), &weights),
            stands_always: base.boundary.is_some(),
            begins: view.count_pinned(),
            question: None,
        }
    }

    /// The most raw tokens of words.
    pub(super) fn words_room(&self) -> u32 {
        self.words_room
    }

    /// The most raw tokens of a preface with its ledger.
    pub(super) fn longest(&self) -> u32 {
        [
            self.preface,
            self.said_room,
            self.words_room,
            self.ledger_frame,
        ]
        .into_iter()
        .fold(0, u32::saturating_add)
    }

    /// Raw tokens of the note of these cuts, of which the ledger takes `ledger`.
    pub(in crate::guard) fn of_cuts(&self, state: &CutState, ledger: u32) -> u32 {
        if self.stands_always || state.has_folds {
            self.preface.saturating_add(ledger)
        } else {
            0
        }
    }

    /// The most raw tokens that the ledger takes.
    pub(in crate::guard) fn of_ledger(&self, state: &CutState) -> u32 {
        if state.bare || !state.has_facts {
            return 0;
        }
        let said = state.said.min(self.said_room);
        said.saturating_add(self.words_room)
            .saturating_add(self.ledger_frame)
    }

    /// Whether the preface speaks for a unit without a ledger.
    pub(in crate::guard) fn speaks_for(&self, unit: usize) -> bool {
        unit < self.begins && self.question != Some(unit)
    }

    /// Tells the note that a unit is left out: it makes a preface, and its ledger longer.
    pub(super) fn note_dropped(&self, at: usize, view: RequestView<'_>, state: &mut CutState) {
        state.has_folds = true;
        if self.speaks_for(at) {
            return;
        }
        state.has_facts = true;
        let unit: &Unit = &view.units[at];
        if unit.is_user() {
            let weights = view.token_weights();
            let line = ledger::weigh_user_line(view.conversation, unit.messages.start, &weights);
            state.said = state.said.saturating_add(line);
        }
    }
}

fn usual_tokens(policy: &Policy<'_>) -> u32 {
    budget::default_budget(policy).tokens
}
