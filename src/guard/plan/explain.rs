//! What the guard would do to a request, as data: the report of `plimsoll inspect` and of the API's `fit`.
//!
//! Messages are counted from 0, as in the request. Figures in tokens are estimates, but for those of the window and of
//! the levels.

use bytes::Bytes;
use serde::Serialize;

use crate::{
    config::profile::AnswerFilling,
    conversation::{Conversation, units},
    guard::{
        fold::memory::{GuardMemory, SessionKnowledge},
        plan::{
            make_plan,
            report::{INVALID, Plan, Report, ShortToolsReport, StandBackReason},
        },
        request::{
            answer_cap::{AnswerCap, PastAnswers},
            budget::{self, Budget, TokenShares},
            estimate::Calibration,
            measured_request::MeasuredRequest,
            policy::Policy,
            refusal_lessons::RefusalLessons,
        },
        shrink::{
            clearing::Cleared, priority::ShortenedText, shortened_messages::TruncationReport,
        },
    },
};

/// The model that a request is fitted to; its window is part of the policy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExplainedModel {
    #[serde(rename = "model")]
    pub name: Option<String>,
    /// `None` where nobody serves the model and a window was given.
    pub provider: Option<String>,
    /// Prompt tokens, as the provider reports them, above which the level is caution, and critical; `None` where the
    /// window is not known.
    pub caution_above: u32,
    pub critical_above: Option<u32>,
    #[serde(skip)]
    pub window_source: &'static str,
    #[serde(skip)]
    pub calibration: Calibration,
}

#[derive(Debug, Default, Serialize)]
pub struct PlanExplanation {
    #[serde(flatten)]
    pub model: ExplainedModel,
    pub profile: &'static str,
    pub tokens: TokenChange,
    pub window: ExplainedWindow,
    /// Kept free for the answer.
    pub reserve_tokens: u32,
    /// Tokens that the reserve is short of, since system messages and tools leave little of the window.
    pub reserve_given_up: u32,
    /// What the prompt may use; `None` if the budget is open, so that only a refusal shows how much fits.
    pub budget_tokens: Option<u32>,
    /// Why nothing is cut by the window.
    pub uncut_because: Option<&'static str>,
    /// `None` where the request names no cap, or none that may be lowered.
    pub answer_cap: Option<AnswerCap>,
    pub as_it_came: RequestMakeup,
    pub as_it_goes: RequestMakeup,
    /// As the header `x-plimsoll-actions` would say it.
    pub actions: String,
    pub stands_back: Option<StandBackExplanation>,
    /// Texts that caps and shares make shorter.
    pub shortened: Vec<ShortenedText>,
    pub truncated: Vec<TruncationReport>,
    /// Tool definitions that go out shorter; its tokens are raw ones.
    pub short_tools: Option<ShortToolsReport>,
    #[serde(flatten)]
    pub removals: Removals,
    /// What the next cut would remove, as the conversation is now; `None` if the guard stands back.
    pub next: Option<Removals>,
    /// Why recovery adds nothing to the request, or no caution prompts.
    pub recovery_held: Option<String>,
    /// Why a cut does not add the tool `recall`.
    pub recall_held: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ExplainedWindow {
    pub tokens: u32,
    /// The largest prompt, where lower than the window.
    pub input_limit: Option<u32>,
    pub source: &'static str,
}

/// Tokens of the whole prompt; `None` if the guard cannot follow the request as a conversation.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TokenChange {
    pub before: Option<u32>,
    pub after: Option<u32>,
    /// The family by which texts are counted.
    pub tokenizer: &'static str,
}

/// What a request is made of; tokens, but for the first two.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct RequestMakeup {
    pub bytes: usize,
    pub messages: usize,
    #[serde(flatten)]
    pub shares: TokenShares,
    /// All shares.
    pub prompt: u32,
    /// Tokens left under the budget; 0 if the budget is open.
    pub free: u32,
    /// Tokens beyond the budget.
    pub over: u32,
}

/// Why the guard does nothing.
#[derive(Debug, Serialize)]
pub struct StandBackExplanation {
    pub word: &'static str,
    pub why: String,
}

/// What a cut removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Removals {
    pub cleared: Option<ClearedMessages>,
    /// `None` where only the pinned start and the newest step are left.
    pub folded: Option<FoldedMessages>,
}

/// Messages of which something becomes a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClearedMessages {
    pub results: usize,
    /// Calls whose arguments are shortened.
    pub inputs: usize,
    /// Images and other media of the user's.
    pub media: usize,
    pub first: usize,
    pub last: usize,
    /// Tokens that were freed.
    pub tokens: u32,
}

/// Messages that are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FoldedMessages {
    pub first: usize,
    pub last: usize,
    /// The number of messages left out. Messages between `first` and `last` that stay are not counted.
    pub messages: usize,
    pub tokens: u32,
}

/// Why an open budget cuts nothing.
const OPEN_BUDGET: &str = "the window is only guessed, and the provider refuses what is too long: its refusal tells \
    how much fits, and the request is fitted to that and sent again";

/// Plans a conversation as the first request of a session. Returns the request as it would be sent, the report of the plan,
/// and the explanation.
pub fn explain_plan(
    conversation: &Conversation,
    policy: &Policy<'_>,
    model: ExplainedModel,
) -> (Bytes, Report, PlanExplanation) {
    let calibration = model.calibration;
    let knowledge = SessionKnowledge {
        calibration,
        ..SessionKnowledge::default()
    };
    let plan = make_plan::plan(conversation, policy, &knowledge);
    let report = &plan.report;
    let fitted = write_fitted(conversation, policy, &plan);
    let measure = |conversation: &Conversation| {
        RequestMakeup::measure_request(conversation, policy, report.budget, calibration)
    };
    let as_it_came = measure(conversation);
    let reindexed = conversation.format.index_body(fitted.clone());
    let as_it_goes = reindexed.map_or(as_it_came, |fitted| measure(&fitted));
    let unfollowed = PlanExplanation::new(policy, model, report.budget, as_it_came);
    let explanation = PlanExplanation {
        answer_cap: report.answer_cap,
        as_it_goes,
        tokens: TokenChange {
            before: Some(as_it_came.prompt),
            after: Some(as_it_goes.prompt),
            ..unfollowed.tokens
        },
        actions: report.format_actions(),
        stands_back: report.stood_back.map(explain_stand_back),
        shortened: report.texts.shortened.clone(),
        truncated: report.truncated.clone(),
        short_tools: report.short_tools,
        reserve_given_up: report.budget.reserve_given_up,
        removals: compare_plans(conversation, &Plan::default(), &plan, calibration),
        next: match report.stood_back {
            None => Some(find_next_removals(conversation, policy, &plan, calibration)),
            Some(_) => None,
        },
        ..unfollowed
    };
    (fitted, plan.report, explanation)
}

/// Explains a request that the guard cannot follow as a conversation, so that it is sent as it came; `bytes` is its size.
/// The budget is that of an answer of the usual size.
pub fn explain_unguarded(
    bytes: usize,
    why: String,
    policy: &Policy<'_>,
    model: ExplainedModel,
) -> PlanExplanation {
    let budget = budget::default_budget(policy);
    let makeup = RequestMakeup::from_shares(bytes, 0, TokenShares::default(), budget);
    PlanExplanation {
        actions: INVALID.to_owned(),
        stands_back: Some(StandBackExplanation { word: INVALID, why }),
        ..PlanExplanation::new(policy, model, budget, makeup)
    }
}

fn write_fitted(conversation: &Conversation, policy: &Policy<'_>, plan: &Plan) -> Bytes {
    let mut edits = plan.edits.clone();
    conversation.take_out_annotations(&mut edits);
    let fitted = edits.apply(&conversation.body);
    let filling = match plan.report.stood_back {
        None => AnswerFilling::ByName,
        Some(_) => AnswerFilling::Nothing,
    };
    let filled = conversation.add_required_members(&fitted, policy.profile, filling);
    filled.unwrap_or(fitted).to_bytes()
}

fn find_next_removals(
    conversation: &Conversation,
    policy: &Policy<'_>,
    plan: &Plan,
    calibration: Calibration,
) -> Removals {
    let later = plan_shorter_prompt(conversation, policy, plan);
    let mut next = compare_plans(conversation, plan, &later, calibration);
    if next.folded.is_none() && next.cleared.is_some() {
        // Clearing makes enough room, so nothing is folded yet: the cut after it folds.
        let last = plan_shorter_prompt(conversation, policy, &later);
        next.folded = compare_plans(conversation, plan, &last, calibration).folded;
    }
    next
}

/// Plans the same request as if the provider had refused it as too long by one token: the plan removes what the next cut
/// would remove.
fn plan_shorter_prompt(conversation: &Conversation, policy: &Policy<'_>, plan: &Plan) -> Plan {
    let policy = Policy {
        input_limit: Some(plan.report.raw_after.saturating_sub(1)),
        ..*policy
    };
    let mut memory = plan.memory.clone();
    memory.set_basis(&policy);
    let knowledge = SessionKnowledge {
        sent_messages: memory.planned as usize,
        memory,
        refused: RefusalLessons {
            was_too_long: true,
            ..RefusalLessons::default()
        },
        ..SessionKnowledge::default()
    };
    make_plan::plan(conversation, &policy, &knowledge)
}

impl PlanExplanation {
    /// The explanation of a request that is sent as it came.
    fn new(
        policy: &Policy<'_>,
        model: ExplainedModel,
        budget: Budget,
        makeup: RequestMakeup,
    ) -> Self {
        Self {
            profile: policy.profile.name,
            tokens: TokenChange {
                tokenizer: policy.tokens.family.name,
                ..TokenChange::default()
            },
            window: ExplainedWindow {
                tokens: policy.window,
                input_limit: policy.input_limit,
                source: model.window_source,
            },
            model,
            reserve_tokens: budget.reserve,
            budget_tokens: (!budget.is_open).then_some(budget.tokens),
            uncut_because: budget.is_open.then_some(OPEN_BUDGET),
            as_it_came: makeup,
            as_it_goes: makeup,
            ..Self::default()
        }
    }
}

impl RequestMakeup {
    /// `budget`: that of the request as it came.
    fn measure_request(
        conversation: &Conversation,
        policy: &Policy<'_>,
        budget: Budget,
        calibration: Calibration,
    ) -> Self {
        let raw = MeasuredRequest::new(conversation, policy, &PastAnswers::default()).shares;
        let tokens = |raw| scale_tokens(raw, calibration);
        let shares = TokenShares {
            system: tokens(raw.system),
            tools: tokens(raw.tools),
            history: tokens(raw.history),
            tool_results: tokens(raw.tool_results),
            images: tokens(raw.images),
        };
        let (bytes, messages) = (conversation.body.len(), conversation.items.len());
        Self::from_shares(bytes, messages, shares, budget)
    }

    fn from_shares(bytes: usize, messages: usize, shares: TokenShares, budget: Budget) -> Self {
        let prompt = shares.total();
        let free = budget.tokens.saturating_sub(prompt);
        Self {
            bytes,
            messages,
            shares,
            prompt,
            free: if budget.is_open { 0 } else { free },
            over: prompt.saturating_sub(budget.uncut_tokens()),
        }
    }
}

/// What the plan `after` removes from a request and the plan `before` does not.
fn compare_plans(
    conversation: &Conversation,
    before: &Plan,
    after: &Plan,
    calibration: Calibration,
) -> Removals {
    let freed = |tokens: fn(&Report) -> u32| {
        let raw = tokens(&after.report).saturating_sub(tokens(&before.report));
        scale_tokens(raw, calibration)
    };
    let cleared_tokens = freed(|it| it.cleared.as_ref().map_or(0, |cleared| cleared.tokens));
    let folded_tokens = freed(|it| it.folded.map_or(0, |folded| folded.tokens));
    Removals {
        cleared: find_cleared(&before.report, &after.report, cleared_tokens),
        folded: find_folded(conversation, &before.memory, &after.memory, folded_tokens),
    }
}

fn find_cleared(before: &Report, after: &Report, tokens: u32) -> Option<ClearedMessages> {
    let nothing = Cleared::default();
    let before = before.cleared.as_ref().unwrap_or(&nothing);
    let after = after.cleared.as_ref()?;
    let is_new = |at: &&usize| before.messages.binary_search(at).is_err();
    let mut messages = after.messages.iter().filter(is_new);
    let first = *messages.next()?;
    Some(ClearedMessages {
        results: after.results.saturating_sub(before.results),
        inputs: after.inputs.saturating_sub(before.inputs),
        media: after.media.saturating_sub(before.media),
        first,
        last: *messages.next_back().unwrap_or(&first),
        tokens,
    })
}

fn find_folded(
    conversation: &Conversation,
    before: &GuardMemory,
    after: &GuardMemory,
    tokens: u32,
) -> Option<FoldedMessages> {
    let units = units::split_units(conversation);
    let list = |memory: &GuardMemory| memory.find_cut(conversation, &units).folded;
    let gone = list(before).into_iter().zip(list(after));
    let new = units
        .iter()
        .zip(gone)
        .filter(|(_, (before, after))| *after && !before);
    let messages: Vec<usize> = new.flat_map(|(unit, _)| unit.unbound_messages()).collect();
    Some(FoldedMessages {
        first: *messages.first()?,
        last: *messages.last()?,
        messages: messages.len(),
        tokens,
    })
}

fn explain_stand_back(reason: StandBackReason) -> StandBackExplanation {
    let why = match reason {
        StandBackReason::Disabled => "the settings say guard.enabled = false".to_owned(),
        StandBackReason::ProviderManages(member) => {
            format!("the request's member `{member}` leaves the context to the provider")
        }
        StandBackReason::Unsound(broken) => {
            format!("the plan did not pass its own check, a fault of the guard ({broken:?})")
        }
    };
    StandBackExplanation {
        word: reason.header_word(),
        why,
    }
}

/// Converts raw tokens into tokens of the model.
fn scale_tokens(raw: u32, calibration: Calibration) -> u32 {
    (f64::from(raw) * calibration.slope()) as u32
}
