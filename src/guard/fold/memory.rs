//! What the guard remembers of a session, and what earlier requests taught it.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    conversation::{Conversation, units::Unit},
    guard::{
        fold::{basis::CutBasis, cut_state::CutMark, sent_history::SentHistory},
        grammar::role_alternation,
        inject::injections::Injections,
        request::{
            answer_cap::{AnswerHistory, PastAnswers},
            estimate::{Calibration, TokenScale},
            policy::Policy,
        },
        shrink::{cuts::SessionLimits, result_limits::KeyedLimit},
    },
};

/// What the guard remembers of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardMemory {
    /// What the cuts so far stand on.
    pub(in crate::guard) basis: CutBasis,
    /// What is left out and cleared; `None` before the first cut.
    pub(in crate::guard) cut: Option<CutMark>,
    /// How many messages, without system messages, the last planned request had. Later requests, if any, went out while
    /// the guard was off.
    pub(in crate::guard) planned: u32,
    /// Tighter limits by message digest: of results and calls that did not fit while they were the newest, or
    /// that came while the session was not healthy. They apply for the rest of the session. A limit of 0
    /// characters marks an annotated text that was left out, by the text's key; it applies while `basis` binds.
    pub(in crate::guard) limits: Vec<KeyedLimit>,
    /// Digest of what was last logged about caps and shares; 0 for nothing.
    pub(in crate::guard) texts: u64,
    /// What caps and shares took a raw token for.
    pub scale: TokenScale,
    /// Whether what stands for a cut names ids; `None` where nothing is cut.
    pub names_ids: Option<bool>,
    /// Whether user and assistant alternated before the first cut or injection; `None` until there is one.
    pub alternates: Option<bool>,
}

impl GuardMemory {
    /// The message after the last one that is left out, counted without system messages; `None` without a fold. Before
    /// it, some are kept.
    pub fn boundary(&self) -> Option<u32> {
        self.cut.as_ref().and_then(CutMark::end_of_folds)
    }

    /// Of each unit of the conversation that this is the memory of, whether it is left out.
    pub(crate) fn find_folded(&self, units: &[Unit]) -> Vec<bool> {
        let cut = self.cut.as_ref().and_then(|cut| cut.find_units(units));
        cut.map_or_else(|| vec![false; units.len()], |cut| cut.folded)
    }

    /// The messages that are left out, counted without system messages.
    pub fn list_left_out(&self) -> Vec<Range<u32>> {
        let spans = self.cut.as_ref().map_or(&[][..], CutMark::folded_spans);
        spans.iter().map(|&(from, until)| from..until).collect()
    }

    /// Whether the cuts of two memories stand on different windows or depths.
    pub fn has_other_basis(&self, other: &Self) -> bool {
        self.basis != other.basis
    }

    /// Messages with a remembered limit.
    pub fn count_tightened(&self) -> usize {
        let limits = self.limits.iter().filter(|(_, limit)| limit.chars() > 0);
        limits.count()
    }

    /// Keeps, under this policy, cuts that were planned for a smaller window.
    pub fn stand_on(&mut self, policy: &Policy<'_>) {
        self.basis = CutBasis::from_policy(policy);
    }

    /// Drops the older half of the remembered limits, for a state that is too large to be stored.
    /// Returns whether there were any.
    pub fn drop_older_half(&mut self) -> bool {
        let half = self.limits.len().div_ceil(2);
        self.limits.drain(..half);
        half > 0
    }
}

/// What earlier requests of the session taught about a conversation.
#[derive(Clone, Debug, Default)]
pub struct Recall {
    pub memory: GuardMemory,
    /// How the last request went out, or the last round of this one.
    pub history: SentHistory,
    /// How an earlier round of this request went out, whose cuts stay.
    pub sent: Option<GuardMemory>,
    pub calibration: Calibration,
    /// The provider refused this very request and counted it: the count is the calibration's anchor.
    pub counted: bool,
    /// The provider refused this very request as too long.
    pub was_refused: bool,
    /// Nothing but what must stay is sent, and that as it is: nobody knows how much fits.
    pub keeps_least: bool,
    /// No request of the conversation is over its budget, whatever it holds.
    pub ignores_budget: bool,
    /// Messages of the last request, whose cuts are in `memory`, without system messages; 0 where there was none.
    pub messages: usize,
    /// What the proxy added to the conversation.
    pub injections: Injections,
    /// Lengths of the answers so far, from which the next one is expected.
    pub answers: AnswerHistory,
    /// The provider's cache holds nothing of this conversation any more.
    pub is_cold: bool,
    /// All reasoning made before this answer is left out, whatever the session knows: the provider refused it.
    pub leaves_out_reasoning: bool,
    /// Places of answers whose reasoning another provider has sealed: it is left out. Places as in [`crate::guard::request::epoch::Epoch`].
    pub foreign: Vec<Range<u32>>,
}

impl Recall {
    /// What caps and shares take a raw token for: as before, so that the front of the prompt stays, unless there is no
    /// prompt before this one that a cache could hold.
    pub(in crate::guard) fn token_scale(&self) -> TokenScale {
        match self.messages == 0 || self.is_cold {
            true => self.calibration.to_scale(),
            false => self.calibration.hold_scale(self.kept_memory().scale),
        }
    }

    /// Whether what stands for a cut names ids: as before, so that the front of the prompt stays where a client brings its
    /// tools late, unless there is no prompt before this one that a cache could hold.
    pub(in crate::guard) fn names_ids(&self) -> bool {
        let offered = self.injections.names_ids;
        match self.messages == 0 || self.is_cold {
            true => offered,
            false => self.kept_memory().names_ids.unwrap_or(offered),
        }
    }

    /// The memory whose cuts the request keeps.
    pub(in crate::guard) fn kept_memory(&self) -> &GuardMemory {
        self.sent.as_ref().unwrap_or(&self.memory)
    }

    pub(in crate::guard) fn limits(&self, policy: &Policy<'_>) -> SessionLimits<'_> {
        let memory = self.kept_memory();
        SessionLimits {
            remembered: &memory.limits,
            leaves_out_texts: CutBasis::from_policy(policy) == memory.basis,
            new_results: self.injections.tight_chars,
            sent: self.messages,
        }
    }

    /// What is known of the answers so far, for the room that the next one needs.
    pub fn past_answers(&self) -> PastAnswers {
        PastAnswers {
            history: self.answers,
            calibration: self.calibration,
            was_refused: self.was_refused,
            ignores_budget: self.ignores_budget,
        }
    }

    /// Whether the conversation alternates, as far as that is settled before it is cut: as remembered, or judged by the
    /// messages before the first injection. `None` where there is neither.
    pub(in crate::guard) fn find_settled_alternation(
        &self,
        conversation: &Conversation,
    ) -> Option<bool> {
        self.kept_memory().alternates.or_else(|| {
            let first = self.injections.find_first_place()?;
            Some(role_alternation::has_alternating_roles(conversation, first))
        })
    }
}
