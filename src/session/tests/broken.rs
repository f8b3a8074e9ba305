//! Stores that fail.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;

use super::{WITHIN, hints::hint, over, tenant, turns};
use crate::{
    health::HealthLevel,
    session::{
        Account, SessionCommand, SessionId, SessionState, Tenant, tests::fixture::conversation,
    },
    store::{FoundState, Page, SessionRow, SharedValues, StateKey, StateToSave, Store, StoreError},
};

/// A store that is down, never answers, or answers with something else.
#[derive(Clone, Copy)]
enum Broken {
    Down,
    Silent,
    Garbage,
    /// Answers with a key that nobody asked for.
    Elsewhere,
}

impl Broken {
    async fn fail<T>(self) -> Result<T, StoreError> {
        match self {
            Self::Silent => std::future::pending().await,
            _ => Err(StoreError::Unreachable(io::Error::other("disk is full"))),
        }
    }
}

#[async_trait]
impl Store for Broken {
    async fn find_state(
        &self,
        _: &Tenant,
        _: u64,
        _: &[StateKey],
    ) -> Result<Option<FoundState>, StoreError> {
        match self {
            Self::Garbage => Ok(Some(FoundState {
                at: 0,
                state: Bytes::from_static(b"\x01garbage"),
                commands: Bytes::new(),
            })),
            Self::Elsewhere => Ok(Some(FoundState {
                at: 1_000,
                state: SessionState::new(SessionId::from_bytes([1; 16]))
                    .encode_bounded()
                    .unwrap()
                    .bytes
                    .into(),
                commands: Bytes::new(),
            })),
            _ => self.fail().await,
        }
    }
    async fn save_state(&self, _: StateToSave) -> Result<(), StoreError> {
        self.fail().await
    }
    async fn load_session(
        &self,
        _: Option<&Account>,
        _: SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        self.fail().await
    }
    async fn put_commands(
        &self,
        _: Option<&Account>,
        _: SessionId,
        _: Bytes,
    ) -> Result<bool, StoreError> {
        self.fail().await
    }
    async fn list_sessions(
        &self,
        _: Option<&Account>,
        _: Page,
    ) -> Result<Vec<SessionRow>, StoreError> {
        self.fail().await
    }
    async fn publish_shared(&self, _: &[u8], _: Bytes) -> Result<(), StoreError> {
        self.fail().await
    }
    async fn read_shared(&self) -> Result<SharedValues, StoreError> {
        self.fail().await
    }
    fn shared_version(&self) -> u64 {
        1
    }
}

#[tokio::test]
async fn without_a_store_the_request_goes_on() {
    for broken in [
        Broken::Down,
        Broken::Silent,
        Broken::Garbage,
        Broken::Elsewhere,
    ] {
        let mut sessions = over(Arc::new(broken));
        sessions.find_timeout = Duration::from_millis(5);
        let own = hint("x-plimsoll-session", &"0f".repeat(16));
        let tenant = tenant(&sessions, "a");
        for hint in [None, Some(&own)] {
            let inherited = sessions
                .inherit_session(&conversation(&turns(2)), &tenant, hint)
                .await;
            assert!(inherited.store_failed && inherited.state.is_none());
            let state = inherited.next_state();
            assert_eq!(state.health, HealthLevel::Unknown);
            assert!(
                !sessions
                    .save_state(&inherited.lineage, 1, &state, WITHIN)
                    .await
            );
            assert!(
                sessions
                    .add_command(None, inherited.session, SessionCommand::Clear)
                    .await
                    .is_err()
            );
        }
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whoever reads the log can mend it.
#[tokio::test]
async fn the_log_says_why_a_store_fails() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_writer(move || writer.clone());
    let _log = tracing::subscriber::set_default(log.with_ansi(false).finish());
    let sessions = over(Arc::new(Broken::Down));
    let tenant = tenant(&sessions, "a");
    let inherited = sessions
        .inherit_session(&conversation(&turns(2)), &tenant, None)
        .await;
    let state = inherited.next_state();
    assert!(
        !sessions
            .save_state(&inherited.lineage, 1, &state, WITHIN)
            .await
    );
    let said = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert_eq!(said.matches("disk is full").count(), 2, "{said}");
}
