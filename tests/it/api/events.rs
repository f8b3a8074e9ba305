//! `GET events`: what is sent, to which account, and how a stream ends.

use std::{sync::Arc, time::Duration};

use super::{ADMIN, Api, keyed};
use crate::support::{
    ProxyBuilder, RunningProxy, TestStore, full_body, memory_store, wait_until, within_time,
};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use plimsoll::{
    proxy::session_events::MAX_LISTENERS_PER_ACCOUNT,
    session::{Account, ClientIdentity, SessionCommands, SessionId, SessionState, SessionView},
};
use serde_json::{Value, json};

/// A proxy whose store cannot list: its events were not found by listing.
async fn without_listing() -> RunningProxy {
    let store = TestStore {
        fails_to_list: true,
        ..TestStore::default()
    };
    ProxyBuilder::new().store(Arc::new(store)).start().await
}

/// A listener.
struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    async fn open(api: &Api) -> Self {
        Self::try_open(api).await.unwrap()
    }

    async fn try_open(api: &Api) -> Result<Self, StatusCode> {
        let request = api.client.request(Method::GET, "/plimsoll/api/events");
        let mut request = request.body(full_body("")).unwrap();
        request.headers_mut().extend(api.headers.clone());
        let (head, body) = api.client.begin(request).await.into_parts();
        if head.status != 200 {
            return Err(head.status);
        }
        assert_eq!(head.headers["content-type"], "text/event-stream");
        assert_eq!(head.headers["cache-control"], "no-store");
        let mut events = Self {
            body,
            text: String::new(),
        };
        // A comment is sent at once.
        assert_eq!(events.next_block().await.as_deref(), Some(": still here"));
        Ok(events)
    }

    /// The next event or comment; `None` at a clean end.
    async fn next_block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let frame = within_time(self.body.frame()).await?.unwrap();
            let data = frame.into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
    }

    /// The data of the next event of that name; other events are skipped.
    async fn next_event(&mut self, name: &str) -> Value {
        loop {
            let block = self.next_block().await.expect("it goes on");
            if let Some(event) = block.strip_prefix("event: ") {
                let (found, data) = event.split_once("\ndata: ").unwrap();
                if found == name {
                    return serde_json::from_str(data).unwrap();
                }
            }
        }
    }

    async fn wait_for_end(mut self) {
        while self.next_block().await.is_some() {}
    }
}

fn anonymous_account(proxy: &RunningProxy) -> Account {
    let app = proxy.live.app();
    app.sessions
        .tenants
        .derive_account(ClientIdentity::Anonymous)
}

#[tokio::test]
async fn events_of_this_replica_arrive_at_once() {
    let proxy = without_listing().await;
    let api = Api::new(&proxy);
    let mut events = Events::open(&api).await;
    let id = api.begin_session("x").await;
    let mut told = events.next_event("session").await;
    assert_eq!(
        (&told["id"], &told["generations"]),
        (&Value::from(id.clone()), &1.into())
    );
    // The event has the fields of the list: those of the report, and the name of the session.
    let told = told.as_object_mut().unwrap();
    let name = (told.remove("task"), told.remove("program"));
    assert_eq!(name, (Some(json!("x")), Some(Value::Null)));
    let shown = api.json(&format!("sessions/{id}")).await;
    for (field, value) in told {
        assert_eq!(shown[field], *value, "{field}");
    }
    for (part, pending) in [("clear", "clear_pending"), ("compact", "compact_pending")] {
        let got = api.post(&format!("sessions/{id}/{part}"), "").await;
        assert_eq!(got.status, 200);
        assert_eq!(events.next_event("session").await[pending], true);
    }
    let path = format!("/plimsoll/api/sessions/{id}");
    let body = r#"{"auto_compact":"on"}"#;
    let got = api.send(Method::PATCH, &path, body).await;
    assert_eq!(got.status, 200);
    assert_eq!(events.next_event("session").await["auto_compact"], "on");
}

#[tokio::test]
async fn each_listener_gets_events_of_its_account_only() {
    let proxy = keyed(ProxyBuilder::new().store(memory_store()))
        .start()
        .await;
    let (alice, bob) = (
        Api::keyed(&proxy, "sk-secret-alice"),
        Api::keyed(&proxy, "sk-secret-bob"),
    );
    let mut to_alice = Events::open(&alice).await;
    let mut to_bob = Events::open(&bob).await;
    let mut to_admin = Events::open(&Api::keyed(&proxy, ADMIN)).await;
    let own = alice.begin_session("x").await;
    let other = bob.begin_session("x").await;
    let told = to_alice.next_event("session").await;
    assert_eq!((&told["id"], &told["task"]), (&json!(own), &json!("x")));
    assert_eq!(to_bob.next_event("session").await["id"], other);
    // The administrator sees no texts here.
    let told = to_admin.next_event("session").await;
    assert_eq!((&told["id"], &told["task"]), (&json!(own), &Value::Null));
    assert_eq!(to_admin.next_event("session").await["id"], other);
    // A command of the administrator is sent to the session's account only.
    let admin = Api::keyed(&proxy, ADMIN);
    let got = admin.post(&format!("sessions/{own}/clear"), "").await;
    assert_eq!(got.status, 200);
    let last = bob.begin_session("y").await;
    assert_eq!(to_alice.next_event("session").await["clear_pending"], true);
    assert_eq!(to_bob.next_event("session").await["id"], last);
    assert_eq!(
        Events::try_open(&Api::new(&proxy)).await.err(),
        Some(401.try_into().unwrap())
    );
}

#[tokio::test]
async fn changes_by_other_replicas_are_sent_once() {
    let store = memory_store();
    let data = tempfile::tempdir().unwrap();
    let replica = async || {
        let proxy = ProxyBuilder::new().store(Arc::clone(&store));
        let proxy = proxy.set(|config| config.server.data_dir = data.path().into());
        proxy.start().await
    };
    let (here, there) = (replica().await, replica().await);
    let other = Api::new(&there);
    // A change shortly before is sent too.
    let before = other.begin_session("before").await;
    let mut events = Events::open(&Api::new(&here)).await;
    assert_eq!(events.next_event("session").await["id"], before);
    let first = other.begin_session("first").await;
    assert_eq!(events.next_event("session").await["id"], first);
    // The next poll finds the others unchanged.
    let second = other.begin_session("second").await;
    assert_eq!(events.next_event("session").await["id"], second);
    let got = other.post(&format!("sessions/{first}/clear"), "").await;
    assert_eq!(got.status, 200);
    let told = events.next_event("session").await;
    assert_eq!(
        (&told["id"], &told["clear_pending"]),
        (&first.into(), &true.into())
    );
}

#[tokio::test]
async fn a_listener_that_falls_behind_is_told_to_reload() {
    let proxy = without_listing().await;
    let api = Api::new(&proxy);
    let mut events = Events::open(&api).await;
    let (account, app) = (anonymous_account(&proxy), proxy.live.app());
    let tell = |at: u16| {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&at.to_be_bytes());
        let state = SessionState::new(SessionId::parse_hex(&hex(id)).unwrap());
        app.session_events.publish_change(&SessionView::from_state(
            account,
            state,
            &SessionCommands::default(),
        ));
    };
    // All of them before the listener is scheduled.
    (0..2_000).for_each(tell);
    assert_eq!(events.next_event("resync").await, serde_json::json!({}));
    // Events continue, with the newest last.
    let mut last = String::new();
    while last != hex([0x07, 0xcf, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) {
        last = events.next_event("session").await["id"]
            .as_str()
            .unwrap()
            .into();
    }
}

fn hex(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_change_of_a_provider_is_an_event() {
    let proxy = ProxyBuilder::new().start().await;
    let api = Api::new(&proxy);
    let mut events = Events::open(&api).await;
    let told = events.next_event("providers").await;
    assert_eq!(told, api.json("providers").await);
    api.begin_session("x").await;
    let told = events.next_event("providers").await;
    assert_eq!(told["providers"][0]["attempts"]["answer"], 1);
}

#[tokio::test]
async fn event_streams_end_at_a_drain_and_a_reload() {
    let proxy = ProxyBuilder::new().set(|config| {
        config.server.drain_timeout = Duration::from_secs(600);
    });
    let mut proxy = proxy.start().await;
    let api = Api::new(&proxy);
    let events = Events::open(&api).await;
    proxy.reload(|config| config.guard.chars_per_token = Some(3.5));
    events.wait_for_end().await;
    let events = Events::open(&api).await;
    proxy.stop();
    events.wait_for_end().await;
    proxy.wait_until_gone().await;
}

#[tokio::test]
async fn listeners_are_limited_and_free_their_place() {
    let proxy = keyed(ProxyBuilder::new()).start().await;
    let alice = Api::keyed(&proxy, "sk-secret-alice");
    let mut open = Vec::new();
    for _ in 0..MAX_LISTENERS_PER_ACCOUNT {
        open.push(Events::open(&alice).await);
    }
    let refused = alice.get("events").await;
    refused.is_error(429, "too_many_listeners");
    assert!(refused.headers.contains_key("retry-after"));
    // Other accounts have their own limit, and HEAD takes no place.
    let bob = Api::keyed(&proxy, "sk-secret-bob");
    let head = bob.send(Method::HEAD, "/plimsoll/api/events", "").await;
    assert!(head.status == 200 && head.body.is_empty());
    drop(Events::open(&bob).await);
    // A listener does not count as a request in flight.
    let metrics = alice.send(Method::GET, "/metrics", "").await;
    assert!(metrics.text().contains("plimsoll_requests_in_flight 0\n"));
    open.pop();
    let again = within_time(async {
        loop {
            if let Ok(events) = Events::try_open(&alice).await {
                break events;
            }
        }
    });
    open.push(again.await);
    drop(open);
    wait_until(|| !proxy.live.app().session_events.has_listeners()).await;
}
