//! Outgoing proxies, certificates and TLS: of the clients for lists and the like (`begin_client_for`), and of the data path
//! (`build_tls`).

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use reqwest::{Certificate, ClientBuilder, Proxy, redirect, retry};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer};
use rustls_platform_verifier::Verifier;

use crate::config::{Outgoing, Route};

/// A client that follows no redirects, retries nothing and has no limit of time.
///
/// SECURITY: it uses no proxy of the environment by itself: [`begin_client_for`] says which.
pub fn begin_http_client() -> ClientBuilder {
    // An error means that another client has installed it.
    let _ = ring::default_provider().install_default();
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

/// How long the roots that were read count for other clients. A later one may trust what the system trusts by then.
const SHARED_FOR: Duration = Duration::from_secs(60);

/// What several clients trust.
struct SharedTls {
    read_at: Instant,
    /// Those of the settings.
    certificates: Vec<CertificateDer<'static>>,
    tls: ClientConfig,
}

/// Trusts what the system trusts, and the certificates of the settings; nothing where nobody `needs_roots`, since reading
/// them takes milliseconds and a megabyte. Those that are made within a minute and trust the same share one.
///
/// # Errors
/// The TLS roots of this machine cannot be read.
pub(super) fn build_tls(outgoing: &Outgoing, needs_roots: bool) -> io::Result<ClientConfig> {
    static NEWEST: Mutex<Option<SharedTls>> = Mutex::new(None);
    let crypto = Arc::new(ring::default_provider());
    let versions = ClientConfig::builder_with_provider(Arc::clone(&crypto));
    let builder = versions
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    if !needs_roots {
        let none = builder.with_root_certificates(RootCertStore::empty());
        return Ok(none.with_no_client_auth());
    }
    let mut newest = NEWEST.lock();
    if let Some(shared) = &*newest
        && shared.read_at.elapsed() < SHARED_FOR
        && shared.certificates == outgoing.certificates
    {
        return Ok(shared.tls.clone());
    }
    let certificates = outgoing.certificates.clone();
    let verifier = Verifier::new_with_extra_roots(certificates.iter().cloned(), crypto)
        .map_err(io::Error::other)?;
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let tls = builder.with_no_client_auth();
    *newest = Some(SharedTls {
        read_at: Instant::now(),
        certificates,
        tls: tls.clone(),
    });
    Ok(tls)
}
