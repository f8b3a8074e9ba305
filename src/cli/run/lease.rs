//! Takes and holds a lease of a proxy: see `src/http/lease.rs`.

use std::{net::SocketAddr, path::Path, time::Duration};

use reqwest::{Response, StatusCode};

use crate::{
    cli::proxy_file::RunningProxy,
    http::lease::{LEASE_PATH, NONCE_HEADER, PROOF_HEADER, Side},
    provider::begin_http_client,
};

/// For the proof of a proxy that is only to be named.
const NAMED_WITHIN: Duration = Duration::from_secs(2);

/// The proxy that a data directory names, if it runs.
pub(in crate::cli) async fn find_running(data_dir: &Path) -> Option<RunningProxy> {
    let proxy = RunningProxy::read(data_dir)?;
    is_running(&proxy).await.then_some(proxy)
}

/// Whether that very proxy listens there: it proves to know the secret. What is sent tells nobody the secret.
pub(in crate::cli) async fn is_running(proxy: &RunningProxy) -> bool {
    HeldProxy::take(proxy, NAMED_WITHIN).await.is_some()
}

/// A proxy that has proved to know the secret. It does not end for lack of clients while this value lives.
pub(super) struct HeldProxy {
    pub(super) address: SocketAddr,
    pub(super) process: u32,
    answer: Response,
}

impl HeldProxy {
    /// `None`: nothing listens there, or not the proxy of this secret. `within`: for the head of the answer; a listener of
    /// somebody else's may give none.
    pub(super) async fn take(proxy: &RunningProxy, within: Duration) -> Option<Self> {
        let (address, secret) = (proxy.address, &proxy.secret);
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).ok()?;
        let nonce = hex::encode(nonce);
        let prove = |side| secret.prove(side, address, nonce.as_bytes());
        let client = begin_http_client().connect_timeout(within).build().ok()?;
        let ask = client
            .get(format!("http://{address}{LEASE_PATH}"))
            .header(NONCE_HEADER, &nonce)
            .header(PROOF_HEADER, prove(Side::Asks))
            .send();
        let answer = tokio::time::timeout(within, ask).await.ok()?.ok()?;
        let proof = answer.headers().get(PROOF_HEADER)?.as_bytes();
        let is_proved = secret.check(Side::Listens, address, nonce.as_bytes(), proof);
        (is_proved && answer.status() == StatusCode::OK).then_some(Self {
            address,
            process: proxy.process,
            answer,
        })
    }

    /// Returns when the proxy ends, or is about to.
    pub(super) async fn wait_for_end(&mut self) {
        while let Ok(Some(_)) = self.answer.chunk().await {}
    }
}
