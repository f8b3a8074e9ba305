//! The order in which cuts are tried: [`ORDER`].
//!
//! First come the cuts of single messages, made in every request that the guard plans; then those of whole requests, most of
//! them only if the request is over its budget. `ClearEarly` cuts below the budget, and so does `CutDeeply` if the provider's
//! cache is cold, or if a turn begins at a model whose reasoning is bound. A conversation may have been over its budget at any time while it grew, so the replay tries the cuts of requests
//! for each request that the conversation went through (see `fold::replay`). The answer cap is lowered last, to what is
//! left; the budgets count on that from the start (`request::answer_cap`).
//!
//! A history that the provider manages has its long results truncated, and nothing else (`plan::make_plan`).
//!
//! Four things go that are no cuts for room: reasoning that a cut made stale (`fold::replay::reasoning`), what is before a
//! course or a summary (`CutState::fold_before`), old media after a refusal (`plan::old_media`), and the middle of results
//! in a request to compact (`plan::compaction_request`).

/// The order of all cuts.
pub(in crate::guard) const ORDER: Order = Order {
    messages: &[
        MessageCut::CapNamedTexts,
        MessageCut::HoldSystemShare,
        MessageCut::TruncateResults,
        MessageCut::RepeatLimits,
        MessageCut::TruncateNewResults,
    ],
    requests: &[
        RequestCut::ShortenTools,
        RequestCut::ClearEarly,
        RequestCut::LeaveOutTexts,
        RequestCut::CutDeeply,
    ],
    last: &[
        RequestCut::DropLedger,
        RequestCut::ShortenNewestStep,
        RequestCut::ShortenNewestAttachments,
        RequestCut::FoldNewestQuestion,
        RequestCut::DropLedger,
    ],
    deep: &[
        (DeepCut::ClearResults, Reach::BeforeTail),
        (DeepCut::ClearAttachments, Reach::BeforeTail),
        (DeepCut::FoldLeastWorth, Reach::BeforeTail),
        (DeepCut::ClearResults, Reach::BeforeNewest),
        (DeepCut::ClearAttachments, Reach::BeforeNewest),
        (DeepCut::FoldLeastWorth, Reach::BeforeNewest),
        (DeepCut::FoldOldest, Reach::BeforeNewest),
    ],
};

/// Cuts, each list in its order.
pub(in crate::guard) struct Order {
    /// Made once, whatever the request has room for.
    pub(in crate::guard) messages: &'static [MessageCut],
    /// Tried for each request of the replay.
    pub(in crate::guard) requests: &'static [RequestCut],
    /// The last resorts, each no further than the request needs: the first that would do alone, if there is one, else all
    /// until the request fits.
    pub(in crate::guard) last: &'static [RequestCut],
    /// The parts of a deep cut, each down to its goal; the last one only as far as the request needs. With `guard.order = "oldest"` the last one alone.
    pub(in crate::guard) deep: &'static [(DeepCut, Reach)],
}

/// Why a request is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Due {
    /// It is not. What is cut was due in an earlier request of the conversation.
    #[default]
    No,
    /// It is over its budget.
    OverBudget,
    /// It has room for the user's newest message, which was left out: a cut of what is old makes that room.
    QuestionReturns,
    /// It is near its budget, and a turn begins: a cut in the midst of the turn would cost the reasoning of that.
    TurnBegins,
    /// It is near its budget, and the provider's cache is gone: a cut costs nothing now.
    ColdCache,
    /// The settings have old results cleared before the budget is reached.
    Early,
}

impl Due {
    /// Whether the request does not fit, at least with the message that comes back.
    pub(in crate::guard) const fn exceeds_budget(self) -> bool {
        matches!(self, Self::OverBudget | Self::QuestionReturns)
    }

    /// In words, for the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::No => "an earlier request",
            Self::OverBudget => "over budget",
            Self::QuestionReturns => "the newest question returns",
            Self::TurnBegins => "a turn begins",
            Self::ColdCache => "cold cache",
            Self::Early => "early clearing",
        }
    }
}

/// A cut by the bytes of messages, the settings and what the session remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::guard) enum MessageCut {
    /// Named texts over their caps keep their beginning and end.
    CapNamedTexts,
    /// System text over its share loses annotated texts, and gets shorter.
    HoldSystemShare,
    /// Long tool results keep their beginning and end.
    TruncateResults,
    /// What an earlier request had to shorten stays so, and annotated texts that it left out stay out.
    RepeatLimits,
    /// Results that are new get shorter still while the window is nearly full.
    TruncateNewResults,
}

/// A cut of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::guard) enum RequestCut {
    /// Tool definitions that take much of the window get shorter, once in a session: with the first request that is over its
    /// budget. All requests are replayed with them.
    ShortenTools,
    /// Old results become placeholders before the budget is reached, if the settings ask for it.
    ClearEarly,
    /// Annotated texts go, by their priority, while the request is over its budget.
    LeaveOutTexts,
    /// The one cut that makes room for requests to come: see [`Order::deep`]. The user's newest message comes back with it,
    /// where it was left out for a step that is old now.
    CutDeeply,
    /// The ledger of what is gone goes, until the next deep cut: before the newest step gets shorter, and again once the
    /// newest question is gone, which makes a ledger.
    DropLedger,
    /// Results of the steps whose reasoning led to the newest one get shorter, then those of the newest step, then its calls.
    ShortenNewestStep,
    /// What is attached to the newest message gets shorter.
    ShortenNewestAttachments,
    /// The user's newest message goes, if it is long and a step behind it cannot get smaller.
    FoldNewestQuestion,
}

impl RequestCut {
    /// Whether it takes from what the model has not answered yet.
    pub(in crate::guard) const fn changes_newest(self) -> bool {
        match self {
            Self::ShortenTools
            | Self::ClearEarly
            | Self::LeaveOutTexts
            | Self::CutDeeply
            | Self::DropLedger => false,
            Self::ShortenNewestStep | Self::ShortenNewestAttachments | Self::FoldNewestQuestion => {
                true
            }
        }
    }
}

/// A part of a deep cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::guard) enum DeepCut {
    /// Results become placeholders, oldest first; arguments of calls get shorter, if the settings ask for it.
    ClearResults,
    /// Media of the user become notices, and attachments get shorter, oldest first.
    ClearAttachments,
    /// Units go, first those whose words stand elsewhere too: those that are worth least a token.
    FoldLeastWorth,
    /// The last resort: units go, oldest first, until the request is within its budget.
    FoldOldest,
}

/// How far a part of a deep cut reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::guard) enum Reach {
    /// Up to the newest units, as many as fit into a part of the room.
    BeforeTail,
    /// Up to what the request asks for: the newest step or message.
    BeforeNewest,
}
