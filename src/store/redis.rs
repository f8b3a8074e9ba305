//! The store for several replicas: a Redis or Valkey server, or a cluster.
//!
//! All keys of one account lie in one slot, and a script runs each operation atomically: a find and a save take one
//! round trip each. The list of all accounts and the shared values lie in another slot. They are written and read in
//! the same round trip as an account's keys, but not atomically with them. The server's clock expires a whole session
//! at once, since each use renews all its keys.
//!
//! Every call has a timeout, and calls fail at once while the server is down (`connector.rs`). Names of keys hold
//! digests only.

use std::{
    collections::HashMap,
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use async_trait::async_trait;
use bytes::Bytes;
use redis::{FromRedisValue, Value, from_redis_value};

use super::{
    Account, FoundState, LooseKeys, MAX_COMMANDS_BYTES, MAX_SHARED, Page, SessionId, SessionRow,
    SharedValues, StateKey, StateToSave, Store, StoreError, Tenant, check_bytes, check_shared,
    retention,
};
use crate::config::{RedisConfig, StoreConfig};

mod address;
mod call;
mod connection;
mod connector;

use call::{RedisCall, ServerScript};
use connector::Connector;

/// Changes when anything on the server changes its meaning, the encodings of states and commands too. 0.1.0 writes 1,
/// which later releases read.
const FORMAT: u64 = 1;

pub struct RedisStore {
    /// The prefix of all key names.
    prefix: String,
    connector: Connector,
    max_sessions: usize,
    max_age_ms: u128,
    /// The last seen version of the shared values.
    version: AtomicU64,
}

/// The first call of a connection. It writes, since a read-only replica answers reads.
fn make_probe(config: &StoreConfig, server: &RedisConfig) -> RedisCall {
    let script = concat!(
        include_str!("redis/common.lua"),
        include_str!("redis/format.lua")
    );
    let probe = RedisCall::from_command("EVAL", script).arg(1);
    let probe = probe.arg(format!("{}{{all}}", server.prefix));
    probe.arg(FORMAT).arg(config.max_age.as_millis())
}

/// The newest state of a session in a script's reply: tenant, session, seconds since 1970, state and commands.
type SessionRowReply = ([u8; 16], [u8; 16], u64, Bytes, Bytes);

impl RedisStore {
    /// Begins to connect without waiting, from within a Tokio runtime.
    ///
    /// # Errors
    /// The address or the certificates are invalid. A server that does not answer is no error.
    pub fn open(config: &StoreConfig, server: &RedisConfig) -> io::Result<Self> {
        let address = address::parse_address(server)?;
        let probe = make_probe(config, server);
        Ok(Self {
            connector: Connector::start(address, probe, config.call_timeout()),
            prefix: server.prefix.clone(),
            max_sessions: config.max_sessions,
            max_age_ms: config.max_age.as_millis(),
            version: AtomicU64::new(0),
        })
    }

    /// Waits for the server's first answer, two seconds at most.
    ///
    /// # Errors
    /// A newer release wrote to the server.
    pub async fn refuse_newer(self) -> io::Result<Self> {
        self.connector.refuse_newer().await?;
        Ok(self)
    }

    /// Connects once, and asks what [`RedisStore::open`] asks: why the server cannot be used, if it cannot.
    pub async fn find_fault(config: &StoreConfig, server: &RedisConfig) -> Option<String> {
        match address::parse_address(server) {
            Ok(address) => connector::find_fault(&address, &make_probe(config, server)).await,
            Err(error) => Some(error.to_string()),
        }
    }

    /// The name of an account's key, or of one for all accounts. The text in braces decides the slot of a cluster. It
    /// is the account's digest, so that a script reaches all keys of the account.
    fn key_name(&self, account: Option<&Account>, name: &str) -> String {
        let digest = |account: &Account| hex::encode(account.as_bytes());
        let slot = account.map_or_else(|| "all".to_owned(), digest);
        format!("{}{{{slot}}}{name}", self.prefix)
    }

    /// A call of a script for the keys of an account, or for those of all accounts.
    fn script_call(&self, script: &'static ServerScript, account: Option<&Account>) -> RedisCall {
        script.build_call(&self.key_name(account, ""))
    }

    async fn send_call<T: FromRedisValue>(&self, call: RedisCall) -> Result<T, StoreError> {
        let (reply, _) = self.connector.send_call(call, None).await?;
        parse_reply(reply)
    }

    /// Sends a call, and in the same round trip one for the version of the shared values, whose failure is ignored.
    async fn send_with_version<T: FromRedisValue>(
        &self,
        call: RedisCall,
        version: RedisCall,
    ) -> Result<T, StoreError> {
        let (reply, version) = self.connector.send_call(call, Some(version)).await?;
        if let Some(Ok(version)) = version.map(parse_reply::<Option<u64>>) {
            self.note_version(version.unwrap_or(0));
        }
        parse_reply(reply)
    }

    /// Keeps the largest version, since replies may be read out of order.
    fn note_version(&self, version: u64) {
        self.version.fetch_max(version, Relaxed);
    }

    /// CANCEL: the script runs to its end, or is never sent.
    async fn save_under_keys(
        &self,
        saved: StateToSave,
        loose: &[StateKey],
    ) -> Result<(), StoreError> {
        let loose = loose.iter().flat_map(|key| *key.as_bytes());
        let loose: Vec<u8> = loose.collect();
        let account = saved.tenant.account();
        let gap = saved.keys.gap.as_ref();
        let save = self
            .script_call(&call::SAVE, Some(&account))
            .arg(saved.tenant.id())
            .arg(saved.session.as_bytes())
            .arg(&(saved.opening as u32).to_be_bytes())
            .arg(saved.keys.exact.as_bytes())
            .arg(gap.map_or(&[][..], |gap| gap.as_bytes()))
            .arg(saved.keys.bare.as_bytes())
            .arg(&(saved.answer as u64).to_be_bytes())
            .arg(&saved.state[..])
            .arg(loose)
            .arg(self.max_age_ms)
            .arg(self.max_sessions)
            .arg(retention::MAX_KEPT)
            .arg(retention::MIN_KEPT)
            .arg(retention::KEPT_BYTES)
            .arg(retention::generation_size(0))
            .arg(retention::MAX_SIBLINGS)
            .arg(retention::MAX_CONVERSATIONS)
            .arg(retention::SESSION_BYTES)
            .arg(retention::LOOSE_BYTES);
        let enter = self
            .script_call(&call::ENTER, None)
            .arg(account.as_bytes())
            .arg(saved.session.as_bytes())
            .arg(self.max_age_ms)
            .arg(self.max_sessions)
            .arg(FORMAT);
        if self.send_with_version(save, enter).await? {
            Ok(())
        } else {
            // SECURITY: the end users of one account may know each other's session ids.
            Err(StoreError::Foreign)
        }
    }

    /// The given account, or else the account of the session.
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

    /// The newest states of one account's sessions; expired ones are left out.
    async fn fetch_rows(
        &self,
        account: Account,
        call: RedisCall,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let rows: Vec<SessionRowReply> = self.send_call(call).await?;
        let row = |(tenant, session, saved_s, state, commands)| SessionRow {
            tenant: Tenant::from_parts(tenant, account),
            session: SessionId::from_bytes(session),
            saved_s,
            state,
            commands,
        };
        Ok(rows.into_iter().map(row).collect())
    }

    /// The newest state of one session of an account.
    async fn fetch_row(
        &self,
        account: Account,
        id: &[u8; 16],
    ) -> Result<Option<SessionRow>, StoreError> {
        let call = self.script_call(&call::ROW, Some(&account)).arg(id);
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

fn parse_reply<T: FromRedisValue>(reply: Value) -> Result<T, StoreError> {
    from_redis_value(reply).map_err(|_| StoreError::Damaged)
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
        let call = self.script_call(&call::FIND, Some(&tenant.account()));
        let call = call.arg(tenant.id()).arg(keys).arg(self.max_age_ms);
        let version = RedisCall::from_command("GET", &self.key_name(None, "v"));
        let found: Option<(usize, Bytes, Bytes)> = self.send_with_version(call, version).await?;
        Ok(found.map(|(at, state, commands)| FoundState {
            at,
            state,
            commands,
        }))
    }

    async fn save_state(&self, saved: StateToSave) -> Result<(), StoreError> {
        self.save_under_keys(saved, &[]).await
    }

    async fn save_with_loose_keys(
        &self,
        saved: StateToSave,
        loose: LooseKeys,
    ) -> Result<(), StoreError> {
        self.save_under_keys(saved, &loose).await
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
        commands: Bytes,
    ) -> Result<bool, StoreError> {
        check_bytes(commands.len(), MAX_COMMANDS_BYTES)?;
        let Some(owner) = self.find_owner(account, id).await? else {
            return Ok(false);
        };
        let call = self.script_call(&call::PUT_COMMANDS, Some(&owner));
        let call = call.arg(id.as_bytes()).arg(&commands[..]);
        self.send_call(call).await
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
        // No list is longer, and the end of the page stays within the server's integers.
        let skip = page.skip.min(u32::MAX as usize);
        let Some(account) = account else {
            return self.list_all_sessions(skip, take).await;
        };
        let call = self.script_call(&call::LIST, Some(account));
        self.fetch_rows(*account, call.arg(skip).arg(take)).await
    }

    /// Recently expired sessions may count.
    async fn count_sessions(&self, account: Option<&Account>) -> Result<u64, StoreError> {
        let call = RedisCall::from_command("ZCARD", &self.key_name(account, "l"));
        self.send_call(call).await
    }

    async fn publish_shared(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        check_shared(name, &value)?;
        let call = self.script_call(&call::SHARE, None);
        let call = call.arg(name).arg(&value[..]).arg(MAX_SHARED);
        let call = call.arg(self.max_age_ms);
        self.note_version(self.send_call(call).await?);
        Ok(())
    }

    async fn read_shared(&self) -> Result<SharedValues, StoreError> {
        let call = self.script_call(&call::SHARED, None);
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
