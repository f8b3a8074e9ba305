//! The rules by which the guard cuts, as data: [`RULES`].
//!
//! The product plans every request with these. `cargo bench --bench report -- rules` plans with others, and so measures what
//! each rule is worth; its table is in `docs/benchmarks.md`.

use crate::guard::order::{
    DeepCut::{ClearAttachments, ClearResults, FoldLeastWorth, FoldOldest},
    Due, MessageCut, Order,
    Reach::{BeforeNewest, BeforeTail},
    RequestCut,
};

/// The rules of all requests.
pub const RULES: Rules = Rules {
    order: Order {
        messages: &[
            MessageCut::CapNamedTexts,
            MessageCut::HoldSystemShare,
            MessageCut::TruncateResults,
        ],
        of_session: &[MessageCut::RepeatLimits, MessageCut::TruncateNewResults],
        requests: &[
            RequestCut::ShortenTools,
            RequestCut::ClearEarly,
            RequestCut::LeaveOutTexts,
            RequestCut::CutDeeply,
        ],
        deep: &[
            (ClearResults, BeforeTail),
            (ClearAttachments, BeforeTail),
            (FoldLeastWorth, BeforeTail),
            (ClearResults, BeforeNewest),
            (ClearAttachments, BeforeNewest),
            (FoldLeastWorth, BeforeNewest),
            (FoldOldest, BeforeNewest),
        ],
        last: &[
            RequestCut::DropLedger,
            RequestCut::ShortenNewestStep,
            RequestCut::ShortenNewestAttachments,
            RequestCut::FoldNewestQuestion,
            RequestCut::DropLedger,
        ],
    },
    due: &[
        Due::QuestionReturns,
        Due::OverBudget,
        Due::TurnBegins,
        Due::ColdCache,
    ],
    tail_part: 10,
    bound_depth: 0.2,
    uncounted_error: 0.07,
    question_part: 4,
    least_question_part: 32,
    said_part: 10,
    words_part: 50,
};

/// The order of cuts, the reasons for a deep cut, and shares. A share or part of the room: the room is the budget without
/// what no cut can free.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub order: Order,
    /// The reasons for which a request is cut deeply, in the order in which they are tried.
    pub due: &'static [Due],
    /// The newest units stay as they are while anything else can be cut, up to one part in this many of the room.
    pub tail_part: u32,
    /// If reasoning is bound, a cut leaves this share of what other cuts leave of the room. Each cut costs all reasoning so
    /// far, so the next cut should be far away. Measured with `cargo bench --bench report -- thinking`: a fifth keeps more of
    /// the ten newest answers' reasoning than larger shares, at less cost.
    pub bound_depth: f64,
    /// The share of a budget by which an estimate without any usage may exceed it. For 95 % of the recorded requests of 2 kB
    /// and more, the error of the estimate is within this share (`tests/it/estimate.rs`).
    pub uncounted_error: f64,
    /// The user's newest message stays up to one part in this many of the room, whatever else does not fit.
    pub question_part: u32,
    /// It also stays if it takes at most one part in this many of the window: the higher limit of the two if there is hardly
    /// any room.
    pub least_question_part: u32,
    /// A ledger's lines on what the user said take at most one part in this many of the usual budget.
    pub said_part: u32,
    /// The same for the words of the ledger.
    pub words_part: u32,
}
