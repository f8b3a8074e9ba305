//! The cuts, and the lists in whose order they are tried: [`Order`]. What the lists hold: `guard::rules`.
//!
//! First come the cuts of single messages, made in every request that the guard plans; then those of whole requests, most of
//! them only if the request is over its budget. `ClearEarly` cuts below the budget, and so does `CutDeeply` if the
//! provider's cache is cold, if a turn begins at a model whose reasoning is bound, or if the user's newest message returns
//! ([`Due`]). A conversation may have been over its budget at any time while it grew. The replay therefore tries the cuts of
//! requests for each request that the conversation went through (see `fold::replay`). The answer cap is lowered last, to
//! what is left; the budgets count on that from the start (`request::answer_cap`).
//!
//! If the provider manages the history, then its long results are truncated, and nothing else is cut (`plan::make_plan`).
//!
//! Four things are left out for other reasons than room: reasoning that a cut made stale (`fold::replay::reasoning`), what
//! is before a course or a summary (`CutState::fold_before`), old media after a refusal (`plan::old_media`), and the middle
//! of results in a request to compact (`plan::compaction_request`).

/// Lists of cuts, each in the order in which its cuts are tried.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Cuts of single messages: made once, in every request, also in one that fits. They depend on the bytes of messages, on
    /// the settings, and on what a token of the session's provider counts.
    pub messages: &'static [MessageCut],
    /// Cuts of single messages that the session asks for, made directly after those.
    pub of_session: &'static [MessageCut],
    /// Tried for each request of the replay.
    pub requests: &'static [RequestCut],
    /// The parts of a deep cut ([`RequestCut::CutDeeply`]). Each cuts down to its goal; the last one cuts only as much as the
    /// request needs. With `guard.order = "oldest"`, the last one is the only one.
    pub deep: &'static [(DeepCut, Reach)],
    /// The last resorts, made after all of these. If one of them is enough alone, the first such one is made, else all in
    /// turn until the request fits. None cuts more than the request needs, except for results that led to the newest step,
    /// which are cut to the goal of a deep cut.
    pub last: &'static [RequestCut],
}

/// Why a request is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It is over its budget.
    OverBudget,
    /// The user's newest message was left out. It fits next to the newest step once older units are cut, and comes back
    /// with that cut only.
    QuestionReturns,
    /// It is near its budget, and a turn begins: a later cut, in the midst of the turn, would cost its reasoning.
    TurnBegins,
    /// It is near its budget, and the provider's cache is gone: a cut costs nothing now.
    ColdCache,
    /// The settings have old results cleared before the budget is reached. This is no reason for a deep cut.
    EarlyClearing,
}

impl Due {
    /// The reason in words, for the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OverBudget => "over budget",
            Self::QuestionReturns => "the newest question returns",
            Self::TurnBegins => "a turn begins",
            Self::ColdCache => "cold cache",
            Self::EarlyClearing => "early clearing",
        }
    }
}

/// A cut of a single message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageCut {
    /// Named texts over their caps keep their beginning and end.
    CapNamedTexts,
    /// System text over its share loses annotated texts, and the rest of it gets shorter if the settings ask for it.
    HoldSystemShare,
    /// Long tool results keep their beginning and end.
    TruncateResults,
    /// What an earlier request had to shorten stays short, and annotated texts that it left out stay out.
    RepeatLimits,
    /// New results get even shorter while the window is nearly full.
    TruncateNewResults,
}

/// A cut of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestCut {
    /// Tool definitions that take much of the window get shorter, once in a session: with the first request that is over its
    /// budget. All requests are replayed with them.
    ShortenTools,
    /// Old results become placeholders before the budget is reached, if the settings ask for it.
    ClearEarly,
    /// Annotated texts are left out, by their priority, while the request is over its budget.
    LeaveOutTexts,
    /// The one cut that makes room for requests to come: see [`Order::deep`]. If the user's newest message was left out for
    /// a step that is old now, it comes back with this cut.
    CutDeeply,
    /// The ledger is left out until the next deep cut. This is tried before the newest step gets shorter, and again once the
    /// newest question is left out, which makes a ledger.
    DropLedger,
    /// Results of the steps whose reasoning led to the newest step get shorter, then those of the newest step, then its
    /// calls.
    ShortenNewestStep,
    /// The attachments of the newest message get shorter.
    ShortenNewestAttachments,
    /// The user's newest message is left out, if it is long and a step behind it cannot get smaller.
    FoldNewestQuestion,
}

impl RequestCut {
    /// Whether it shortens or leaves out what the model has not answered yet.
    pub const fn changes_newest(self) -> bool {
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
pub enum DeepCut {
    /// Results become placeholders, oldest first; arguments of calls get shorter, if the settings ask for it.
    ClearResults,
    /// Media of the user are replaced with notices, and attachments get shorter, oldest first.
    ClearAttachments,
    /// Units are left out (evicted), first those that are worth least for each token: whose words are in other units too.
    FoldLeastWorth,
    /// Units are left out, oldest first, until the request is within its budget.
    FoldOldest,
}

/// How far a part of a deep cut reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Up to the tail: the newest units, as many as fit into a part of the room.
    BeforeTail,
    /// Up to what the request asks for: the newest step or message.
    BeforeNewest,
}

impl Reach {
    /// The unit before which a part cuts.
    pub(in crate::guard) const fn find_limit(self, tail: usize, newest: usize) -> usize {
        match self {
            Self::BeforeTail => tail,
            Self::BeforeNewest => newest,
        }
    }
}
