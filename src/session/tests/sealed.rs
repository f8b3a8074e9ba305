//! Sessions whose store gets nothing that can be read.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::*;
use crate::{
    config::secret::SecretKey,
    guard::injections::{Course, InjectionContent, InjectionRecord},
    recovery::{self, fixture::build_reminders},
    session::state_cipher::ADDED_BYTES,
    store::{FoundState, Page, SessionRow, SharedValues, StateKey},
    telemetry::metrics::Metrics,
};

/// A store in memory that keeps a copy of all it was given, and gives orders of its own where told.
struct Recorder {
    inner: MemoryStore,
    given: Mutex<Vec<Bytes>>,
}

impl Recorder {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::new(&StoreConfig::default()),
            given: Mutex::default(),
        })
    }

    fn note(&self, bytes: &Bytes) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.push(bytes.clone());
    }

    fn given(&self) -> Vec<Bytes> {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.clone()
    }
}

#[async_trait]
impl Store for Recorder {
    async fn find_state(
        &self,
        tenant: &Tenant,
        opening: u64,
        keys: &[StateKey],
    ) -> Result<Option<FoundState>, StoreError> {
        self.inner.find_state(tenant, opening, keys).await
    }
    async fn save_state(&self, saved: StateToSave) -> Result<(), StoreError> {
        self.note(&saved.state);
        self.inner.save_state(saved).await
    }
    async fn load_session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        self.inner.load_session(account, id).await
    }
    async fn put_commands(
        &self,
        account: Option<&Account>,
        id: SessionId,
        orders: Bytes,
    ) -> Result<bool, StoreError> {
        self.note(&orders);
        self.inner.put_commands(account, id, orders).await
    }
    async fn list_sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<SessionRow>, StoreError> {
        self.inner.list_sessions(account, page).await
    }
    async fn publish_shared(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.inner.publish_shared(name, value).await
    }
    async fn read_shared(&self) -> Result<SharedValues, StoreError> {
        self.inner.read_shared().await
    }
    fn shared_version(&self) -> u64 {
        self.inner.shared_version()
    }
}

fn keyed(store: &Arc<Recorder>, key: Option<u8>) -> Sessions {
    let config = StoreConfig {
        encrypt_key: key.map(|key| SecretKey::new([key; 32])),
        ..StoreConfig::default()
    };
    over(Arc::clone(store) as Arc<dyn Store>)
        .with_config(&config, Arc::default())
        .unwrap()
}

const CANARIES: [&str; 5] = [
    "canary-model",
    "canary-provider",
    "canary-reminder",
    "canary-prompt",
    "canary-course",
];

/// With everything in it that is a text.
fn telling(mut state: SessionState) -> SessionState {
    let [model, provider, reminder, prompt, course] = CANARIES;
    state.model = model.into();
    state.provider = provider.into();
    state.recovery = recovery::RecoveryMemory {
        reminders: build_reminders(&[(0, reminder)]),
        records: vec![InjectionRecord {
            place: 1,
            what: InjectionContent::Prompt(prompt.into()),
        }],
        course: Some(Course {
            number: 2,
            boundary: 1,
            preface: course.into(),
        }),
        ..recovery::RecoveryMemory::default()
    };
    state
}

/// The first turn of a conversation, as it is stored.
async fn tell(sessions: &Sessions) -> SessionState {
    let inherited = sessions
        .inherit_session(&conversation(&turns(0)), &tenant(sessions, "a"), None)
        .await;
    let state = telling(inherited.next_state());
    let answer = answer_digest(&assistant("answer 0"));
    assert!(
        sessions
            .save_state(&inherited.lineage, answer, &state, WITHIN)
            .await
    );
    state
}

/// How the second turn begins.
async fn go_on(sessions: &Sessions) -> InheritedSession {
    let said = conversation(&turns(1));
    sessions
        .inherit_session(&said, &tenant(sessions, "a"), None)
        .await
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn what_a_store_gets_cannot_be_read() {
    let store = Recorder::new();
    let sessions = keyed(&store, Some(1));
    let state = tell(&sessions).await;
    let account = sessions
        .tenants()
        .derive_account(ClientIdentity::Named("a"));
    let known = sessions
        .add_command(Some(&account), state.session, SessionCommand::Clear)
        .await
        .unwrap();
    assert!(known.unwrap().clear_pending);
    let given = store.given();
    assert_eq!(given.len(), 2);
    let plain = state.encode_bounded().unwrap().bytes;
    assert_eq!(given[0].len(), plain.len() + ADDED_BYTES);
    for canary in CANARIES {
        assert!(holds(&plain, canary));
        assert!(given.iter().all(|bytes| !holds(bytes, canary)));
    }
    let id = &state.session.as_bytes()[..];
    assert!(
        given
            .iter()
            .all(|bytes| !bytes.windows(16).any(|part| part == id))
    );
    // It is all there for whoever has the key.
    let next = go_on(&sessions).await;
    assert_eq!(next.state.as_ref(), Some(&state));
    assert!(next.clear_requested && !next.store_failed);
    let known = sessions.view_session(None, state.session).await.unwrap();
    assert_eq!(known.map(|known| known.state), Some(state));
}

#[tokio::test]
async fn without_the_key_a_request_goes_on_without_its_state() {
    let store = Recorder::new();
    let state = tell(&keyed(&store, Some(1))).await;
    for key in [None, Some(2)] {
        let sessions = keyed(&store, key);
        for _ in 0..2 {
            let next = go_on(&sessions).await;
            assert!(next.store_failed && next.state.is_none());
            assert_ne!(next.session, state.session);
        }
        assert!(sessions.view_session(None, state.session).await.is_err());
        assert!(
            sessions
                .add_command(None, state.session, SessionCommand::Clear)
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn sessions_from_before_there_was_a_key_go_on() {
    let store = Recorder::new();
    let state = tell(&keyed(&store, None)).await;
    let sessions = keyed(&store, Some(1));
    assert_eq!(go_on(&sessions).await.state, Some(state.clone()));
    let next = generate(&sessions, &turns(1), &assistant("answer 1")).await;
    assert_eq!(next.generations, 2);
    let given = store.given();
    assert!(holds(&given[0], CANARIES[2]) && !holds(&given[1], CANARIES[2]));
    assert_eq!(next.session, state.session);
}

#[tokio::test]
async fn a_state_in_the_place_of_another_sessions_is_damage() {
    let store = Recorder::new();
    let sessions = keyed(&store, Some(1));
    let (state, other) = (tell(&sessions).await, tell(&sessions).await);
    assert_ne!(state.session, other.session);
    let tenant = tenant(&sessions, "a");
    let moved = SessionRow {
        tenant,
        session: other.session,
        saved_s: 0,
        state: store.given()[0].clone(),
        commands: Bytes::new(),
    };
    assert!(sessions.view_row(&moved).is_err());
    let own = SessionRow {
        session: state.session,
        ..moved
    };
    assert!(sessions.view_row(&own).is_ok());
}

#[tokio::test]
async fn orders_of_another_session_are_none() {
    let store = Recorder::new();
    let sessions = keyed(&store, Some(1));
    let (state, other) = (tell(&sessions).await, tell(&sessions).await);
    sessions
        .add_command(None, other.session, SessionCommand::Clear)
        .await
        .unwrap();
    let moved = store.given().last().unwrap().clone();
    assert!(
        store
            .put_commands(None, state.session, moved)
            .await
            .unwrap()
    );
    let known = sessions.view_session(None, state.session).await.unwrap();
    assert!(!known.unwrap().clear_pending);
}

#[tokio::test]
async fn failures_of_the_store_are_counted_by_what_was_asked() {
    struct Gone;
    impl Gone {
        fn gone<T>() -> Result<T, StoreError> {
            Err(StoreError::Damaged)
        }
    }
    #[async_trait]
    impl Store for Gone {
        async fn find_state(
            &self,
            _: &Tenant,
            _: u64,
            _: &[StateKey],
        ) -> Result<Option<FoundState>, StoreError> {
            std::future::pending().await
        }
        async fn save_state(&self, _: StateToSave) -> Result<(), StoreError> {
            Self::gone()
        }
        async fn load_session(
            &self,
            _: Option<&Account>,
            id: SessionId,
        ) -> Result<Option<SessionRow>, StoreError> {
            let tenants = Tenants::new(InstallationSecret::from_bytes([5; 32]));
            Ok(Some(SessionRow {
                tenant: tenants.derive_tenant(ClientIdentity::Anonymous, &HeaderMap::new(), None),
                session: id,
                saved_s: 0,
                state: SessionState::new(id).encode_bounded().unwrap().bytes.into(),
                commands: Bytes::new(),
            }))
        }
        async fn put_commands(
            &self,
            _: Option<&Account>,
            _: SessionId,
            _: Bytes,
        ) -> Result<bool, StoreError> {
            Self::gone()
        }
        async fn list_sessions(
            &self,
            _: Option<&Account>,
            _: Page,
        ) -> Result<Vec<SessionRow>, StoreError> {
            Self::gone()
        }
        async fn publish_shared(&self, _: &[u8], _: Bytes) -> Result<(), StoreError> {
            Self::gone()
        }
        async fn read_shared(&self) -> Result<SharedValues, StoreError> {
            Self::gone()
        }
        fn shared_version(&self) -> u64 {
            0
        }
    }
    let metrics = Arc::new(Metrics::default());
    let mut sessions = over(Arc::new(Gone));
    sessions.metrics = Arc::clone(&metrics);
    sessions.find_timeout = Duration::from_millis(1);
    let next = go_on(&sessions).await;
    let state = next.next_state();
    assert!(!sessions.save_state(&next.lineage, 1, &state, WITHIN).await);
    assert!(!sessions.save_state(&next.lineage, 1, &state, WITHIN).await);
    assert!(
        sessions
            .add_command(None, next.session, SessionCommand::Clear)
            .await
            .is_err()
    );
    let text = metrics.render_text(std::iter::empty(), 0);
    for (operation, count) in [("find", 1), ("save", 2), ("order", 1), ("session", 0)] {
        let line = format!("plimsoll_store_errors_total{{operation=\"{operation}\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}
