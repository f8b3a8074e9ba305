//! Which messages may be where in a conversation, and whether a plan keeps to these rules.

pub mod lint;
pub(in crate::guard) mod message_order;
pub(in crate::guard) mod outline;
pub(in crate::guard) mod prompt_placement;
pub(in crate::guard) mod role_alternation;
pub mod running_turn;
