//! The built-in provider of a build without the feature `simulated`: no settings name it, and it has no models.

use bytes::Bytes;
use http::{Request, Response, StatusCode};

use crate::wire::Body;

pub const MODELS: &[(&str, u32)] = &[];

pub async fn answer_request(_: Request<Bytes>) -> Response<Body> {
    let mut answer = Response::new(Body::default());
    *answer.status_mut() = StatusCode::NOT_IMPLEMENTED;
    answer
}
