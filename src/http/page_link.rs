//! The one-time link that opens the dashboard for all sessions.
//!
//! SECURITY: the start makes its token only where it prints the link, on a terminal. A token opens one tab of a browser:
//! the tab gets another secret in its place, which is good until the proxy ends. Only digests of both are kept. Neither
//! stands in a log, a cookie, or the path or query of a request. [`PageLink::check_conditions`] is asked with each use.

use http::{HeaderMap, HeaderName, request::Parts};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{admission::Clients, origin::is_local_client};
use crate::{config::AdminConfig, error::Failure};

/// Carries the token, once.
pub const LINK_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-link");
/// Carries the tab's secret.
pub const TAB_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-tab");

type SecretDigest = [u8; 32];

#[derive(Debug, Default)]
pub struct PageLink {
    secrets: Mutex<Secrets>,
}

#[derive(Debug, Default)]
struct Secrets {
    token: Option<SecretDigest>,
    tab: Option<SecretDigest>,
}

impl PageLink {
    /// Makes the token of a link: 32 hexadecimal digits.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn issue_token(&self) -> Result<String, getrandom::Error> {
        let (token, digest) = draw_secret()?;
        self.secrets.lock().token = Some(digest);
        Ok(token)
    }

    /// Takes the token of the headers, and makes the secret of a tab: 32 hexadecimal digits.
    ///
    /// # Errors
    /// There is no token in the headers, it is wrong, or it was used.
    pub fn exchange_token(&self, headers: &HeaderMap) -> Result<String, Failure> {
        let mut secrets = self.secrets.lock();
        check_secret(secrets.token, headers, &LINK_HEADER)?;
        let (tab, digest) = draw_secret().map_err(|_| Failure::LinkOver)?;
        *secrets = Secrets {
            token: None,
            tab: Some(digest),
        };
        Ok(tab)
    }

    /// # Errors
    /// The headers do not have the secret of the tab that the link opened.
    pub fn check_tab(&self, headers: &HeaderMap) -> Result<(), Failure> {
        check_secret(self.secrets.lock().tab, headers, &TAB_HEADER)
    }

    /// # Errors
    /// `admin.link` is off, clients have keys, or the request was forwarded or does not name this machine.
    pub fn check_conditions(
        admin: &AdminConfig,
        clients: &Clients,
        parts: &Parts,
    ) -> Result<(), Failure> {
        if admin.link && is_local_client(clients, parts) {
            Ok(())
        } else {
            Err(Failure::LinkOver)
        }
    }
}

/// A random secret and its digest.
fn draw_secret() -> Result<(String, SecretDigest), getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    let secret = hex::encode(bytes);
    let digest = Sha256::digest(&secret).into();
    Ok((secret, digest))
}

/// Compares in constant time.
fn check_secret(
    expected: Option<SecretDigest>,
    headers: &HeaderMap,
    name: &HeaderName,
) -> Result<(), Failure> {
    let sent = headers.get(name).map(|sent| Sha256::digest(sent).into());
    let is_same = |(expected, sent): (SecretDigest, SecretDigest)| expected.ct_eq(&sent).into();
    if expected.zip(sent).is_some_and(is_same) {
        Ok(())
    } else {
        Err(Failure::LinkOver)
    }
}
