//! Messages made smaller, none left out: named texts, results, calls, media and attachments.

pub(in crate::guard) mod clearing;
pub(in crate::guard) mod message_cuts;
pub(in crate::guard) mod priority;
pub(in crate::guard) mod result_limits;
pub(in crate::guard) mod shortened_messages;
