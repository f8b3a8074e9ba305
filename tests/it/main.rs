//! The one integration binary: a list of modules.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod conversation;
mod faults;
mod generated;
mod golden;
mod guard;
mod health;
mod index;
mod inspect;
mod overflow;
mod pages;
mod passthrough;
mod recorded;
mod recovery;
mod recovery_guard;
mod refit;
mod registry;
mod session;
mod shutdown;
mod streaming;
mod support;
