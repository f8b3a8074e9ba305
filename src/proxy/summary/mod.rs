//! A request's part in the summary of the older part of its conversation: the request begins the job, may wait for its
//! outcome, and has the session remember it. `plan/summary_due.rs` decides whether a summary is due.

mod begin_summary;
mod summary_source;
mod wait_for_summary;

pub(super) use self::{
    begin_summary::{begin_summary_after, run_summary},
    summary_source::{SummarySource, keep_for_summary},
    wait_for_summary::{
        SummaryWait, begin_summary_wait, begin_whole_summary_wait, wait_for_summary,
    },
};
