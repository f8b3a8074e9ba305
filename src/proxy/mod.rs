//! One guarded exchange, from a request's body to the end of its answer. [`exchange`] lists the steps.

mod answer;
mod app;
pub mod client_request;
pub mod dispatch;
pub mod exchange;
pub mod judged_answer;
mod logins;
pub mod models;
pub mod outgoing;
pub mod plan;
pub mod recovery_step;
pub mod replica_sync;
pub mod request_options;
pub mod response_headers;
pub mod session_events;
pub mod settle;
mod summary;

pub use self::{
    answer::CompactionShape,
    app::App,
    client_request::{ClientRequest, FollowedConversation, SessionContext},
    dispatch::ProviderRequest,
    judged_answer::JudgedAnswer,
    plan::PlannedRequest,
    request_options::GuardMode,
};
