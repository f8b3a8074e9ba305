//! What the API may know of a session, and ask of it.
//!
//! SECURITY: both are scoped to an account; no other one can tell that a session is there.

use bytes::Bytes;

use super::{Account, Orders, SessionError, SessionId, Sessions, State, bounded};
use crate::store::Row;

/// What is known of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// After its newest generation.
    pub state: State,
    /// A new course was asked for from outside, and has not begun.
    pub clear_pending: bool,
}

impl Known {
    fn read(row: &Row) -> Result<Self, SessionError> {
        let state = State::decode(&row.state)?;
        let orders = readable(&row.orders, state.session);
        Ok(Self {
            clear_pending: orders.ask_clear_after(&state),
            state,
        })
    }
}

impl Sessions {
    /// The newest state of a session of that account, or of any (for the administrator).
    ///
    /// # Errors
    /// Where the store does not answer, or not with a state.
    pub async fn session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<Known>, SessionError> {
        let row = bounded(self.find_within, self.store.session(account, id)).await?;
        row.map(|row| Known::read(&row)).transpose()
    }

    /// Asks for a new course with the next request that goes on from the session's newest
    /// generation; gives back what is known of the session then. Asking twice before that request
    /// is asking once.
    ///
    /// SECURITY: scoped to the account as reading is, and to one conversation of those that a hint
    /// may have grouped in the session.
    ///
    /// # Errors
    /// Where the store does not answer, or not with a state.
    pub async fn clear(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<Known>, SessionError> {
        let Some(known) = self.session(account, id).await? else {
            return Ok(None);
        };
        let orders = Bytes::from(Orders::clear(&known.state).encode()?);
        let ordered = self.store.order(account, id, orders);
        let there = bounded(self.find_within, ordered).await?;
        Ok(there.then_some(Known {
            clear_pending: true,
            ..known
        }))
    }
}

/// Orders that cannot be read are none: a state is worth more than a wish.
pub(super) fn readable(bytes: &[u8], session: SessionId) -> Orders {
    Orders::decode(bytes).unwrap_or_else(|error| {
        tracing::warn!(%session, error = %error, "orders of a session could not be read");
        Orders::default()
    })
}
