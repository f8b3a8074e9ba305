//! The store of several replicas: a Redis or Valkey server, or a cluster of them.
//!
//! All that belongs to one account lies in one slot, and a script does each thing whole: one round
//! trip to find, one to save, and a save lands whole or not at all, also where nobody waits for it
//! any more. The list of all accounts and what is shared lie in a slot of their own; they are written
//! and read beside the account's, in the same round trip, and not as one with it. What is old expires
//! by the server's own clock: a whole session at a time, since each use renews all of it.
//!
//! Nothing here waits for long: every call is bounded, and while the server is down (`connector.rs`) calls
//! fail at once. Only digests stand in the names of keys.

use std::{
    collections::HashMap,
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use async_trait::async_trait;
use bytes::Bytes;
use redis::{FromRedisValue, Value, from_redis_value};

use super::{
    Account, FoundState, MAX_COMMANDS_BYTES, MAX_SHARED, Page, SessionId, SessionRow, SharedValues,
    StateKey, StateToSave, Store, StoreError, Tenant, check_bytes, check_shared, retention,
};
use crate::config::{RedisConfig, StoreConfig};

mod address;
mod call;
mod connection;
mod connector;

use call::RedisCall;
use connector::Connector;

/// Sessions in a server.
pub struct RedisStore {
    /// What all names of keys begin with.
    prefix: String,
    connector: Connector,
    sessions: usize,
    /// Milliseconds.
    age: u128,
    /// Of what is shared, as it was last seen.
    version: AtomicU64,
}

/// The newest state of a session, as scripts give it: tenant, session, seconds since 1970, state and
/// orders.
type SessionRowReply = ([u8; 16], [u8; 16], u64, Bytes, Bytes);

impl RedisStore {
    /// Begins to connect, and does not wait for it. Called from within a runtime.
    ///
    /// # Errors
    /// The address or the certificates cannot be used. A server that does not answer is no error.
    pub fn open(config: &StoreConfig, server: &RedisConfig) -> io::Result<Self> {
        let address = address::parse_address(server)?;
        // Whether the server takes what is written: a replica answers, and does not.
        let key = format!("{}{{all}}p", server.prefix);
        let probe = RedisCall::from_command("SET", &key)
            .arg(1)
            .arg("PX")
            .arg(60_000);
        Ok(Self {
            connector: Connector::start(address, probe, config.call_timeout()),
            prefix: server.prefix.clone(),
            sessions: config.max_sessions,
            age: config.max_age.as_millis(),
            version: AtomicU64::new(0),
        })
    }

    /// The name of a key of an account, or of what is no account's. What stands in braces decides the slot
    /// of a cluster: an account's digest, so that a script reaches all that is the account's.
    fn key_name(&self, account: Option<&Account>, name: &str) -> String {
        let slot = account.map_or_else(|| "all".to_owned(), |it| hex::encode(it.as_bytes()));
        format!("{}{{{slot}}}{name}", self.prefix)
    }

    async fn send_call<T: FromRedisValue>(&self, call: RedisCall) -> Result<T, StoreError> {
        let (answer, _) = self.connector.send_call(call, None).await?;
        parse_reply(answer)
    }

    /// Asks, and takes note of the version of what is shared, which comes beside it in the same round trip
    /// and is not worth failing for.
    async fn send_with_version<T: FromRedisValue>(
        &self,
        call: RedisCall,
        version: RedisCall,
    ) -> Result<T, StoreError> {
        let (answer, version) = self.connector.send_call(call, Some(version)).await?;
        if let Some(Ok(version)) = version.map(parse_reply::<Option<u64>>) {
            self.note_version(version.unwrap_or(0));
        }
        parse_reply(answer)
    }

    /// Versions only grow. Answers may be read in another order than they came in: an older version never
    /// takes the place of a newer one, or what is new would not be asked for.
    fn note_version(&self, version: u64) {
        self.version.fetch_max(version, Relaxed);
    }

    /// The account of a session: the one asked for, else whoever's it is.
    async fn find_owner(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<Account>, StoreError> {
        if let Some(account) = account {
            return Ok(Some(*account));
        }
        let call = RedisCall::from_command("HGET", &self.key_name(None, "o")).arg(id.as_bytes());
        let owner: Option<[u8; 16]> = self.send_call(call).await?;
        Ok(owner.map(Account::from_bytes))
    }

    /// The newest states of sessions of one account; those that are gone are left out.
    async fn fetch_rows(
        &self,
        account: Account,
        call: RedisCall,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let rows: Vec<SessionRowReply> = self.send_call(call).await?;
        let row = |(tenant, session, saved_s, state, orders)| SessionRow {
            tenant: Tenant::from_parts(tenant, account),
            session: SessionId::from_bytes(session),
            saved_s,
            state,
            commands: orders,
        };
        Ok(rows.into_iter().map(row).collect())
    }

    /// The newest state of one session of an account.
    async fn fetch_row(
        &self,
        account: Account,
        id: &[u8; 16],
    ) -> Result<Option<SessionRow>, StoreError> {
        let call = call::ROW
            .build_call(&self.key_name(Some(&account), ""))
            .arg(id);
        Ok(self.fetch_rows(account, call).await?.pop())
    }

    /// A page of the administrator's list, whose sessions lie in many slots.
    async fn list_all_sessions(
        &self,
        skip: usize,
        take: usize,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let call = RedisCall::from_command("ZREVRANGE", &self.key_name(None, "l"))
            .arg(skip)
            .arg(skip + take - 1);
        let listed: Vec<[u8; 32]> = self.send_call(call).await?;
        let rows = listed.iter().map(async |entry| match entry.as_chunks().0 {
            [id, account] => self.fetch_row(Account::from_bytes(*account), id).await,
            _ => Ok(None),
        });
        let rows = futures_util::future::try_join_all(rows).await?;
        Ok(rows.into_iter().flatten().collect())
    }
}

/// What the server answers; anything else than was expected is not ours.
fn parse_reply<T: FromRedisValue>(answer: Value) -> Result<T, StoreError> {
    from_redis_value(answer).map_err(|_| StoreError::Damaged)
}

#[async_trait]
impl Store for RedisStore {
    async fn find_state(
        &self,
        tenant: &Tenant,
        _opening: u64,
        keys: &[StateKey],
    ) -> Result<Option<FoundState>, StoreError> {
        let keys: Vec<u8> = keys.iter().flat_map(|key| *key.as_bytes()).collect();
        let call = call::FIND
            .build_call(&self.key_name(Some(&tenant.account()), ""))
            .arg(tenant.id())
            .arg(keys)
            .arg(self.age);
        let version = RedisCall::from_command("GET", &self.key_name(None, "v"));
        let found: Option<(usize, Bytes, Bytes)> = self.send_with_version(call, version).await?;
        Ok(found.map(|(at, state, orders)| FoundState {
            at,
            state,
            commands: orders,
        }))
    }

    /// CANCEL: the script runs whole, or was never sent.
    async fn save_state(&self, saved: StateToSave) -> Result<(), StoreError> {
        let account = saved.tenant.account();
        let save = call::SAVE
            .build_call(&self.key_name(Some(&account), ""))
            .arg(saved.tenant.id())
            .arg(saved.session.as_bytes())
            .arg(&(saved.opening as u32).to_be_bytes())
            .arg(saved.keys.exact.as_bytes())
            .arg(
                saved
                    .keys
                    .gap
                    .as_ref()
                    .map_or(&[][..], |gap| gap.as_bytes()),
            )
            .arg(saved.keys.bare.as_bytes())
            .arg(&(saved.answer as u64).to_be_bytes())
            .arg(&saved.state[..])
            .arg(self.age)
            .arg(self.sessions)
            .arg(retention::MAX_KEPT)
            .arg(retention::MIN_KEPT)
            .arg(retention::KEPT_BYTES)
            .arg(retention::generation_size(0))
            .arg(retention::MAX_SIBLINGS)
            .arg(retention::MAX_CONVERSATIONS)
            .arg(retention::SESSION_BYTES);
        let enter = call::ENTER
            .build_call(&self.key_name(None, ""))
            .arg(account.as_bytes())
            .arg(saved.session.as_bytes())
            .arg(self.age)
            .arg(self.sessions);
        match self.send_with_version(save, enter).await? {
            true => Ok(()),
            // SECURITY: the end users of one account may know each other's session ids.
            false => Err(StoreError::Foreign),
        }
    }

    async fn load_session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        match self.find_owner(account, id).await? {
            Some(owner) => self.fetch_row(owner, id.as_bytes()).await,
            None => Ok(None),
        }
    }

    async fn put_commands(
        &self,
        account: Option<&Account>,
        id: SessionId,
        orders: Bytes,
    ) -> Result<bool, StoreError> {
        check_bytes(orders.len(), MAX_COMMANDS_BYTES)?;
        let Some(owner) = self.find_owner(account, id).await? else {
            return Ok(false);
        };
        let call = call::ORDER.build_call(&self.key_name(Some(&owner), ""));
        self.send_call(call.arg(id.as_bytes()).arg(&orders[..]))
            .await
    }

    async fn list_sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let take = page.take.min(Page::MAX_TAKE);
        if take == 0 {
            return Ok(Vec::new());
        }
        // No list is longer, and the end of the page is still a number that the server takes.
        let skip = page.skip.min(u32::MAX as usize);
        let Some(account) = account else {
            return self.list_all_sessions(skip, take).await;
        };
        let call = call::LIST.build_call(&self.key_name(Some(account), ""));
        self.fetch_rows(*account, call.arg(skip).arg(take)).await
    }

    /// As the lists have them: what expired lately may still count.
    async fn count_sessions(&self, account: Option<&Account>) -> Result<u64, StoreError> {
        self.send_call(RedisCall::from_command(
            "ZCARD",
            &self.key_name(account, "l"),
        ))
        .await
    }

    async fn publish_shared(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        check_shared(name, &value)?;
        let call = call::SHARE
            .build_call(&self.key_name(None, ""))
            .arg(name)
            .arg(&value[..])
            .arg(MAX_SHARED)
            .arg(self.age);
        self.note_version(self.send_call(call).await?);
        Ok(())
    }

    async fn read_shared(&self) -> Result<SharedValues, StoreError> {
        let call = call::SHARED.build_call(&self.key_name(None, ""));
        let (version, all): (Option<u64>, HashMap<Bytes, Bytes>) = self.send_call(call).await?;
        let version = version.unwrap_or(0);
        self.note_version(version);
        Ok(SharedValues {
            version,
            all: all.into_iter().collect(),
        })
    }

    fn shared_version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    async fn close(&self) {
        self.connector.stop();
    }
}

#[cfg(test)]
mod tests;
