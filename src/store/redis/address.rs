//! Where the server is, and how it is connected to.
//!
//! SECURITY: a password may stand in an address, so no error here repeats any of it.

use std::{fs, io, path::Path, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisResult,
    TlsCertificates,
    cluster::{ClusterClient, ClusterClientBuilder},
    io::tcp::TcpSettings,
};

use super::connection::RedisConnection;
use crate::config::RedisConfig;

/// For each, with TLS and password.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// How often a cluster's client asks again by itself, and how long it waits before: little, since
/// nobody waits for longer than one call may take.
const RETRIES: u32 = 2;
const RETRY_WAIT_MS: (u64, u64) = (5, 40);

/// A server or a cluster that can be connected to.
pub(super) struct RedisAddress {
    client: RedisClient,
    /// Hosts and ports alone.
    pub(super) hosts: String,
}

enum RedisClient {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
}

/// # Errors
/// An address or a certificate that cannot be used.
pub(super) fn parse_address(config: &RedisConfig) -> io::Result<RedisAddress> {
    // Installed by whoever comes first; a second one is refused, which is as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let nodes: Vec<ConnectionInfo> = config
        .nodes
        .iter()
        .map(|node| build_connection_info(node.reveal(), config))
        .collect::<Result<_, _>>()
        .map_err(|_| invalid_input("store.url is no address of a server"))?;
    let Some(first) = nodes.first() else {
        return Err(invalid_input("store.url names no server"));
    };
    let certificates = config
        .ca_file
        .as_deref()
        .map(read_certificates)
        .transpose()?;
    if certificates.is_some() && !config.is_tls() {
        return Err(invalid_input(
            "store.ca_file is of use with a rediss:// address only",
        ));
    }
    let client = match config.cluster {
        true => build_cluster_client(nodes.clone(), certificates)
            .map(|all| RedisClient::Cluster(Box::new(all))),
        false => {
            build_client(first.clone(), certificates).map(|one| RedisClient::Single(Box::new(one)))
        }
    };
    Ok(RedisAddress {
        client: client.map_err(|_| match &config.ca_file {
            Some(path) => invalid_input(&format!(
                "store.ca_file: {} holds no certificates in PEM",
                path.display()
            )),
            None => invalid_input("store.url names servers that do not go together"),
        })?,
        hosts: config.list_hosts().join(", "),
    })
}

fn build_connection_info(node: &str, config: &RedisConfig) -> RedisResult<ConnectionInfo> {
    let info = node.into_connection_info()?;
    let mut settings = info.redis_settings().clone();
    if let Some(password) = &config.password {
        settings = settings.set_password(password.reveal());
    }
    let tcp = TcpSettings::default().set_nodelay(true);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

fn build_client(
    node: ConnectionInfo,
    certificates: Option<TlsCertificates>,
) -> RedisResult<Client> {
    match certificates {
        Some(certificates) => Client::build_with_tls(node, certificates),
        None => Client::open(node),
    }
}

fn build_cluster_client(
    nodes: Vec<ConnectionInfo>,
    certificates: Option<TlsCertificates>,
) -> RedisResult<ClusterClient> {
    let mut builder = ClusterClientBuilder::new(nodes)
        .tcp_settings(TcpSettings::default().set_nodelay(true))
        .connection_timeout(CONNECT_WITHIN)
        .overall_response_timeout(None)
        .retries(RETRIES)
        .min_retry_wait(RETRY_WAIT_MS.0)
        .max_retry_wait(RETRY_WAIT_MS.1);
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates);
    }
    builder.build()
}

fn read_certificates(path: &Path) -> io::Result<TlsCertificates> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let name = path.display();
    let text = fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("store.ca_file: {name}: {error}")))?;
    if CertificateDer::pem_slice_iter(&text).next().is_none() {
        return Err(invalid_input(&format!(
            "store.ca_file: {name} holds no certificates in PEM"
        )));
    }
    Ok(TlsCertificates {
        client_tls: None,
        root_cert: Some(text),
    })
}

fn invalid_input(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

impl RedisAddress {
    pub(super) async fn open_connection(&self) -> RedisResult<RedisConnection> {
        match &self.client {
            RedisClient::Single(client) => {
                // What waits is bounded by whoever asks.
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(CONNECT_WITHIN))
                    .set_response_timeout(None);
                let connect = client.get_multiplexed_async_connection_with_config(&config);
                Ok(RedisConnection::Single(connect.await?))
            }
            RedisClient::Cluster(client) => Ok(RedisConnection::Cluster(
                client.get_async_connection().await?,
            )),
        }
    }
}
