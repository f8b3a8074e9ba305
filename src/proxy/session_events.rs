//! Changes of sessions in this process, published to listeners of the API.
//!
//! Without listeners, publishing costs nothing. The number of listeners is bounded, in all and for each account. A listener
//! that falls behind gets an event that it missed something, and blocks no other listener.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::broadcast::{Receiver, Sender, error::RecvError};

use crate::{
    http::limit::{Hold, Limit, LimitMap},
    session::{self, Account, ReportReader, SessionId, SessionView},
};

pub const MAX_LISTENERS: usize = 64;
/// The administrator counts as an account.
pub const MAX_LISTENERS_PER_ACCOUNT: usize = 16;
/// Events by which a listener may fall behind.
const MAX_UNREAD_EVENTS: usize = 256;

/// Publishes changes of sessions.
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
    /// Its entry in the list of sessions, as JSON, without its title.
    bare: Bytes,
    with_title: Bytes,
}

/// The subscription of a listener. It ends when this is dropped.
#[derive(Debug)]
pub struct SessionSubscription {
    receiver: Receiver<Arc<SessionChange>>,
    account: Option<Account>,
    _holds: [Hold; 2],
}

#[derive(Debug)]
pub enum SessionEvent {
    Changed(Arc<SessionChange>),
    /// The listener fell behind, and events were dropped.
    Missed,
}

impl SessionChange {
    pub fn from_session(view: &SessionView) -> Self {
        let write = |reader| {
            let overview = session::build_overview(view, reader);
            serde_json::to_vec(&overview).unwrap_or_default().into()
        };
        Self {
            account: view.account,
            session: view.state.session,
            bare: write(ReportReader::Local),
            with_title: write(ReportReader::Owner),
        }
    }

    /// Returns the session's entry in the list of sessions, as that reader sees it.
    pub const fn overview_for(&self, reader: ReportReader) -> &Bytes {
        if reader.sees_titles() {
            &self.with_title
        } else {
            &self.bare
        }
    }
}

impl SessionEvents {
    pub fn has_listeners(&self) -> bool {
        self.listeners.amount_taken() > 0
    }

    pub fn publish_change(&self, view: &SessionView) {
        if self.has_listeners() {
            // Sending fails if the last listener has just gone.
            let change = Arc::new(SessionChange::from_session(view));
            let _ = self.sender.send(change);
        }
    }

    /// Subscribes to the changes of an account, or to all of them for the administrator (`account` is `None`).
    /// Returns `None` if there are as many listeners as may be.
    pub fn subscribe(&self, account: Option<Account>) -> Option<SessionSubscription> {
        let of_account = self.by_account.get(account, MAX_LISTENERS_PER_ACCOUNT);
        let holds = [of_account.try_take_one()?, self.listeners.try_take_one()?];
        Some(SessionSubscription {
            receiver: self.sender.subscribe(),
            account,
            _holds: holds,
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
    /// Waits for the next event that this listener may see.
    ///
    /// SECURITY: changes of other accounts' sessions are filtered here, in one place.
    ///
    /// CANCEL: a dropped call loses nothing.
    pub async fn next_event(&mut self) -> SessionEvent {
        loop {
            match self.receiver.recv().await {
                Ok(change) if self.account.is_none_or(|account| account == change.account) => {
                    return SessionEvent::Changed(change);
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

    fn view(account: Account, session: u8) -> SessionView {
        let state = SessionState::new(SessionId::from_bytes([session; 16]));
        SessionView::from_state(account, state, &SessionCommands::default())
    }

    fn next(listener: &mut SessionSubscription) -> Option<String> {
        match listener.next_event().now_or_never()? {
            SessionEvent::Changed(change) => Some(change.session.to_string()[..2].to_owned()),
            SessionEvent::Missed => Some("missed".to_owned()),
        }
    }

    #[test]
    fn a_listener_sees_its_account_and_the_administrator_sees_all() {
        let events = SessionEvents::default();
        events.publish_change(&view(account(1), 9));
        let mut first = events.subscribe(Some(account(1))).unwrap();
        let mut second = events.subscribe(Some(account(2))).unwrap();
        let mut admin = events.subscribe(None).unwrap();
        events.publish_change(&view(account(1), 1));
        events.publish_change(&view(account(2), 2));
        assert_eq!(next(&mut first).as_deref(), Some("01"));
        assert_eq!(next(&mut first), None);
        assert_eq!(next(&mut second).as_deref(), Some("02"));
        assert_eq!(next(&mut second), None);
        assert_eq!(next(&mut admin).as_deref(), Some("01"));
        assert_eq!(next(&mut admin).as_deref(), Some("02"));
    }

    #[test]
    fn a_change_has_texts_for_those_who_see_them() {
        let mut view = view(account(1), 1);
        view.name.task = Some("Mend the mast".into());
        let change = SessionChange::from_session(&view);
        let has_task = |reader| {
            let overview: serde_json::Value =
                serde_json::from_slice(change.overview_for(reader)).unwrap();
            overview["task"] == "Mend the mast"
        };
        let admin = |show_content| ReportReader::Admin { show_content };
        assert!(has_task(ReportReader::Owner) && has_task(admin(true)));
        assert!(!has_task(ReportReader::Local) && !has_task(admin(false)));
    }

    #[test]
    fn a_slow_listener_learns_that_it_missed_events() {
        let events = SessionEvents::default();
        let mut slow = events.subscribe(None).unwrap();
        for _ in 0..=MAX_UNREAD_EVENTS {
            events.publish_change(&view(account(1), 1));
        }
        assert_eq!(next(&mut slow).as_deref(), Some("missed"));
        let rest = std::iter::from_fn(|| next(&mut slow));
        assert_eq!(rest.filter(|id| id == "01").count(), MAX_UNREAD_EVENTS);
    }

    #[test]
    fn listeners_are_bounded_and_return_their_room() {
        let events = SessionEvents::default();
        assert!(!events.has_listeners());
        let of_one_account: Vec<_> = (0..MAX_LISTENERS_PER_ACCOUNT)
            .map(|_| events.subscribe(Some(account(1))).unwrap())
            .collect();
        assert!(events.subscribe(Some(account(1))).is_none());
        let others: Vec<_> = (0..MAX_LISTENERS - MAX_LISTENERS_PER_ACCOUNT)
            .map(|at| events.subscribe(Some(account(2 + at as u8))).unwrap())
            .collect();
        assert!(events.subscribe(None).is_none() && events.subscribe(Some(account(99))).is_none());
        drop(of_one_account);
        let again = events.subscribe(Some(account(1))).unwrap();
        assert!(events.has_listeners());
        drop((again, others));
        assert!(!events.has_listeners());
    }
}
