//! What all HTTP clients of the proxy have in common.

use reqwest::{ClientBuilder, redirect, retry};

/// A client that follows no redirects, retries nothing and has no limit of time.
///
/// SECURITY: it uses no proxy of the environment, so that a key goes to the named address only.
pub fn begin_http_client() -> ClientBuilder {
    // An error means that another client has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .tcp_nodelay(true)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .no_proxy()
}
