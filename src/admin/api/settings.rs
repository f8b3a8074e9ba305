//! `GET settings`: those in force, each with where it comes from, to read.
//!
//! SECURITY: for the administrator and, without client keys, for whoever `admin.local` shows all sessions. What
//! may be a key was taken out when the settings were read (`config/settings.rs`).

use http::{Response, StatusCode};
use serde::Serialize;

use super::Who;
use crate::{config::Setting, error::Failure, http::answer, proxy::App, wire::Body};

/// The body of the answer.
#[derive(Debug, Serialize)]
pub(super) struct Settings<'a> {
    /// By key.
    pub(super) settings: &'a [Setting],
}

/// # Errors
/// Whoever asks sees its own sessions only.
pub(super) fn settings(app: &App, who: &Who) -> Result<Response<Body>, Failure> {
    if who.account.is_some() {
        return Err(Failure::AdminOnly);
    }
    let settings = Settings {
        settings: &app.config.settings,
    };
    let body = serde_json::to_vec(&settings).unwrap_or_default();
    Ok(answer::json(StatusCode::OK, body))
}
