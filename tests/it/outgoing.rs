//! What leaves through a proxy: requests, websockets, lists, the catalogue and spans; and what does not.

use std::fs;

use futures_util::{SinkExt, StreamExt};
use plimsoll::config::{
    Auth, Config, Environment, Flags, ProxySetting, load_config, secret::Secret,
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_tungstenite::{accept_async, connect_async, tungstenite::Message};

use crate::support::{
    COMPLETION, ProxyBuilder, ReceivedRequest, RunningProxy, SECRET, ScriptedProvider, TunnelProxy,
    answer, within_time,
};

const ASK: &str = r#"{"model":"up/m","messages":[{"role":"user","content":"x"}]}"#;
const HOSTS: [&str; 4] = [
    "api.example",
    "models.example",
    "otlp.example",
    "api.openai.com",
];

/// The settings of these lines, with the variables of a proxy.
fn load(tunnel: &TunnelProxy, lines: &str, variables: &[&str]) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.toml");
    fs::write(&path, lines).unwrap();
    let flags = Flags {
        config: Some(path),
        listen: None,
    };
    let address = format!("http://me:{SECRET}-proxy@{}", tunnel.address);
    let variables = variables
        .iter()
        .map(|name| ((*name).to_owned(), address.clone()));
    load_config(&flags, &Environment::from_iter(variables))
        .unwrap()
        .config
}

/// A server behind a proxy, and Plimsoll before both; `up` is the provider at this address.
async fn start(
    address: &str,
    variables: &[&str],
    set: impl FnOnce(&mut Config),
) -> (ScriptedProvider, TunnelProxy, RunningProxy) {
    let up = ScriptedProvider::start_answering(answer_anything).await;
    let tunnel = TunnelProxy::start(up.address, &HOSTS).await;
    let proxy = proxy_behind(&tunnel, &up, address, variables, set).await;
    (up, tunnel, proxy)
}

async fn proxy_behind(
    tunnel: &TunnelProxy,
    up: &ScriptedProvider,
    address: &str,
    variables: &[&str],
    set: impl FnOnce(&mut Config),
) -> RunningProxy {
    let ca_file = format!("[server]\nca_file = {:?}\n", tunnel.ca_file());
    let outgoing = load(tunnel, &ca_file, variables).server.outgoing;
    let proxy = ProxyBuilder::new().provider("up", up).set(|config| {
        config.server.outgoing = outgoing;
        let provider = config.providers.get_mut("up").unwrap();
        provider.base_url = Some(address.to_owned());
        set(config);
    });
    proxy.start().await
}

fn answer_anything(request: &ReceivedRequest) -> Vec<crate::support::ProviderStep> {
    let body = match &request.line {
        line if line.contains("/api.json") => {
            json!({"openai": {"models": {"gpt-4o": {"id": "gpt-4o", "limit": {"context": 128_000}}}}})
                .to_string()
        }
        line if line.contains("/models") => json!({"data": [{"id": "listed"}]}).to_string(),
        _ => COMPLETION.to_owned(),
    };
    vec![answer("200 OK", "", &body)]
}

#[tokio::test]
async fn requests_go_through_a_tunnel_that_sees_no_credentials() {
    let (up, tunnel, proxy) = start("https://api.example/v1", &["HTTPS_PROXY"], |_| {}).await;
    let client = proxy.client();
    for count in 1..=2 {
        let request = client.request(http::Method::POST, "/v1/chat/completions");
        let request = request.header("authorization", format!("Bearer {SECRET}-client"));
        let got = client.send_with(request, ASK).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let seen = up.requests(count).await.pop().unwrap();
        assert_eq!(seen.line, "POST /v1/chat/completions HTTP/1.1");
        assert_eq!(seen.header("host"), Some("api.example"));
        let sent = format!("Bearer {SECRET}-client");
        assert_eq!(seen.header("authorization"), Some(&*sent));
        assert_eq!(seen.header("proxy-authorization"), None);
    }
    let [head] = &tunnel.heads()[..] else {
        panic!("one connection for both: {:?}", tunnel.heads())
    };
    assert!(
        head.starts_with("CONNECT api.example:443 HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.to_lowercase().contains("proxy-authorization: basic "),
        "{head}"
    );
    assert!(!head.contains("-client"), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_an_unknown_authority_is_refused_with_a_remedy() {
    let (up, tunnel, proxy) = start("https://api.example/v1", &["ALL_PROXY"], |config| {
        config.server.outgoing.certificates.clear();
    })
    .await;
    let got = proxy.chat(ASK).await;
    assert_eq!(got.status, 502);
    assert!(got.text().contains("through a proxy"), "{}", got.text());
    assert!(got.text().contains("server.ca_file"), "{}", got.text());
    assert!(
        !got.text().contains(&tunnel.address.to_string()),
        "{}",
        got.text()
    );
    assert_eq!(up.count_requests(), 0);
    // New settings with the certificate are used by a reload.
    let lines = format!("[server]\nca_file = {:?}\n", tunnel.ca_file());
    let outgoing = load(&tunnel, &lines, &["ALL_PROXY"]).server.outgoing;
    tokio::task::block_in_place(|| proxy.reload(|config| config.server.outgoing = outgoing));
    assert_eq!(proxy.chat(ASK).await.status, 200);
}

#[tokio::test]
async fn websockets_go_through_the_tunnel() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tunnel = TunnelProxy::start(listener.local_addr().unwrap(), &HOSTS).await;
    let up = ScriptedProvider::start().await;
    let proxy = proxy_behind(
        &tunnel,
        &up,
        "https://api.example/v1",
        &["https_proxy"],
        |_| {},
    )
    .await;
    let url = format!("ws://{}/up/v1/realtime", proxy.address);
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        accept_async(stream).await.unwrap()
    };
    let (client, mut server) =
        within_time(async { tokio::join!(connect_async(url), server) }).await;
    let (mut client, _) = client.unwrap();
    client.send(Message::text("there")).await.unwrap();
    let got = within_time(server.next()).await.unwrap().unwrap();
    assert_eq!(got, Message::text("there"));
    server.send(Message::text("back")).await.unwrap();
    let got = within_time(client.next()).await.unwrap().unwrap();
    assert_eq!(got, Message::text("back"));
    assert_eq!(tunnel.heads().len(), 1);
}

#[tokio::test]
async fn lists_the_catalogue_and_spans_go_the_same_way() {
    let (up, tunnel, mut proxy) = start("https://api.example/v1", &["HTTPS_PROXY"], |config| {
        let provider = config.providers.get_mut("up").unwrap();
        provider.auth = Auth::Key(Secret::new(format!("{SECRET}-ours")), "KEY".into());
        provider.ask_models = Some(true);
        config.catalogue.url = Some("https://models.example/api.json".into());
        config.traces.endpoint = Some("https://otlp.example/v1/traces".into());
    })
    .await;
    let listed = proxy.client().get("/v1/models").await;
    assert!(listed.text().contains("up/listed"), "{}", listed.text());
    let registry = proxy.live.app().registry.clone();
    let fetched = registry.fetch_catalogue().await.expect("an address is set");
    assert!(fetched.is_ok(), "{fetched:?}");
    proxy.stop();
    proxy.wait_until_gone().await;
    let hosts: Vec<_> = ["api", "models", "otlp"]
        .iter()
        .map(|host| format!("CONNECT {host}.example:443 HTTP/1.1"))
        .collect();
    let heads = tunnel.heads();
    for host in &hosts {
        assert!(
            heads.iter().any(|head| head.starts_with(host)),
            "{host} {heads:?}"
        );
    }
    assert!(
        heads.iter().all(|head| !head.contains("-ours")),
        "{heads:?}"
    );
    let seen = up.requests(3).await;
    assert!(seen.iter().any(|it| it.line == "POST /v1/traces HTTP/1.1"));
}

#[tokio::test]
async fn credentials_without_tls_need_a_proxy_of_the_settings() {
    let plain = "http://provider.invalid/v1";
    // The client's credentials stay here: nothing resolves the name.
    let (_up, tunnel, proxy) = start(plain, &["ALL_PROXY"], |_| {}).await;
    assert_eq!(proxy.chat(ASK).await.status, 502);
    assert_eq!(tunnel.heads(), [""; 0]);
    // Nothing to steal.
    let (up, tunnel, proxy) = start(plain, &["HTTP_PROXY"], |config| {
        config.providers.get_mut("up").unwrap().auth = Auth::None;
    })
    .await;
    assert_eq!(proxy.chat(ASK).await.status, 200);
    let line = "POST http://provider.invalid/v1/chat/completions HTTP/1.1";
    assert_eq!(up.request().await.line, line);
    assert!(tunnel.heads()[0].starts_with(line), "{:?}", tunnel.heads());
    // The settings say so.
    let up = ScriptedProvider::start_answering(answer_anything).await;
    let tunnel = TunnelProxy::start(up.address, &HOSTS).await;
    let address = format!("http://{}", tunnel.address);
    let proxy = proxy_behind(&tunnel, &up, plain, &[], |config| {
        let provider = config.providers.get_mut("up").unwrap();
        provider.proxy = ProxySetting::Through(Secret::new(address));
    })
    .await;
    assert_eq!(proxy.chat(ASK).await.status, 200);
    assert_eq!(tunnel.heads().len(), 1);
}

#[tokio::test]
async fn this_machine_and_what_the_settings_except_are_reached_directly() {
    let up = ScriptedProvider::start_answering(answer_anything).await;
    let tunnel = TunnelProxy::start(up.address, &HOSTS).await;
    let address = format!("http://{}/v1", up.address);
    let set = |config: &mut Config| {
        config.providers.get_mut("up").unwrap().auth = Auth::None;
    };
    let proxy = proxy_behind(&tunnel, &up, &address, &["ALL_PROXY"], set).await;
    assert_eq!(proxy.chat(ASK).await.status, 200);
    let set = |config: &mut Config| {
        config.providers.get_mut("up").unwrap().proxy = ProxySetting::Direct;
    };
    let proxy = proxy_behind(&tunnel, &up, "https://api.invalid/v1", &["ALL_PROXY"], set).await;
    assert_eq!(proxy.chat(ASK).await.status, 502);
    assert_eq!(tunnel.heads(), [""; 0]);
}
