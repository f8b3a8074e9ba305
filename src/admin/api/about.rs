//! `GET about`: what a reader has to know of this proxy before it shows anything else; and `GET settings`:
//! those in force, each with where it comes from, to read.

use http::Response;
use serde_json::{Value, json};

use super::{Requester, respond_json};
use crate::{config::Config, error::Failure, proxy::App, session::ReportReader, wire::Body};

/// SECURITY: for the administrator and, without client keys, for whoever `admin.local` shows all sessions. What
/// may be a key was taken out when the settings were read (`config/setting.rs`).
///
/// # Errors
/// Whoever asks sees its own sessions only.
pub(super) fn answer_settings(app: &App, who: &Requester) -> Result<Response<Body>, Failure> {
    if who.account.is_some() {
        return Err(Failure::AdminOnly);
    }
    Ok(respond_json(&settings_to_json(&app.config)))
}

/// The settings with their keys.
pub(super) fn settings_to_json(config: &Config) -> Value {
    json!({ "settings": &*config.settings })
}

pub(super) fn answer_about(app: &App, who: &Requester) -> Response<Body> {
    let reader = who.reader_of(app, who.account.as_ref());
    respond_json(&describe_proxy(
        &app.config,
        reader,
        app.clients.have_keys(),
    ))
}

/// `keys`: clients need one. `reader` is `owner` of its own sessions, `admin` of all, or `local`: shown
/// all, to read. `compaction` is what sessions follow that have no switch of their own.
pub(super) fn describe_proxy(config: &Config, reader: ReportReader, keys: bool) -> Value {
    let (reader, show_content) = match reader {
        ReportReader::Owner => ("owner", true),
        ReportReader::Admin { show_content } => ("admin", show_content),
        ReportReader::Local => ("local", false),
    };
    let compaction = &config.compaction;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "reader": reader,
        "keys": keys,
        "show_content": show_content,
        "compaction": {
            "auto": compaction.auto,
            "threshold": compaction.threshold,
            "strategy": compaction.strategy_name(),
        },
    })
}
