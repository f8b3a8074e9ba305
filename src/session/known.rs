//! What the API may know of a session, and ask of it.
//!
//! SECURITY: both are scoped to an account; no other one can tell that a session is there.

use super::{Account, Orders, SessionError, SessionId, Sessions, State, seal::Of};
use crate::{
    store::{Row, StoreError},
    telemetry::metrics::StoreOperation,
};

/// What is known of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// After its newest generation.
    pub state: State,
    /// A new course was asked for from outside, and has not begun.
    pub clear_pending: bool,
}

impl Sessions {
    /// The row is the session's own: a state put in the place of another's is damage.
    pub(super) fn known(&self, row: &Row) -> Result<Known, SessionError> {
        let state = self.opened(&row.tenant, &row.state)?;
        if state.session != row.session {
            return Err(StoreError::Damaged.into());
        }
        let orders = self.readable(&row.tenant, state.session, &row.orders);
        Ok(Known {
            clear_pending: orders.ask_clear_after(&state),
            state,
        })
    }

    async fn row(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<Row>, StoreError> {
        let row = self.store.session(account, id);
        self.bounded(StoreOperation::Session, self.find_within, row)
            .await
    }

    /// The newest state of a session of that account, or of any (for the administrator).
    ///
    /// # Errors
    /// Where the store does not answer, or not with a state.
    pub async fn session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<Known>, SessionError> {
        let row = self.row(account, id).await?;
        row.map(|row| self.known(&row)).transpose()
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
        let Some(row) = self.row(account, id).await? else {
            return Ok(None);
        };
        let known = self.known(&row)?;
        let orders = Orders::clear(&known.state).encode()?;
        let orders = self.seal.seal(Of::Orders(&row.tenant, id), orders)?;
        let ordered = self.store.order(account, id, orders);
        let ordered = self.bounded(StoreOperation::Order, self.find_within, ordered);
        Ok(ordered.await?.then_some(Known {
            clear_pending: true,
            ..known
        }))
    }
}
