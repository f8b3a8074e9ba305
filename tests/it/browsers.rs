//! Web pages and containers: `server.allowed_origins`, `server.allowed_hosts`. Chromium itself asks in `tests/browser`.

use http::{HeaderMap, Method};
use plimsoll::config::Auth;

use crate::support::{
    COMPLETION, ClientAnswer, ProxyBuilder, RunningProxy, SECRET, ScriptedProvider, answer,
};

const APP: &str = "https://chat.example.com";
const CHAT: &str = "/v1/chat/completions";
const ASK: &str = r#"{"model":"up/m","messages":[{"role":"user","content":"Ahoy"}]}"#;

fn allowing(proxy: ProxyBuilder, origins: &[&str]) -> ProxyBuilder {
    let origins = origins.iter().map(|&origin| origin.to_owned()).collect();
    proxy.set(|config| config.server.allowed_origins = origins)
}

async fn ask(
    proxy: &RunningProxy,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &'static str,
) -> ClientAnswer {
    let client = proxy.client();
    let request = client.request(method, path);
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    client.send_with(request, body).await
}

async fn preflight(proxy: &RunningProxy, path: &str, origin: &str) -> ClientAnswer {
    let headers = [
        ("origin", origin),
        ("sec-fetch-site", "cross-site"),
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "authorization,content-type",
        ),
    ];
    ask(proxy, Method::OPTIONS, path, &headers, "").await
}

/// Whether the page of `origin` may read the answer.
fn is_open(headers: &HeaderMap, origin: &str) -> bool {
    assert!(!headers.contains_key("access-control-allow-credentials"));
    let allowed = headers.get("access-control-allow-origin");
    assert!(
        allowed.is_none_or(|allowed| allowed == origin),
        "{headers:?}"
    );
    allowed.is_some()
}

fn varies(headers: &HeaderMap) -> bool {
    headers.get_all("vary").iter().any(|name| name == "origin")
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_asks_and_reads() {
    let up = ScriptedProvider::start().await;
    let proxy = allowing(up.proxy(), &[APP, "app://obsidian.md"])
        .start()
        .await;
    for origin in [APP, "app://obsidian.md"] {
        for path in [
            CHAT,
            "/v1/messages",
            "/up/v1/embeddings",
            "/v1/models",
            "/models",
        ] {
            let got = preflight(&proxy, path, origin).await;
            assert_eq!((got.status.as_u16(), &*got.body), (204, &b""[..]), "{path}");
            assert!(is_open(&got.headers, origin) && varies(&got.headers));
            assert_eq!(
                got.headers["access-control-allow-headers"],
                "authorization,content-type"
            );
            let methods = got.headers["access-control-allow-methods"]
                .to_str()
                .unwrap();
            assert!(methods.contains("POST"), "{methods}");
        }
        // The provider's words on who may read do not pass.
        let theirs = "access-control-allow-origin: *\r\naccess-control-allow-credentials: true\r\n\
                      access-control-expose-headers: x-theirs\r\nvary: accept\r\n";
        up.script_next([answer("200 OK", theirs, COMPLETION)]);
        let headers = [("origin", origin), ("sec-fetch-site", "cross-site")];
        let got = ask(&proxy, Method::POST, CHAT, &headers, ASK).await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert!(is_open(&got.headers, origin) && varies(&got.headers));
        assert_eq!(
            got.headers
                .get_all("access-control-allow-origin")
                .iter()
                .count(),
            1
        );
        let exposed = got.headers["access-control-expose-headers"]
            .to_str()
            .unwrap();
        assert!(exposed.contains("x-plimsoll-health"), "{exposed}");
        for (path, status) in [
            ("/v1/models/up%2Fnobody/x", 404),
            ("/models", 404),
            ("/api/tags", 404),
        ] {
            let got = ask(&proxy, Method::GET, path, &headers, "").await;
            assert!(
                got.status.as_u16() == status || got.status == 200,
                "{path} {}",
                got.status
            );
            assert!(is_open(&got.headers, origin), "{path}");
        }
    }
    // A client that is no page is told that the answer depends on the origin.
    let got = ask(&proxy, Method::GET, "/v1/models", &[], "").await;
    assert!(got.status == 200 && varies(&got.headers));
}

#[tokio::test]
async fn other_pages_and_other_paths_get_nothing() {
    let up = ScriptedProvider::start().await;
    let proxy = allowing(up.proxy(), &[APP]).start().await;
    let others = [
        "https://chat.example.com:8443",
        "https://chat.example.com.evil.example",
        "http://chat.example.com",
        "https://evil.example",
        "null",
    ];
    for origin in others {
        let got = preflight(&proxy, CHAT, origin).await;
        got.is_error(403, "foreign_origin");
        assert!(!is_open(&got.headers, origin) && varies(&got.headers));
        let got = ask(&proxy, Method::POST, CHAT, &[("origin", origin)], ASK).await;
        got.is_error(403, "foreign_origin");
        assert!(
            got.text().contains("server.allowed_origins"),
            "{}",
            got.text()
        );
    }
    // A cross-site request without an origin, and one with two.
    let site = ("sec-fetch-site", "cross-site");
    let got = ask(&proxy, Method::GET, "/v1/models", &[site], "").await;
    got.is_error(403, "foreign_origin");
    let two = [site, ("origin", APP), ("origin", "https://evil.example")];
    let got = ask(&proxy, Method::POST, CHAT, &two, ASK).await;
    got.is_error(403, "foreign_origin");
    for path in [
        "/plimsoll/api/sessions",
        "/plimsoll/",
        "/plimsoll/api/fit",
        "/metrics",
        "/healthz",
        "/",
    ] {
        let got = preflight(&proxy, path, APP).await;
        got.is_error(403, "foreign_origin");
        assert!(!is_open(&got.headers, APP), "{path}");
        let got = ask(&proxy, Method::GET, path, &[("origin", APP)], "").await;
        got.is_error(403, "foreign_origin");
        assert!(!is_open(&got.headers, APP), "{path}");
    }
    // A rebound name stays foreign, whatever its page's origin.
    let rebound = [("origin", APP), ("host", "chat.example.com")];
    let got = ask(&proxy, Method::POST, CHAT, &rebound, ASK).await;
    got.is_error(403, "foreign_host");
    assert_eq!(up.count_requests(), 0);
}

#[tokio::test]
async fn nothing_is_open_by_default() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let local = "http://localhost:5173";
    preflight(&proxy, CHAT, local)
        .await
        .is_error(403, "foreign_origin");
    up.script_next([answer(
        "200 OK",
        "access-control-allow-origin: *\r\n",
        COMPLETION,
    )]);
    let got = ask(&proxy, Method::POST, CHAT, &[("origin", local)], ASK).await;
    assert!(
        got.status == 200 && !is_open(&got.headers, local),
        "{:?}",
        got.headers
    );
}

#[tokio::test]
async fn with_keys_a_preflight_needs_none_and_an_answer_does() {
    let up = ScriptedProvider::start().await;
    let key = format!("Bearer {SECRET}");
    let keyed = |origins: &[&str]| {
        let proxy = allowing(up.proxy(), origins).client("alice", SECRET, &["*"]);
        proxy
            .providers(|provider| provider.auth = Auth::None)
            .start()
    };
    let proxy = keyed(&["*"]).await;
    let got = preflight(&proxy, CHAT, APP).await;
    assert!(got.status == 204 && is_open(&got.headers, APP));
    preflight(&proxy, CHAT, "null")
        .await
        .is_error(403, "foreign_origin");
    let got = ask(&proxy, Method::POST, CHAT, &[("origin", APP)], ASK).await;
    got.is_error(401, "invalid_api_key");
    assert!(is_open(&got.headers, APP), "the page reads why");
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let headers = [("origin", APP), ("authorization", &*key)];
    let got = ask(&proxy, Method::POST, CHAT, &headers, ASK).await;
    assert!(got.status == 200 && is_open(&got.headers, APP));
    let got = ask(&proxy, Method::GET, "/plimsoll/api/sessions", &headers, "").await;
    got.is_error(403, "foreign_origin");
    assert!(!is_open(&got.headers, APP));
    let proxy = keyed(&["vscode-webview://*"]).await;
    let got = preflight(&proxy, CHAT, "vscode-webview://0a1b2c").await;
    assert!(got.status == 204 && is_open(&got.headers, "vscode-webview://0a1b2c"));
    preflight(&proxy, CHAT, APP)
        .await
        .is_error(403, "foreign_origin");
}

#[tokio::test]
async fn an_allowed_host_is_a_name_of_this_machine() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().set(|config| {
        config.server.allowed_hosts = vec!["host.docker.internal".to_owned()];
        config.admin.local = true;
    });
    let proxy = proxy.start().await;
    for host in [
        "host.docker.internal",
        "host.docker.internal:1876",
        "Host.Docker.Internal",
    ] {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        let got = ask(&proxy, Method::POST, CHAT, &[("host", host)], ASK).await;
        assert_eq!(got.status, 200, "{host} {}", got.text());
        // A container is not a user of this machine: it is not shown what admin.local shows.
        let got = ask(
            &proxy,
            Method::GET,
            "/plimsoll/api/settings",
            &[("host", host)],
            "",
        )
        .await;
        got.is_error(403, "admin_only");
    }
    for host in [
        "docker.internal",
        "x.host.docker.internal",
        "host.docker.internal.evil.example",
        "host.docker.internal:x",
    ] {
        let got = ask(&proxy, Method::POST, CHAT, &[("host", host)], ASK).await;
        got.is_error(403, "foreign_host");
        assert!(
            got.text().contains("server.allowed_hosts"),
            "{}",
            got.text()
        );
    }
    // Only Host: its pages are pages of another origin.
    let page = [
        ("host", "host.docker.internal"),
        ("origin", "http://host.docker.internal"),
    ];
    let got = ask(&proxy, Method::POST, CHAT, &page, ASK).await;
    got.is_error(403, "foreign_origin");
}

#[tokio::test]
async fn what_tells_of_the_clients_address_stays_here() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let told = [
        ("x-forwarded-for", "10.9.8.7"),
        ("x-forwarded-host", "office.example"),
        ("forwarded", "for=10.9.8.7"),
        ("via", "1.1 office"),
        ("x-real-ip", "10.9.8.7"),
        ("cf-connecting-ip", "10.9.8.7"),
    ];
    for passes in [false, true] {
        proxy.reload(|config| {
            config.providers.get_mut("up").unwrap().forwarded_headers = passes;
        });
        for path in [CHAT, "/v1/embeddings"] {
            up.script_next([answer("200 OK", "", COMPLETION)]);
            let got = ask(&proxy, Method::POST, path, &told, ASK).await;
            assert_eq!(got.status, 200, "{}", got.text());
            let sent = up.last_request();
            for (name, value) in told {
                assert_eq!(sent.header(name), passes.then_some(value), "{path} {name}");
            }
        }
    }
}
