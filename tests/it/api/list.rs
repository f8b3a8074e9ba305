//! `GET sessions`: its pages, and whose sessions they list.

use std::{collections::HashSet, sync::Arc};

use plimsoll::config::secret::SecretKey;

use super::{ADMIN, Api, keyed};
use crate::support::{ProxyBuilder, RunningProxy, memory_store};

const SESSIONS: usize = 207;

/// The ids on a page, and `skip` of the next.
async fn page(api: &Api, query: &str) -> (Vec<String>, Option<u64>) {
    let told = api.json(&format!("sessions{query}")).await;
    let sessions = told["sessions"].as_array().unwrap();
    let id = |session: &serde_json::Value| session["id"].as_str().unwrap().to_owned();
    (sessions.iter().map(id).collect(), told["next"].as_u64())
}

async fn check_pages(proxy: &RunningProxy) {
    let api = Api::new(proxy);
    let mut made = Vec::new();
    for at in 0..SESSIONS {
        made.push(api.begin_session(&format!("task {at}")).await);
    }
    made.reverse();
    let (first, next) = page(&api, "").await;
    assert_eq!((first.len(), next), (100, Some(100)));
    let (second, next) = page(&api, "?skip=100").await;
    assert_eq!((second.len(), next), (100, Some(200)));
    let (third, next) = page(&api, "?skip=200").await;
    assert_eq!((third.len(), next), (7, None));
    let all = [first, second, third].concat();
    assert_eq!(all, made, "newest first");
    let distinct: HashSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), SESSIONS);
    let (most, next) = page(&api, "?take=200").await;
    assert_eq!((&most[..], next), (&made[..200], Some(200)));
    let (last, next) = page(&api, "?take=7&skip=200").await;
    assert_eq!((&last[..], next), (&made[200..], None));
    let (none, next) = page(&api, "?skip=5000").await;
    assert_eq!((none.len(), next), (0, None));
    // The session with the newest generation is first.
    let again = api.begin_session("task 3").await;
    assert_eq!(page(&api, "?take=1").await, (vec![again], Some(1)));
}

#[tokio::test]
async fn pages_list_each_session_once_from_the_file_store() {
    check_pages(&ProxyBuilder::new().start().await).await;
}

#[tokio::test]
async fn pages_list_each_session_once_from_memory() {
    check_pages(&ProxyBuilder::new().store(memory_store()).start().await).await;
}

#[tokio::test]
async fn each_client_lists_its_sessions_only() {
    let proxy = keyed(ProxyBuilder::new()).start().await;
    let alice = Api::keyed(&proxy, "sk-secret-alice");
    let bob = Api::keyed(&proxy, "sk-secret-bob");
    // The same messages under another key are another session.
    let (own, other) = (alice.begin_session("x").await, bob.begin_session("x").await);
    assert_ne!(own, other);
    assert_eq!(page(&alice, "").await, (vec![own.clone()], None));
    assert_eq!(page(&bob, "").await, (vec![other.clone()], None));
    let admin = Api::keyed(&proxy, ADMIN);
    assert_eq!(page(&admin, "").await, (vec![other, own], None));
    let carol = Api::keyed(&proxy, "sk-secret-carol");
    assert_eq!(page(&carol, "").await, (vec![], None));
    let none = Api::new(&proxy).get("sessions").await;
    none.is_error(401, "invalid_api_key");
}

#[tokio::test]
async fn unreadable_states_are_left_out_of_the_list() {
    let store = memory_store();
    let data = tempfile::tempdir().unwrap();
    let proxy = async |key: u8| {
        let key = SecretKey::new([key; 32]);
        let proxy = ProxyBuilder::new().store(Arc::clone(&store)).set(|config| {
            config.server.data_dir = data.path().into();
            config.store.encrypt_key = Some(key);
        });
        proxy.start().await
    };
    let before = proxy(1).await;
    Api::new(&before).begin_session("an old one").await;
    let after = proxy(2).await;
    let api = Api::new(&after);
    assert_eq!(page(&api, "").await, (vec![], None));
    let new = api.begin_session("a new one").await;
    assert_eq!(page(&api, "").await, (vec![new], None));
}

#[tokio::test]
async fn an_invalid_page_cursor_is_refused() {
    let proxy = ProxyBuilder::new().start().await;
    let api = Api::new(&proxy);
    for (query, code, word) in [
        ("take=201", "invalid_value", "take"),
        ("take=0", "invalid_value", "take"),
        ("take=ten", "invalid_value", "take"),
        ("skip=-1", "invalid_value", "skip"),
        ("skip=9&skip=9", "invalid_value", "skip"),
        ("limit=5", "unknown_parameter", "limit"),
    ] {
        let got = api.get(&format!("sessions?{query}")).await;
        got.is_error(400, code);
        assert!(got.text().contains(word), "{}", got.text());
        if code == "invalid_value" {
            assert_eq!(got.json()["error"]["param"], word);
        }
    }
    let got = api.post("sessions", "").await;
    got.is_error(405, "method_not_allowed");
    assert_eq!(got.headers["allow"], "GET, HEAD");
}
