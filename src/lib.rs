//! Plimsoll: an OpenAI-compatible reverse proxy that keeps every conversation inside its model's
//! context window, and says how full the window is.
//!
//! A module imports only modules of the rows below its own; `tests/it/layers.rs` holds that:
//!
//! ```text
//! cli
//! server        accepts connections and routes requests
//! admin         the session API, the dashboard, health and metrics
//! passthrough   what is forwarded without a guard
//! proxy         one guarded exchange, step by step: read proxy/exchange.rs first
//! http          clients, limits, bodies, answers
//! session
//! compaction
//! recovery
//! guard
//! telemetry
//! provider
//! relay
//! error, health
//! format        wire formats: requests read and written, answers read and rewritten
//! wire
//! conversation  the neutral model of a request: items, blocks, units, edits
//! json
//! store, breaker
//! config
//! ```

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
pub mod wire;

pub use server::{CurrentConfig, serve};

#[cfg(test)]
extern crate self as plimsoll;

/// Those parts of what the integration tests stand on that the tests of the library share.
#[cfg(test)]
#[allow(
    dead_code,
    unused_imports,
    reason = "the integration tests use all of it"
)]
#[path = "../tests/it/support"]
mod support {
    pub(crate) mod generate;
    pub(crate) mod guard_properties;
    mod lines;
    pub(crate) mod made;
    pub(crate) mod parse;
    pub(crate) mod plans;
    pub(crate) mod strict;

    pub(crate) use lines::{
        annotate_randomly, any_settings, settings_once_applied, without_annotations,
    };
}
