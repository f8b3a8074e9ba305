//! Whose a session is: the client's name, or a short digest of its key.

use serde_json::Value;

use super::{ADMIN, Api, keyed};
use crate::support::ProxyBuilder;

fn clients(listed: &Value) -> Vec<&str> {
    let sessions = listed["sessions"].as_array().unwrap().iter();
    sessions
        .map(|session| session["client"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn sessions_have_the_name_of_their_client_and_are_filtered_by_it() {
    let proxy = keyed(ProxyBuilder::new()).start().await;
    let alice = Api::keyed(&proxy, "sk-secret-alice");
    let bob = Api::keyed(&proxy, "sk-secret-bob");
    let id = alice.begin_session("a task of alice").await;
    bob.begin_session("a task of bob").await;
    let admin = Api::keyed(&proxy, ADMIN);
    assert_eq!(clients(&admin.json("sessions").await), ["bob", "alice"]);
    let filtered = admin.json("sessions?client=alice").await;
    assert_eq!(clients(&filtered), ["alice"]);
    assert_eq!(
        admin.json(&format!("sessions/{id}")).await["client"],
        "alice"
    );
    assert_eq!(clients(&alice.json("sessions").await), ["alice"]);
    // A filter opens nothing.
    let foreign = bob.json("sessions?client=alice").await;
    assert_eq!(clients(&foreign), Vec::<&str>::new());
    // Metrics name the clients of the settings only.
    let metrics = admin.send(http::Method::GET, "/metrics", "").await;
    let metrics = metrics.text();
    for name in ["alice", "bob"] {
        let series = format!("gen_ai_client_token_usage_count{{client=\"{name}\",");
        assert!(metrics.contains(&series), "{metrics}");
    }
    // A name that is gone from the settings is no longer told.
    proxy.reload(|config| {
        config.clients.remove("alice");
    });
    let after = admin.json("sessions").await;
    let [bob, gone] = clients(&after)[..] else {
        panic!("{after}");
    };
    assert!(
        bob == "bob" && gone != "alice" && gone.len() == 8,
        "{after}"
    );
}

#[tokio::test]
async fn without_client_keys_a_session_has_a_short_digest_of_its_key() {
    let proxy = ProxyBuilder::new()
        .set(|config| config.admin.local = true)
        .start()
        .await;
    let (one, two) = (
        Api::keyed(&proxy, "sk-secret-one"),
        Api::keyed(&proxy, "sk-secret-two"),
    );
    for (api, task) in [(&one, "a"), (&two, "b"), (&one, "c")] {
        api.begin_session(task).await;
    }
    let listed = Api::new(&proxy).json("sessions").await;
    let all = clients(&listed);
    assert!(all[0] == all[2] && all[0] != all[1], "{all:?}");
    for digest in &all {
        let is_hex = |c: char| c.is_ascii_hexdigit();
        assert!(digest.len() == 8 && digest.chars().all(is_hex), "{digest}");
    }
    let filter = format!("sessions?client={}", all[1]);
    let filtered = Api::new(&proxy).json(&filter).await;
    assert_eq!(clients(&filtered), [all[1]]);
    // Another installation has other digests.
    let other = ProxyBuilder::new().start().await;
    let api = Api::keyed(&other, "sk-secret-one");
    api.begin_session("a").await;
    let elsewhere = api.json("sessions").await;
    assert_ne!(clients(&elsewhere), [all[0]]);
    let metrics = api.send(http::Method::GET, "/metrics", "").await;
    let metrics = metrics.text();
    assert!(
        metrics.contains("gen_ai_client_token_usage_count{client=\"other\","),
        "{metrics}"
    );
    assert!(!metrics.contains(clients(&elsewhere)[0]), "{metrics}");
}
