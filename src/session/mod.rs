//! Sessions: a conversation followed over its requests, found again by what was said.
//!
//! [`Sessions::find`] gives a request the state of the generation it continues, and
//! [`Sessions::save`] files the new state before the end of the response is released. Never
//! fails a request: without a store it goes on with no state. Never lets one tenant reach
//! another's state, not even with an identical conversation.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    compaction::JobId,
    config::StoreConfig,
    conversation::Conversation,
    error::format_error_chain,
    guard::Recall,
    store::{StateToSave, Store, StoreError},
    telemetry::metrics::{Metrics, StoreOperation},
};

pub mod hint;
pub mod history;
mod id_generator;
pub mod installation_secret;
pub mod lineage;
mod report;
pub mod session_commands;
mod session_view;
pub mod state;
pub mod state_cipher;
pub mod tenant;
pub mod token_ratios;

pub use hint::SessionHint;
use id_generator::IdGenerator;
pub use lineage::Lineage;
pub use report::{ReportReader, SessionOverview, SessionReport, build_overview, build_report};
pub use session_commands::SessionCommands;
pub use session_view::{SessionCommand, SessionView, SessionViewPage};
pub use state::{GenerationId, SessionState};
use state_cipher::{DecryptError, SealedSubject, StateCipher};
pub use tenant::{ClientIdentity, Tenants};

pub use crate::store::{Account, SessionId, Tenant};

/// All sessions of this proxy.
#[derive(Clone)]
pub struct Sessions {
    store: Arc<dyn Store>,
    tenants: Tenants,
    ids: Arc<IdGenerator>,
    cipher: Arc<StateCipher>,
    /// Something that cannot be decrypted was met, and said so.
    decrypt_failure_logged: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
    find_timeout: Duration,
    /// Orders are read, changed and written by one at a time.
    command_lock: Arc<tokio::sync::Mutex<()>>,
}

/// What a request starts from.
#[derive(Clone, Debug)]
pub struct InheritedSession {
    /// The state after the generation that this request continues. Its places are those of this
    /// conversation, which may have lost or gained messages before that generation's answer.
    pub state: Option<SessionState>,
    /// Messages before that generation's answer in this conversation, system messages apart; 0
    /// without a state.
    pub answer_at: u32,
    pub lineage: Lineage,
    pub session: SessionId,
    /// What is asked of the session from outside.
    pub commands: SessionCommands,
    /// This request is to begin a new course, because that was asked for from outside. Its state
    /// is to count [`Orders::clears`] then.
    pub clear_requested: bool,
    /// A summary is to be made with this request, likewise.
    pub compact_requested: bool,
    /// A summary was taken over for this request.
    pub compacted: bool,
    generation: GenerationId,
    /// The store did not answer, or not with a state: health is unknown, and a warning is due in
    /// the request's record.
    pub store_failed: bool,
}

impl InheritedSession {
    /// What the guard needs to know of the requests before.
    pub fn to_recall(&self) -> Recall {
        self.state
            .as_ref()
            .map(SessionState::to_recall)
            .unwrap_or_default()
    }

    /// The state to fill in for the generation that now begins.
    pub fn next_state(&self) -> SessionState {
        let mut state = self
            .state
            .clone()
            .unwrap_or_else(|| SessionState::new(self.session));
        state.follows = match (self.clear_requested, self.compact_requested) {
            (true, _) => self.commands.clear_for,
            (_, true) => self.commands.compact_for,
            _ => state.id,
        };
        state.id = self.generation;
        state.generations = state.generations.saturating_add(1);
        state.messages = self.lineage.messages();
        state.format = self.lineage.format();
        state.billed_prompt_tokens = None;
        state.billed_completion_tokens = None;
        state
    }
}

impl Sessions {
    /// # Errors
    /// Where the system gives no random bits to make ids from.
    pub fn new(store: Arc<dyn Store>, tenants: Tenants) -> Result<Self, getrandom::Error> {
        Ok(Self {
            store,
            tenants,
            ids: Arc::new(IdGenerator::new()?),
            cipher: Arc::new(StateCipher::new(None)?),
            decrypt_failure_logged: Arc::default(),
            metrics: Arc::default(),
            find_timeout: StoreConfig::default().timeout,
            command_lock: Arc::default(),
        })
    }

    /// Brings to rest what was stored, as the last thing that is asked of the store.
    pub async fn close(&self) {
        self.store.close().await;
    }

    /// As the settings say: encrypts what is stored from now on, where there is a key, and lets a request
    /// wait so long for the store. What the store does, and fails to do, is counted in `metrics`.
    ///
    /// # Errors
    /// Where the system gives no random bits.
    pub fn with_config(
        self,
        config: &StoreConfig,
        metrics: Arc<Metrics>,
    ) -> Result<Self, getrandom::Error> {
        Ok(Self {
            cipher: Arc::new(StateCipher::new(config.encrypt_key.as_ref())?),
            find_timeout: config.timeout,
            metrics,
            ..self
        })
    }

    /// Names a new summary.
    pub fn new_job_id(&self) -> JobId {
        JobId::from_bytes(self.ids.next_bytes())
    }

    /// Makes tenants and accounts of requests.
    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Finds the state a conversation continues; failing that, names its session.
    pub async fn inherit_session(
        &self,
        conversation: &Conversation,
        tenant: &Tenant,
        hint: Option<&SessionHint>,
    ) -> InheritedSession {
        let lineage = Lineage::from_conversation(conversation, tenant);
        let mut inherited = InheritedSession {
            state: None,
            answer_at: 0,
            lineage,
            session: SessionId::default(),
            commands: SessionCommands::default(),
            clear_requested: false,
            compact_requested: false,
            compacted: false,
            generation: GenerationId::from_bytes(self.ids.next_bytes()),
            store_failed: false,
        };
        if let Err(error) = self.load_inherited(&mut inherited).await {
            self.warn_of_loss(
                &error,
                None,
                "a request goes on without its session's state",
            );
            inherited.store_failed = true;
        }
        inherited.session = match (&inherited.state, hint) {
            (Some(state), _) => state.session,
            (None, Some(hint)) => self.resolve_hint(tenant, hint).await,
            (None, None) => SessionId::from_bytes(self.ids.next_bytes()),
        };
        inherited
    }

    /// Takes over the state that the conversation continues, where there is one; else changes nothing.
    async fn load_inherited(&self, inherited: &mut InheritedSession) -> Result<(), SessionError> {
        let lineage = &inherited.lineage;
        if lineage.probes().is_empty() {
            return Ok(());
        }
        let found = self
            .store
            .find_state(lineage.tenant(), lineage.opening(), lineage.probes());
        let Some(found) = self.call_store(StoreOperation::Find, found).await? else {
            return Ok(());
        };
        let answer_at = lineage.answer_at(found.at).ok_or(StoreError::Damaged)?;
        let mut state = self.decode_state(lineage.tenant(), &found.state)?;
        if state.format != lineage.format() {
            // What is kept of it could not be put into this conversation.
            return Ok(());
        }
        let orders = self.decode_commands(lineage.tenant(), state.session, &found.commands);
        let (generations, made) = (state.generations, state.compaction.made);
        state.compaction.take_over(orders.outcomes(), generations);
        // A summary that was just taken over may tell of messages that are not there, like others.
        state.realign_places(answer_at);
        let compaction = &state.compaction;
        inherited.compacted = compaction.made > made && compaction.summary.is_some();
        inherited.clear_requested = orders.is_clear_pending(&state);
        inherited.compact_requested = orders.is_summary_pending(&state);
        inherited.state = Some(state);
        inherited.answer_at = answer_at;
        inherited.commands = orders;
        Ok(())
    }

    /// The session a hint names. An id of ours is taken as it is only where this tenant has it;
    /// anyone else's, or one made up, names a session like any other text.
    async fn resolve_hint(&self, tenant: &Tenant, hint: &SessionHint) -> SessionId {
        let hinted = self.tenants.hinted_session(tenant, hint);
        let Some(own) = hint.proxy_session_id().and_then(SessionId::parse_hex) else {
            return hinted;
        };
        let account = tenant.account();
        let known = self.store.load_session(Some(&account), own);
        match self.call_store(StoreOperation::Session, known).await {
            Ok(Some(row)) if row.tenant == *tenant => own,
            Ok(_) => hinted,
            Err(error) => {
                let what = "a session named by its client was not looked up";
                self.warn_of_loss(&error.into(), Some(own), what);
                hinted
            }
        }
    }

    /// Files the state after a generation under what was said, `within` a bound.
    ///
    /// Returns whether the next request will find it. A failure is logged here; auxiliary
    /// requests are not filed, and that is no failure.
    ///
    /// CANCEL: a dropped call leaves all of the new state in the store, or nothing of it.
    pub async fn save_state(
        &self,
        lineage: &Lineage,
        answer: u128,
        state: &SessionState,
        within: Duration,
    ) -> bool {
        let filed = self.try_save_state(lineage, answer, state, within).await;
        filed.unwrap_or_else(|error| {
            self.warn_of_loss(&error, Some(state.session), "a state was not stored");
            false
        })
    }

    async fn try_save_state(
        &self,
        lineage: &Lineage,
        answer: u128,
        state: &SessionState,
        within: Duration,
    ) -> Result<bool, SessionError> {
        let Some(keys) = lineage.state_keys(answer) else {
            return Ok(false);
        };
        let saved = StateToSave {
            tenant: *lineage.tenant(),
            session: state.session,
            opening: lineage.opening(),
            keys,
            answer,
            state: self.encode_state(lineage.tenant(), state)?,
        };
        let saved = self.store.save_state(saved);
        self.call_store_within(StoreOperation::Save, within, saved)
            .await?;
        Ok(true)
    }

    /// A state as it is stored; what had to be left out is said here.
    fn encode_state(&self, tenant: &Tenant, state: &SessionState) -> Result<Bytes, SessionError> {
        let encoded = state.encode_bounded()?;
        if encoded.records_shed > 0 {
            let (session, records) = (state.session, encoded.records_shed);
            tracing::warn!(
                %session, records,
                "a state was too large: {records} of its oldest prompts and rounds were left out"
            );
        }
        Ok(self
            .cipher
            .encrypt_bytes(SealedSubject::State(tenant), encoded.bytes)?)
    }

    /// A state as it was stored.
    fn decode_state(&self, tenant: &Tenant, stored: &[u8]) -> Result<SessionState, SessionError> {
        Ok(SessionState::from_bytes(
            &self
                .cipher
                .decrypt_bytes(SealedSubject::State(tenant), stored)?,
        )?)
    }

    /// Orders that cannot be read are none: a state is worth more than a wish.
    fn decode_commands(
        &self,
        tenant: &Tenant,
        session: SessionId,
        stored: &[u8],
    ) -> SessionCommands {
        let opened = self
            .cipher
            .decrypt_bytes(SealedSubject::Commands(tenant, session), stored);
        let opened = opened.map_err(SessionError::from);
        let orders = opened.and_then(|opened| Ok(SessionCommands::from_bytes(&opened)?));
        orders.unwrap_or_else(|error| {
            let what = "orders of a session could not be read";
            self.warn_of_loss(&error, Some(session), what);
            SessionCommands::default()
        })
    }

    /// Says what was lost. While the store is down the log says so once for all requests; and after a
    /// change of the key nothing from before can be read, which is as true of every session that goes on.
    fn warn_of_loss(&self, error: &SessionError, session: Option<SessionId>, what: &'static str) {
        let session = session.map(tracing::field::display);
        let known = match error {
            SessionError::Unopened(_) => self.decrypt_failure_logged.swap(true, Relaxed),
            SessionError::Store(error) => matches!(error, StoreError::Down),
            SessionError::State(_) => false,
        };
        match known {
            true => tracing::debug!(session, error = format_error_chain(error), "{what}"),
            false => tracing::warn!(session, error = format_error_chain(error), "{what}"),
        }
    }

    /// The answer of the store, for which a request waits no longer than it may.
    async fn call_store<T>(
        &self,
        operation: StoreOperation,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.call_store_within(operation, self.find_timeout, asked)
            .await
    }

    async fn call_store_within<T>(
        &self,
        operation: StoreOperation,
        within: Duration,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let asked = tokio::time::timeout(within, asked).await;
        let asked = asked.unwrap_or(Err(StoreError::TooSlow(within)));
        let metrics = &self.metrics;
        metrics.record_store_call(operation, begun.elapsed(), asked.is_err());
        asked
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

/// Why a state was not found or not filed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    State(#[from] state::StateError),
    #[error(transparent)]
    Unopened(#[from] DecryptError),
}

#[cfg(test)]
mod tests;
