//! What the API reads of a session, and the commands it gives.
//!
//! SECURITY: both are scoped to an account; no other account can tell that the session exists.

use std::sync::Arc;

use super::{
    Account, ClientIdentity, SessionCommands, SessionError, SessionId, SessionName, SessionState,
    Sessions, state_cipher::SealedSubject,
};
use crate::{
    compaction::JobOutcome,
    error::format_error_chain,
    store::{Page, SessionRow, StoreError},
    telemetry::metrics::StoreOperation,
};

/// A session as the API sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionView {
    pub account: Account,
    /// Whose it is: the client's name, else a short keyed digest of its key.
    pub client: Box<str>,
    pub name: SessionName,
    /// After its newest generation.
    pub state: SessionState,
    /// A commanded course has not begun.
    pub clear_pending: bool,
    /// A commanded summary has not begun.
    pub compact_pending: bool,
    /// Whether the session is compacted automatically; `None` follows the settings.
    pub auto_compact: Option<bool>,
}

/// A page of a list of sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionViewPage {
    /// Newest first. Unreadable sessions are left out: another key encrypted them, or another version wrote them.
    pub sessions: Vec<SessionView>,
    pub has_more: bool,
}

/// A command of the API to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    /// Begin a new course.
    Clear,
    /// Summarise the older part.
    Compact,
    AutoCompact(Option<bool>),
}

impl Sessions {
    /// The same sessions; their views show clients with these names under `[clients]` by name.
    #[must_use]
    pub fn with_clients<'a>(&self, names: impl Iterator<Item = &'a String>) -> Self {
        let named = names.map(|name| {
            let account = self.tenants.derive_account(ClientIdentity::Named(name));
            (account, name.as_str().into())
        });
        Self {
            client_names: Arc::new(named.collect()),
            ..self.clone()
        }
    }

    /// Who owns the sessions of an account: the client's name, else a short keyed digest.
    fn label_client(&self, account: &Account) -> Box<str> {
        let name = self.client_names.get(account).cloned();
        name.unwrap_or_else(|| self.tenants.label_account(account).into())
    }

    /// A view of a state and its commands, with the session's name.
    pub fn view_state(
        &self,
        account: Account,
        state: SessionState,
        commands: &SessionCommands,
    ) -> SessionView {
        SessionView {
            client: self.label_client(&account),
            name: self.names.find_name(state.session),
            ..SessionView::from_state(account, state, commands)
        }
    }

    /// Decodes a row. A row with the state of another session is an error.
    pub(super) fn view_row(&self, row: &SessionRow) -> Result<SessionView, SessionError> {
        let state = self.decode_state(&row.tenant, &row.state)?;
        if state.session != row.session {
            return Err(StoreError::Damaged.into());
        }
        let commands = self.decode_commands(&row.tenant, state.session, &row.commands)?;
        let account = row.tenant.account();
        Ok(self.view_state(account, state, &commands))
    }

    /// The newest state of a session of that account, or of any (for the administrator).
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
    pub async fn list_sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<SessionViewPage, SessionError> {
        let list_page = |page| {
            let rows = self.store.list_sessions(account, page);
            self.call_store(StoreOperation::Session, rows)
        };
        let following = Page {
            skip: page.skip.saturating_add(page.take),
            take: 1,
        };
        let rows = list_page(page).await?;
        let has_more = !rows.is_empty() && !list_page(following).await?.is_empty();
        let log_unreadable = |row: &SessionRow, error: &SessionError| {
            tracing::debug!(
                session = %row.session, error = format_error_chain(error),
                "session is left out of a list: its state cannot be read"
            );
        };
        let sessions = rows.iter().filter_map(|row| {
            let view = self.view_row(row);
            view.inspect_err(|error| log_unreadable(row, error)).ok()
        });
        Ok(SessionViewPage {
            sessions: sessions.collect(),
            has_more,
        })
    }

    /// Number of sessions of all other accounts.
    pub async fn count_others(&self, account: &Account) -> Result<u64, SessionError> {
        let count = |account| {
            let counted = self.store.count_sessions(account);
            self.call_store(StoreOperation::Session, counted)
        };
        let all = count(None).await?;
        Ok(all.saturating_sub(count(Some(account)).await?))
    }

    /// Stores a command for the requests that continue the session's newest generation. Returns the new view, if the
    /// session exists. Several commands before such a request count as one.
    ///
    /// SECURITY: scoped to the account as reading is. If a hint groups several conversations in the session, a new
    /// course or a summary reaches only one of them.
    pub async fn add_command(
        &self,
        account: Option<&Account>,
        id: SessionId,
        command: SessionCommand,
    ) -> Result<Option<SessionView>, SessionError> {
        let change = |commands: &mut SessionCommands, state: &SessionState| match command {
            SessionCommand::Clear => commands.request_clear(state),
            SessionCommand::Compact => commands.request_summary(state),
            SessionCommand::AutoCompact(auto) => commands.auto_compact = auto,
        };
        self.change_commands(account, id, change).await
    }

    /// Stores the outcome of a summary with a session. Returns the new view, if the session exists.
    pub async fn store_summary_outcome(
        &self,
        account: &Account,
        id: SessionId,
        outcome: JobOutcome,
    ) -> Result<Option<SessionView>, SessionError> {
        let change = |commands: &mut SessionCommands, _: &_| commands.keep_outcome(outcome);
        self.change_commands(Some(account), id, change).await
    }

    async fn change_commands(
        &self,
        account: Option<&Account>,
        id: SessionId,
        change: impl FnOnce(&mut SessionCommands, &SessionState),
    ) -> Result<Option<SessionView>, SessionError> {
        let _guard = self.command_lock.lock().await;
        let row = self.store.load_session(account, id);
        let Some(row) = self.call_store(StoreOperation::Session, row).await? else {
            return Ok(None);
        };
        let view = self.view_row(&row)?;
        let mut commands = self.decode_commands(&row.tenant, id, &row.commands)?;
        change(&mut commands, &view.state);
        let subject = SealedSubject::Commands(&row.tenant, id);
        let encrypted = self.cipher.encrypt_bytes(subject, commands.to_bytes()?)?;
        let stored = self.store.put_commands(account, id, encrypted);
        let exists = self.call_store(StoreOperation::Order, stored).await?;
        let account = row.tenant.account();
        Ok(exists.then(|| self.view_state(account, view.state, &commands)))
    }
}

impl SessionView {
    /// A view of a state and its commands, without names.
    pub fn from_state(
        account: Account,
        mut state: SessionState,
        commands: &SessionCommands,
    ) -> Self {
        let generations = state.generations;
        state.compaction.take_over(&commands.outcomes, generations);
        Self {
            account,
            client: Box::default(),
            name: SessionName::default(),
            clear_pending: commands.is_clear_pending(&state),
            compact_pending: commands.is_summary_pending(&state),
            auto_compact: commands.auto_compact,
            state,
        }
    }
}
