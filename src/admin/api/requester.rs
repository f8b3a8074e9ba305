//! Who asks, and what of it may be told.

use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{
    error::Failure,
    http::admission::{self, Client, allows_provider, allows_target},
    provider::Target,
    proxy::App,
    session::{self, Account, ReportReader},
};

/// Where another proxy on this machine says for whom it asks, beside all that begin with `x-forwarded-`.
const FORWARDED: [&str; 6] = [
    "cf-connecting-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-real-ip",
];

/// Whether another proxy asks for somebody else. One that adds no header cannot be told from a local client.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let mut names = headers.keys().map(http::HeaderName::as_str);
    names.any(|name| name.starts_with("x-forwarded-") || FORWARDED.contains(&name))
}

/// Whoever asks: a client, the administrator, or somebody at this machine where `admin.local` is on.
#[derive(Clone)]
pub(in crate::admin) struct Requester {
    /// Whose sessions are shown; `None`: of all.
    pub(super) account: Option<Account>,
    /// Whose sessions may be changed and are shown with texts; `None`: of all, as the administrator, who sees
    /// texts only with `admin.show_content`.
    pub(super) own: Option<Account>,
    /// `None`: the administrator.
    pub(super) client: Option<Client>,
}

impl Requester {
    /// # Errors
    /// Keys are set, and the request has none or another.
    pub(in crate::admin) fn from_headers(app: &App, headers: &HeaderMap) -> Result<Self, Failure> {
        if is_admin(app, headers) {
            return Ok(Self {
                account: None,
                own: None,
                client: None,
            });
        }
        let client = app.clients.recognise_client(headers)?;
        let named = session::ClientIdentity::from_headers(client.name.as_deref(), headers);
        let own = app.sessions.tenants().derive_account(named);
        // SECURITY: `Host` and `Origin` were looked at already, so it is no page of elsewhere; and no
        // proxy of this machine asks for another one.
        let local = app.config.admin.local
            && !app.clients.have_keys()
            && named == session::ClientIdentity::Anonymous
            && !is_forwarded(headers);
        Ok(Self {
            account: (!local).then_some(own),
            own: Some(own),
            client: Some(client),
        })
    }

    /// What may be read of sessions of that account; `None`: of all that are listed.
    pub(super) fn reader_of(&self, app: &App, account: Option<&Account>) -> ReportReader {
        match &self.own {
            Some(own) if account == Some(own) => ReportReader::Owner,
            Some(_) => ReportReader::Local,
            None => ReportReader::Admin {
                show_content: app.config.admin.show_content,
            },
        }
    }

    /// The account of whoever asks, where it may know how many sessions others have: without client keys
    /// all of them are of this machine.
    pub(super) fn counts_others(&self, app: &App) -> Option<Account> {
        self.account.filter(|_| !app.clients.have_keys())
    }

    /// Whether it may know what all clients together do: the rule of `/metrics`.
    pub(in crate::admin) fn can_read_metrics(&self) -> bool {
        self.client.as_ref().is_none_or(Client::is_unlimited)
    }

    /// Whether it may know that a provider is there.
    pub(super) fn can_see_provider(&self, app: &App, provider: &str) -> bool {
        let client = self.client.as_ref();
        client.is_none_or(|client| allows_provider(&app.registry, client, provider))
    }

    /// Whether it may use what `asked` stands for; `made`: the name is one of the settings' own.
    pub(super) fn may_use(&self, app: &App, asked: &str, made: bool, target: &Target) -> bool {
        let client = self.client.as_ref();
        client.is_none_or(|client| allows_target(&app.registry, client, asked, made, target))
    }
}

/// Whether the request carries the administrator's key; compared in constant time.
fn is_admin(app: &App, headers: &HeaderMap) -> bool {
    let Some(expected) = &app.config.admin.key_sha256 else {
        return false;
    };
    let key = headers
        .get(AUTHORIZATION)
        .and_then(|value| admission::parse_bearer(value.as_bytes()));
    key.is_some_and(|key| {
        let digest: [u8; 32] = Sha256::digest(key).into();
        digest.ct_eq(expected).into()
    })
}
