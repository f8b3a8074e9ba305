//! What the guard would do to a request, as data: the report of `plimsoll inspect` and of the API.
//!
//! Messages are counted from 0, as in the request. Every figure in tokens is an estimate, those of
//! the window aside.

mod next_removals;

use bytes::Bytes;
use serde::Serialize;

use self::next_removals::GuardedRequest;
pub use self::next_removals::{LargeResult, MessageRange, NextRemovals};
use crate::{
    config::profile::{AnswerFilling, Profile},
    conversation::{
        Conversation,
        units::{self, Unit},
    },
    guard::{
        fold::memory::Recall,
        plan::{
            make_plan::{self, Plan},
            report::{FoldReport, INVALID, Report, StandBackReason},
        },
        request::{
            answer_cap::AnswerCap,
            budget::{self, Budget, TokenShares},
            estimate::Calibration,
            policy::Policy,
        },
        shrink::{
            clear::Cleared as ClearedByGuard, priority::ShortenedText, results::TruncationReport,
        },
    },
};

/// What the request is fitted to.
#[derive(Clone, Debug)]
pub struct Aim {
    pub model: Option<String>,
    /// `None` where nobody serves the model and a window was given.
    pub provider: Option<String>,
    pub profile: &'static Profile,
    pub window: WindowFound,
    /// What is known of the model's tokens.
    pub calibration: Calibration,
}

#[derive(Debug, Serialize)]
pub struct PlanExplanation {
    pub model: Option<String>,
    pub provider: Option<String>,
    pub profile: &'static str,
    pub window: WindowFound,
    /// Kept free for the answer.
    pub reserve_tokens: u32,
    /// What the prompt may use; nothing where it is open, and only a refusal tells.
    pub budget_tokens: Option<u32>,
    /// Why nothing is cut by the window.
    pub uncut_because: Option<&'static str>,
    /// Nothing where the request names no cap, or none that may be lowered.
    pub answer_cap: Option<AnswerCap>,
    pub as_it_came: RequestMakeup,
    pub as_it_goes: RequestMakeup,
    /// As the header `x-plimsoll-actions` would say it.
    pub actions: String,
    pub stands_back: Option<StandBackExplanation>,
    /// By caps and shares.
    pub shortened: Vec<ShortenedText>,
    pub truncated: Vec<TruncationReport>,
    pub cleared: Option<ClearedSpan>,
    pub folded: Option<MessageRange>,
    /// Nothing where the guard stands back.
    pub next: Option<NextRemovals>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct WindowFound {
    pub tokens: u32,
    /// The largest prompt, where lower than the window.
    pub input_limit: Option<u32>,
    pub source: &'static str,
    #[serde(skip)]
    pub is_guessed: bool,
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
    /// Under the budget; 0 where there is none.
    pub free: u32,
    /// Beyond the budget.
    pub over: u32,
}

/// Why an open budget cuts nothing.
const OPEN_BUDGET: &str = "the window is only guessed, and the provider refuses what is too long: its refusal tells \
    how much fits, and the request is fitted to that and sent again";

/// Why the guard does nothing.
#[derive(Debug, Serialize)]
pub struct StandBackExplanation {
    pub word: &'static str,
    pub why: String,
}

/// What became a placeholder, or will with the next cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClearedSpan {
    pub results: usize,
    /// Calls whose arguments are shortened.
    pub inputs: usize,
    /// Images and other media of the user's.
    pub media: usize,
    pub first: usize,
    pub last: usize,
    /// Freed.
    pub tokens: u32,
}

impl ClearedSpan {
    fn from_cleared(cleared: &ClearedByGuard, calibration: Calibration) -> Option<Self> {
        Some(Self {
            results: cleared.results,
            inputs: cleared.inputs,
            media: cleared.media,
            first: *cleared.messages.first()?,
            last: *cleared.messages.last()?,
            tokens: scaled(cleared.tokens, calibration),
        })
    }
}

impl PlanExplanation {
    /// Plans for a conversation as the first of a session: the request as it would go, and the report.
    pub fn plan(conversation: &Conversation, policy: &Policy<'_>, aim: &Aim) -> (Bytes, Self) {
        let recall = Recall {
            calibration: aim.calibration,
            ..Recall::default()
        };
        let plan = make_plan::plan(conversation, policy, &recall);
        let mut edits = plan.edits.clone();
        conversation.take_out_annotations(&mut edits);
        let fitted = edits.apply(&conversation.body);
        let filling = match plan.report.stood_back {
            None => AnswerFilling::ByName,
            Some(_) => AnswerFilling::Nothing,
        };
        let filled = conversation.add_required_members(&fitted, policy.profile, filling);
        let fitted = filled.unwrap_or(fitted).to_bytes();
        let found = Self::new(conversation, fitted.clone(), policy, &plan, aim);
        (fitted, found)
    }

    fn new(
        conversation: &Conversation,
        fitted: Bytes,
        policy: &Policy<'_>,
        plan: &Plan,
        aim: &Aim,
    ) -> Self {
        let report = &plan.report;
        let calibration = aim.calibration;
        let budget = report.budget;
        let came = RequestMakeup::from_report(conversation, report, budget, calibration);
        let bytes = fitted.len();
        // What was edited is measured as it is, as the next proxy on the way would.
        let fitted = conversation.format.index_body(fitted).ok();
        let goes = fitted.as_ref().map(|fitted| {
            let again = make_plan::plan(fitted, policy, &Recall::default());
            RequestMakeup::from_report(fitted, &again.report, budget, calibration)
        });
        let units = units::split_units(conversation);
        let folded = plan.memory.find_folded(&units);
        let fitted = fitted.filter(|_| report.stood_back.is_none());
        let next = fitted.map(|fitted| {
            let sent =
                GuardedRequest::new(conversation, &fitted, &units, policy, &folded, calibration);
            NextRemovals::from_request(&sent, plan)
        });
        let cleared = report.cleared.as_ref();
        Self {
            answer_cap: report.answer_cap,
            as_it_goes: goes.unwrap_or(RequestMakeup { bytes, ..came }),
            actions: report.format_actions(),
            stands_back: report.stood_back.map(reason),
            shortened: report.texts.shortened.clone(),
            truncated: report.truncated.clone(),
            cleared: cleared.and_then(|cleared| ClearedSpan::from_cleared(cleared, calibration)),
            folded: folded_range(&units, &folded, report.folded, calibration),
            next,
            ..Self::untouched(aim, report.budget, came)
        }
    }

    /// Of a request that is no conversation that could be followed, and so goes as it came; `bytes` is
    /// its size. The budget is that of an answer of the usual size.
    pub fn unguarded(bytes: usize, reason: String, policy: &Policy<'_>, aim: &Aim) -> Self {
        let budget = budget::default_budget(policy);
        let made = RequestMakeup {
            bytes,
            free: if budget.is_open { 0 } else { budget.tokens },
            ..RequestMakeup::default()
        };
        Self {
            actions: INVALID.to_owned(),
            stands_back: Some(StandBackExplanation {
                word: INVALID,
                why: reason,
            }),
            ..Self::untouched(aim, budget, made)
        }
    }

    /// Of a request that goes as it came.
    fn untouched(aim: &Aim, budget: Budget, made: RequestMakeup) -> Self {
        Self {
            model: aim.model.clone(),
            provider: aim.provider.clone(),
            profile: aim.profile.name,
            window: aim.window,
            reserve_tokens: budget.reserve,
            budget_tokens: (!budget.is_open).then_some(budget.tokens),
            uncut_because: budget.is_open.then_some(OPEN_BUDGET),
            answer_cap: None,
            as_it_came: made,
            as_it_goes: made,
            actions: String::new(),
            stands_back: None,
            shortened: Vec::new(),
            truncated: Vec::new(),
            cleared: None,
            folded: None,
            next: None,
        }
    }

    pub fn is_edited(&self) -> bool {
        self.folded.is_some()
            || self.cleared.is_some()
            || !self.truncated.is_empty()
            || !self.shortened.is_empty()
            || self.lowered_cap().is_some()
    }

    /// The answer cap, where it is lowered.
    pub fn lowered_cap(&self) -> Option<AnswerCap> {
        self.answer_cap.filter(|cap| cap.is_lowered())
    }

    /// What neither the prompt nor the answer may use: the margin, and what lies beyond the input
    /// limit or the cap on prompts.
    pub fn held_back(&self) -> u32 {
        let room = self.window.tokens - self.reserve_tokens;
        room.saturating_sub(self.budget_tokens.unwrap_or(room))
    }
}

impl RequestMakeup {
    /// `budget`: that of the request as it came.
    fn from_report(
        conversation: &Conversation,
        report: &Report,
        budget: Budget,
        calibration: Calibration,
    ) -> Self {
        let tokens = |raw| scaled(raw, calibration);
        let shares = TokenShares {
            system: tokens(report.shares.system),
            tools: tokens(report.shares.tools),
            history: tokens(report.shares.history),
            tool_results: tokens(report.shares.tool_results),
            images: tokens(report.shares.images),
        };
        let prompt = shares.total();
        Self {
            bytes: conversation.body.len(),
            messages: conversation.items.len(),
            shares,
            prompt,
            free: if budget.is_open {
                0
            } else {
                budget.tokens.saturating_sub(prompt)
            },
            over: prompt.saturating_sub(budget.uncut_tokens()),
        }
    }
}

fn reason(stood_back: StandBackReason) -> StandBackExplanation {
    let why = match stood_back {
        StandBackReason::Disabled => "the settings say guard.enabled = false".to_owned(),
        StandBackReason::ProviderManages(member) => {
            format!("the request's member `{member}` leaves the context to the provider")
        }
        StandBackReason::Unsound(broken) => {
            format!("the plan did not pass its own check, a fault of the guard ({broken:?})")
        }
    };
    StandBackExplanation {
        word: stood_back.header_word(),
        why,
    }
}

/// Raw tokens as the model's own.
fn scaled(raw: u32, calibration: Calibration) -> u32 {
    (f64::from(raw) * calibration.slope()) as u32
}

/// The messages that are left out.
fn folded_range(
    units: &[Unit],
    folded: &[bool],
    report: Option<FoldReport>,
    calibration: Calibration,
) -> Option<MessageRange> {
    let report = report?;
    let mut gone = units.iter().zip(folded).filter(|it| *it.1).map(|it| it.0);
    let first = gone.next()?;
    let last = gone.next_back().unwrap_or(first);
    Some(MessageRange {
        first: first.messages.start,
        last: last.unbound_messages().end - 1,
        messages: report.messages,
        tokens: scaled(report.tokens, calibration),
    })
}
