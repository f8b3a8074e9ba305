//! What all HTTP clients of the proxy have in common.

use reqwest::{Certificate, ClientBuilder, Proxy, redirect, retry};

use crate::config::{Outgoing, Route};

/// A client that follows no redirects, retries nothing and has no limit of time.
///
/// SECURITY: it uses no proxy of the environment by itself: [`begin_client_for`] says which.
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

/// The same for addresses that are reached by this route. It trusts the certificates of the settings, too.
pub fn begin_client_for(outgoing: &Outgoing, route: Option<&Route>) -> ClientBuilder {
    let certificates = outgoing.certificates.iter();
    let certificates = certificates.filter_map(|it| Certificate::from_der(it).ok());
    let client = begin_http_client().tls_certs_merge(certificates);
    let proxy = route.and_then(|route| route.proxy.as_ref());
    // The settings have only addresses of proxies.
    match proxy.map(|proxy| Proxy::all(proxy.reveal())) {
        Some(Ok(proxy)) => client.proxy(proxy),
        _ => client,
    }
}
