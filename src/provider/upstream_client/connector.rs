//! Opens connections to the server of a provider: directly or through a proxy, with TLS where its address says so.

use std::{error::Error, io, time::Duration};

use http::{HeaderValue, Uri, uri::Scheme};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::connect::{
            HttpConnector,
            proxy::{SocksV4, SocksV5, Tunnel},
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use rustls::ClientConfig;
use tokio::{net::TcpStream, time::timeout};
use tower::{Service, ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::{
    config::{Outgoing, Route},
    provider::http_client::build_tls,
};

type BoxError = Box<dyn Error + Send + Sync>;
/// To a proxy, or to the server itself; to a proxy with TLS if its address says so.
type Wire = MaybeHttpsStream<TokioIo<TcpStream>>;
type Way = BoxCloneSyncService<Uri, Wire, BoxError>;

/// A connection to the server, with its TLS.
pub(super) type ServerStream = MaybeHttpsStream<Wire>;

/// Silence after which the kernel asks whether the peer is there, between two questions, and the number of questions; how
/// long what was sent may stay without an answer of its kernel.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_RETRIES: u32 = 3;
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_FOR: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(super) struct Connector {
    /// Scheme, host and port.
    server: Uri,
    any_version: HttpsConnector<Way>,
    http1_only: HttpsConnector<Way>,
    /// A proxy that forwards requests without TLS, and reads them.
    forwarding: Option<Forwarding>,
    limit: Duration,
}

/// What a proxy that forwards requests needs in each of them.
#[derive(Clone, Debug)]
pub(super) struct Forwarding {
    /// The value of `Proxy-Authorization`.
    pub(super) credentials: Option<HeaderValue>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum ConnectError {
    TooSlow,
    Failed(BoxError),
}

impl Connector {
    /// `limit`: of the whole way to an open connection.
    ///
    /// # Errors
    /// The TLS roots of this machine are needed and cannot be read.
    pub(super) fn new(
        server: Uri,
        route: Option<&Route>,
        outgoing: &Outgoing,
        limit: Duration,
    ) -> io::Result<Self> {
        let proxy = route.and_then(|route| route.proxy.as_ref());
        // The settings have only addresses of proxies.
        let proxy = proxy.and_then(|proxy| {
            let matcher = Matcher::builder().all(proxy.reveal().to_owned()).build();
            matcher.intercept(&server)
        });
        let is_plain = server.scheme() == Some(&Scheme::HTTP);
        let needs_roots = !is_plain || proxy.is_some();
        let tls = build_tls(outgoing, needs_roots)?;
        let is_forwarding = |proxy: &&Intercept| is_plain && !is_socks(proxy);
        let forwarding = proxy.as_ref().filter(is_forwarding).map(|it| Forwarding {
            credentials: it.basic_auth().cloned(),
        });
        let way = find_way(proxy, is_plain, &tls);
        let with_tls = || {
            HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_or_http()
        };
        Ok(Self {
            server,
            any_version: with_tls().enable_all_versions().wrap_connector(way.clone()),
            http1_only: with_tls().enable_http1().wrap_connector(way),
            forwarding,
            limit,
        })
    }

    pub(super) const fn server(&self) -> &Uri {
        &self.server
    }

    pub(super) const fn forwarding(&self) -> Option<&Forwarding> {
        self.forwarding.as_ref()
    }

    /// Opens a connection, and closes it again where this is dropped.
    pub(super) async fn connect(&self, http1_only: bool) -> Result<ServerStream, ConnectError> {
        let mut connector = match http1_only {
            true => self.http1_only.clone(),
            false => self.any_version.clone(),
        };
        match timeout(self.limit, connector.call(self.server.clone())).await {
            Ok(opened) => opened.map_err(ConnectError::Failed),
            Err(_) => Err(ConnectError::TooSlow),
        }
    }
}

fn is_socks(proxy: &Intercept) -> bool {
    let scheme = proxy.uri().scheme_str();
    scheme.is_some_and(|scheme| scheme.starts_with("socks"))
}

/// The way to a server up to its TLS.
fn find_way(proxy: Option<Intercept>, is_plain: bool, tls: &ClientConfig) -> Way {
    let tcp = make_tcp_connector();
    let Some(proxy) = proxy else {
        return box_way(tcp.map_response(MaybeHttpsStream::Http));
    };
    let address = proxy.uri().clone();
    let is_remote_name = |scheme: &str| ["socks5h", "socks4a"].contains(&scheme);
    let names_locally = !address.scheme_str().is_some_and(is_remote_name);
    match address.scheme_str() {
        Some(scheme) if scheme.starts_with("socks4") => {
            let socks = SocksV4::new(address, tcp).local_dns(names_locally);
            box_way(socks.map_response(MaybeHttpsStream::Http))
        }
        Some(scheme) if scheme.starts_with("socks") => {
            let socks = SocksV5::new(address, tcp).local_dns(names_locally);
            let socks = match proxy.raw_auth() {
                Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
                None => socks,
            };
            box_way(socks.map_response(MaybeHttpsStream::Http))
        }
        _ => {
            let to_proxy = HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_or_http()
                .enable_http1()
                .wrap_connector(tcp);
            if is_plain {
                return box_way(service_fn(move |_| to_proxy.clone().call(address.clone())));
            }
            let tunnel = Tunnel::new(address, to_proxy);
            box_way(match proxy.basic_auth() {
                Some(credentials) => tunnel.with_auth(credentials.clone()),
                None => tunnel,
            })
        }
    }
}

fn box_way<S>(way: S) -> Way
where
    S: Service<Uri, Response = Wire, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    BoxCloneSyncService::new(way.map_err(Into::into))
}

fn make_tcp_connector() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    tcp.set_keepalive_interval(Some(KEEP_ALIVE));
    tcp.set_keepalive_retries(Some(KEEP_ALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_FOR));
    tcp
}
