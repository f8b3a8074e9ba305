//! One guarded exchange, from a request's body to the end of its answer. [`exchange`] lists the steps.

mod answer_compaction;
mod app;
mod attempt;
pub mod begin_summary;
pub mod client_request;
pub mod dispatch;
pub mod exchange;
pub mod fallbacks;
pub mod judged_answer;
pub mod keepalive_stream;
pub mod models;
pub mod outgoing;
mod overflow_retry;
pub mod plan;
pub mod provider_reply;
mod proxy_answers;
pub mod recovery_step;
mod refusal;
pub mod replica_sync;
pub mod request_options;
pub mod response_headers;
pub mod session_events;
pub mod settle;
mod summary_due;
pub mod summary_source;
mod thinking_remedy;
pub mod tool_loop;
pub mod wait_for_summary;

pub use self::{
    answer_compaction::CompactionShape,
    app::App,
    client_request::{ClientRequest, FollowedConversation, SessionContext},
    fallbacks::PlacedRequest,
    judged_answer::JudgedAnswer,
    plan::PlannedRequest,
    provider_reply::{CallCount, ProviderReply, SendError},
    request_options::GuardMode,
};
