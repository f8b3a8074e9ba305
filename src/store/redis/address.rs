//! The server's address and the opening of connections.
//!
//! SECURITY: an address may hold a password, so no error here repeats a part of it.

use std::{fs, io, path::Path, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisResult,
    TlsCertificates,
    cluster::{ClusterClient, ClusterClientBuilder},
    io::tcp::TcpSettings,
};

use super::connection::RedisConnection;
use crate::config::RedisConfig;

/// The timeout of connecting, with TLS and password. Requests do not wait so long.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Retries and pauses within a cluster's client: short, since they count against the timeout of a call.
const RETRIES: u32 = 2;
const RETRY_WAIT_MS: (u64, u64) = (5, 40);

pub(super) struct RedisAddress {
    client: RedisClient,
    /// Hosts and ports only, for the log.
    pub(super) hosts: String,
}

enum RedisClient {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
}

/// # Errors
/// An address or a certificate that cannot be used.
pub(super) fn parse_address(config: &RedisConfig) -> io::Result<RedisAddress> {
    // An error means that another client has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let nodes = config.nodes.iter();
    let nodes = nodes.map(|node| build_connection_info(node.reveal(), config));
    let nodes: Vec<ConnectionInfo> = nodes
        .collect::<Result<_, _>>()
        .map_err(|_| invalid_input("store.url is no valid address of a server"))?;
    let first = nodes.first().cloned();
    let first = first.ok_or_else(|| invalid_input("store.url names no server"))?;
    let ca_file = config.ca_file.as_deref();
    let certificates = ca_file.map(read_certificates).transpose()?;
    if certificates.is_some() && !config.is_tls() {
        return Err(invalid_input("store.ca_file needs a rediss:// address"));
    }
    let client = if config.cluster {
        build_cluster_client(nodes, certificates)
            .map(|client| RedisClient::Cluster(Box::new(client)))
    } else {
        build_client(first, certificates).map(|client| RedisClient::Single(Box::new(client)))
    };
    Ok(RedisAddress {
        client: client.map_err(|_| match ca_file {
            Some(path) => no_certificates(path),
            None => invalid_input("store.url names servers that do not form one cluster"),
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
    let text = fs::read(path).map_err(|error| {
        let message = format!("store.ca_file: {}: {error}", path.display());
        io::Error::new(error.kind(), message)
    })?;
    if CertificateDer::pem_slice_iter(&text).next().is_none() {
        return Err(no_certificates(path));
    }
    Ok(TlsCertificates {
        client_tls: None,
        root_cert: Some(text),
    })
}

fn no_certificates(path: &Path) -> io::Error {
    let path = path.display();
    invalid_input(&format!(
        "store.ca_file: {path} holds no certificates in PEM"
    ))
}

fn invalid_input(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

impl RedisAddress {
    pub(super) async fn open_connection(&self) -> RedisResult<RedisConnection> {
        match &self.client {
            RedisClient::Single(client) => {
                // The connector bounds calls.
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(CONNECT_WITHIN))
                    .set_response_timeout(None);
                let connect = client.get_multiplexed_async_connection_with_config(&config);
                connect.await.map(RedisConnection::Single)
            }
            RedisClient::Cluster(client) => {
                let connected = client.get_async_connection().await;
                connected.map(RedisConnection::Cluster)
            }
        }
    }
}
