//! `GET openapi.json`: the description of all this, for whoever writes a client.

use http::{Response, StatusCode};

use crate::{http::answer, wire::Body};

/// OpenAPI 3.1, written by hand.
const DESCRIPTION: &str = include_str!("openapi.json");

pub(super) fn description() -> Response<Body> {
    answer::json(StatusCode::OK, DESCRIPTION)
}

#[cfg(test)]
mod tests;
