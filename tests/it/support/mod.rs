//! Helpers of the tests and benches.

#![allow(dead_code, reason = "tests and benches use different parts of it")]

pub(crate) mod agent;
pub(crate) mod answers;
pub(crate) mod balancer;
pub(crate) mod block_cache;
pub(crate) mod bound;
pub(crate) mod bound_provider;
pub(crate) mod bound_sessions;
pub(crate) mod cache;
pub(crate) mod client;
pub(crate) mod client_sessions;
pub(crate) mod collector;
pub(crate) mod count;
pub(crate) mod counting_provider;
pub(crate) mod data;
pub(crate) mod drive;
pub(crate) mod generate;
pub(crate) mod generate_messages;
pub(crate) mod generate_responses;
pub(crate) mod guard_properties;
mod lines;
pub(crate) mod log;
pub(crate) mod made;
pub(crate) mod messages_agent;
pub(crate) mod model;
pub(crate) mod parse;
pub(crate) mod plans;
pub(crate) mod process;
pub(crate) mod provider;
pub(crate) mod proxy;
pub(crate) mod reading;
pub(crate) mod redis;
pub(crate) mod responses_agent;
pub(crate) mod server_edits;
pub(crate) mod store;
pub(crate) mod strict;
pub(crate) mod threads;
pub(crate) mod translate_chat;
pub(crate) mod tunnel;
pub(crate) mod wide_tools;

pub(crate) use self::{
    agent::*, balancer::*, client::*, collector::*, messages_agent::*, model::*, process::*,
    provider::*, proxy::*, redis::*, responses_agent::*, store::*, tunnel::*,
};
pub(crate) use lines::{
    annotate_randomly, any_settings, settings_once_applied, without_annotations,
};
