//! The fields of a toy request beside its entries.

use crate::{conversation::Conversation, json::scan::Span};

/// The members that cap an answer.
pub(in crate::format) const CAPS: &[&str] = &["hard_limit", "reply_limit"];
/// The lists of tools.
pub(in crate::format) const TOOL_LISTS: &[&str] = &["gear", "old_gear"];

pub(in crate::format) const fn find_answer_format(_: &Conversation) -> Option<Span> {
    None
}

pub(in crate::format) const fn takes_plain_text(_: &Conversation) -> bool {
    true
}

pub(in crate::format) const fn managed_by_provider(_: &Conversation) -> Option<&'static str> {
    None
}

pub(in crate::format) const fn may_call_tools(_: &Conversation) -> bool {
    true
}
