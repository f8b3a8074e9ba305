//! Formats beside chat completions, by what a model reads and writes in them.

use serde_json::Value;

use super::{ModelCall, RefusalWriter};
use crate::support::{provider::ProviderStep, strict};

/// Output tokens of every answer.
pub(crate) const ANSWER_TOKENS: u64 = 11;

/// A format beside chat completions: how its requests are read, and answers written.
pub(crate) struct Dialect {
    pub(crate) find_violations: fn(&[u8]) -> Vec<strict::Violation>,
    /// A request in the shape of chat completions.
    pub(crate) view: fn(&Value) -> Value,
    pub(super) refuse: RefusalWriter,
    pub(super) fail: fn(u16, &str, &str) -> Vec<ProviderStep>,
    /// A reply, whole and as events.
    pub(crate) write: fn(&ReplyWriter<'_>, &str, &[ModelCall]) -> (Value, String),
}

/// What a reply is written from.
pub(crate) struct ReplyWriter<'a> {
    pub(crate) body: &'a Value,
    pub(crate) tokens: u64,
    pub(crate) nth: usize,
    pub(crate) fragment: usize,
}
