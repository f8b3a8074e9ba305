//! Stores that fail.

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use tracing::Level;

use super::{find, hints::hint, save, sessions_in, tenant, turns};
use crate::{
    health::HealthLevel,
    session::{
        Account, SessionCommand, SessionId, SessionState, Tenant,
        tests::fixture::{assistant, conversation},
    },
    store::{FoundState, Page, SessionRow, SharedValues, StateKey, StateToSave, Store, StoreError},
    support::log::ThreadLog,
};

/// A store that is down, never answers, or answers with something else.
#[derive(Clone, Copy)]
enum Broken {
    Down,
    Silent,
    Garbage,
    /// Returns a key that was not probed.
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
    async fn count_sessions(&self, _: Option<&Account>) -> Result<u64, StoreError> {
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
async fn a_request_continues_if_the_store_fails() {
    for broken in [
        Broken::Down,
        Broken::Silent,
        Broken::Garbage,
        Broken::Elsewhere,
    ] {
        let mut sessions = sessions_in(Arc::new(broken));
        sessions.find_timeout = Duration::from_millis(5);
        let named = hint("x-plimsoll-session", &"0f".repeat(16));
        let tenant = tenant(&sessions, "a");
        let conversation = conversation(&turns(2));
        for hint in [None, Some(&named)] {
            let inherited = sessions.inherit_session(&conversation, &tenant, hint).await;
            assert!(inherited.store_failed && inherited.state.is_none());
            let state = inherited.begin_generation();
            assert_eq!(state.health, HealthLevel::Unknown);
            assert!(!save(&sessions, &inherited, &state, &assistant("a")).await);
            let clear = sessions.add_command(None, inherited.session, SessionCommand::Clear);
            assert!(clear.await.is_err());
        }
    }
}

#[tokio::test]
async fn the_log_says_why_a_store_fails() {
    let log = ThreadLog::begin(Level::WARN);
    let sessions = sessions_in(Arc::new(Broken::Down));
    let inherited = find(&sessions, &turns(2)).await;
    let state = inherited.begin_generation();
    assert!(!save(&sessions, &inherited, &state, &assistant("a")).await);
    let log = log.text();
    assert_eq!(log.matches("disk is full").count(), 2, "{log}");
}
