//! What the API may know of a session, and ask of it.
//!
//! SECURITY: both are scoped to an account; no other one can tell that a session is there.

use super::{Account, Orders, SessionError, SessionId, Sessions, State, seal::Of};
use crate::{
    compaction::Outcome,
    error::chain,
    store::{Page, Row, StoreError},
    telemetry::metrics::StoreOperation,
};

/// What is known of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Whose it is.
    pub account: Account,
    /// After its newest generation.
    pub state: State,
    /// A new course was asked for from outside, and has not begun.
    pub clear_pending: bool,
    /// A summary was asked for from outside, and has not been begun.
    pub compact_pending: bool,
    /// Whether the session is summarised by itself; `None`: as the settings say.
    pub auto_compact: Option<bool>,
}

/// Sessions of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Newest first. One whose state cannot be read is left out: another key was in force, or another
    /// version wrote it.
    pub known: Vec<Known>,
    /// Whether there are more behind them.
    pub more: bool,
}

/// What may be asked of a session from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A new course.
    Clear,
    /// A summary of its older part.
    Compact,
    AutoCompact(Option<bool>),
}

impl Sessions {
    /// The row is the session's own: a state put in the place of another's is damage.
    pub(super) fn known(&self, row: &Row) -> Result<Known, SessionError> {
        let state = self.opened(&row.tenant, &row.state)?;
        if state.session != row.session {
            return Err(StoreError::Damaged.into());
        }
        let orders = self.readable(&row.tenant, state.session, &row.orders);
        Ok(Known::after(row.tenant.account(), state, &orders))
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
        let row = self.store.session(account, id);
        let row = self.ask(StoreOperation::Session, row).await?;
        row.map(|row| self.known(&row)).transpose()
    }

    /// Sessions of that account, or of all (for the administrator), newest first.
    ///
    /// # Errors
    /// Where the store does not answer.
    pub async fn list(&self, account: Option<&Account>, page: Page) -> Result<Found, SessionError> {
        let rows = |page| self.ask(StoreOperation::Session, self.store.sessions(account, page));
        let behind = Page {
            skip: page.skip.saturating_add(page.take),
            take: 1,
        };
        let found = rows(page).await?;
        let more = !found.is_empty() && !rows(behind).await?.is_empty();
        let known = found.iter().filter_map(|row| {
            let known = self.known(row);
            known
                .inspect_err(|error| {
                    tracing::debug!(
                        session = %row.session, error = chain(error),
                        "a session is left out of a list: its state cannot be read"
                    );
                })
                .ok()
        });
        Ok(Found {
            known: known.collect(),
            more,
        })
    }

    /// How many sessions other accounts have than this one. Of them nothing else is told.
    ///
    /// # Errors
    /// Where the store does not answer.
    pub async fn count_others(&self, own: &Account) -> Result<u64, SessionError> {
        let count = |account| {
            let counted = self.store.count(account);
            self.ask(StoreOperation::Session, counted)
        };
        let all = count(None).await?;
        Ok(all.saturating_sub(count(Some(own)).await?))
    }

    /// Asks something of a session, for what goes on from its newest generation; gives back what is
    /// known of the session then. Asking twice before it was carried out is asking once.
    ///
    /// SECURITY: scoped to the account as reading is; a new course and a summary also to one
    /// conversation of those that a hint may have grouped in the session.
    ///
    /// # Errors
    /// Where the store does not answer, or not with a state.
    pub async fn order(
        &self,
        account: Option<&Account>,
        id: SessionId,
        wanted: Wanted,
    ) -> Result<Option<Known>, SessionError> {
        let change = |orders: &mut Orders, state: &State| match wanted {
            Wanted::Clear => orders.clear(state),
            Wanted::Compact => orders.compact(state),
            Wanted::AutoCompact(auto) => orders.auto_compact = auto,
        };
        self.change(account, id, change).await
    }

    /// Leaves beside a session what became of a summary; gives back what is known of the session then,
    /// where it is there.
    ///
    /// # Errors
    /// Where the store does not answer, or not with a state.
    pub async fn conclude(
        &self,
        account: &Account,
        id: SessionId,
        outcome: Outcome,
    ) -> Result<Option<Known>, SessionError> {
        let change = |orders: &mut Orders, _: &State| orders.keep(outcome);
        self.change(Some(account), id, change).await
    }

    async fn change(
        &self,
        account: Option<&Account>,
        id: SessionId,
        change: impl FnOnce(&mut Orders, &State),
    ) -> Result<Option<Known>, SessionError> {
        let _one = self.ordering.lock().await;
        let row = self.store.session(account, id);
        let Some(row) = self.ask(StoreOperation::Session, row).await? else {
            return Ok(None);
        };
        let known = self.known(&row)?;
        let mut orders = self.readable(&row.tenant, id, &row.orders);
        change(&mut orders, &known.state);
        let encoded = self
            .seal
            .seal(Of::Orders(&row.tenant, id), orders.encode()?)?;
        let ordered = self.store.order(account, id, encoded);
        let there = self.ask(StoreOperation::Order, ordered).await?;
        let account = row.tenant.account();
        Ok(there.then(|| Known::after(account, known.state, &orders)))
    }
}

impl Known {
    /// What is known of a session with this state, and with these orders beside it.
    pub fn after(account: Account, mut state: State, orders: &Orders) -> Self {
        let generations = state.generations;
        state.compaction.take_over(orders.outcomes(), generations);
        Self {
            account,
            clear_pending: orders.ask_clear_after(&state),
            compact_pending: orders.ask_compact_after(&state),
            auto_compact: orders.auto_compact,
            state,
        }
    }
}
