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
    config::{StoreConfig, secret::SecretKey},
    error::chain,
    guard::Recall,
    store::{Saved, Store, StoreError},
    telemetry::metrics::{Metrics, StoreOperation},
    wire::chat::Conversation,
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

    /// Encrypts what is stored from now on, where there is a key.
    ///
    /// # Errors
    /// Where the system gives no random bits.
    pub fn encrypted(self, key: Option<&SecretKey>) -> Result<Self, getrandom::Error> {
        Ok(Self {
            seal: Arc::new(Seal::new(key)?),
            ..self
        })
    }

    /// A request waits so long for the store before it goes on without a state.
    pub fn patient(self, find_within: Duration) -> Self {
        Self {
            find_within,
            ..self
        }
    }

    /// Counts what the store does, and fails to do, there.
    pub fn counted(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
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
        let mut lost = false;
        let ancestor = self.ancestor(&lineage).await.unwrap_or_else(|error| {
            self.lament(&error, "a request goes on without its session's state");
            lost = true;
            None
        });
        let session = match (&ancestor, hint) {
            (Some(ancestor), _) => ancestor.state.session,
            (None, Some(hint)) => self.named(tenant, hint).await,
            (None, None) => self.ids.next(),
        };
        let mut inherited = Inherited {
            state: None,
            answer_at: 0,
            lineage,
            session,
            orders: Orders::default(),
            clear_ordered: false,
            compact_ordered: false,
            compacted: false,
            generation: self.ids.generation(),
            lost,
        };
        if let Some(found) = ancestor {
            inherited.clear_ordered = found.orders.ask_clear_after(&found.state);
            inherited.compact_ordered = found.orders.ask_compact_after(&found.state);
            inherited.compacted = found.compacted;
            inherited.state = Some(found.state);
            inherited.answer_at = found.answer_at;
            inherited.orders = found.orders;
        }
        inherited
    }

    async fn ancestor(&self, lineage: &Lineage) -> Result<Option<Ancestor>, SessionError> {
        if lineage.probes().is_empty() {
            return Ok(None);
        }
        let found = self
            .store
            .find(lineage.tenant(), lineage.opening(), lineage.probes());
        let found = self.bounded(StoreOperation::Find, self.find_within, found);
        let Some(found) = found.await? else {
            return Ok(None);
        };
        let answer_at = lineage.answer_at(found.at).ok_or(StoreError::Damaged)?;
        let mut state = self.opened(lineage.tenant(), &found.state)?;
        let orders = self.readable(lineage.tenant(), state.session, &found.orders);
        let (generations, made) = (state.generations, state.compaction.made);
        state.compaction.take_over(orders.outcomes(), generations);
        // A summary that was just taken over may tell of messages that are not there, like others.
        state.anchor(answer_at);
        let compaction = &state.compaction;
        Ok(Some(Ancestor {
            compacted: compaction.made > made && compaction.summary.is_some(),
            orders,
            state,
            answer_at,
        }))
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
        let known = self.bounded(StoreOperation::Session, self.find_within, known);
        match known.await {
            Ok(Some(row)) if row.tenant == *tenant => own,
            Ok(_) | Err(StoreError::Down) => hinted,
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "a session named by its client was not looked up"
                );
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
        match self.file(lineage, answer, state, within).await {
            Ok(filed) => filed,
            Err(error) if error.is_told() => {
                tracing::debug!(session = %state.session, error = chain(&error), "a state was not stored");
                false
            }
            Err(error) => {
                tracing::warn!(session = %state.session, error = chain(&error), "a state was not stored");
                false
            }
        }
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
            self.lament(&error, "orders of a session could not be read");
            Orders::default()
        })
    }

    /// Says what was lost. After a change of the key nothing from before can be read: that is said
    /// once, since it is as true of every session that goes on.
    fn lament(&self, error: &SessionError, what: &'static str) {
        match error {
            SessionError::Unopened(error) if self.unopened.swap(true, Relaxed) => {
                tracing::debug!(error = chain(error), "{what}");
            }
            _ if error.is_told() => tracing::debug!(error = chain(error), "{what}"),
            _ => tracing::warn!(error = chain(error), "{what}"),
        }
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

/// The generation that a request continues, as it stands in the request's conversation.
struct Ancestor {
    state: State,
    answer_at: u32,
    orders: Orders,
    /// A summary was just taken over.
    compacted: bool,
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

impl SessionError {
    /// The log says it already, once for all requests.
    const fn is_told(&self) -> bool {
        matches!(self, Self::Store(StoreError::Down))
    }
}

#[cfg(test)]
mod tests;
