//! What is on the wire: a body's bytes, and where the conversation lies in them.
//!
//! Nothing here copies or re-serialises a body: an index holds spans of it, an edit replaces
//! spans of it. What is particular to one wire format stays in its own file ([`chat`] for chat
//! completions); the guard knows conversations only.

pub mod chat;
pub mod edit;
pub mod scan;
pub mod text;
