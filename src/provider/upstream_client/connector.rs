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
type ProxyStream = MaybeHttpsStream<TokioIo<TcpStream>>;
type RouteConnector = BoxCloneSyncService<Uri, ProxyStream, BoxError>;

/// A connection to the server, with its TLS.
pub(super) type ServerStream = MaybeHttpsStream<ProxyStream>;

/// TCP keep-alive: the silence before the first probe, and between two.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Unanswered probes after which a connection counts as dead.
const KEEP_ALIVE_RETRIES: u32 = 3;
/// `TCP_USER_TIMEOUT`: how long what was sent may stay unacknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_FOR: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(super) struct ServerConnector {
    /// Scheme, host and port.
    server: Uri,
    any_version: HttpsConnector<RouteConnector>,
    http1_only: HttpsConnector<RouteConnector>,
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

impl ServerConnector {
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
        let way = make_route_connector(proxy, is_plain, &tls);
        let mut http1_tls = tls.clone();
        http1_tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            server,
            http1_only: HttpsConnector::from((way.clone(), http1_tls)),
            any_version: HttpsConnectorBuilder::new()
                .with_tls_config(tls)
                .https_or_http()
                .enable_all_versions()
                .wrap_connector(way),
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
        let mut connector = if http1_only {
            self.http1_only.clone()
        } else {
            self.any_version.clone()
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
fn make_route_connector(
    proxy: Option<Intercept>,
    is_plain: bool,
    tls: &ClientConfig,
) -> RouteConnector {
    let tcp = make_tcp_connector();
    let Some(proxy) = proxy else {
        return box_connector(tcp.map_response(MaybeHttpsStream::Http));
    };
    let address = proxy.uri().clone();
    match address.scheme_str() {
        Some(scheme) if scheme.starts_with("socks4") => {
            let proxy_resolves = scheme == "socks4a";
            box_socks_connector(SocksV4::new(address, tcp), proxy_resolves)
        }
        Some(scheme) if scheme.starts_with("socks") => {
            let proxy_resolves = scheme == "socks5h";
            let socks = SocksV5::new(address, tcp);
            let socks = match proxy.raw_auth() {
                Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
                None => socks,
            };
            box_socks_connector(socks, proxy_resolves)
        }
        _ => {
            let to_proxy = HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_or_http()
                .enable_http1()
                .wrap_connector(tcp);
            if is_plain {
                return box_connector(service_fn(move |_| to_proxy.clone().call(address.clone())));
            }
            let tunnel = Tunnel::new(address, to_proxy);
            box_connector(match proxy.basic_auth() {
                Some(credentials) => tunnel.with_auth(credentials.clone()),
                None => tunnel,
            })
        }
    }
}

/// The way through a SOCKS proxy. `proxy_resolves`: the proxy looks up the server's name.
fn box_socks_connector<S>(socks: S, proxy_resolves: bool) -> RouteConnector
where
    S: Service<Uri, Response = TokioIo<TcpStream>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    box_connector(service_fn(move |server: Uri| {
        let mut socks = socks.clone();
        async move {
            let server = resolve_for_socks(&server, proxy_resolves).await?;
            let opened = socks.call(server).await.map_err(Into::into)?;
            Ok::<_, BoxError>(MaybeHttpsStream::Http(opened))
        }
    }))
}

/// The address of a server with its port, and with its IP address in place of a name unless the proxy looks that up. The library
/// takes port 443 for any other, and looks names up without letting other tasks run.
async fn resolve_for_socks(server: &Uri, proxy_resolves: bool) -> Result<Uri, BoxError> {
    let is_tls = server.scheme() == Some(&Scheme::HTTPS);
    let port = server.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let host = server.host().unwrap_or_default();
    let authority = if proxy_resolves {
        format!("{host}:{port}")
    } else {
        let bare = host.trim_matches(['[', ']']);
        let found: Vec<_> = tokio::net::lookup_host((bare, port)).await?.collect();
        // SOCKS 4 knows no others.
        let first = found.iter().find(|it| it.is_ipv4()).or(found.first());
        first.ok_or("the name has no address")?.to_string()
    };
    let scheme = server.scheme_str().unwrap_or("http");
    Ok(format!("{scheme}://{authority}").parse()?)
}

fn box_connector<S>(way: S) -> RouteConnector
where
    S: Service<Uri, Response = ProxyStream, Error: Into<BoxError>, Future: Send>
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

#[cfg(test)]
mod tests {
    use super::resolve_for_socks;

    #[tokio::test]
    async fn a_socks_proxy_is_told_the_port_and_the_name_only_if_it_looks_it_up() {
        for (server, by_proxy, told) in [
            ("http://llm.example", true, "http://llm.example:80/"),
            ("https://llm.example", true, "https://llm.example:443/"),
            ("http://llm.example:81", true, "http://llm.example:81/"),
            ("http://127.0.0.1", false, "http://127.0.0.1:80/"),
            ("https://[::1]", false, "https://[::1]:443/"),
            ("https://[::1]:9", true, "https://[::1]:9/"),
        ] {
            let spelt = resolve_for_socks(&server.parse().unwrap(), by_proxy)
                .await
                .unwrap();
            assert_eq!(spelt.to_string(), told, "{server}");
        }
        let local = resolve_for_socks(&"http://localhost".parse().unwrap(), false).await;
        assert!(
            local
                .unwrap()
                .host()
                .unwrap()
                .parse::<std::net::Ipv4Addr>()
                .is_ok(),
            "an address in place of the name"
        );
    }
}
