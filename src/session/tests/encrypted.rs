//! Encryption of stored sessions, and the count of store failures.

use async_trait::async_trait;

use super::*;
use crate::{
    config::secret::SecretKey,
    guard::injections::{Course, InjectionContent, InjectionRecord},
    recovery::{self, fixture::build_reminders},
    session::state_cipher::ADDED_BYTES,
    store::{FoundState, Page, SessionRow, SharedValues, StateKey},
    support::store::TestStore,
    telemetry::metrics::Metrics,
};

fn keyed(store: &Arc<TestStore>, key: Option<u8>) -> Sessions {
    let config = StoreConfig {
        encrypt_key: key.map(|key| SecretKey::new([key; 32])),
        ..StoreConfig::default()
    };
    configured(Arc::clone(store) as Arc<dyn Store>, &config)
}

const CANARIES: [&str; 5] = [
    "canary-model",
    "canary-provider",
    "canary-reminder",
    "canary-prompt",
    "canary-course",
];

/// The state with a canary in every text.
fn with_canaries(mut state: SessionState) -> SessionState {
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

/// The stored state of the first turn of a conversation.
async fn first_turn(sessions: &Sessions) -> SessionState {
    let inherited = find(sessions, &turns(0)).await;
    let state = with_canaries(inherited.begin_generation());
    assert!(save(sessions, &inherited, &state, &assistant("answer 0")).await);
    state
}

/// The lookup of the second turn.
async fn second_turn(sessions: &Sessions) -> InheritedSession {
    find(sessions, &turns(1)).await
}

fn holds(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|part| part == text)
}

#[tokio::test]
async fn a_store_gets_encrypted_bytes_only() {
    let store = Arc::new(TestStore::default());
    let sessions = keyed(&store, Some(1));
    let state = first_turn(&sessions).await;
    let client = ClientIdentity::Named("a");
    let account = sessions.tenants.derive_account(client);
    let clear = sessions.add_command(Some(&account), state.session, SessionCommand::Clear);
    assert!(clear.await.unwrap().unwrap().clear_pending);
    let written = store.written.lock().unwrap().clone();
    assert_eq!(written.len(), 2);
    let plain = state.encode_bounded().unwrap().bytes;
    assert_eq!(written[0].len(), plain.len() + ADDED_BYTES);
    for canary in CANARIES {
        assert!(holds(&plain, canary.as_bytes()));
    }
    let secrets = CANARIES.iter().map(|canary| canary.as_bytes());
    for secret in secrets.chain([&state.session.as_bytes()[..]]) {
        assert!(written.iter().all(|bytes| !holds(bytes, secret)));
    }
    // With the key all of it is read.
    let next = second_turn(&sessions).await;
    assert_eq!(next.state.as_ref(), Some(&state));
    assert!(next.clear_requested && !next.store_failed);
    let view = sessions.view_session(None, state.session).await.unwrap();
    assert_eq!(view.map(|view| view.state), Some(state));
}

#[tokio::test]
async fn without_the_key_a_request_continues_without_its_state() {
    let store = Arc::new(TestStore::default());
    let state = first_turn(&keyed(&store, Some(1))).await;
    for key in [None, Some(2)] {
        let sessions = keyed(&store, key);
        for _ in 0..2 {
            let next = second_turn(&sessions).await;
            assert!(next.store_failed && next.state.is_none());
            assert_ne!(next.session, state.session);
        }
        assert!(sessions.view_session(None, state.session).await.is_err());
        let clear = sessions.add_command(None, state.session, SessionCommand::Clear);
        assert!(clear.await.is_err());
    }
}

#[tokio::test]
async fn plain_sessions_continue_after_a_key_is_set() {
    let store = Arc::new(TestStore::default());
    let state = first_turn(&keyed(&store, None)).await;
    let sessions = keyed(&store, Some(1));
    assert_eq!(second_turn(&sessions).await.state, Some(state.clone()));
    let next = generate(&sessions, &turns(1), &assistant("answer 1")).await;
    assert_eq!(next.generations, 2);
    let written = store.written.lock().unwrap().clone();
    let canary = CANARIES[2].as_bytes();
    assert!(holds(&written[0], canary) && !holds(&written[1], canary));
    assert_eq!(next.session, state.session);
}

#[tokio::test]
async fn the_state_of_another_session_is_refused() {
    let store = Arc::new(TestStore::default());
    let sessions = keyed(&store, Some(1));
    let (state, other) = (first_turn(&sessions).await, first_turn(&sessions).await);
    assert_ne!(state.session, other.session);
    let tenant = tenant(&sessions, "a");
    let moved = SessionRow {
        tenant,
        session: other.session,
        saved_s: 0,
        state: store.written.lock().unwrap()[0].clone(),
        commands: Bytes::new(),
    };
    assert!(sessions.view_row(&moved).is_err());
    let intact = SessionRow {
        session: state.session,
        ..moved
    };
    assert!(sessions.view_row(&intact).is_ok());
}

#[tokio::test]
async fn commands_of_another_session_are_ignored() {
    let store = Arc::new(TestStore::default());
    let sessions = keyed(&store, Some(1));
    let (state, other) = (first_turn(&sessions).await, first_turn(&sessions).await);
    let clear = sessions.add_command(None, other.session, SessionCommand::Clear);
    clear.await.unwrap();
    let moved = store.written.lock().unwrap().last().unwrap().clone();
    let stored = store.put_commands(None, state.session, moved).await;
    assert!(stored.unwrap());
    let view = sessions.view_session(None, state.session).await.unwrap();
    assert!(!view.unwrap().clear_pending);
}

#[tokio::test]
async fn failures_of_the_store_are_counted_by_operation() {
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
        async fn count_sessions(&self, _: Option<&Account>) -> Result<u64, StoreError> {
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
    let mut sessions = sessions_in(Arc::new(Gone));
    sessions.metrics = Arc::clone(&metrics);
    sessions.find_timeout = Duration::from_millis(1);
    let next = second_turn(&sessions).await;
    let state = next.begin_generation();
    assert!(
        !sessions
            .save_state(&next.lineage, 1, None, &state, WITHIN)
            .await
    );
    assert!(
        !sessions
            .save_state(&next.lineage, 1, None, &state, WITHIN)
            .await
    );
    let clear = sessions.add_command(None, next.session, SessionCommand::Clear);
    assert!(clear.await.is_err());
    let text = metrics.render_text(std::iter::empty(), 0);
    for (operation, count) in [("find", 1), ("save", 2), ("order", 1), ("session", 0)] {
        let line = format!("plimsoll_store_errors_total{{operation=\"{operation}\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}
