//! `GET openapi.json`: the description of the API for authors of clients.

use http::{Response, StatusCode};

use crate::{http::answer, wire::Body};

/// OpenAPI 3.1, maintained by hand.
const DESCRIPTION: &str = include_str!("openapi.json");

pub(super) fn answer_openapi() -> Response<Body> {
    answer::json_response(StatusCode::OK, DESCRIPTION)
}

#[cfg(test)]
mod tests;
