//! Who asks, and what of it may be told.

use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{
    error::Failure,
    provider::Target,
    server::{
        App,
        admit::{self, Client, allows_provider, allows_target},
    },
    session::{self, Account, Reader},
};

/// Whoever asks: a client, or the administrator.
#[derive(Clone)]
pub(super) struct Who {
    /// `None`: the administrator, who may ask of any.
    pub(super) account: Option<Account>,
    /// `None`: the administrator.
    pub(super) client: Option<Client>,
}

impl Who {
    /// # Errors
    /// Keys are set, and the request has none or another.
    pub(super) fn of(app: &App, headers: &HeaderMap) -> Result<Self, Failure> {
        if is_admin(app, headers) {
            return Ok(Self {
                account: None,
                client: None,
            });
        }
        let client = app.clients.recognise(headers)?;
        let named = session::Client::of(client.name.as_deref(), headers);
        Ok(Self {
            account: Some(app.sessions.tenants().account(named)),
            client: Some(client),
        })
    }

    pub(super) fn reader(&self, app: &App) -> Reader {
        match self.account {
            Some(_) => Reader::Owner,
            None => Reader::Admin {
                show_content: app.config.admin.show_content,
            },
        }
    }

    /// Whether it may know what all clients together do: the rule of `/metrics`.
    pub(super) fn watches(&self) -> bool {
        self.client.as_ref().is_none_or(Client::unlimited)
    }

    /// Whether it may know that a provider is there.
    pub(super) fn knows(&self, app: &App, provider: &str) -> bool {
        let client = self.client.as_ref();
        client.is_none_or(|client| allows_provider(app, client, provider))
    }

    /// Whether it may use what `asked` stands for; `made`: the name is one of the settings' own.
    pub(super) fn may_use(&self, app: &App, asked: &str, made: bool, target: &Target) -> bool {
        let client = self.client.as_ref();
        client.is_none_or(|client| allows_target(app, client, asked, made, target))
    }
}

/// Whether the request carries the administrator's key; compared in constant time.
pub(in crate::server) fn is_admin(app: &App, headers: &HeaderMap) -> bool {
    let Some(expected) = &app.config.admin.key_sha256 else {
        return false;
    };
    let key = headers
        .get(AUTHORIZATION)
        .and_then(|value| admit::bearer(value.as_bytes()));
    key.is_some_and(|key| {
        let digest: [u8; 32] = Sha256::digest(key).into();
        digest.ct_eq(expected).into()
    })
}
