//! What the server answers. Anything else than was expected is not ours.

use bytes::Bytes;
use redis::Value;

use super::super::{Account, Found, Row, SessionId, Shared, StoreError, Tenant};

pub(super) fn found(answer: Value) -> Result<Option<Found>, StoreError> {
    if answer == Value::Nil {
        return Ok(None);
    }
    let [at, state, orders] = parts(answer)?;
    Ok(Some(Found {
        at: usize::try_from(number(&at)?).map_err(|_| StoreError::Damaged)?,
        state: bytes(state)?,
        orders: bytes(orders)?,
    }))
}

/// Rows of an account, without the places of those that are gone.
pub(super) fn rows(answer: Value, account: Account) -> Result<Vec<Row>, StoreError> {
    let rows = list(answer)?.into_iter();
    let there = rows.filter(|row| *row != Value::Nil);
    there.map(|held| row(held, account)).collect()
}

fn row(held: Value, account: Account) -> Result<Row, StoreError> {
    let [tenant, session, saved_s, state, orders] = parts(held)?;
    Ok(Row {
        tenant: Tenant::from_parts(digest(&bytes(tenant)?)?, account),
        session: SessionId::from_bytes(digest(&bytes(session)?)?),
        saved_s: decimal(&saved_s).ok_or(StoreError::Damaged)?,
        state: bytes(state)?,
        orders: bytes(orders)?,
    })
}

/// The administrator's list.
pub(super) fn listed(answer: Value) -> Result<Vec<(SessionId, Account)>, StoreError> {
    let entry = |entry| {
        let entry = bytes(entry)?;
        let (session, account) = entry.split_at_checked(16).ok_or(StoreError::Damaged)?;
        let session = SessionId::from_bytes(digest(session)?);
        Ok((session, Account::from_bytes(digest(account)?)))
    };
    list(answer)?.into_iter().map(entry).collect()
}

pub(super) fn account(answer: Value) -> Result<Option<Account>, StoreError> {
    if answer == Value::Nil {
        return Ok(None);
    }
    Ok(Some(Account::from_bytes(digest(&bytes(answer)?)?)))
}

pub(super) fn shared(answer: Value) -> Result<Shared, StoreError> {
    let [version, all] = parts(answer)?;
    let mut all = list(all)?.into_iter();
    let mut shared = Shared {
        version: self::version(&version).unwrap_or_default(),
        all: Vec::with_capacity(all.len() / 2),
    };
    while let (Some(name), Some(value)) = (all.next(), all.next()) {
        shared.all.push((bytes(name)?, bytes(value)?));
    }
    Ok(shared)
}

/// 0 where nothing was shared yet; `None` where the answer is none.
pub(super) fn version(answer: &Value) -> Option<u64> {
    match answer {
        Value::Nil => Some(0),
        answer => decimal(answer),
    }
}

pub(super) fn number(answer: &Value) -> Result<i64, StoreError> {
    match answer {
        Value::Int(number) => Ok(*number),
        _ => Err(StoreError::Damaged),
    }
}

fn decimal(answer: &Value) -> Option<u64> {
    match answer {
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
        Value::Int(number) => (*number).try_into().ok(),
        _ => None,
    }
}

fn list(answer: Value) -> Result<Vec<Value>, StoreError> {
    match answer {
        Value::Array(parts) => Ok(parts),
        _ => Err(StoreError::Damaged),
    }
}

fn parts<const N: usize>(answer: Value) -> Result<[Value; N], StoreError> {
    list(answer)?.try_into().map_err(|_| StoreError::Damaged)
}

fn bytes(answer: Value) -> Result<Bytes, StoreError> {
    match answer {
        Value::BulkString(bytes) => Ok(bytes.into()),
        _ => Err(StoreError::Damaged),
    }
}

fn digest(bytes: &[u8]) -> Result<[u8; 16], StoreError> {
    bytes.try_into().map_err(|_| StoreError::Damaged)
}
