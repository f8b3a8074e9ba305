//! What happens to sessions in this process, told to whoever listens through the API.
//!
//! Costs nothing where nobody listens. Listeners are bounded, all of them and those of one account;
//! one that does not keep up is told that it missed something, and holds nobody up.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::broadcast::{Receiver, Sender, error::RecvError};

use crate::http::limit::{Hold, Limit, LimitMap};
use crate::session::{self, Account, Known, SessionId};

/// Listeners at one time.
pub const MAX_LISTENERS: usize = 64;
/// Of one account; the administrator counts as one.
pub const MAX_OF_ONE: usize = 16;
/// What a listener may fall behind.
const BEHIND: usize = 256;

/// Tells what happens.
#[derive(Debug)]
pub struct News {
    sender: Sender<Arc<Told>>,
    listeners: Arc<Limit>,
    by_account: LimitMap<Option<Account>>,
}

/// A session changed.
#[derive(Debug)]
pub struct Told {
    pub account: Account,
    pub session: SessionId,
    /// What a list tells of it, as JSON.
    pub overview: Bytes,
}

/// One who listens, until this is dropped.
#[derive(Debug)]
pub struct Listening {
    receiver: Receiver<Arc<Told>>,
    account: Option<Account>,
    _held: [Hold; 2],
}

/// What a listener hears.
#[derive(Debug)]
pub enum Heard {
    Told(Arc<Told>),
    /// It fell behind, and something was not kept for it.
    Missed,
}

impl Told {
    pub fn of(known: &Known) -> Self {
        let overview = session::overview(known);
        Self {
            account: known.account,
            session: known.state.session,
            overview: serde_json::to_vec(&overview).unwrap_or_default().into(),
        }
    }
}

impl News {
    /// Whether anybody listens.
    pub fn are_heard(&self) -> bool {
        self.listeners.taken() > 0
    }

    /// A session is now known like this.
    pub fn tell(&self, known: &Known) {
        if self.are_heard() {
            // It fails where nobody listens any more.
            let _ = self.sender.send(Arc::new(Told::of(known)));
        }
    }

    /// Begins to listen for an account; `None`: for the administrator, who is told of all. `None` comes
    /// back where as many listen as may.
    pub fn listen(&self, account: Option<Account>) -> Option<Listening> {
        let own = self.by_account.get(account, MAX_OF_ONE).try_take()?;
        let one = self.listeners.try_take()?;
        Some(Listening {
            receiver: self.sender.subscribe(),
            account,
            _held: [own, one],
        })
    }
}

impl Default for News {
    fn default() -> Self {
        Self {
            sender: Sender::new(BEHIND),
            listeners: Limit::new(MAX_LISTENERS),
            by_account: LimitMap::default(),
        }
    }
}

impl Listening {
    /// The next thing that this listener may hear. Never comes back where nothing happens.
    ///
    /// SECURITY: what happens to sessions of other accounts is passed over here, in one place.
    ///
    /// CANCEL: a dropped call loses nothing.
    pub async fn next(&mut self) -> Heard {
        loop {
            match self.receiver.recv().await {
                Ok(told) if self.account.is_none_or(|own| own == told.account) => {
                    return Heard::Told(told);
                }
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return Heard::Missed,
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
    use crate::session::{Orders, State};

    fn account(byte: u8) -> Account {
        Account::from_bytes([byte; 16])
    }

    fn known(of: Account, session: u8) -> Known {
        let state = State::new(SessionId::from_bytes([session; 16]));
        Known::after(of, state, &Orders::default())
    }

    fn heard(listening: &mut Listening) -> Option<String> {
        match listening.next().now_or_never()? {
            Heard::Told(told) => Some(told.session.to_string()[..2].to_owned()),
            Heard::Missed => Some("missed".to_owned()),
        }
    }

    #[test]
    fn each_hears_of_its_own_and_the_administrator_of_all() {
        let news = News::default();
        news.tell(&known(account(1), 9));
        let mut one = news.listen(Some(account(1))).unwrap();
        let mut other = news.listen(Some(account(2))).unwrap();
        let mut admin = news.listen(None).unwrap();
        news.tell(&known(account(1), 1));
        news.tell(&known(account(2), 2));
        assert_eq!(heard(&mut one).as_deref(), Some("01"));
        assert_eq!(heard(&mut one), None);
        assert_eq!(heard(&mut other).as_deref(), Some("02"));
        assert_eq!(heard(&mut other), None);
        assert_eq!(heard(&mut admin).as_deref(), Some("01"));
        assert_eq!(heard(&mut admin).as_deref(), Some("02"));
    }

    #[test]
    fn who_falls_behind_is_told_so() {
        let news = News::default();
        let mut slow = news.listen(None).unwrap();
        for _ in 0..=BEHIND {
            news.tell(&known(account(1), 1));
        }
        assert_eq!(heard(&mut slow).as_deref(), Some("missed"));
        let rest = std::iter::from_fn(|| heard(&mut slow));
        assert_eq!(rest.filter(|one| one == "01").count(), BEHIND);
    }

    #[test]
    fn listeners_are_bounded_and_leave_room_behind() {
        let news = News::default();
        assert!(!news.are_heard());
        let own: Vec<_> = (0..MAX_OF_ONE)
            .map(|_| news.listen(Some(account(1))).unwrap())
            .collect();
        assert!(news.listen(Some(account(1))).is_none());
        let others: Vec<_> = (0..MAX_LISTENERS - MAX_OF_ONE)
            .map(|at| news.listen(Some(account(2 + at as u8))).unwrap())
            .collect();
        assert!(news.listen(None).is_none() && news.listen(Some(account(99))).is_none());
        drop(own);
        let again = news.listen(Some(account(1))).unwrap();
        assert!(news.are_heard());
        drop((again, others));
        assert!(!news.are_heard());
    }
}
