//! Plimsoll: an OpenAI-compatible reverse proxy that keeps every conversation inside its model's
//! context window, and says how full the window is.
//!
//! The modules are the path of a request, in order:
//!
//! ```text
//! client -> server -> wire -> session -> guard -> provider -> relay -> health -> recovery -> session
//! ```
//!
//! Dependencies point one way: `server` knows all stages; stages know `wire` and `error`, never
//! `server` nor each other's insides. `guard`, `health` and `recovery` do no I/O.

pub mod cli;
pub mod compaction;
pub mod config;
pub mod dashboard;
pub mod error;
pub mod guard;
pub mod health;
pub mod json;
pub mod provider;
pub mod recovery;
pub mod relay;
pub mod server;
pub mod session;
pub mod store;
pub mod telemetry;
pub mod wire;

pub use server::{Live, serve};
