//! Helpers of the tests and benches. What to take:
//!
//! | you want | take |
//! | --- | --- |
//! | a proxy in this process | `ProxyBuilder::new().provider(…).start()`, which gives a [`RunningProxy`] |
//! | the real binary, its signals and its log | [`Process`], with [`Settings`] as its file |
//! | a provider that answers what the test says, and records what it was sent | [`ScriptedProvider`] with [`ProviderStep`]s |
//! | a provider that answers as a model does, and refuses what is too long | [`ModelSetup`], [`ModelReply`]; one that binds reasoning: `bound_provider` |
//! | a provider that counts tokens in another way, holds threads, or edits by itself | `counting_provider`, `threads`, `server_edits` |
//! | a client that checks every answer (known headers only, no secret) | [`TestClient`]; `proxy.chat(…)` in short |
//! | a client that keeps its conversation and runs tools | [`Agent`], [`MessagesAgent`], [`ResponsesAgent`] |
//! | sessions of many shapes, with edits of their history | `client_sessions::run_shaped`, `bound_sessions::run_sessions` |
//! | a conversation from a seed | `any_conversation` (chat), `any_messages`, `any_responses`; as a session that grows: `generate::Session` |
//! | a recorded conversation | `data::requests`, and its siblings; without the data there are none |
//! | a plan, and what it makes of a body | `make_policy`, `apply_plan` in `plans`; every invariant of it: `check_plan` |
//! | every property of the guard at every step of a session | `CHAT`, `MESSAGES`, `RESPONSES` in `guard_properties`: `check`, `check_with`, `grow` |
//! | a judge of what goes out that shares no code with the guard | `strict::find_violations`, `strict::find_broken_rules` |
//! | what a provider's cache would read of a request | `cache::PromptCache`, `block_cache::BlockCache` |
//! | a session driven by the guard alone, with its cost | `drive::GuardedSession` |
//! | a store that can fail; Redis; a collector of traces; HAProxy; an HTTP proxy | [`TestStore`], [`Redis`], [`TestCollector`], [`Balancer`], [`TunnelProxy`] |
//! | to wait for a state, with a bound | `within_time`, `wait_until` |

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
