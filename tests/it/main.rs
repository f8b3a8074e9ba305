//! The one integration binary: a list of modules.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod generated;
mod guard;
mod index;
mod recorded;
mod session;
mod support;
