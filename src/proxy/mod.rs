//! One guarded exchange, from a chat completion's body to the end of its answer. [`exchange`] has the steps.

mod app;
mod attempt;
pub mod begin_summary;
mod candidates;
pub mod dispatch;
pub mod exchange;
pub mod generation;
pub mod keepalive_stream;
pub mod models;
pub mod outgoing;
mod overflow_retry;
mod own_answers;
pub mod recovery_step;
mod refusal;
pub mod replica_sync;
pub mod request_options;
pub mod send;
pub mod session_events;
pub mod tool_loop;
pub mod traced_send;
pub mod wait_for_summary;

pub use self::app::App;
