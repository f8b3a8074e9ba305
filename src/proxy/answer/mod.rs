//! The answer to a client: a provider's answer, relayed and joined from all tool rounds, or an answer that the proxy makes
//! in its place.

mod answer_compaction;
mod keepalive_stream;
mod proxy_answers;
mod relay_answer;
mod tool_loop;

pub use self::answer_compaction::CompactionShape;
pub(super) use self::{
    answer_compaction::answer_compaction, keepalive_stream::answer_while_waiting,
    relay_answer::relay_answer,
};
