//! `GET about`: what a reader has to know of this proxy before it shows anything else.

use http::{Response, StatusCode};
use serde::Serialize;

use super::Who;
use crate::{
    config::{Config, Strategy},
    http::answer,
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

pub(super) fn about(app: &App, who: &Who) -> Response<Body> {
    let about = told(&app.config, who.reader(app), app.clients.have_keys());
    answer::json(
        StatusCode::OK,
        serde_json::to_vec(&about).unwrap_or_default(),
    )
}

fn told(config: &Config, reader: Reader, keys: bool) -> About {
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

#[cfg(test)]
pub(super) fn fixture() -> About {
    told(&Config::default(), Reader::Owner, false)
}
