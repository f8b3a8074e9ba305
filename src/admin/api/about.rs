//! `GET about`: what a reader has to know of this proxy before it shows anything else; and `GET settings`:
//! those in force, each with where it comes from, to read.

use http::Response;
use serde::Serialize;

use super::{Who, respond};
use crate::{
    config::{Config, Setting, Strategy},
    error::Failure,
    proxy::App,
    session::Reader,
    wire::Body,
};

/// The body of the answer.
#[derive(Debug, Serialize)]
pub(super) struct About {
    version: &'static str,
    /// `owner` of its own sessions, `admin` of all, or `local`: shown all, to read.
    reader: &'static str,
    /// Whether clients need keys.
    keys: bool,
    /// Whether whoever asks is shown texts of conversations.
    show_content: bool,
    compaction: Compaction,
}

/// What sessions follow that have no switch of their own.
#[derive(Debug, Serialize)]
struct Compaction {
    auto: bool,
    threshold: f64,
    /// `cost`, `balanced` or `information`.
    strategy: &'static str,
}

/// The body of the answer.
#[derive(Debug, Serialize)]
pub(super) struct Settings<'a> {
    /// By key.
    pub(super) settings: &'a [Setting],
}

/// SECURITY: for the administrator and, without client keys, for whoever `admin.local` shows all sessions. What
/// may be a key was taken out when the settings were read (`config/setting.rs`).
///
/// # Errors
/// Whoever asks sees its own sessions only.
pub(super) fn settings(app: &App, who: &Who) -> Result<Response<Body>, Failure> {
    if who.account.is_some() {
        return Err(Failure::AdminOnly);
    }
    let settings = &app.config.settings;
    Ok(respond(&Settings { settings }))
}

pub(super) fn about(app: &App, who: &Who) -> Response<Body> {
    let about = describe(&app.config, who.reader(app), app.clients.have_keys());
    respond(&about)
}

pub(super) fn describe(config: &Config, reader: Reader, keys: bool) -> About {
    let (reader, show_content) = match reader {
        Reader::Owner => ("owner", true),
        Reader::Admin { show_content } => ("admin", show_content),
        Reader::Local => ("local", false),
    };
    let compaction = &config.compaction;
    About {
        version: env!("CARGO_PKG_VERSION"),
        reader,
        keys,
        show_content,
        compaction: Compaction {
            auto: compaction.auto,
            threshold: compaction.threshold,
            strategy: match compaction.strategy() {
                Strategy::CostFirst => "cost",
                Strategy::Balanced => "balanced",
                Strategy::KeepInformation => "information",
            },
        },
    }
}
