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
    health::Level,
    session::{Account, SessionId, State, Tenant, Wanted, tests::fixture::conversation},
    store::{Found, Key, Page, Row, Saved, Shared, Store, StoreError},
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
    async fn find(&self, _: &Tenant, _: u64, _: &[Key]) -> Result<Option<Found>, StoreError> {
        match self {
            Self::Garbage => Ok(Some(Found {
                at: 0,
                state: Bytes::from_static(b"\x01garbage"),
                orders: Bytes::new(),
            })),
            Self::Elsewhere => Ok(Some(Found {
                at: 1_000,
                state: State::new(SessionId::from_bytes([1; 16]))
                    .encode()
                    .unwrap()
                    .bytes
                    .into(),
                orders: Bytes::new(),
            })),
            _ => self.fail().await,
        }
    }
    async fn save(&self, _: Saved) -> Result<(), StoreError> {
        self.fail().await
    }
    async fn session(&self, _: Option<&Account>, _: SessionId) -> Result<Option<Row>, StoreError> {
        self.fail().await
    }
    async fn order(&self, _: Option<&Account>, _: SessionId, _: Bytes) -> Result<bool, StoreError> {
        self.fail().await
    }
    async fn sessions(&self, _: Option<&Account>, _: Page) -> Result<Vec<Row>, StoreError> {
        self.fail().await
    }
    async fn share(&self, _: &[u8], _: Bytes) -> Result<(), StoreError> {
        self.fail().await
    }
    async fn shared(&self) -> Result<Shared, StoreError> {
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
        sessions.find_within = Duration::from_millis(5);
        let own = hint("x-plimsoll-session", &"0f".repeat(16));
        let tenant = tenant(&sessions, "a");
        for hint in [None, Some(&own)] {
            let inherited = sessions.find(&conversation(&turns(2)), &tenant, hint).await;
            assert!(inherited.lost && inherited.state.is_none());
            let state = inherited.successor();
            assert_eq!(state.health, Level::Unknown);
            assert!(!sessions.save(&inherited.lineage, 1, &state, WITHIN).await);
            assert!(
                sessions
                    .order(None, inherited.session, Wanted::Clear)
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
    let inherited = sessions.find(&conversation(&turns(2)), &tenant, None).await;
    let state = inherited.successor();
    assert!(!sessions.save(&inherited.lineage, 1, &state, WITHIN).await);
    let said = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert_eq!(said.matches("disk is full").count(), 2, "{said}");
}
