//! Places what the proxy adds: between the client's messages, and in the answers that the client echoes.

pub mod dropped_rounds;
pub(in crate::guard) mod echo;
pub(in crate::guard) mod gap;
pub(in crate::guard) mod injected_rounds;
pub mod injections;
pub(in crate::guard) mod placed_injections;
pub(in crate::guard) mod tool_schemas;
