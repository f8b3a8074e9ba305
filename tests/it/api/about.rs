//! What the API says of the proxy and of the reader, and its description.

use http::Method;
use serde_json::json;

use super::{ADMIN, Api, keyed};
use crate::support::{ProxyBuilder, full_body};

#[tokio::test]
async fn the_api_names_the_client_of_the_key() {
    let proxy = ProxyBuilder::new().start().await;
    let expected = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "reader": "owner",
        "keys": false,
        "show_content": true,
        "compaction": {"auto": false, "threshold": 0.6, "strategy": "cost"},
    });
    assert_eq!(Api::new(&proxy).json("about").await, expected);
    let proxy = keyed(ProxyBuilder::new()).start().await;
    let told = Api::keyed(&proxy, "sk-secret-carol").json("about").await;
    assert_eq!(
        (&told["reader"], &told["keys"]),
        (&json!("owner"), &json!(true))
    );
    let admin = Api::keyed(&proxy, ADMIN);
    let told = admin.json("about").await;
    assert_eq!(
        (&told["reader"], &told["show_content"]),
        (&json!("admin"), &json!(false))
    );
    proxy.reload(|config| config.admin.show_content = true);
    assert_eq!(admin.json("about").await["show_content"], true);
    let none = Api::new(&proxy).get("about").await;
    none.is_error(401, "invalid_api_key");
}

#[tokio::test]
async fn every_path_in_the_api_description_is_served() {
    let proxy = ProxyBuilder::new().start().await;
    let api = Api::new(&proxy);
    let session = api.begin_session("Who answers?").await;
    let description = api.json("openapi.json").await;
    let paths = description["paths"].as_object().unwrap();
    assert!(paths.len() > 8, "{paths:?}");
    for (path, methods) in paths {
        let path = path.trim_start_matches('/').replace("{id}", &session);
        let methods = methods.as_object().unwrap().keys();
        for method in methods.filter(|it| ["get", "post", "patch"].contains(&it.as_str())) {
            let method = method.to_uppercase().parse().unwrap();
            let request = api.client.request(method, &format!("/plimsoll/api/{path}"));
            // An event stream has no end, so only its head is read.
            let answer = api
                .client
                .begin(request.body(full_body("{}")).unwrap())
                .await;
            let error = answer.headers().get("x-plimsoll-error");
            assert!(error.is_none_or(|code| code != "path_not_found"), "{path}");
            assert_ne!(answer.status(), 405, "{path}");
        }
    }
}

#[tokio::test]
async fn a_session_shows_strategy_and_threshold() {
    let proxy = ProxyBuilder::new().start().await;
    let cases = [(0.6, "cost"), (0.75, "balanced"), (0.8, "information")];
    for (threshold, strategy) in cases {
        proxy.reload(move |config| config.compaction.threshold = threshold);
        let told = Api::new(&proxy).json("about").await;
        let expected = json!({"auto": false, "threshold": threshold, "strategy": strategy});
        assert_eq!(told["compaction"], expected);
    }
}

#[tokio::test]
async fn the_api_description_is_served() {
    let proxy = ProxyBuilder::new().start().await;
    let api = Api::new(&proxy);
    let told = api.json("openapi.json").await;
    assert_eq!(told["openapi"], "3.1.0");
    for path in told["paths"].as_object().unwrap().keys() {
        let path = format!("/plimsoll/api{}", path.replace("{id}", &"0".repeat(32)));
        let got = api.send(Method::PUT, &path, "").await;
        got.is_error(405, "method_not_allowed");
    }
    for path in ["about", "openapi.json", "sessions", "providers", "events"] {
        let path = format!("/plimsoll/api/{path}");
        let got = api.send(Method::HEAD, &path, "").await;
        assert!(got.status == 200 && got.body.is_empty(), "{path}");
    }
    api.get("").await.is_error(404, "path_not_found");
    api.get("openapi").await.is_error(404, "path_not_found");
}
