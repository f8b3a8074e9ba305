//! Sessions: a conversation followed over its requests, found again by the digests of its messages.
//!
//! [`Sessions::inherit_session`] gives a request the state of the generation that it continues, and
//! [`Sessions::save_state`] stores the new state before the end of the response is released, or gives up when the time for
//! it is over. If the store fails, the request goes on without a state. No tenant reaches another tenant's state, not even with an identical conversation.

use std::{
    collections::HashMap,
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
    guard::{SessionKnowledge, injections::Summary},
    store::{StateToSave, Store, StoreError},
    telemetry::metrics::{Metrics, StoreOperation},
};

mod ancestor;
pub mod edited_history;
pub mod hint;
pub mod history;
pub mod history_sketch;
mod id_generator;
pub mod installation_secret;
pub mod lineage;
pub mod reasoning_by_session;
mod report;
pub mod session_commands;
mod session_name;
mod session_view;
pub mod state;
pub mod state_cipher;
pub mod tenant;
pub mod token_ratios;

pub use hint::SessionHint;
use hint::TrustedIds;
use history_sketch::{HistorySketch, RequestSketch, sketch_request};
use id_generator::IdGenerator;
pub use lineage::Lineage;
pub use reasoning_by_session::ReasoningMemory;
pub use report::{ReportReader, build_overview, build_report};
pub use session_commands::SessionCommands;
pub use session_name::{SessionName, SessionNames};
pub use session_view::{SessionCommand, SessionView, SessionViewPage};
pub use state::{GenerationId, SessionState};
use state_cipher::{DecryptError, SealedSubject, StateCipher};
pub use tenant::{ClientIdentity, Tenants};

pub use crate::store::{Account, SessionId, Tenant};

/// All sessions of this proxy.
#[derive(Clone)]
pub struct Sessions {
    store: Arc<dyn Store>,
    pub tenants: Tenants,
    ids: Arc<IdGenerator>,
    cipher: Arc<StateCipher>,
    /// Whether a failed decryption was logged: the first one is logged as a warning, later ones at debug level.
    decrypt_failure_logged: Arc<AtomicBool>,
    newer_state_logged: Arc<AtomicBool>,
    /// The store could not keep the state that was saved last.
    save_failed: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
    find_timeout: Duration,
    pub names: Arc<SessionNames>,
    /// The names under `[clients]`, by account.
    client_names: Arc<HashMap<Account, Box<str>>>,
    /// Held while commands are read, changed and written.
    command_lock: Arc<tokio::sync::Mutex<()>>,
}

/// What a request inherits from the generation it continues.
#[derive(Clone, Debug)]
pub struct InheritedSession {
    /// The state after the generation that this request continues. The places in the state are adjusted to this
    /// conversation, which may have lost or gained messages before that generation's answer.
    pub state: Option<SessionState>,
    /// Messages before that generation's answer in this conversation, without system messages; 0 if there is no state.
    pub answer_at: u32,
    /// If the client has edited its history since: how many messages and runs of results, among the newest, it has changed,
    /// added or removed. `None` if there is no state, or if the state was found without loose keys.
    pub edited: Option<u32>,
    pub lineage: Lineage,
    /// The sketch of this request; `None` if the request stores no state.
    sketch: Option<RequestSketch>,
    trusted: TrustedIds,
    pub session: SessionId,
    pub commands: SessionCommands,
    /// An API command asks for a new course with this request. If the course begins, the request's state takes over
    /// [`SessionCommands::clears`].
    pub clear_requested: bool,
    /// An API command asks for a summary with this request.
    pub compact_requested: bool,
    /// This request is the first with a finished summary.
    pub compacted: bool,
    /// The summary before the one that was just taken over.
    pub summary_before: Option<Summary>,
    generation: GenerationId,
    /// The store failed or returned no valid state: the earlier state of the session is unknown, and the request's record
    /// gets a warning.
    pub store_failed: bool,
    /// The store could not keep the state that was saved last, of this session or of another one.
    pub save_failed: bool,
}

impl InheritedSession {
    /// The guard's memory of earlier requests.
    pub fn to_knowledge(&self) -> SessionKnowledge {
        let state = self.state.as_ref();
        state.map(SessionState::to_knowledge).unwrap_or_default()
    }

    /// Makes the request store no state.
    pub fn store_nothing(&mut self) {
        self.lineage.stores = false;
    }

    /// The state to fill in for the generation that now begins.
    pub fn begin_generation(&self) -> SessionState {
        let inherited = self.state.clone();
        let mut state = inherited.unwrap_or_else(|| SessionState::new(self.session));
        state.follows = match (self.clear_requested, self.compact_requested) {
            (true, _) => self.commands.clear_for,
            (_, true) => self.commands.compact_for,
            _ => state.id,
        };
        state.id = self.generation;
        state.generations = state.generations.saturating_add(1);
        state.messages = self.lineage.messages;
        state.format = self.lineage.format;
        let RequestSketch { elements, older } = self.sketch.clone().unwrap_or_default();
        state.sketch = HistorySketch {
            elements,
            older,
            answer_calls: 0,
            began: match self.state {
                Some(_) => state.sketch.began,
                None => self.lineage.shared,
            },
            trusted: self.trusted.or(state.sketch.trusted),
        };
        state.billed_prompt_tokens = None;
        state.billed_completion_tokens = None;
        state
    }
}

impl Sessions {
    /// `config` gives the timeout of lookups, and the key by which new states and commands are encrypted, if there is
    /// one. `metrics` counts the calls to the store.
    pub fn new(
        store: Arc<dyn Store>,
        tenants: Tenants,
        config: &StoreConfig,
        metrics: Arc<Metrics>,
    ) -> Result<Self, getrandom::Error> {
        Ok(Self {
            store,
            tenants,
            ids: Arc::new(IdGenerator::new()?),
            cipher: Arc::new(StateCipher::new(config.encrypt_key.as_ref())?),
            decrypt_failure_logged: Arc::default(),
            newer_state_logged: Arc::default(),
            save_failed: Arc::default(),
            metrics,
            find_timeout: config.timeout,
            names: Arc::default(),
            client_names: Arc::default(),
            command_lock: Arc::default(),
        })
    }

    /// Closes the store; no other call may follow.
    pub async fn close(&self) {
        self.store.close().await;
    }

    pub fn new_job_id(&self) -> JobId {
        JobId(self.ids.next_bytes())
    }

    /// Finds the state that a conversation continues; without one, picks its session id.
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
            edited: None,
            lineage,
            sketch: None,
            trusted: hint.map_or_else(TrustedIds::default, |hint| hint.trusted),
            session: SessionId::default(),
            commands: SessionCommands::default(),
            clear_requested: false,
            compact_requested: false,
            compacted: false,
            summary_before: None,
            generation: GenerationId(self.ids.next_bytes()),
            store_failed: false,
            save_failed: self.save_failed.load(Relaxed),
        };
        if let Err(error) = self.load_inherited(&mut inherited, conversation).await {
            self.warn_of_loss(&error, None, "request continues without its session state");
            inherited.store_failed = true;
            // A state of a newer release must not be replaced: that release would find the new state in place of its own.
            inherited.lineage.stores &= !error.is_newer();
        }
        if inherited.sketch.is_none() && inherited.lineage.stores {
            inherited.sketch = Some(sketch_request(conversation, None));
        }
        inherited.session = match (&inherited.state, hint) {
            (Some(state), _) => state.session,
            (None, Some(hint)) => self.resolve_hint(tenant, hint).await,
            (None, None) => SessionId::from_bytes(self.ids.next_bytes()),
        };
        inherited
    }

    /// The session that a hint names. A session id of the proxy is used only if this tenant has that session; any
    /// other value is digested with the tenant.
    async fn resolve_hint(&self, tenant: &Tenant, hint: &SessionHint) -> SessionId {
        let hinted = self.tenants.hinted_session(tenant, hint);
        let Some(named) = hint.proxy_session_id().and_then(SessionId::parse_hex) else {
            return hinted;
        };
        let account = tenant.account();
        let row = self.store.load_session(Some(&account), named);
        match self.call_store(StoreOperation::Session, row).await {
            Ok(Some(row)) if row.tenant == *tenant => named,
            Ok(_) => hinted,
            Err(error) => {
                let message = "session id sent by a client was not looked up";
                self.warn_of_loss(&error.into(), Some(named), message);
                hinted
            }
        }
    }

    /// Stores the state after a generation under the keys of its messages; waits at most `within`.
    ///
    /// Returns whether the next request will find the state. Failures are logged here. Auxiliary requests, and those
    /// that continue a state of a newer release, store nothing, which is no failure.
    ///
    /// `id`: the digest of the answer's id. CANCEL: a dropped call leaves all of the new state in the store, or nothing of
    /// it.
    pub async fn save_state(
        &self,
        lineage: &Lineage,
        answer: u128,
        id: Option<u128>,
        state: &SessionState,
        within: Duration,
    ) -> bool {
        let Some(keys) = lineage.state_keys(answer) else {
            return false;
        };
        let save = async {
            let record = StateToSave {
                tenant: lineage.tenant,
                session: state.session,
                opening: lineage.opening,
                keys,
                answer,
                state: self.encode_state(&lineage.tenant, state)?,
            };
            let saved = async {
                match lineage.loose_keys(answer, id) {
                    Some(loose) => self.store.save_with_loose_keys(record, loose).await,
                    None => self.store.save_state(record).await,
                }
            };
            let saved = self.call_store_within(StoreOperation::Save, within, saved);
            Ok(saved.await?)
        };
        let warn = |error: &SessionError| {
            self.warn_of_loss(error, Some(state.session), "session state was not stored");
        };
        let saved = save.await.inspect_err(warn).is_ok();
        self.save_failed.store(!saved, Relaxed);
        saved
    }

    fn encode_state(&self, tenant: &Tenant, state: &SessionState) -> Result<Bytes, SessionError> {
        let encoded = state.encode_bounded()?;
        if encoded.records_shed > 0 {
            let (session, records) = (state.session, encoded.records_shed);
            tracing::warn!(
                %session, records,
                "session state was too large: the {records} oldest prompts and tool rounds of recovery were dropped from it"
            );
        }
        let subject = SealedSubject::State(tenant);
        Ok(self.cipher.encrypt_bytes(subject, encoded.bytes)?)
    }

    fn decode_state(&self, tenant: &Tenant, stored: &[u8]) -> Result<SessionState, SessionError> {
        let subject = SealedSubject::State(tenant);
        let plain = self.cipher.decrypt_bytes(subject, stored)?;
        Ok(SessionState::from_bytes(&plain)?)
    }

    /// Decodes the commands of a session. Unreadable commands are logged and dropped, so that the session's state remains
    /// usable.
    ///
    /// # Errors
    /// If a newer release wrote the commands: then they must not be replaced.
    fn decode_commands(
        &self,
        tenant: &Tenant,
        session: SessionId,
        stored: &[u8],
    ) -> Result<SessionCommands, SessionError> {
        let subject = SealedSubject::Commands(tenant, session);
        let plain = self.cipher.decrypt_bytes(subject, stored);
        let commands = plain
            .map_err(SessionError::from)
            .and_then(|plain| Ok(SessionCommands::from_bytes(&plain)?));
        match commands {
            Err(error) if !error.is_newer() => {
                self.warn_of_loss(&error, Some(session), "session commands cannot be read");
                Ok(SessionCommands::default())
            }
            commands => commands,
        }
    }

    /// Logs a loss as a warning, and in two cases at the debug level: if the store is down, since the store warns of
    /// that itself, and after the first failed decryption or state of a newer release, since many will follow.
    fn warn_of_loss(
        &self,
        error: &SessionError,
        session: Option<SessionId>,
        message: &'static str,
    ) {
        let session = session.map(tracing::field::display);
        let logged = match error {
            SessionError::Decrypt(_) => self.decrypt_failure_logged.swap(true, Relaxed),
            SessionError::Store(error) => matches!(error, StoreError::Down),
            SessionError::State(_) => {
                error.is_newer() && self.newer_state_logged.swap(true, Relaxed)
            }
        };
        if logged {
            tracing::debug!(session, error = format_error_chain(error), "{message}")
        } else {
            tracing::warn!(session, error = format_error_chain(error), "{message}")
        }
    }

    /// Awaits a call to the store for at most the lookup timeout.
    async fn call_store<T>(
        &self,
        operation: StoreOperation,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.call_store_within(operation, self.find_timeout, call)
            .await
    }

    async fn call_store_within<T>(
        &self,
        operation: StoreOperation,
        within: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let result = tokio::time::timeout(within, call).await;
        let result = result.unwrap_or(Err(StoreError::TooSlow(within)));
        let metrics = &self.metrics;
        metrics.record_store_call(operation, begun.elapsed(), result.is_err());
        result
    }
}

/// Why a state was not loaded or not stored.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    State(#[from] state::StateError),
    #[error(transparent)]
    Decrypt(#[from] DecryptError),
}

impl SessionError {
    /// Whether a newer release wrote the state or the commands that cannot be read.
    const fn is_newer(&self) -> bool {
        matches!(self, Self::State(state::StateError::Newer(_)))
    }
}

#[cfg(test)]
mod tests;
