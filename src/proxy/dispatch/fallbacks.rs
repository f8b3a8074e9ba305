//! The candidates of a request in their order, each with a plan for its window and grammar, and the retry budget.
//!
//! If a request would be cut, then it is sent to the configured larger model first, also if only a refusal shows that a cut
//! is due. If the larger model fails, the request is cut for the smaller one after all. If every circuit is open, the first
//! candidate is asked nevertheless: the proxy refuses nothing that might work.

use std::time::Instant;

use crate::{
    compaction::CompactionStep,
    config::{Auth, GuardConfig},
    guard::Report,
    http::tasks::run_beside_tasks,
    provider::{ModelCandidates, Target, retry::RetryBudget},
    proxy::{
        ClientRequest, FollowedConversation, PlannedRequest,
        outgoing::{RequestHead, find_lesson_scope},
        plan::{
            begin_compaction, is_same_model, last_answering_model, log_cuts, note_plan,
            plan_request, target_model, wants_larger_model,
        },
    },
};

/// A request made ready for one provider.
pub struct ProviderRequest {
    /// The same as the plan's target.
    pub target: Target,
    /// The target is not the one that the client names: it is a fallback, a larger model, or one of several deployments. The
    /// named model may take other members.
    pub is_substitute: bool,
    pub head: RequestHead,
    /// `None` where there is no conversation to follow.
    pub planned: Option<Box<PlannedRequest>>,
}

impl ProviderRequest {
    /// Replaces the plan: notes the new one for the log, and logs the cuts that the one before did not make.
    pub fn set_plan(&mut self, followed: FollowedConversation<'_>, planned: PlannedRequest) {
        let before = self.planned.as_deref().map(|it| it.plan.report.clone());
        self.replace_plan(followed, planned, &before.unwrap_or_default());
    }

    fn replace_plan(
        &mut self,
        followed: FollowedConversation<'_>,
        planned: PlannedRequest,
        before: &Report,
    ) {
        log_cuts(followed.session.inherited.session, &planned, before);
        self.restore_plan(followed, planned);
    }

    /// Replaces the plan by one that was set before.
    pub fn restore_plan(&mut self, followed: FollowedConversation<'_>, planned: PlannedRequest) {
        note_plan(followed.session, &planned);
        self.planned = Some(Box::new(planned));
    }

    /// Replaces the plan by another one made of it, if there is a plan.
    pub fn change_plan(
        &mut self,
        request: &ClientRequest,
        change: impl FnOnce(FollowedConversation<'_>, PlannedRequest) -> PlannedRequest,
    ) {
        if let Some(followed) = request.followed_conversation()
            && let Some(planned) = self.planned.take()
        {
            let before = planned.plan.report.clone();
            self.replace_plan(followed, change(followed, *planned), &before);
        }
    }

    /// Replaces the plan if `change` makes another one. Returns whether it did.
    pub fn try_replan(
        &mut self,
        request: &ClientRequest,
        change: impl FnOnce(FollowedConversation<'_>, &PlannedRequest) -> Option<PlannedRequest>,
    ) -> bool {
        let followed = request.followed_conversation();
        let Some((followed, planned)) = followed.zip(self.planned.as_deref()) else {
            return false;
        };
        let Some(changed) = change(followed, planned) else {
            return false;
        };
        self.set_plan(followed, changed);
        true
    }

    /// Whether the request is sent with anything that recovery added.
    pub fn has_additions(&self) -> bool {
        let planned = self.planned.as_ref();
        planned.is_some_and(|planned| planned.has_additions())
    }

    /// Tokens to add to the usage that the client reads.
    pub fn left_out_tokens(&self, settings: &GuardConfig) -> Option<u32> {
        self.planned.as_ref()?.left_out_tokens(settings.usage)
    }
}

/// The candidates that may still be asked, and the budget for retries.
pub struct Fallbacks {
    /// In their order.
    rest: Vec<Target>,
    /// The base URL of the providers that get the client's credentials; `None` if no provider gets them yet.
    lent: Option<Option<String>>,
    /// The first candidate.
    first: Option<Target>,
    /// The id of the candidate that the client names; `None` if the name has several deployments.
    named: Option<String>,
    /// The larger model that is asked in place of a cut.
    larger: Option<String>,
    /// The larger model comes next, since a refusal showed that a cut is due.
    larger_is_queued: bool,
    pub budget: RetryBudget,
}

impl Fallbacks {
    /// Orders the candidates by the session, so that a session stays at the candidate whose prompt cache is warm. A
    /// candidate is left out if its model refuses the request whatever is cut. The candidate that the client names is never
    /// left out, nor are the deployments if no other candidate is left. The time for retries begins now.
    ///
    /// SECURITY: the client's credentials are for one base URL. A candidate elsewhere that would get them is left out.
    pub fn new(request: &ClientRequest, candidates: ModelCandidates) -> Self {
        let app = &request.app;
        let session = request.session.as_ref();
        let seed = session.map_or(0, |session| session.inherited.session.seed());
        let deployments = candidates.deployments().len();
        let mut targets = candidates.order_by_seed(seed);
        for target in &mut targets {
            look_up_window(request, target);
        }
        let all: Vec<Target> = targets.iter().take(deployments).cloned().collect();
        let named = match &all[..] {
            [only] => Some(only.id()),
            _ => None,
        };
        let is_named = |target: &Target| named == Some(target.id());
        targets.retain(|target| is_named(target) || may_take(request, target));
        if targets.is_empty() {
            targets = all;
        }
        let first_url = targets.first().map(base_url);
        targets.retain(|it| !needs_client_credentials(it) || Some(base_url(it)) == first_url);
        if request.continues_thread() {
            // Only the provider of the answer before has the thread.
            let last = session.and_then(|session| last_answering_model(&session.inherited));
            let is_last = |target: &Target| Some(target_model(target)) == last;
            let at = targets.iter().position(is_last).unwrap_or(0);
            targets = targets.into_iter().skip(at).take(1).collect();
        }
        let first = targets.first().cloned();
        let lent = targets.iter().find(|it| needs_client_credentials(it));
        Self {
            lent: lent.map(base_url),
            rest: targets,
            first,
            named,
            larger: None,
            larger_is_queued: false,
            budget: RetryBudget::new(app.config.retry, &request.parts.headers, Instant::now()),
        }
    }

    /// Plans the request for the first candidate; `None` where there is none.
    pub fn plan_first_candidate(&mut self, request: &ClientRequest) -> Option<ProviderRequest> {
        let target = self.take_next()?;
        let followed = request.followed_conversation();
        let compaction = followed.map(|chat| begin_compaction(chat.session, chat.conversation));
        Some(self.plan_for_candidate(request, target, compaction))
    }

    /// Plans for the candidate after `failed`. Returns `None` if there is none, or if no attempts or no time are left. A
    /// request that is `too_long` for the failed one is sent only to a larger window.
    pub fn plan_next_candidate(
        &mut self,
        request: &ClientRequest,
        failed: &ProviderRequest,
        too_long: bool,
    ) -> Option<ProviderRequest> {
        if !self.budget.has_attempts_left(Instant::now()) {
            return None;
        }
        if too_long && !std::mem::take(&mut self.larger_is_queued) {
            // The next candidate after a larger model is the one in whose place it was asked: there the request is cut.
            if !self.is_larger(&failed.target) {
                let tokens = failed.target.window.tokens;
                self.rest.retain(|target| target.window.tokens > tokens);
            }
            if let Some(larger) = self.find_larger_model(request, &failed.target) {
                self.rest.insert(0, larger);
            }
        }
        let target = self.take_next()?;
        // The outcome of a summary that the request waited for holds at every candidate.
        let planned = failed.planned.as_ref();
        let compaction = planned.map(|planned| planned.compaction.clone());
        Some(self.plan_for_candidate(request, target, compaction))
    }

    /// The first candidate.
    pub fn first(&self) -> Option<&Target> {
        self.first.as_ref()
    }

    /// Whether this is the first candidate, whose error is preferred as the client's answer.
    pub fn is_first(&self, target: &Target) -> bool {
        self.first.as_ref().map(Target::id) == Some(target.id())
    }

    /// Whether the first candidate was not asked yet, since its circuit is open or it asked to wait.
    pub fn first_was_skipped(&self) -> bool {
        self.rest.iter().any(|target| self.is_first(target))
    }

    /// Whether this is the larger model that was asked in place of a cut, whose error the client does not get.
    pub fn is_larger(&self, target: &Target) -> bool {
        self.larger == Some(target.id())
    }

    /// Queues the larger model as the next candidate, and after it the model that refused, if `smaller` is cut to fit a
    /// refusal. Returns whether it did.
    pub fn queue_larger_model(
        &mut self,
        request: &ClientRequest,
        smaller: &PlannedRequest,
    ) -> bool {
        if !self.budget.has_attempts_left(Instant::now()) {
            return false;
        }
        let Some(larger) = self.take_larger_model(request, smaller) else {
            return false;
        };
        self.rest.splice(..0, [larger, smaller.target.clone()]);
        self.larger_is_queued = true;
        true
    }

    /// Whether another candidate can be asked after this one.
    pub fn has_more(&self) -> bool {
        !self.rest.is_empty() && self.budget.has_attempts_left(Instant::now())
    }

    /// Whether the breaker of any other candidate admits a request.
    pub fn any_admits(&self) -> bool {
        self.rest.iter().any(breaker_admits)
    }

    /// Takes the first candidate whose breaker admits a request; if none does, the first of all.
    fn take_next(&mut self) -> Option<Target> {
        let at = self.rest.iter().position(breaker_admits).unwrap_or(0);
        (!self.rest.is_empty()).then(|| self.rest.remove(at))
    }

    /// Plans the request for `target`, or for a larger model instead of cutting it there.
    fn plan_for_candidate(
        &mut self,
        request: &ClientRequest,
        mut target: Target,
        compaction: Option<CompactionStep>,
    ) -> ProviderRequest {
        let first = self.first.clone();
        let plan = |target: &Target, compaction: Option<CompactionStep>| {
            let (followed, compaction) = request.followed_conversation().zip(compaction)?;
            let first = first.as_ref().unwrap_or(target);
            let plan = || plan_request(followed, target, first, compaction);
            Some(run_beside_tasks(followed.conversation.work_bytes(), plan))
        };
        let mut planned = plan(&target, compaction);
        if let Some(smaller_plan) = &planned
            && let Some(larger) = self.take_larger_model(request, smaller_plan)
        {
            // If the larger model fails, the conversation is cut after all.
            let smaller = std::mem::replace(&mut target, larger);
            self.rest.insert(0, smaller);
            planned = plan(&target, Some(smaller_plan.compaction.clone()));
        }
        if let (Some(session), Some(planned)) = (&request.session, &planned) {
            note_plan(session, planned);
        }
        ProviderRequest {
            head: RequestHead::new(
                &request.app,
                &request.parts,
                &target.provider,
                request.parsed.format,
            ),
            planned: planned.map(Box::new),
            is_substitute: self.named != Some(target.id()),
            target,
        }
    }

    /// The larger model to ask in place of a cut in `smaller`, once for a request.
    fn take_larger_model(
        &mut self,
        request: &ClientRequest,
        smaller: &PlannedRequest,
    ) -> Option<Target> {
        let inherited = &request.session.as_ref()?.inherited;
        let larger = self.find_larger_model(request, &smaller.target)?;
        if self.larger.is_some()
            || !wants_larger_model(inherited, smaller, &larger)
            || !breaker_admits(&larger)
        {
            return None;
        }
        let (from, to) = (&smaller.target.model, &larger.model);
        tracing::info!(
            from,
            to,
            "using larger model {to} instead of cutting the conversation for {from}"
        );
        self.larger = Some(larger.id());
        Some(larger)
    }

    /// The model to use instead of cutting, unless it would get client credentials for another provider.
    fn find_larger_model(&mut self, request: &ClientRequest, target: &Target) -> Option<Target> {
        if request.continues_thread() {
            return None;
        }
        let mut larger = request.app.registry.find_larger(target)?;
        look_up_window(request, &mut larger);
        if !may_take(request, &larger) {
            return None;
        }
        let may_lend = !needs_client_credentials(&larger)
            || *self.lent.get_or_insert_with(|| base_url(&larger)) == base_url(&larger);
        may_lend.then_some(larger)
    }
}

/// Looks up the window of a target for the session and the account of the request. Another request may have learnt a smaller
/// one in the meantime.
pub(super) fn look_up_window(request: &ClientRequest, target: &mut Target) {
    let format = request.parsed.format;
    target.scope = find_lesson_scope(&request.app, &request.parts, target, format);
    if let Some(session) = &request.session {
        let inherited = &session.inherited;
        let state = inherited.state.as_ref();
        let state = state.filter(|_| is_same_model(inherited, target));
        target.scope.session = Some(inherited.session);
        target.answered = state.and_then(|state| state.prompt_tokens).unwrap_or(0);
    }
    target.window = request.app.registry.current_window(target);
}

/// Whether the provider gets the client's credentials.
fn needs_client_credentials(target: &Target) -> bool {
    matches!(target.provider.config.auth, Auth::Client)
}

fn base_url(target: &Target) -> Option<String> {
    target.provider.config.base_url.clone()
}

fn breaker_admits(target: &Target) -> bool {
    target.provider.breaker.try_admit(Instant::now()).is_some()
}

/// Whether a model may take the request, by the table of models' rules.
fn may_take(request: &ClientRequest, target: &Target) -> bool {
    let conversation = request.parsed.conversation.as_ref();
    let is_refused = conversation.is_some_and(|it| it.is_refused_by(target.profile()));
    if is_refused {
        let (provider, model) = (&*target.provider.name, &*target.model);
        tracing::debug!(
            provider,
            model,
            "model {model} is not asked: its API refuses such requests"
        );
    }
    !is_refused
}
