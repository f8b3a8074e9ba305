//! What a store is given of a conversation: as much as is needed, and nothing that was said.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use plimsoll::{
    config::{ModelConfig, StoreConfig, secret::SecretKey},
    session::{Account, SessionId, Tenant, seal::ADDED_BYTES},
    store::{Found, Key, Page, Row, Saved, Shared, Store, StoreError, memory::MemoryStore},
};

use crate::support::{
    agent::{Agent, Generation},
    model::{
        Model,
        manner::{Manner, Mixing, Worker},
    },
    proxy::Proxy,
};

/// A store in memory that keeps a copy of every state and order.
struct Recorder {
    inner: MemoryStore,
    given: Mutex<Vec<Bytes>>,
}

impl Recorder {
    fn note(&self, bytes: &Bytes) {
        self.given.lock().unwrap().push(bytes.clone());
    }
}

#[async_trait]
impl Store for Recorder {
    async fn find(
        &self,
        tenant: &Tenant,
        opening: u64,
        keys: &[Key],
    ) -> Result<Option<Found>, StoreError> {
        self.inner.find(tenant, opening, keys).await
    }
    async fn save(&self, saved: Saved) -> Result<(), StoreError> {
        self.note(&saved.state);
        self.inner.save(saved).await
    }
    async fn session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<Row>, StoreError> {
        self.inner.session(account, id).await
    }
    async fn order(
        &self,
        account: Option<&Account>,
        id: SessionId,
        orders: Bytes,
    ) -> Result<bool, StoreError> {
        self.note(&orders);
        self.inner.order(account, id, orders).await
    }
    async fn sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<Row>, StoreError> {
        self.inner.sessions(account, page).await
    }
    async fn share(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.inner.share(name, value).await
    }
    async fn shared(&self) -> Result<Shared, StoreError> {
        self.inner.shared().await
    }
    fn shared_version(&self) -> u64 {
        self.inner.shared_version()
    }
}

/// The states of a session of so many generations, in a window of so many tokens.
async fn states(window: u32, generations: usize, key: Option<SecretKey>) -> Vec<Bytes> {
    let store = Arc::new(Recorder {
        inner: MemoryStore::new(&StoreConfig::default()),
        given: Mutex::default(),
    });
    let worker = Worker::new(Manner::Follows, Mixing::Never);
    let up = Model::new(window)
        .start(move |heard| worker.think(heard))
        .await;
    let settings = ModelConfig {
        context_length: Some(window),
        ..ModelConfig::default()
    };
    let proxy = Proxy::new().provider("up", &up.provider).set(|config| {
        config.models.insert("m".into(), settings);
        config.store.encrypt_key = key;
    });
    let proxy = proxy
        .store(Arc::clone(&store) as Arc<dyn Store>)
        .start()
        .await;
    let mut agent = Agent::new(&proxy);
    agent.messages[0]["content"] = format!("SAID by the system. {}", "keel ".repeat(6_000)).into();
    agent.messages[1]["content"] = "SAID by the user.".into();
    agent.result = |nth| format!("SAID by tool {nth}. {}", "mast ".repeat(80));
    agent.user = |nth| format!("SAID by the user again, {nth}.");
    let told: Vec<Generation> = agent.steps(generations).await;
    assert!(
        told.iter()
            .all(|it| it.header("session") == told[0].header("session"))
    );
    let given = store.given.lock().unwrap();
    assert_eq!(given.len(), generations);
    given.clone()
}

fn holds(state: &Bytes, text: &str) -> bool {
    state
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn nothing_of_an_ordinary_conversation_is_stored() {
    let states = states(200_000, 12, None).await;
    println!(
        "bytes of a state: {} after the first answer",
        states[0].len()
    );
    println!("bytes of a state: {} after 8", states[7].len());
    // Neither what anybody said, nor what the model answered or called.
    for text in [
        "SAID",
        "keel",
        "mast",
        "Step",
        "deck",
        "read_file",
        "Well",
        "call_",
    ] {
        assert!(!states.iter().any(|state| holds(state, text)), "{text}");
    }
    assert!(states.iter().all(|state| state.len() < 160));
}

#[tokio::test]
async fn what_is_stored_of_a_session_that_recovers_is_readable_to_nobody_without_the_key() {
    const NOTE: &str = "the datum is in metres";
    const PROMPT: &str = "[Context notice, ";
    let plain = states(20_000, 48, None).await;
    let sealed = states(20_000, 48, Some(SecretKey::new([7; 32]))).await;
    let last = plain.last().unwrap();
    println!(
        "bytes of a state: {} after 48, with prompts and reminders",
        last.len()
    );
    // Of what was said only what is put back or carried over,
    assert!(holds(last, NOTE) && holds(last, PROMPT));
    for text in ["SAID", "keel", "mast"] {
        assert!(!plain.iter().any(|state| holds(state, text)), "{text}");
    }
    // and of that nothing that can be read.
    for text in [NOTE, PROMPT, "metres", "reminder"] {
        assert!(!sealed.iter().any(|state| holds(state, text)), "{text}");
    }
    let lengths = plain.iter().zip(&sealed);
    let lengths: Vec<_> = lengths
        .map(|(plain, sealed)| sealed.len().abs_diff(plain.len() + ADDED_BYTES))
        .collect();
    // A second more or less in a date.
    assert!(lengths.iter().all(|by| *by <= 8), "{lengths:?}");
}
