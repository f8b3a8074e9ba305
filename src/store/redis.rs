//! The store of several replicas: a Redis or Valkey server, or a cluster of them.
//!
//! All that belongs to one account lies in one slot, and a script does each thing whole: one round
//! trip to find, one to save, and a save lands whole or not at all, also where nobody waits for it
//! any more. The list of all accounts and what is shared lie in a slot of their own; they are written
//! and read beside the account's, in the same round trip, and not as one with it. What is old expires
//! by the server's own clock: a whole session at a time, since each use renews all of it.
//!
//! Nothing here waits for long: every call is bounded, and while the server is down (`pulse.rs`) calls
//! fail at once. Only digests stand in the names of keys.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use async_trait::async_trait;
use bytes::Bytes;
use redis::Value;

use super::{
    Account, Found, Key, MAX_SHARED, Page, Row, Saved, SessionId, Shared, Store, StoreError,
    Tenant, check_orders, check_shared,
};
use crate::config::{RedisConfig, StoreConfig};

mod address;
mod call;
mod names;
mod pulse;
mod reply;
mod wire;

use call::{Call, script};
use names::Names;
use pulse::Pulse;

/// Sessions in a server.
pub struct RedisStore {
    names: Names,
    pulse: Pulse,
    sessions: usize,
    /// Milliseconds.
    age: u128,
    /// Of what is shared, as it was last seen.
    version: AtomicU64,
}

impl RedisStore {
    /// Begins to connect, and does not wait for it. Called from within a runtime.
    ///
    /// # Errors
    /// The address or the certificates cannot be used. A server that does not answer is no error.
    pub fn open(config: &StoreConfig, server: &RedisConfig) -> io::Result<Self> {
        let address = address::read(server)?;
        let names = Names::new(&server.prefix);
        let probe = Call::probe(names.common());
        Ok(Self {
            pulse: Pulse::start(address, probe, config.call_timeout()),
            names,
            sessions: config.max_sessions,
            age: config.max_age.as_millis(),
            version: AtomicU64::new(0),
        })
    }

    fn saving(&self, saved: &Saved) -> Call {
        let mut call = script::SAVE.call(self.names.account(&saved.tenant.account()));
        call.arg(saved.tenant.id())
            .arg(saved.session.bytes())
            .arg((saved.opening as u32).to_be_bytes())
            .arg(saved.keys.exact.bytes())
            .arg(saved.keys.gap.as_ref().map_or(&[][..], |gap| gap.bytes()))
            .arg(saved.keys.bare.bytes())
            .arg((saved.answer as u64).to_be_bytes())
            .arg(&saved.state)
            .number(self.age)
            .number(self.sessions);
        for rule in call::KEPT {
            call.number(rule);
        }
        call
    }

    fn entering(&self, saved: &Saved) -> Call {
        let mut call = script::ENTER.call(self.names.common());
        call.arg(saved.tenant.account().bytes())
            .arg(saved.session.bytes())
            .number(self.age)
            .number(self.sessions);
        call
    }

    /// The account of a session: the one asked for, else whoever's it is.
    async fn owner(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<Account>, StoreError> {
        if let Some(account) = account {
            return Ok(Some(*account));
        }
        let owner = Call::owner(self.names.common(), id);
        reply::account(self.pulse.ask(owner).await?)
    }

    /// The newest states of sessions of one account; those that are gone are left out.
    async fn rows(&self, account: Account, ids: &[SessionId]) -> Result<Vec<Row>, StoreError> {
        let mut call = script::ROWS.call(self.names.account(&account));
        let ids: Vec<u8> = ids.iter().flat_map(|id| *id.bytes()).collect();
        call.arg(ids);
        reply::rows(self.pulse.ask(call).await?, account)
    }

    /// A page of the administrator's list, whose sessions lie in many slots.
    async fn all_sessions(&self, page: Page) -> Result<Vec<Row>, StoreError> {
        let call = Call::listed(self.names.common(), page);
        let listed = reply::listed(self.pulse.ask(call).await?)?;
        let rows = listed
            .iter()
            .map(|(id, account)| self.rows(*account, std::slice::from_ref(id)));
        let rows = futures_util::future::try_join_all(rows).await?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// Versions only grow. Answers may be read in another order than they came in: an older version never
    /// takes the place of a newer one, or what is new would not be asked for.
    fn see(&self, version: u64) {
        self.version.fetch_max(version, Relaxed);
    }

    /// Notes a version that came beside another answer, and is not worth failing for.
    fn note(&self, version: Option<Value>) {
        if let Some(version) = version.and_then(|version| reply::version(&version)) {
            self.see(version);
        }
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn find(
        &self,
        tenant: &Tenant,
        _opening: u64,
        keys: &[Key],
    ) -> Result<Option<Found>, StoreError> {
        let mut call = script::FIND.call(self.names.account(&tenant.account()));
        let keys: Vec<u8> = keys.iter().flat_map(|key| *key.bytes()).collect();
        call.arg(tenant.id()).arg(keys).number(self.age);
        let version = Call::version(self.names.common());
        let (found, version) = self.pulse.ask_both(call, version).await?;
        self.note(version);
        reply::found(found)
    }

    /// CANCEL: the script runs whole, or was never sent.
    async fn save(&self, saved: Saved) -> Result<(), StoreError> {
        let (saving, entering) = (self.saving(&saved), self.entering(&saved));
        let (own, version) = self.pulse.ask_both(saving, entering).await?;
        self.note(version);
        match reply::number(&own)? {
            // SECURITY: the end users of one account may know each other's session ids.
            0 => Err(StoreError::Foreign),
            _ => Ok(()),
        }
    }

    async fn session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<Row>, StoreError> {
        let Some(owner) = self.owner(account, id).await? else {
            return Ok(None);
        };
        Ok(self.rows(owner, &[id]).await?.pop())
    }

    async fn order(
        &self,
        account: Option<&Account>,
        id: SessionId,
        orders: Bytes,
    ) -> Result<bool, StoreError> {
        check_orders(&orders)?;
        let Some(owner) = self.owner(account, id).await? else {
            return Ok(false);
        };
        let mut call = script::ORDER.call(self.names.account(&owner));
        call.arg(id.bytes()).arg(&orders);
        Ok(reply::number(&self.pulse.ask(call).await?)? == 1)
    }

    async fn sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<Row>, StoreError> {
        let take = page.take.min(Page::MAX_TAKE);
        let Some(account) = account else {
            return self.all_sessions(Page { take, ..page }).await;
        };
        let mut call = script::LIST.call(self.names.account(account));
        call.number(page.skip).number(take);
        reply::rows(self.pulse.ask(call).await?, *account)
    }

    /// As the lists have them: what expired lately may still count.
    async fn count(&self, account: Option<&Account>) -> Result<u64, StoreError> {
        let base = account.map_or_else(|| self.names.common(), |it| self.names.account(it));
        let counted = self.pulse.ask(Call::count(base)).await?;
        u64::try_from(reply::number(&counted)?).map_err(|_| StoreError::Damaged)
    }

    async fn share(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        check_shared(name, &value)?;
        let mut call = script::SHARE.call(self.names.common());
        call.arg(name)
            .arg(&value)
            .number(MAX_SHARED)
            .number(self.age);
        let version = self.pulse.ask(call).await?;
        self.note(Some(version));
        Ok(())
    }

    async fn shared(&self) -> Result<Shared, StoreError> {
        let call = script::SHARED.call(self.names.common());
        let shared = reply::shared(self.pulse.ask(call).await?)?;
        self.see(shared.version);
        Ok(shared)
    }

    fn shared_version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    async fn close(&self) {
        self.pulse.stop();
    }
}

#[cfg(test)]
mod tests;
