//! What happens to sessions in this process, told to whoever listens through the API.
//!
//! Costs nothing where nobody listens. Listeners are bounded, all of them and those of one account;
//! one that does not keep up is told that it missed something, and holds nobody up.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::broadcast::{Receiver, Sender, error::RecvError};

use crate::http::limit::{Hold, Limit, LimitMap};
use crate::session::{self, Account, SessionId, SessionView};

/// Listeners at one time.
pub const MAX_LISTENERS: usize = 64;
/// Of one account; the administrator counts as one.
pub const MAX_LISTENERS_PER_ACCOUNT: usize = 16;
/// What a listener may fall behind.
const MAX_UNREAD_EVENTS: usize = 256;

/// Tells what happens.
#[derive(Debug)]
pub struct SessionEvents {
    sender: Sender<Arc<SessionChange>>,
    listeners: Arc<Limit>,
    by_account: LimitMap<Option<Account>>,
}

/// A session changed.
#[derive(Debug)]
pub struct SessionChange {
    pub account: Account,
    pub session: SessionId,
    /// What a list tells of it, as JSON.
    pub overview: Bytes,
}

/// One who listens, until this is dropped.
#[derive(Debug)]
pub struct SessionSubscription {
    receiver: Receiver<Arc<SessionChange>>,
    account: Option<Account>,
    _held: [Hold; 2],
}

/// What a listener hears.
#[derive(Debug)]
pub enum SessionEvent {
    Changed(Arc<SessionChange>),
    /// It fell behind, and something was not kept for it.
    Missed,
}

impl SessionChange {
    pub fn from_session(known: &SessionView) -> Self {
        let overview = session::build_overview(known);
        Self {
            account: known.account,
            session: known.state.session,
            overview: serde_json::to_vec(&overview).unwrap_or_default().into(),
        }
    }
}

impl SessionEvents {
    /// Whether anybody listens.
    pub fn has_listeners(&self) -> bool {
        self.listeners.amount_taken() > 0
    }

    /// A session is now known like this.
    pub fn publish_change(&self, known: &SessionView) {
        if self.has_listeners() {
            // It fails where nobody listens any more.
            let _ = self
                .sender
                .send(Arc::new(SessionChange::from_session(known)));
        }
    }

    /// Begins to listen for an account; `None`: for the administrator, who is told of all. `None` comes
    /// back where as many listen as may.
    pub fn subscribe(&self, account: Option<Account>) -> Option<SessionSubscription> {
        let own = self
            .by_account
            .get(account, MAX_LISTENERS_PER_ACCOUNT)
            .try_take_one()?;
        let one = self.listeners.try_take_one()?;
        Some(SessionSubscription {
            receiver: self.sender.subscribe(),
            account,
            _held: [own, one],
        })
    }
}

impl Default for SessionEvents {
    fn default() -> Self {
        Self {
            sender: Sender::new(MAX_UNREAD_EVENTS),
            listeners: Limit::new(MAX_LISTENERS),
            by_account: LimitMap::default(),
        }
    }
}

impl SessionSubscription {
    /// The next thing that this listener may hear. Never comes back where nothing happens.
    ///
    /// SECURITY: what happens to sessions of other accounts is passed over here, in one place.
    ///
    /// CANCEL: a dropped call loses nothing.
    pub async fn next_event(&mut self) -> SessionEvent {
        loop {
            match self.receiver.recv().await {
                Ok(told) if self.account.is_none_or(|own| own == told.account) => {
                    return SessionEvent::Changed(told);
                }
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return SessionEvent::Missed,
                // The sender lives as long as the proxy.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::session::{SessionCommands, SessionState};

    fn account(byte: u8) -> Account {
        Account::from_bytes([byte; 16])
    }

    fn known(of: Account, session: u8) -> SessionView {
        let state = SessionState::new(SessionId::from_bytes([session; 16]));
        SessionView::from_state(of, state, &SessionCommands::default())
    }

    fn heard(listening: &mut SessionSubscription) -> Option<String> {
        match listening.next_event().now_or_never()? {
            SessionEvent::Changed(told) => Some(told.session.to_string()[..2].to_owned()),
            SessionEvent::Missed => Some("missed".to_owned()),
        }
    }

    #[test]
    fn each_hears_of_its_own_and_the_administrator_of_all() {
        let news = SessionEvents::default();
        news.publish_change(&known(account(1), 9));
        let mut one = news.subscribe(Some(account(1))).unwrap();
        let mut other = news.subscribe(Some(account(2))).unwrap();
        let mut admin = news.subscribe(None).unwrap();
        news.publish_change(&known(account(1), 1));
        news.publish_change(&known(account(2), 2));
        assert_eq!(heard(&mut one).as_deref(), Some("01"));
        assert_eq!(heard(&mut one), None);
        assert_eq!(heard(&mut other).as_deref(), Some("02"));
        assert_eq!(heard(&mut other), None);
        assert_eq!(heard(&mut admin).as_deref(), Some("01"));
        assert_eq!(heard(&mut admin).as_deref(), Some("02"));
    }

    #[test]
    fn who_falls_behind_is_told_so() {
        let news = SessionEvents::default();
        let mut slow = news.subscribe(None).unwrap();
        for _ in 0..=MAX_UNREAD_EVENTS {
            news.publish_change(&known(account(1), 1));
        }
        assert_eq!(heard(&mut slow).as_deref(), Some("missed"));
        let rest = std::iter::from_fn(|| heard(&mut slow));
        assert_eq!(rest.filter(|one| one == "01").count(), MAX_UNREAD_EVENTS);
    }

    #[test]
    fn listeners_are_bounded_and_leave_room_behind() {
        let news = SessionEvents::default();
        assert!(!news.has_listeners());
        let own: Vec<_> = (0..MAX_LISTENERS_PER_ACCOUNT)
            .map(|_| news.subscribe(Some(account(1))).unwrap())
            .collect();
        assert!(news.subscribe(Some(account(1))).is_none());
        let others: Vec<_> = (0..MAX_LISTENERS - MAX_LISTENERS_PER_ACCOUNT)
            .map(|at| news.subscribe(Some(account(2 + at as u8))).unwrap())
            .collect();
        assert!(news.subscribe(None).is_none() && news.subscribe(Some(account(99))).is_none());
        drop(own);
        let again = news.subscribe(Some(account(1))).unwrap();
        assert!(news.has_listeners());
        drop((again, others));
        assert!(!news.has_listeners());
    }
}
