//! Plimsoll: a reverse proxy for the APIs of OpenAI and Anthropic that keeps every conversation inside
//! its model's context window, and says how full the window is.
//!
//! `ARCHITECTURE.md` has the path of a request, the glossary, and a table of the modules: a module imports only
//! those below it in that table, as `tests/it/layers.rs` checks. Read `proxy/exchange.rs` first.

pub mod admin;
pub mod breaker;
pub mod cli;
pub mod compaction;
pub mod config;
pub mod conversation;
pub mod error;
pub mod format;
pub mod guard;
pub mod health;
pub mod http;
pub mod json;
pub mod passthrough;
pub mod provider;
pub mod proxy;
pub mod recovery;
pub mod relay;
pub mod server;
pub mod session;
pub mod store;
pub mod telemetry;
pub mod unix_time;
pub mod wire;

pub use server::{CurrentConfig, serve};

#[cfg(test)]
extern crate self as plimsoll;

/// Reads the source alone. Among the unit tests, so that `tests/run fast` runs it.
#[cfg(test)]
#[path = "../tests/it/layers.rs"]
mod layers;

/// The support code of the integration tests that the unit tests share.
#[cfg(test)]
#[allow(
    dead_code,
    unused_imports,
    reason = "the integration tests use all of it"
)]
#[path = "../tests/it/support"]
mod support {
    pub(crate) mod generate;
    pub(crate) mod generate_messages;
    pub(crate) mod generate_responses;
    pub(crate) mod guard_properties;
    mod lines;
    pub(crate) mod log;
    pub(crate) mod made;
    pub(crate) mod parse;
    pub(crate) mod plans;
    pub(crate) mod store;
    pub(crate) mod strict;
    pub(crate) mod wide_tools;

    pub(crate) use lines::{
        annotate_randomly, any_settings, settings_once_applied, without_annotations,
    };
}
