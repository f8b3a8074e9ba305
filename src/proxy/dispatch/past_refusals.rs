//! The state of one attempt at a candidate: what was refused so far, and with what remedy the request was sent again. Pure.

use super::{
    next_step::Remedy::{self, *},
    refusal::Refusal,
};
use crate::provider::{summary_refusal::SummaryRefusal, thinking_refusal::ThinkingRefusal};

/// A refusal, and the remedy with which the request was sent again.
#[derive(Debug)]
struct PastRefusal {
    refusal: Refusal,
    /// `None`: no remedy was possible.
    remedy: Option<Remedy>,
}

/// The refusals of one attempt so far: what was tried.
#[derive(Debug, Default)]
pub(super) struct PastRefusals(Vec<PastRefusal>);

impl PastRefusals {
    pub(super) fn note(&mut self, refusal: Refusal, remedy: Option<Remedy>) {
        self.0.push(PastRefusal { refusal, remedy });
    }

    fn remedies(&self) -> impl DoubleEndedIterator<Item = Remedy> {
        self.0.iter().filter_map(|past| past.remedy)
    }

    pub(super) fn has_made(&self, remedy: Remedy) -> bool {
        self.remedies().any(|made| made == remedy)
    }

    pub(super) fn count_made(&self, remedy: Remedy) -> usize {
        self.remedies().filter(|made| *made == remedy).count()
    }

    /// Whether the newest refusal was followed by this remedy.
    pub(super) fn ends_with(&self, remedy: Remedy) -> bool {
        self.0.last().and_then(|past| past.remedy) == Some(remedy)
    }

    /// Whether the request that was just refused is the first that asked to drop thinking.
    pub(super) fn tries_drop(&self) -> bool {
        self.has_asked_to_drop() && !self.has_made(LeaveThinkingOut)
    }

    pub(super) fn has_asked_to_drop(&self) -> bool {
        self.has_made(AskToDrop) || self.has_made(RenameDrop)
    }

    /// The first refusal of thinking.
    pub(super) fn first_of_thinking(&self) -> Option<ThinkingRefusal> {
        self.0.iter().find_map(|past| match past.refusal {
            Refusal::Thinking(refused) => Some(refused),
            _ => None,
        })
    }

    /// Whether no remedy was left after a refusal of thinking. That refusal may be in an answer whose status is a success.
    pub(super) fn gave_up_on_thinking(&self) -> bool {
        let last = self.0.last();
        last.is_some_and(|it| it.remedy.is_none() && matches!(it.refusal, Refusal::Thinking(_)))
    }

    /// Whether the provider said that it does not take the member that asks for thinking to be dropped.
    pub(super) fn drop_was_refused(&self) -> bool {
        self.0.iter().any(|past| {
            let named = matches!(past.refusal, Refusal::ToDrop { named: true, .. });
            named && past.remedy != Some(RenameDrop)
        })
    }

    /// The newest refusal of a summary of the provider's own.
    pub(super) fn last_of_summary(&self) -> Option<SummaryRefusal> {
        self.0.iter().rev().find_map(|past| match past.refusal {
            Refusal::Summary(refused) => Some(refused),
            _ => None,
        })
    }

    /// Whether recovery's additions are left out and may be what was refused: the texts were not halved since.
    pub(super) fn blames_additions(&self) -> bool {
        let mut newest = self.remedies().rev();
        newest.find(|it| matches!(it, LeaveAdditionsOut | HalveTexts)) == Some(LeaveAdditionsOut)
    }

    /// Whether the members of answers are left out and may be what was refused.
    pub(super) fn blames_members(&self) -> bool {
        let halved = |past: &PastRefusal| past.remedy == Some(HalveTexts);
        self.members_were_refused_last(halved)
    }

    /// Whether the members of answers were left out, and the provider has not demanded them since. `or`: what ends that, too.
    fn members_were_refused_last(&self, or: impl Fn(&PastRefusal) -> bool) -> bool {
        let newest = self.0.iter().rev().find(|past| {
            matches!(past.refusal, Refusal::Filling) || past.demands_members() || or(past)
        });
        newest.is_some_and(|past| past.refusal == Refusal::Filling)
    }

    /// Returns the refusal in the light of the earlier ones. If a provider refuses a request with members in its answers, and
    /// then demands these members, the first refusal was about another part of the request.
    pub(super) fn reinterpret(&self, refusal: Refusal) -> Refusal {
        let is_demand = refusal == Refusal::Thinking(ThinkingRefusal::Missing);
        let were_refused = self.members_were_refused_last(|_| false);
        if is_demand && were_refused && !self.blames_additions() {
            Refusal::MembersDemanded
        } else {
            refusal
        }
    }
}

impl PastRefusal {
    fn demands_members(&self) -> bool {
        use Refusal::{MembersDemanded, Thinking};
        matches!(
            self.refusal,
            MembersDemanded | Thinking(ThinkingRefusal::Missing)
        )
    }
}
