//! Providers that choose HTTP/2: all requests share a connection, and one that the server ends costs no request.

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use http::{Method, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::config::{Environment, Flags, load_config};
use rustls::{
    ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::{EACH, TASKS, ask, ask_many};
use crate::support::{
    COMPLETION, ProxyBuilder, RunningProxy, ScriptedProvider, make_certificates, within_time,
};

/// A server that speaks HTTP/2 alone.
struct Http2Server {
    address: SocketAddr,
    folder: TempDir,
    connections: Arc<AtomicUsize>,
    ended: watch::Sender<usize>,
    versions: Arc<Mutex<Vec<Version>>>,
    /// Requests that are never answered.
    held: watch::Sender<usize>,
    /// Ends all connections: with a word (`false`), or without one (`true`).
    ends: watch::Sender<Option<bool>>,
    _task: JoinSet<()>,
}

impl Http2Server {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        make_certificates(folder.path(), "IP:127.0.0.1");
        let file = |name: &str| fs::read(folder.path().join(name)).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(&file("server.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(&file("server.key")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let mut config = config
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ends, ended) = (watch::Sender::new(None), watch::Sender::new(0));
        let held = watch::Sender::new(0);
        let holds = held.clone();
        let (connections, versions) = <(Arc<AtomicUsize>, Arc<Mutex<Vec<Version>>>)>::default();
        let (count, seen, end) = (
            Arc::clone(&connections),
            Arc::clone(&versions),
            ends.clone(),
        );
        let has_ended = ended.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut running = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, SeqCst);
                let (seen, holds) = (Arc::clone(&seen), holds.clone());
                let served = serve(stream, acceptor.clone(), seen, holds, end.subscribe());
                let has_ended = has_ended.clone();
                running.spawn(async move {
                    served.await;
                    has_ended.send_modify(|count| *count += 1);
                });
            }
        });
        Self {
            address,
            folder,
            connections,
            ended,
            versions,
            held,
            ends,
            _task: task,
        }
    }

    /// A proxy that trusts its certificate.
    async fn proxy(&self) -> RunningProxy {
        let path = self.folder.path().join("settings.toml");
        let ca_file = self.folder.path().join("ca.pem");
        fs::write(&path, format!("[server]\nca_file = {ca_file:?}\n")).unwrap();
        let flags = Flags {
            config: Some(path),
            listen: None,
        };
        let loaded = load_config(&flags, &Environment::default()).unwrap();
        let nobody = ScriptedProvider::start().await;
        let proxy = ProxyBuilder::new().provider("up", &nobody).set(|config| {
            config.server.outgoing = loaded.config.server.outgoing;
            let provider = config.providers.get_mut("up").unwrap();
            provider.base_url = Some(format!("https://{}/v1", self.address));
        });
        proxy.start().await
    }

    fn count_connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    versions: Arc<Mutex<Vec<Version>>>,
    held: watch::Sender<usize>,
    mut end: watch::Receiver<Option<bool>>,
) {
    let stream = acceptor.accept(stream).await.unwrap();
    let service = service_fn(|request: Request<Incoming>| {
        versions.lock().unwrap().push(request.version());
        let held = held.clone();
        async move {
            assert!(request.headers().get("host").is_none());
            let body = request.into_body().collect().await.unwrap().to_bytes();
            if memchr::memmem::find(&body, b"held").is_some() {
                held.send_modify(|count| *count += 1);
                std::future::pending::<()>().await;
            }
            let answer = Response::builder().header("content-type", "application/json");
            let body = Full::new(Bytes::from(COMPLETION));
            Ok::<_, Infallible>(answer.body(body).unwrap())
        }
    });
    let http = http2::Builder::new(TokioExecutor::new());
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    end.mark_unchanged();
    loop {
        tokio::select! {
            _ = &mut connection => return,
            changed = end.changed() => {
                changed.unwrap();
                if *end.borrow_and_update() == Some(true) {
                    return;
                }
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_share_a_connection_and_outlive_it() {
    let server = Http2Server::start().await;
    let proxy = server.proxy().await;
    for nth in 0..5 {
        let got = proxy.chat(ask("lives", 0, nth)).await;
        assert_eq!(got.status, 200, "{nth}: {}", got.text());
    }
    assert_eq!(server.count_connections(), 1);
    let statuses = ask_many(&proxy, |_| "lives").await;
    assert_eq!(statuses[&200], TASKS * EACH, "{statuses:?}");
    assert_eq!(server.count_connections(), 1);
    let versions = server.versions.lock().unwrap().clone();
    assert!(versions.iter().all(|it| *it == Version::HTTP_2));
    assert_eq!(versions.len(), 5 + TASKS * EACH);
    for (nth, is_cut) in [false, true].into_iter().enumerate() {
        server.ends.send_replace(Some(is_cut));
        let mut ended = server.ended.subscribe();
        within_time(ended.wait_for(|count| *count > nth))
            .await
            .unwrap();
        let got = proxy.chat(ask("lives", 1, nth)).await;
        assert_eq!(got.status, 200, "cut {is_cut}: {}", got.text());
        assert_eq!(server.count_connections(), 2 + nth, "cut {is_cut}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_that_ends_while_an_answer_is_due_costs_no_other_request() {
    let server = Http2Server::start().await;
    let proxy = server.proxy().await;
    let (client, mut waits) = (proxy.client(), JoinSet::new());
    waits.spawn(async move {
        let request = client.request(Method::POST, "/v1/chat/completions");
        client.send_with(request, ask("held", 0, 0)).await
    });
    let mut held = server.held.subscribe();
    within_time(held.wait_for(|count| *count == 1))
        .await
        .unwrap();
    server.ends.send_replace(Some(false));
    // GOAWAY arrives at any time, with a request on the way or without one.
    for nth in 0.. {
        let got = proxy.chat(ask("lives", 0, nth)).await;
        assert_eq!(got.status, 200, "{nth}: {}", got.text());
        if server.count_connections() == 2 {
            break;
        }
        assert!(
            nth < 10_000,
            "the connection takes requests although it ends"
        );
    }
}
