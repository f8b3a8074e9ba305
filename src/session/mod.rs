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
    error::chain,
    guard::Recall,
    store::{Saved, Store, StoreError},
    telemetry::metrics::{Metrics, StoreOperation},
};

pub mod hint;
pub mod history;
mod ids;
mod known;
pub mod lineage;
pub mod orders;
pub mod ratios;
mod report;
pub mod seal;
pub mod secret;
pub mod state;
pub mod tenant;

pub use hint::Hint;
use ids::Ids;
pub use known::{Found, Known, Wanted};
pub use lineage::Lineage;
pub use orders::Orders;
pub use report::{Overview, Reader, Report, overview, report};
use seal::{Of, Seal, Unopened};
pub use state::{GenerationId, State};
pub use tenant::{Client, Tenants};

pub use crate::store::{Account, SessionId, Tenant};

/// All sessions of this proxy.
#[derive(Clone)]
pub struct Sessions {
    store: Arc<dyn Store>,
    tenants: Tenants,
    ids: Arc<Ids>,
    seal: Arc<Seal>,
    /// Something that cannot be decrypted was met, and said so.
    unopened: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
    find_within: Duration,
    /// Orders are read, changed and written by one at a time.
    ordering: Arc<tokio::sync::Mutex<()>>,
}

/// What a request starts from.
#[derive(Clone, Debug)]
pub struct Inherited {
    /// The state after the generation that this request continues. Its places are those of this
    /// conversation, which may have lost or gained messages before that generation's answer.
    pub state: Option<State>,
    /// Messages before that generation's answer in this conversation, system messages apart; 0
    /// without a state.
    pub answer_at: u32,
    pub lineage: Lineage,
    pub session: SessionId,
    /// What is asked of the session from outside.
    pub orders: Orders,
    /// This request is to begin a new course, because that was asked for from outside. Its state
    /// is to count [`Orders::clears`] then.
    pub clear_ordered: bool,
    /// A summary is to be made with this request, likewise.
    pub compact_ordered: bool,
    /// A summary was taken over for this request.
    pub compacted: bool,
    generation: GenerationId,
    /// The store did not answer, or not with a state: health is unknown, and a warning is due in
    /// the request's record.
    pub lost: bool,
}

impl Inherited {
    /// What the guard needs to know of the requests before.
    pub fn recall(&self) -> Recall {
        self.state.as_ref().map(State::recall).unwrap_or_default()
    }

    /// The state to fill in for the generation that now begins.
    pub fn successor(&self) -> State {
        let mut state = self
            .state
            .clone()
            .unwrap_or_else(|| State::new(self.session));
        state.follows = match (self.clear_ordered, self.compact_ordered) {
            (true, _) => self.orders.clear_for,
            (_, true) => self.orders.compact_for,
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
            ids: Arc::new(Ids::new()?),
            seal: Arc::new(Seal::new(None)?),
            unopened: Arc::default(),
            metrics: Arc::default(),
            find_within: StoreConfig::default().timeout,
            ordering: Arc::default(),
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
    pub fn configured(
        self,
        config: &StoreConfig,
        metrics: Arc<Metrics>,
    ) -> Result<Self, getrandom::Error> {
        Ok(Self {
            seal: Arc::new(Seal::new(config.encrypt_key.as_ref())?),
            find_within: config.timeout,
            metrics,
            ..self
        })
    }

    /// Names a new summary.
    pub fn job(&self) -> JobId {
        JobId::from_bytes(self.ids.bytes())
    }

    /// Makes tenants and accounts of requests.
    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Finds the state a conversation continues; failing that, names its session.
    pub async fn find(
        &self,
        conversation: &Conversation,
        tenant: &Tenant,
        hint: Option<&Hint>,
    ) -> Inherited {
        let lineage = Lineage::of(conversation, tenant);
        let mut inherited = Inherited {
            state: None,
            answer_at: 0,
            lineage,
            session: SessionId::default(),
            orders: Orders::default(),
            clear_ordered: false,
            compact_ordered: false,
            compacted: false,
            generation: GenerationId::from_bytes(self.ids.bytes()),
            lost: false,
        };
        if let Err(error) = self.inherit(&mut inherited).await {
            self.warn_of_loss(
                &error,
                None,
                "a request goes on without its session's state",
            );
            inherited.lost = true;
        }
        inherited.session = match (&inherited.state, hint) {
            (Some(state), _) => state.session,
            (None, Some(hint)) => self.named(tenant, hint).await,
            (None, None) => SessionId::from_bytes(self.ids.bytes()),
        };
        inherited
    }

    /// Takes over the state that the conversation continues, where there is one; else changes nothing.
    async fn inherit(&self, inherited: &mut Inherited) -> Result<(), SessionError> {
        let lineage = &inherited.lineage;
        if lineage.probes().is_empty() {
            return Ok(());
        }
        let found = self
            .store
            .find(lineage.tenant(), lineage.opening(), lineage.probes());
        let Some(found) = self.ask(StoreOperation::Find, found).await? else {
            return Ok(());
        };
        let answer_at = lineage.answer_at(found.at).ok_or(StoreError::Damaged)?;
        let mut state = self.opened(lineage.tenant(), &found.state)?;
        if state.format != lineage.format() {
            // What is kept of it could not be put into this conversation.
            return Ok(());
        }
        let orders = self.readable(lineage.tenant(), state.session, &found.orders);
        let (generations, made) = (state.generations, state.compaction.made);
        state.compaction.take_over(orders.outcomes(), generations);
        // A summary that was just taken over may tell of messages that are not there, like others.
        state.anchor(answer_at);
        let compaction = &state.compaction;
        inherited.compacted = compaction.made > made && compaction.summary.is_some();
        inherited.clear_ordered = orders.ask_clear_after(&state);
        inherited.compact_ordered = orders.ask_compact_after(&state);
        inherited.state = Some(state);
        inherited.answer_at = answer_at;
        inherited.orders = orders;
        Ok(())
    }

    /// The session a hint names. An id of ours is taken as it is only where this tenant has it;
    /// anyone else's, or one made up, names a session like any other text.
    async fn named(&self, tenant: &Tenant, hint: &Hint) -> SessionId {
        let hinted = self.tenants.hinted_session(tenant, hint);
        let Some(own) = hint.own().and_then(SessionId::parse) else {
            return hinted;
        };
        let account = tenant.account();
        let known = self.store.session(Some(&account), own);
        match self.ask(StoreOperation::Session, known).await {
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
    pub async fn save(
        &self,
        lineage: &Lineage,
        answer: u128,
        state: &State,
        within: Duration,
    ) -> bool {
        let filed = self.file(lineage, answer, state, within).await;
        filed.unwrap_or_else(|error| {
            self.warn_of_loss(&error, Some(state.session), "a state was not stored");
            false
        })
    }

    async fn file(
        &self,
        lineage: &Lineage,
        answer: u128,
        state: &State,
        within: Duration,
    ) -> Result<bool, SessionError> {
        let Some(keys) = lineage.keys(answer) else {
            return Ok(false);
        };
        let saved = Saved {
            tenant: *lineage.tenant(),
            session: state.session,
            opening: lineage.opening(),
            keys,
            answer,
            state: self.encoded(lineage.tenant(), state)?,
        };
        let saved = self.store.save(saved);
        self.bounded(StoreOperation::Save, within, saved).await?;
        Ok(true)
    }

    /// A state as it is stored; what had to be left out is said here.
    fn encoded(&self, tenant: &Tenant, state: &State) -> Result<Bytes, SessionError> {
        let encoded = state.encode()?;
        if encoded.records_shed > 0 {
            let (session, records) = (state.session, encoded.records_shed);
            tracing::warn!(
                %session, records,
                "a state was too large: {records} of its oldest prompts and rounds were left out"
            );
        }
        Ok(self.seal.seal(Of::State(tenant), encoded.bytes)?)
    }

    /// A state as it was stored.
    fn opened(&self, tenant: &Tenant, stored: &[u8]) -> Result<State, SessionError> {
        Ok(State::decode(&self.seal.open(Of::State(tenant), stored)?)?)
    }

    /// Orders that cannot be read are none: a state is worth more than a wish.
    fn readable(&self, tenant: &Tenant, session: SessionId, stored: &[u8]) -> Orders {
        let opened = self.seal.open(Of::Orders(tenant, session), stored);
        let opened = opened.map_err(SessionError::from);
        let orders = opened.and_then(|opened| Ok(Orders::decode(&opened)?));
        orders.unwrap_or_else(|error| {
            let what = "orders of a session could not be read";
            self.warn_of_loss(&error, Some(session), what);
            Orders::default()
        })
    }

    /// Says what was lost. While the store is down the log says so once for all requests; and after a
    /// change of the key nothing from before can be read, which is as true of every session that goes on.
    fn warn_of_loss(&self, error: &SessionError, session: Option<SessionId>, what: &'static str) {
        let session = session.map(tracing::field::display);
        let known = match error {
            SessionError::Unopened(_) => self.unopened.swap(true, Relaxed),
            SessionError::Store(error) => matches!(error, StoreError::Down),
            SessionError::State(_) => false,
        };
        match known {
            true => tracing::debug!(session, error = chain(error), "{what}"),
            false => tracing::warn!(session, error = chain(error), "{what}"),
        }
    }

    /// The answer of the store, for which a request waits no longer than it may.
    async fn ask<T>(
        &self,
        operation: StoreOperation,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.bounded(operation, self.find_within, asked).await
    }

    async fn bounded<T>(
        &self,
        operation: StoreOperation,
        within: Duration,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let asked = tokio::time::timeout(within, asked).await;
        let asked = asked.unwrap_or(Err(StoreError::TooSlow(within)));
        let metrics = &self.metrics;
        metrics.record_store(operation, begun.elapsed(), asked.is_err());
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
    Unopened(#[from] Unopened),
}

#[cfg(test)]
mod tests;
