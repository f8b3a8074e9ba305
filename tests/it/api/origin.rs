//! Pages of another origin get nothing under `/plimsoll/`.

use http::Method;

use super::{Api, keyed};
use crate::support::{ProxyBuilder, RunningProxy};

/// Another port is another origin.
async fn check(proxy: &RunningProxy, api: fn(&RunningProxy) -> Api) {
    let port = proxy.address.port();
    let (own, other) = (
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{}", port ^ 1),
    );
    let named = format!("http://localhost:{port}");
    let cases: &[(&[(&'static str, &str)], bool)] = &[
        (&[], true),
        (&[("origin", &own)], true),
        (&[("origin", &own), ("sec-fetch-site", "same-origin")], true),
        (&[("sec-fetch-site", "same-origin")], true),
        (&[("sec-fetch-site", "none")], true),
        (&[("origin", &other)], false),
        (&[("origin", &named)], false),
        (&[("origin", "null")], false),
        (&[("origin", "")], false),
        (&[("origin", "http://127.0.0.1")], false),
        (&[("origin", "https://example.com")], false),
        (&[("sec-fetch-site", "cross-site")], false),
        (&[("sec-fetch-site", "same-site")], false),
        (&[("origin", &own), ("sec-fetch-site", "same-site")], false),
    ];
    for (headers, passes) in cases {
        for (method, path) in [
            (Method::GET, "/plimsoll/api/about"),
            (Method::GET, "/plimsoll/api/sessions"),
            (Method::POST, "/plimsoll/api/fit"),
            (Method::GET, "/plimsoll/"),
            (Method::GET, "/plimsoll"),
        ] {
            let asks = headers
                .iter()
                .fold(api(proxy), |api, (name, value)| api.with(name, value));
            let body = r#"{"model":"simulated/plimsoll-8k","messages":[]}"#;
            let got = asks.send(method, path, body).await;
            if *passes {
                assert_ne!(got.status, 403, "{path} {headers:?}");
            } else {
                got.is_error(403, "foreign_origin");
            }
        }
    }
}

#[tokio::test]
async fn without_keys_foreign_origins_are_refused() {
    let proxy = ProxyBuilder::new().start().await;
    check(&proxy, Api::new).await;
    // A rebound DNS name is refused, whatever origin the page has.
    for headers in [
        &[("host", "rebound.example:1876")][..],
        &[
            ("host", "rebound.example"),
            ("origin", "http://rebound.example"),
        ],
    ] {
        let asks = headers
            .iter()
            .fold(Api::new(&proxy), |api, (name, value)| api.with(name, value));
        asks.get("sessions").await.is_error(403, "foreign_host");
    }
    // Other paths are unaffected: a local page may use the models' API.
    let page = Api::new(&proxy).with("origin", "http://localhost:5173");
    assert_eq!(page.send(Method::GET, "/v1/models", "").await.status, 200);
}

#[tokio::test]
async fn with_keys_foreign_origins_are_refused() {
    let proxy = keyed(ProxyBuilder::new()).start().await;
    check(&proxy, |proxy| Api::keyed(proxy, "sk-secret-alice")).await;
    // Behind its own name and a TLS terminator.
    let asks = |host: &str, origin: &str| {
        Api::keyed(&proxy, "sk-secret-alice")
            .with("host", host)
            .with("origin", origin)
    };
    for (host, origin, passes) in [
        ("load.example", "https://load.example", true),
        ("load.example:443", "https://load.example", true),
        ("load.example", "https://load.example:8443", false),
        ("load.example", "https://evil.example", false),
        ("load.example", "https://load.example.evil.example", false),
    ] {
        let got = asks(host, origin).get("sessions").await;
        if passes {
            assert_eq!(got.status, 200, "{origin}")
        } else {
            got.is_error(403, "foreign_origin")
        }
    }
    // A rebound name has no key to send, and is refused without one.
    let rebound = Api::new(&proxy).with("host", "rebound.example");
    let rebound = rebound.with("origin", "http://rebound.example");
    rebound
        .get("sessions")
        .await
        .is_error(401, "invalid_api_key");
}
