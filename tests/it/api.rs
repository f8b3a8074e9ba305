//! The session API over real sockets: lists, events, providers, fitting, and access to them.
//!
//! A single session is in `conversation/api.rs`, its compaction in `compaction/api.rs`.

mod about;
mod clients;
mod events;
mod fit;
mod link;
mod list;
mod local;
mod origin;
mod providers;
mod settings;

use http::{HeaderMap, Method};
use plimsoll::config::Auth;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{ClientAnswer, ProxyBuilder, RunningProxy, TestClient, full_body};

const ADMIN: &str = "sk-secret-admin";

/// A client of the API with its own headers.
struct Api {
    client: TestClient,
    headers: HeaderMap,
}

impl Api {
    fn new(proxy: &RunningProxy) -> Self {
        Self {
            client: proxy.client(),
            headers: HeaderMap::new(),
        }
    }

    fn keyed(proxy: &RunningProxy, key: &str) -> Self {
        Self::new(proxy).with("authorization", &format!("Bearer {key}"))
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: impl Into<bytes::Bytes>,
    ) -> ClientAnswer {
        let request = self.client.request(method, path);
        let mut request = request.body(full_body(body)).unwrap();
        request.headers_mut().extend(self.headers.clone());
        self.client.send(request).await
    }

    /// `path` follows `/plimsoll/api/`.
    async fn get(&self, path: &str) -> ClientAnswer {
        let path = format!("/plimsoll/api/{path}");
        self.send(Method::GET, &path, "").await
    }

    async fn json(&self, path: &str) -> Value {
        let got = self.get(path).await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert_eq!(got.headers["cache-control"], "no-store");
        got.json()
    }

    async fn post(&self, path: &str, body: impl Into<bytes::Bytes>) -> ClientAnswer {
        let path = format!("/plimsoll/api/{path}");
        self.send(Method::POST, &path, body).await
    }

    /// Begins a conversation with the simulated provider; returns its session id.
    async fn begin_session(&self, text: &str) -> String {
        let messages = json!([{"role": "user", "content": text}]);
        let body = json!({"model": "simulated/plimsoll-8k", "messages": messages});
        let body = body.to_string();
        let got = self.send(Method::POST, "/v1/chat/completions", body).await;
        assert_eq!(got.status, 200, "{}", got.text());
        got.headers["x-plimsoll-session"]
            .to_str()
            .unwrap()
            .to_owned()
    }
}

/// With keys for alice and bob (all models, alice reads metrics), carol (some models of `up`), and the administrator.
fn keyed(proxy: ProxyBuilder) -> ProxyBuilder {
    proxy
        .client("alice", "sk-secret-alice", &["*"])
        .client("bob", "sk-secret-bob", &["*"])
        .client("carol", "sk-secret-carol", &["up/small*"])
        .providers(|provider| provider.auth = Auth::None)
        .set(|config| config.admin.key_sha256 = Some(Sha256::digest(ADMIN).into()))
        .set(|config| config.clients.get_mut("alice").unwrap().metrics = true)
}
