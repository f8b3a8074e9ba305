//! What the API may know of a session, and ask of it.
//!
//! SECURITY: both are scoped to an account; no other one can tell that a session is there.

use super::{
    Account, SessionCommands, SessionError, SessionId, SessionState, Sessions,
    state_cipher::SealedSubject,
};
use crate::{
    compaction::JobOutcome,
    error::format_error_chain,
    store::{Page, SessionRow, StoreError},
    telemetry::metrics::StoreOperation,
};

/// What is known of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionView {
    /// Whose it is.
    pub account: Account,
    /// After its newest generation.
    pub state: SessionState,
    /// A new course was asked for from outside, and has not begun.
    pub clear_pending: bool,
    /// A summary was asked for from outside, and has not been begun.
    pub compact_pending: bool,
    /// Whether the session is summarised by itself; `None`: as the settings say.
    pub auto_compact: Option<bool>,
}

/// Sessions of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionViewPage {
    /// Newest first. One whose state cannot be read is left out: another key was in force, or another
    /// version wrote it.
    pub sessions: Vec<SessionView>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

/// What may be asked of a session from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    /// A new course.
    Clear,
    /// A summary of its older part.
    Compact,
    AutoCompact(Option<bool>),
}

impl Sessions {
    /// The row is the session's own: a state put in the place of another's is damage.
    pub(super) fn view_row(&self, row: &SessionRow) -> Result<SessionView, SessionError> {
        let state = self.decode_state(&row.tenant, &row.state)?;
        if state.session != row.session {
            return Err(StoreError::Damaged.into());
        }
        let orders = self.decode_commands(&row.tenant, state.session, &row.commands);
        Ok(SessionView::from_state(
            row.tenant.account(),
            state,
            &orders,
        ))
    }

    /// The newest state of a session of that account, or of any (for the administrator).
    ///
    /// # Errors
    /// Where the store does not answer, or not with a state.
    pub async fn view_session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<SessionView>, SessionError> {
        let row = self.store.load_session(account, id);
        let row = self.call_store(StoreOperation::Session, row).await?;
        row.map(|row| self.view_row(&row)).transpose()
    }

    /// Sessions of that account, or of all (for the administrator), newest first.
    ///
    /// # Errors
    /// Where the store does not answer.
    pub async fn list_sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<SessionViewPage, SessionError> {
        let rows = |page| {
            self.call_store(
                StoreOperation::Session,
                self.store.list_sessions(account, page),
            )
        };
        let behind = Page {
            skip: page.skip.saturating_add(page.take),
            take: 1,
        };
        let found = rows(page).await?;
        let more = !found.is_empty() && !rows(behind).await?.is_empty();
        let known = found.iter().filter_map(|row| {
            let known = self.view_row(row);
            known
                .inspect_err(|error| {
                    tracing::debug!(
                        session = %row.session, error = format_error_chain(error),
                        "a session is left out of a list: its state cannot be read"
                    );
                })
                .ok()
        });
        Ok(SessionViewPage {
            sessions: known.collect(),
            has_more: more,
        })
    }

    /// How many sessions other accounts have than this one. Of them nothing else is told.
    ///
    /// # Errors
    /// Where the store does not answer.
    pub async fn count_others(&self, own: &Account) -> Result<u64, SessionError> {
        let count = |account| {
            let counted = self.store.count_sessions(account);
            self.call_store(StoreOperation::Session, counted)
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
    pub async fn add_command(
        &self,
        account: Option<&Account>,
        id: SessionId,
        wanted: SessionCommand,
    ) -> Result<Option<SessionView>, SessionError> {
        let change = |orders: &mut SessionCommands, state: &SessionState| match wanted {
            SessionCommand::Clear => orders.request_clear(state),
            SessionCommand::Compact => orders.request_summary(state),
            SessionCommand::AutoCompact(auto) => orders.auto_compact = auto,
        };
        self.change_commands(account, id, change).await
    }

    /// Leaves beside a session what became of a summary; gives back what is known of the session then,
    /// where it is there.
    ///
    /// # Errors
    /// Where the store does not answer, or not with a state.
    pub async fn store_summary_outcome(
        &self,
        account: &Account,
        id: SessionId,
        outcome: JobOutcome,
    ) -> Result<Option<SessionView>, SessionError> {
        let change = |orders: &mut SessionCommands, _: &SessionState| orders.keep_outcome(outcome);
        self.change_commands(Some(account), id, change).await
    }

    async fn change_commands(
        &self,
        account: Option<&Account>,
        id: SessionId,
        change: impl FnOnce(&mut SessionCommands, &SessionState),
    ) -> Result<Option<SessionView>, SessionError> {
        let _one = self.command_lock.lock().await;
        let row = self.store.load_session(account, id);
        let Some(row) = self.call_store(StoreOperation::Session, row).await? else {
            return Ok(None);
        };
        let known = self.view_row(&row)?;
        let mut orders = self.decode_commands(&row.tenant, id, &row.commands);
        change(&mut orders, &known.state);
        let encoded = self
            .cipher
            .encrypt_bytes(SealedSubject::Commands(&row.tenant, id), orders.to_bytes()?)?;
        let ordered = self.store.put_commands(account, id, encoded);
        let there = self.call_store(StoreOperation::Order, ordered).await?;
        let account = row.tenant.account();
        Ok(there.then(|| SessionView::from_state(account, known.state, &orders)))
    }
}

impl SessionView {
    /// What is known of a session with this state, and with these orders beside it.
    pub fn from_state(account: Account, mut state: SessionState, orders: &SessionCommands) -> Self {
        let generations = state.generations;
        state.compaction.take_over(orders.outcomes(), generations);
        Self {
            account,
            clear_pending: orders.is_clear_pending(&state),
            compact_pending: orders.is_summary_pending(&state),
            auto_compact: orders.auto_compact,
            state,
        }
    }
}
