//! `GET about`: facts of this proxy that a client of the API needs first. `GET settings`: the settings in
//! force, each with its source.

use http::Response;
use serde_json::{Value, json};

use super::{Requester, respond_json};
use crate::{config::Config, error::Failure, proxy::App, session::ReportReader, wire::Body};

/// SECURITY: for the administrator, and for local requesters who see all sessions by `admin.local`; not for a tab that
/// the link of the start opened, which is shown sessions only.
/// `config/setting.rs` removed all values that may be keys.
pub(super) fn answer_settings(app: &App, requester: &Requester) -> Result<Response<Body>, Failure> {
    if requester.account.is_some() || requester.by_link {
        return Err(Failure::AdminOnly);
    }
    Ok(respond_json(&settings_to_json(&app.config)))
}

pub(super) fn settings_to_json(config: &Config) -> Value {
    json!({ "settings": &*config.settings })
}

pub(super) fn answer_about(app: &App, requester: &Requester) -> Response<Body> {
    let reader = requester.choose_reader(app, requester.account.as_ref());
    let keys = app.clients.have_keys();
    respond_json(&describe_proxy(&app.config, reader, keys))
}

/// `keys` says whether clients need one. `reader` is `owner` (the client's sessions), `admin` (all
/// sessions), `local` or `link` (all sessions, read only). `compaction` is the default of sessions.
pub(super) fn describe_proxy(config: &Config, reader: ReportReader, keys: bool) -> Value {
    let compaction = &config.compaction;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "reader": match reader {
            ReportReader::Owner => "owner",
            ReportReader::Admin { .. } => "admin",
            ReportReader::Local => "local",
            ReportReader::Link => "link",
        },
        "keys": keys,
        "show_content": reader.sees_content(),
        "compaction": {
            "auto": compaction.auto,
            "threshold": compaction.threshold,
            "strategy": compaction.strategy_name(),
        },
    })
}
