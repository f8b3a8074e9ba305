//! Keeps a conversation inside its window: `(conversation, policy, knowledge) -> plan`.
//!
//! [`plan`] makes the cuts of `rules::RULES`, puts injected messages back at their places, and lowers the answer cap to
//! what is left.
//!
//! No message is left out of a request by which the client compacts its conversation (`plan::compaction_request`).
//!
//! Every plan that adds or removes a message is linted. A plan that fails is dropped: the original goes out, and a guard
//! fault is counted.
//!
//! Its modules, outermost first; each imports only those that follow it: `plan` puts a plan together, `fold` decides which
//! units are left out and what replaces them, `shrink` makes one message smaller, `inject` places what the proxy adds,
//! `grammar` knows which messages may follow each other, `text` cuts one text, `request` measures, `rules` lists the cuts in
//! their order, `order` names them.
//!
//! The guard does no I/O and reads no clock. If a conversation came in invalid, what makes it invalid is kept.

mod fold;
mod grammar;
mod inject;
mod order;
mod plan;
mod request;
pub mod rules;
mod shrink;
mod text;

pub(crate) use self::grammar::{
    prompt_placement::can_follow,
    role_alternation::{alternates_without_steps, resolve_profile_for_request},
};
pub(crate) use self::text::{fence, line_range};
pub use self::{
    fold::ledger,
    grammar::{lint, running_turn},
    inject::{dropped_rounds, injections},
    plan::explain,
    request::{budget, estimate, recall_id},
    text::truncate,
};
pub use self::{
    fold::{
        compaction_note::{is_compaction_note, write_compaction_note},
        memory::{EarlierPlan, GuardMemory, NewSummary, SessionKnowledge},
        note::NOTE,
        sent_history::SentHistory,
    },
    grammar::{outline::OutlineItem, prompt_placement::may_prompt},
    inject::placed_injections::{LeftOut, LeftOutReasoning},
    order::{DeepCut, Due, MessageCut, Order, Reach, RequestCut},
    plan::{
        course::{find_course_boundary, list_removed_messages, preface_fit_check, weigh_before},
        make_plan::{plan, session_budget},
        old_media::clear_old_media,
        questions::{count_cleared_tokens, plan_without_new_cuts},
        report::{FoldReport, Plan, Report, ShortToolsReport, StandBackReason},
    },
    request::{
        answer_cap::{AnswerCap, AnswerHistory, PastAnswers},
        answer_place::AnswerPlace,
        policy::Policy,
        refusal_lessons::RefusalLessons,
    },
    shrink::{
        clearing::Cleared,
        priority::{CapUse, PriorityReport, ShortenedText, Shortening, SystemUse},
        result_limits::max_recall_chars,
        shortened_messages::{ToolNames, TruncationReport},
    },
};
pub use crate::config::profile;

#[cfg(test)]
mod tests;
