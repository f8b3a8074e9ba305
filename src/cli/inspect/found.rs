//! What an inspection found: the report, as data. [`super::show`] makes text of it.
//!
//! Messages are counted from 0, as in the request. Every figure in tokens is an estimate, those of
//! the window aside.

use bytes::Bytes;
use serde::Serialize;

use super::{
    Aim,
    next::{self, Next, Span},
};
use crate::{
    guard::{
        self, How, Plan, Policy, Recall, Report, StoodBack,
        units::{self, Unit},
    },
    wire::chat::{self, Conversation},
};

#[derive(Debug, Serialize)]
pub(super) struct Found {
    pub(super) model: Option<String>,
    pub(super) provider: Option<String>,
    pub(super) profile: &'static str,
    pub(super) window: WindowFound,
    /// Kept free for the answer.
    pub(super) reserve_tokens: u32,
    /// What the prompt may use.
    pub(super) budget_tokens: u32,
    pub(super) as_it_came: Made,
    pub(super) as_it_goes: Made,
    /// As the header `x-plimsoll-actions` would say it.
    pub(super) actions: String,
    pub(super) stands_back: Option<Reason>,
    /// By caps and shares.
    pub(super) shortened: Vec<Shortened>,
    pub(super) truncated: Vec<Truncated>,
    pub(super) cleared: Option<Cleared>,
    pub(super) folded: Option<Span>,
    /// Nothing where the guard stands back.
    pub(super) next: Option<Next>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct WindowFound {
    pub(super) tokens: u32,
    /// The largest prompt, where lower than the window.
    pub(super) input_limit: Option<u32>,
    pub(super) source: &'static str,
}

/// What a request is made of; tokens, but for the first two.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Made {
    pub(super) bytes: usize,
    pub(super) messages: usize,
    pub(super) system: u32,
    /// Tool schemas and the response format.
    pub(super) tools: u32,
    /// User and assistant messages, calls included.
    pub(super) history: u32,
    pub(super) tool_results: u32,
    pub(super) images: u32,
    /// All of the above.
    pub(super) prompt: u32,
    /// Under the budget.
    pub(super) free: u32,
    /// Beyond the budget.
    pub(super) over: u32,
}

/// Why the guard does nothing.
#[derive(Debug, Serialize)]
pub(super) struct Reason {
    pub(super) word: &'static str,
    pub(super) why: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Truncated {
    pub(super) message: usize,
    pub(super) tool: String,
    pub(super) chars_before: usize,
    pub(super) chars_after: usize,
    /// Cut harder than its limit, because the newest step did not fit.
    pub(super) tighter: bool,
}

/// What became a placeholder, or will with the next cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Cleared {
    pub(super) results: usize,
    /// Calls whose arguments are shortened.
    pub(super) inputs: usize,
    /// Images and other media of the user's.
    pub(super) media: usize,
    pub(super) first: usize,
    pub(super) last: usize,
    /// Freed.
    pub(super) tokens: u32,
}

impl Cleared {
    pub(super) fn of(cleared: &guard::Cleared) -> Option<Self> {
        Some(Self {
            results: cleared.results,
            inputs: cleared.inputs,
            media: cleared.media,
            first: *cleared.messages.first()?,
            last: *cleared.messages.last()?,
            tokens: cleared.tokens,
        })
    }
}

/// A named text, or one of the system's, that goes out as another.
#[derive(Debug, Serialize)]
pub(super) struct Shortened {
    pub(super) message: usize,
    /// Its place among the parts of the message.
    pub(super) part: Option<usize>,
    pub(super) name: String,
    /// `capped`, `left out` or `trimmed`.
    pub(super) how: &'static str,
    pub(super) tokens_before: u32,
    pub(super) tokens_after: u32,
}

impl Found {
    pub(super) fn new(
        conversation: &Conversation,
        fitted: Bytes,
        policy: &Policy<'_>,
        plan: &Plan,
        aim: &Aim,
    ) -> Self {
        let report = &plan.report;
        let came = Made::of(conversation, report);
        let bytes = fitted.len();
        // What was edited is measured as it is, as the next proxy on the way would.
        let goes = chat::index(fitted).ok().map(|fitted| {
            let again = guard::plan(&fitted, policy, &Recall::default());
            (Made::of(&fitted, &again.report), fitted)
        });
        let units = units::split(conversation).unwrap_or_default();
        let next = goes
            .as_ref()
            .filter(|_| report.stood_back.is_none())
            .map(|(_, fitted)| Next::of(conversation, fitted, &units, policy, plan));
        Self {
            model: aim.model.clone(),
            provider: aim.provider.clone(),
            profile: aim.profile.name,
            window: aim.window,
            reserve_tokens: report.budget.reserve,
            budget_tokens: report.budget.tokens,
            as_it_came: came,
            as_it_goes: goes.map_or(Made { bytes, ..came }, |(made, _)| made),
            actions: report.actions(),
            stands_back: report.stood_back.map(reason),
            shortened: report.texts.shortened.iter().map(shortened).collect(),
            truncated: report.truncated.iter().map(truncated).collect(),
            cleared: report.cleared.as_ref().and_then(Cleared::of),
            folded: folded(&units, plan),
            next,
        }
    }

    pub(super) const fn is_edited(&self) -> bool {
        self.folded.is_some()
            || self.cleared.is_some()
            || !self.truncated.is_empty()
            || !self.shortened.is_empty()
    }

    /// What neither the prompt nor the answer may use: the margin, and what lies beyond the input
    /// limit or the cap on prompts.
    pub(super) const fn held_back(&self) -> u32 {
        self.window.tokens - self.reserve_tokens - self.budget_tokens
    }
}

impl Made {
    fn of(conversation: &Conversation, report: &Report) -> Self {
        let (shares, budget) = (report.shares, report.budget.tokens);
        let prompt = shares.total();
        Self {
            bytes: conversation.body.len(),
            messages: conversation.messages.len(),
            system: shares.system,
            tools: shares.tools,
            history: shares.history,
            tool_results: shares.tool_results,
            images: shares.images,
            prompt,
            free: budget.saturating_sub(prompt),
            over: prompt.saturating_sub(budget),
        }
    }
}

fn reason(stood_back: StoodBack) -> Reason {
    let why = match stood_back {
        StoodBack::Disabled => "the settings say guard.enabled = false".to_owned(),
        StoodBack::ProviderManages(member) => {
            format!("the request's member `{member}` leaves the context to the provider")
        }
        StoodBack::Invalid(invalid) => invalid.to_string(),
        StoodBack::Unsound(broken) => {
            format!("the plan did not pass its own check, a fault of the guard ({broken:?})")
        }
    };
    Reason {
        word: stood_back.word(),
        why,
    }
}

fn shortened(text: &guard::Shortened) -> Shortened {
    Shortened {
        message: text.message,
        part: text.part,
        name: text.name.clone(),
        how: match text.how {
            How::Capped => "capped",
            How::LeftOut => "left out",
            How::Trimmed => "trimmed",
        },
        tokens_before: text.before,
        tokens_after: text.after,
    }
}

fn truncated(cut: &guard::Truncated) -> Truncated {
    Truncated {
        message: cut.message,
        tool: cut.tool.clone(),
        chars_before: cut.before,
        chars_after: cut.after,
        tighter: cut.tighter,
    }
}

/// The messages that are left out: the last so many below the boundary that can go at all.
fn folded(units: &[Unit], plan: &Plan) -> Option<Span> {
    let folded = plan.report.folded?;
    let end = next::boundary(units, plan)?;
    let gone = units
        .iter()
        .filter(|unit| unit.messages.end <= end && next::goes(unit))
        .flat_map(|unit| unit.messages.clone());
    let gone: Vec<usize> = gone.collect();
    let first = gone[gone.len().saturating_sub(folded.messages)..].first()?;
    Some(Span {
        first: *first,
        last: *gone.last()?,
        messages: folded.messages,
        tokens: folded.tokens,
    })
}
