//! Who is asked, in which order, and for how long: the candidates of a request, and the budget of its retries.
//! Every place gets the request planned for its window and grammar.
//!
//! A request that would be cut goes to the larger model that the settings name. Where that fails, or its breaker is
//! open, the conversation is cut after all.

use std::time::Instant;

use super::{
    begin_summary::begin_compaction,
    candidates::Candidates,
    client_request::{ClientRequest, FollowedConversation},
    outgoing::ChatHead,
    plan::{PlannedRequest, note_plan, plan_request, wants_larger_model},
};
use crate::{
    compaction::CompactionStep,
    config::GuardConfig,
    provider::{Target, retry::RetryBudget},
};

/// A request made ready for one provider.
pub struct PlacedRequest {
    /// Who is asked; the target of the plan is the same one.
    pub target: Target,
    pub head: ChatHead,
    /// `None` where there is no conversation to follow.
    pub planned: Option<Box<PlannedRequest>>,
}

impl PlacedRequest {
    /// Takes another plan, and notes it for the log.
    pub fn set_plan(&mut self, followed: FollowedConversation<'_>, planned: PlannedRequest) {
        note_plan(followed.session, &planned);
        self.planned = Some(Box::new(planned));
    }

    /// Makes another plan of the one there is, if there is one.
    pub fn change_plan(
        &mut self,
        request: &ClientRequest,
        change: impl FnOnce(FollowedConversation<'_>, PlannedRequest) -> PlannedRequest,
    ) {
        if let Some(followed) = request.followed_conversation()
            && let Some(planned) = self.planned.take()
        {
            self.set_plan(followed, change(followed, *planned));
        }
    }

    /// Tokens to add to the usage that the client reads.
    pub fn left_out_tokens(&self, settings: &GuardConfig) -> Option<u32> {
        self.planned.as_ref()?.left_out_tokens(settings.usage)
    }
}

/// Who may still be asked.
pub struct Fallbacks {
    candidates: Candidates,
    /// The request has gone to a larger model once.
    widened: bool,
    pub budget: RetryBudget,
}

impl Fallbacks {
    /// `targets` in the order in which they are asked. The time for retries runs from now on.
    pub fn new(request: &ClientRequest, targets: Vec<Target>) -> Self {
        let retry = request.app.config.retry;
        Self {
            candidates: Candidates::new(targets),
            widened: false,
            budget: RetryBudget::new(retry, &request.parts.headers, Instant::now()),
        }
    }

    /// Plans the request for the first place that can be asked; `None` where there is none.
    pub fn plan_first_candidate(&mut self, request: &ClientRequest) -> Option<PlacedRequest> {
        let target = self.candidates.next()?;
        let compaction = request
            .followed_conversation()
            .map(|followed| begin_compaction(followed.session, followed.conversation));
        Some(self.plan_for_candidate(request, target, compaction))
    }

    /// Plans for the place after `left`; `None` where there is none, or no time for it. A request that is
    /// `too_long` for the one that is left goes only to one that can hold more.
    pub fn plan_next_candidate(
        &mut self,
        request: &ClientRequest,
        left: &PlacedRequest,
        too_long: bool,
    ) -> Option<PlacedRequest> {
        if !self.budget.has_attempts_left(Instant::now()) {
            return None;
        }
        if too_long {
            self.candidates.keep_larger(left.target.window.tokens);
            if let Some(larger) = self.find_larger_model(request, &left.target) {
                self.candidates.put_first(larger);
            }
        }
        let target = self.candidates.next()?;
        // What came of a summary that the request waited for holds at any place.
        let compaction = left.planned.as_ref().map(|it| it.compaction.clone());
        Some(self.plan_for_candidate(request, target, compaction))
    }

    /// Whether the breaker of any other candidate lets a request through.
    pub fn any_admits(&self) -> bool {
        self.candidates.any_admits()
    }

    /// Plans the request for `target`, or for a larger model instead of cutting it there.
    fn plan_for_candidate(
        &mut self,
        request: &ClientRequest,
        mut target: Target,
        compaction: Option<CompactionStep>,
    ) -> PlacedRequest {
        let plan = |target: &Target, compaction: Option<CompactionStep>| {
            let (followed, compaction) = request.followed_conversation().zip(compaction)?;
            Some(plan_request(followed, target, compaction))
        };
        let mut planned = plan(&target, compaction);
        let larger = self
            .find_larger_model(request, &target)
            .filter(|_| !self.widened);
        if let (Some(smaller_plan), Some(larger), Some(session)) =
            (&planned, larger, &request.session)
            && wants_larger_model(&session.inherited, smaller_plan, &larger)
            && larger.provider.breaker.try_admit(Instant::now()).is_some()
        {
            tracing::info!(
                from = target.model,
                to = larger.model,
                "a conversation goes to a larger model instead of being cut"
            );
            // Should that fail, the conversation is cut after all.
            self.widened = true;
            let smaller = std::mem::replace(&mut target, larger);
            self.candidates.put_first(smaller);
            planned = plan(&target, Some(smaller_plan.compaction.clone()));
        }
        if let (Some(session), Some(planned)) = (&request.session, &planned) {
            note_plan(session, planned);
        }
        PlacedRequest {
            head: ChatHead::new(&request.app, &request.parts, &target.provider),
            planned: planned.map(Box::new),
            target,
        }
    }

    /// The model to use instead of cutting, unless it would be sent credentials of the client that are
    /// for somebody else.
    fn find_larger_model(&mut self, request: &ClientRequest, target: &Target) -> Option<Target> {
        let larger = request.app.registry.find_larger(target)?;
        self.candidates.may_lend_to(&larger).then_some(larger)
    }
}
