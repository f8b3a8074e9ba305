//! Keeps a conversation inside its window: `(conversation, policy, memory) -> plan`.
//!
//! No I/O and no clock here.

pub mod profile;
