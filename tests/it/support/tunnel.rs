//! An HTTP proxy on a real socket, and one server behind it that stands for all hosts: with TLS by an authority of its
//! own inside of tunnels, without TLS for requests that name an `http://` address.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use rustls::{
    ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::redis::make_certificates;

pub(crate) struct TunnelProxy {
    pub(crate) address: SocketAddr,
    folder: TempDir,
    heads: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl TunnelProxy {
    /// A proxy before `server`, whose certificate names `hosts`.
    pub(crate) async fn start(server: SocketAddr, hosts: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<_> = hosts.iter().map(|host| format!("DNS:{host}")).collect();
        make_certificates(folder.path(), &names.join(","));
        let file = |name: &str| fs::read(folder.path().join(name)).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(&file("server.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(&file("server.key")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(chain, key);
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&heads);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut tunnels = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                tunnels.spawn(run_tunnel(
                    stream,
                    server,
                    acceptor.clone(),
                    Arc::clone(&seen),
                ));
            }
        });
        Self {
            address,
            folder,
            heads,
            _task: task,
        }
    }

    /// The authority of the server's certificate.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The heads of the requests to the proxy itself.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// Ends without a word where a peer breaks off.
async fn run_tunnel(
    mut client: TcpStream,
    server: SocketAddr,
    acceptor: TlsAcceptor,
    heads: Arc<Mutex<Vec<String>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match client.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let is_tunnel = text.starts_with("CONNECT ");
    heads.lock().unwrap().push(text);
    if !is_tunnel {
        return join_server(client, server, &head).await;
    }
    let opened = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
    if let (Ok(()), Ok(client)) = (opened, acceptor.accept(client).await) {
        join_server(client, server, &[]).await;
    }
}

async fn join_server(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    server: SocketAddr,
    head: &[u8],
) {
    let mut server = TcpStream::connect(server).await.unwrap();
    if server.write_all(head).await.is_ok() {
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}
