//! `GET settings`: its content, and who may read it.

use serde_json::Value;

use super::{ADMIN, Api, keyed};
use crate::support::ProxyBuilder;

fn setting<'a>(told: &'a Value, key: &str) -> &'a Value {
    let mut all = told["settings"].as_array().unwrap().iter();
    all.find(|setting| setting["key"] == key).unwrap()
}

#[tokio::test]
async fn the_administrator_sees_the_settings_in_force_and_nobody_else_does() {
    let proxy = keyed(ProxyBuilder::new()).start().await;
    let told = Api::keyed(&proxy, ADMIN).json("settings").await;
    let listen = setting(&told, "server.listen");
    assert_eq!(listen["value"], "127.0.0.1:1876");
    assert_eq!(
        (&listen["from"], &listen["hidden"]),
        (&"default".into(), &false.into())
    );
    for key in ["sk-secret-alice", "sk-secret-carol"] {
        let refused = Api::keyed(&proxy, key).get("settings").await;
        refused.is_error(403, "admin_only");
    }
    let none = Api::new(&proxy).get("settings").await;
    none.is_error(401, "invalid_api_key");
}

#[tokio::test]
async fn without_client_keys_admin_local_shows_the_settings() {
    let proxy = ProxyBuilder::new().start().await;
    let refused = Api::new(&proxy).get("settings").await;
    refused.is_error(403, "admin_only");
    proxy.reload(|config| config.admin.local = true);
    let told = Api::new(&proxy).json("settings").await;
    assert!(told["settings"].as_array().unwrap().len() > 60);
    let keyed = Api::keyed(&proxy, "sk-of-an-sdk").get("settings").await;
    keyed.is_error(403, "admin_only");
}
