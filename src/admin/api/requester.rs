//! The sender of a request to the API, and what it may see and do.

use http::{HeaderMap, header::AUTHORIZATION, request::Parts};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{
    error::Failure,
    http::{
        admission::Client,
        model_access::{allows_provider, allows_target},
        origin::is_local_client,
        page_link::{PageLink, TAB_HEADER},
    },
    provider::Target,
    proxy::App,
    session::{self, Account, ReportReader},
    wire::parse_bearer,
};

/// A client, the administrator, or somebody at this machine: with `admin.local`, or by the link of the start.
#[derive(Clone)]
pub(in crate::admin) struct Requester {
    /// The account whose sessions are shown; `None` for all.
    pub(super) account: Option<Account>,
    /// The client's account, whose sessions it may command and see with texts. `None` for the
    /// administrator, who may command all and sees texts only with `admin.show_content`.
    pub(super) client_account: Option<Account>,
    /// `None` for the administrator.
    pub(super) client: Option<Client>,
    /// A tab that the link of the start opened: sees all sessions with their titles, changes nothing.
    pub(super) by_link: bool,
}

impl Requester {
    /// # Errors
    /// If clients need keys and the request has no valid one, or if it has a wrong secret of a tab.
    pub(in crate::admin) fn from_parts(app: &App, parts: &Parts) -> Result<Self, Failure> {
        let headers = &parts.headers;
        let by_link = headers.contains_key(TAB_HEADER);
        if by_link {
            PageLink::check_conditions(&app.config.admin, &app.clients, parts)?;
            app.page_link.check_tab(headers)?;
        } else if is_admin(app, headers) {
            return Ok(Self {
                account: None,
                client_account: None,
                client: None,
                by_link,
            });
        }
        let client = app.clients.recognise_client(headers)?;
        let named = session::ClientIdentity::from_headers(client.name.as_deref(), headers);
        let account = app.sessions.tenants.derive_account(named);
        // SECURITY: `Host` and `Origin` were checked before, so no web page of another origin is local;
        // nor is a request that a reverse proxy on this machine forwarded.
        let local = app.config.admin.local
            && named == session::ClientIdentity::Anonymous
            && is_local_client(&app.clients, parts);
        Ok(Self {
            account: (!local && !by_link).then_some(account),
            client_account: Some(account),
            client: Some(client),
            by_link,
        })
    }

    /// How the requester sees sessions of that account, or with `None` those of a list.
    pub(super) fn choose_reader(&self, app: &App, account: Option<&Account>) -> ReportReader {
        match &self.client_account {
            Some(_) if self.by_link => ReportReader::Link,
            Some(client) if account == Some(client) => ReportReader::Owner,
            Some(_) => ReportReader::Local,
            None => ReportReader::Admin {
                show_content: app.config.admin.show_content,
            },
        }
    }

    /// The requester's account, if it may be told how many sessions other accounts have: only without client keys,
    /// where all clients use this machine.
    pub(super) fn account_told_of_others(&self, app: &App) -> Option<Account> {
        self.account.filter(|_| !app.clients.have_keys())
    }

    /// Whether the requester may see figures of all clients, such as `/metrics`.
    pub(in crate::admin) fn can_read_metrics(&self) -> bool {
        self.client.as_ref().is_none_or(Client::reads_metrics)
    }

    /// Whether the requester may know that a provider exists.
    pub(super) fn can_see_provider(&self, app: &App, provider: &str) -> bool {
        let client = self.client.as_ref();
        client.is_none_or(|client| allows_provider(&app.registry, client, provider))
    }

    /// Whether the requester may use a target by the name `asked`. `is_configured` says that the settings define this
    /// name.
    pub(super) fn may_use(
        &self,
        app: &App,
        asked: &str,
        is_configured: bool,
        target: &Target,
    ) -> bool {
        self.client
            .as_ref()
            .is_none_or(|client| allows_target(&app.registry, client, asked, is_configured, target))
    }
}

/// Whether the request has the administrator's key, compared in constant time.
fn is_admin(app: &App, headers: &HeaderMap) -> bool {
    let Some(expected) = &app.config.admin.key_sha256 else {
        return false;
    };
    let key = headers
        .get(AUTHORIZATION)
        .and_then(|value| parse_bearer(value.as_bytes()));
    key.is_some_and(|key| {
        let digest: [u8; 32] = Sha256::digest(key).into();
        digest.ct_eq(expected).into()
    })
}
