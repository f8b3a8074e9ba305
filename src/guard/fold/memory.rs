//! What the guard remembers of a session, and what earlier requests taught it.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    conversation::{Author, Conversation, PlaceMap, ToolBrevity, units::Unit},
    guard::{
        fold::{
            basis::CutBasis,
            cut_state::{CutMark, CutState},
            sent_history::{SentChanges, SentHistory},
        },
        grammar::role_alternation,
        inject::{
            injections::{Injections, Summary},
            placed_injections::{LeftOut, UnusableReasoning},
        },
        order::Due,
        request::{
            answer_cap::{AnswerHistory, PastAnswers},
            answer_place::{AnswerPlace, count_places},
            estimate::{Calibration, TokenScale},
            policy::Policy,
            recall_id::NamedIds,
            refusal_lessons::RefusalLessons,
        },
        shrink::{
            message_cuts::SessionLimits,
            result_limits::{KeyedLimit, RememberedLimit},
        },
        text::truncate::TruncationMarker,
    },
};

/// The key of the limit that remembers how short the tool definitions are. It is not the digest of a message.
const TOOLS_KEY: u128 = u128::from_be_bytes(*b"tool definitions");

/// What the guard remembers of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardMemory {
    /// The window, the budget and the depth for which the cuts so far were made.
    pub(in crate::guard) basis: CutBasis,
    /// What is left out and cleared; `None` before the first cut.
    pub(in crate::guard) cut: Option<CutMark>,
    /// How many messages, without system messages, the last planned request had. Later requests, if any, went out while
    /// the guard was off.
    pub(in crate::guard) planned: u32,
    /// The limits of single messages, by digests. A result, a call or an attachment has a limit if the newest step or
    /// message did not fit with it, or if it came while the session was not healthy. Such a limit applies for the rest of
    /// the session. An annotated text that was left out has one too, which applies while the policy has the same `basis`. If
    /// tool definitions are cut, their limit is the last one, and applies under the same condition: 1 if their annotations
    /// are cut, 2 if their descriptions are cut too.
    pub(in crate::guard) limits: Vec<KeyedLimit>,
    /// Digest of what was last logged about caps and shares; 0 for nothing.
    pub(in crate::guard) texts: u64,
    /// What caps and shares took a raw token for.
    pub scale: TokenScale,
    /// Which placeholders and notes name ids; `None` where there are none.
    pub names_ids: Option<NamedIds>,
    /// Whether user and assistant alternated before the first cut or injection; `None` until there is one.
    pub alternates: Option<bool>,
}

impl GuardMemory {
    /// The message after the last one that is left out, counted without system messages; `None` if no message is left out.
    /// It moves back only if the user's newest message comes back. Some messages before it are kept.
    pub fn boundary(&self) -> Option<u32> {
        Some(self.cut.as_ref()?.folded.last()?.1)
    }

    /// Finds what is cut in a conversation that continues the remembered one. Nothing is cut if a remembered place cannot be
    /// found there.
    pub(in crate::guard) fn find_cut(
        &self,
        conversation: &Conversation,
        units: &[Unit],
    ) -> CutState {
        let cut = self.cut.as_ref();
        let state = cut.and_then(|cut| cut.find_cut(conversation, units));
        state.unwrap_or_else(|| CutState::new(units.len()))
    }

    /// Moves the places of cuts to where their messages stand in a conversation that the client has edited.
    pub fn follow_edits(&mut self, places: &PlaceMap) {
        self.planned = places.find_boundary(self.planned);
        if let Some(cut) = &mut self.cut {
            cut.follow_edits(places);
        }
    }

    /// Forgets the cuts before `boundary`, for a request that begins with a summary of the provider's own.
    pub(in crate::guard) fn forget_cuts_before(&mut self, boundary: u32) {
        if let Some(cut) = &mut self.cut {
            cut.forget_cuts_before(boundary);
        }
    }

    /// Notes that the messages from `first` to `boundary` are left out, too: a summary of the provider's own takes their
    /// place.
    pub(in crate::guard) fn leave_out(&mut self, first: u32, boundary: u32) {
        if first < boundary {
            let cut = self.cut.get_or_insert_default();
            cut.folded.insert(0, (first, boundary));
        }
    }

    /// The messages that are left out, counted without system messages.
    pub fn list_left_out(&self) -> Vec<Range<u32>> {
        let spans = self.cut.iter().flat_map(|cut| &cut.folded);
        spans.map(|&(from, until)| from..until).collect()
    }

    /// Whether the cuts of two memories were made for different windows, budgets or depths.
    pub fn has_other_basis(&self, other: &Self) -> bool {
        self.basis != other.basis
    }

    /// Messages with a remembered limit.
    pub fn count_tightened(&self) -> usize {
        let of_message =
            |(key, limit): &&KeyedLimit| *key != TOOLS_KEY && *limit != RememberedLimit::LeftOut;
        self.limits.iter().filter(of_message).count()
    }

    /// Remembers how short the tool definitions are, so that every later request has them as short.
    pub(in crate::guard) fn remember_tools(&mut self, brevity: Option<ToolBrevity>) {
        let amount = match brevity {
            None => return,
            Some(ToolBrevity::NoAnnotations) => 1,
            Some(ToolBrevity::FirstSentences) => 2,
        };
        let limit = RememberedLimit::new(amount, TruncationMarker::Plain);
        self.limits.push((TOOLS_KEY, limit));
    }

    /// How short tool definitions are; `None` if they are whole.
    fn tool_brevity(&self) -> Option<ToolBrevity> {
        let (_, limit) = self.limits.iter().find(|(key, _)| *key == TOOLS_KEY)?;
        Some(match limit.amount() {
            1 => ToolBrevity::NoAnnotations,
            _ => ToolBrevity::FirstSentences,
        })
    }

    /// Sets the basis to that of `policy`, so that cuts that were planned for another window are kept under it.
    pub fn set_basis(&mut self, policy: &Policy<'_>) {
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

/// A summary that no request had before.
#[derive(Clone, Debug)]
pub struct NewSummary {
    /// The summary that earlier requests had, if any.
    pub before: Option<Summary>,
}

/// An earlier plan of the same request: of the tool round before, or one that is replaced after a refusal.
#[derive(Clone, Debug)]
pub struct EarlierPlan {
    pub memory: GuardMemory,
    /// Why it cut the request, if it did.
    pub due: Option<Due>,
}

/// What earlier requests of the session taught about a conversation.
#[derive(Clone, Debug, Default)]
pub struct SessionKnowledge {
    pub memory: GuardMemory,
    /// What the proxy changed in the last request, or in the last tool round of this request.
    pub history: SentHistory,
    /// An earlier plan of this request, whose cuts stay.
    pub earlier_plan: Option<EarlierPlan>,
    pub calibration: Calibration,
    /// What refusals of this very request taught.
    pub refused: RefusalLessons,
    /// No request of the conversation is over its budget, whatever it holds.
    pub ignores_budget: bool,
    /// The number of messages of the last request, without system messages; 0 if there was none. `memory` has the cuts of
    /// that request.
    pub sent_messages: usize,
    /// What the proxy added to the conversation.
    pub injections: Injections,
    /// The summary among `injections`, if it is sent for the first time.
    pub new_summary: Option<NewSummary>,
    /// Lengths of the answers so far, from which the next one is expected.
    pub answers: AnswerHistory,
    /// The provider's cache holds nothing of this conversation any more.
    pub is_cold: bool,
    /// All reasoning made before the answer to this request is left out for this reason, whatever the session knows: the
    /// provider refused it, or another provider made the newest of it.
    pub leaves_out_reasoning: Option<LeftOut>,
    /// The places of answers whose reasoning is left out, though the epoch alone would keep it, each with the reason: another
    /// provider has sealed it (foreign), or the target, which binds reasoning, has refused it while older reasoning is kept.
    /// Places as in [`crate::guard::request::answer_place::AnswerPlace`].
    pub unusable: Vec<(Range<u32>, LeftOut)>,
}

impl SessionKnowledge {
    /// How many tokens caps and shares count for a raw token. If a cache may hold an earlier prompt, the scale stays as it
    /// was, so that the front of the prompt does not change; only a count far above it changes the scale.
    pub(in crate::guard) fn token_scale(&self) -> TokenScale {
        if self.sent_messages == 0 || self.is_cold {
            self.calibration.to_scale()
        } else {
            self.calibration.hold_scale(self.kept_memory().scale)
        }
    }

    /// Which placeholders and notes name ids. If a cache may hold an earlier prompt, then those of messages that were sent
    /// stay as they were, so that a client that sends its tools late does not change the front of the prompt.
    pub(in crate::guard) fn find_named_ids(&self) -> NamedIds {
        let offered = self.injections.names_ids;
        let known = self.kept_memory().names_ids.as_ref();
        match known.filter(|_| self.sent_messages > 0 && !self.is_cold) {
            Some(ids) => ids.go_on(self.count_sent_messages(), offered),
            None => NamedIds::all(offered),
        }
    }

    pub(in crate::guard) fn unusable_reasoning(&self) -> UnusableReasoning<'_> {
        UnusableReasoning {
            places: &self.unusable,
            before_epoch: self.leaves_out_reasoning.unwrap_or(LeftOut::Stale),
        }
    }

    /// The memory whose cuts the request keeps.
    pub(in crate::guard) fn kept_memory(&self) -> &GuardMemory {
        let earlier = self.earlier_plan.as_ref();
        earlier.map_or(&self.memory, |plan| &plan.memory)
    }

    /// How short the session has its tool definitions; `None` if they are whole, or were cut for another window.
    pub(in crate::guard) fn tool_brevity(&self, policy: &Policy<'_>) -> Option<ToolBrevity> {
        let memory = self.kept_memory();
        let has_same_basis = CutBasis::from_policy(policy) == memory.basis;
        memory.tool_brevity().filter(|_| has_same_basis)
    }

    pub(in crate::guard) fn limits(&self, policy: &Policy<'_>) -> SessionLimits<'_> {
        let memory = self.kept_memory();
        SessionLimits {
            remembered: &memory.limits,
            leaves_out_texts: CutBasis::from_policy(policy) == memory.basis,
            new_results: self.injections.tight_chars,
            sent: self.sent_messages,
        }
    }

    /// Messages of the last request whose plan is remembered, without system messages.
    pub(in crate::guard) fn count_sent_messages(&self) -> u32 {
        let earlier = self.earlier_plan.as_ref();
        earlier.map_or(self.sent_messages as u32, |plan| plan.memory.planned)
    }

    /// The history after a request with these changes. `replayed`: reasoning of answers before this place is left out in any
    /// case.
    pub(in crate::guard) fn continue_history(
        &self,
        conversation: &Conversation,
        changes: &SentChanges,
        replayed: AnswerPlace,
    ) -> SentHistory {
        let differs = || {
            let unknown = self.find_unknown_answer(conversation);
            changes.change_history(&self.history, self.count_sent_messages(), unknown)
        };
        let resets = self.leaves_out_reasoning.is_some()
            || (!changes.nothing_changed(&self.history) && differs());
        let epoch = if resets {
            self.find_next_answer(conversation)
        } else {
            self.history.epoch.max(replayed)
        };
        changes.to_history(epoch, replayed.place)
    }

    /// The place of the answer to this request.
    pub(in crate::guard) fn find_next_answer(&self, conversation: &Conversation) -> AnswerPlace {
        let place = count_places(conversation).last().copied().unwrap_or(0);
        AnswerPlace {
            place,
            round: self.injections.count_rounds(place),
        }
    }

    /// Whether the session knows how the request of the newest answer was sent, so that it can tell whether the reasoning in
    /// that answer is stale.
    pub fn knows_newest_answer(&self, conversation: &Conversation) -> bool {
        self.find_unknown_answer(conversation).is_none()
    }

    /// The place of the newest answer, if the session does not know how the request of that answer was sent: the session's
    /// state is lost or older, or the guard was off.
    fn find_unknown_answer(&self, conversation: &Conversation) -> Option<u32> {
        if self.earlier_plan.is_some() {
            return None;
        }
        let sent = self.sent_messages as u32;
        let places = count_places(conversation);
        let answers = conversation.items.iter().zip(&places);
        let answers = answers.filter(|(item, _)| item.author == Author::Model);
        let mut answers = answers.map(|(_, &place)| place).filter(|&it| it >= sent);
        let newest = answers.next_back()?;
        let is_known = sent > 0 && self.memory.planned >= sent && answers.next_back().is_none();
        (!is_known).then_some(newest)
    }

    /// What is known of the answers so far, for the room that the next one needs.
    pub fn past_answers(&self) -> PastAnswers {
        PastAnswers {
            history: self.answers,
            calibration: self.calibration,
            refused: self.refused,
            ignores_budget: self.ignores_budget,
        }
    }

    /// Whether the roles of the conversation alternate: as the session remembers it, or else by the messages before the
    /// first injection. `None` if there is neither: then the first cut settles it.
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
