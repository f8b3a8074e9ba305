//! The one integration binary: a list of modules.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod alternation;
mod api;
mod compaction;
mod compressed;
mod connections;
mod conversation;
mod corpus;
mod fault_matrix;
mod faults;
mod gateway_paths;
mod generated;
mod golden;
mod guard;
mod health;
mod hostile;
mod index;
mod inspect;
mod keys;
mod kill;
mod overflow;
mod pages;
mod passthrough;
mod priority;
mod recorded;
mod recovery;
mod recovery_guard;
mod redis_down;
mod refit;
mod registry;
mod reload;
mod replicas;
mod secrets;
mod session;
mod shutdown;
mod silent;
mod stored;
mod streaming;
mod summary;
mod support;
mod traces;
mod upstream;
mod usage_modes;
mod watch;
mod websocket;
