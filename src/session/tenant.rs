//! The owner of a conversation: the first part of every key in the store.
//!
//! SECURITY: all digests here are keyed with the installation's secret, so a client can neither guess another client's
//! tenant nor test for it, even with the same conversation. Credentials are never kept; only their digests leave this
//! file.
//!
//! The [`Account`] is who pays: the client key, or the credential that is passed on. It scopes the session API. The
//! [`Tenant`] adds the end user that a request names. It scopes which states are inherited.

use std::fmt;

use http::{HeaderMap, header};
use subtle::ConstantTimeEq as _;

use super::{hint::SessionHint, installation_secret::InstallationSecret};
use crate::{
    config::{PROXY_KEY, secret::Secret},
    conversation::Conversation,
    json::scan::JsonKind,
    store::{Account, SessionId, Tenant},
    wire::parse_bearer,
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ClientIdentity<'a> {
    /// The name under `[clients]` whose key was sent.
    Named(&'a str),
    /// A credential that is passed on to the provider.
    PassedOn(&'a [u8]),
    /// A text by which the client owns its sessions, whatever its credential is. So a client whose credential changes
    /// keeps its sessions.
    Chosen(&'a [u8]),
    Anonymous,
}

impl<'a> ClientIdentity<'a> {
    /// The client's name if the proxy has client keys, else the text that the client chose, else the credential in the
    /// headers.
    pub fn from_headers(name: Option<&'a str>, headers: &'a HeaderMap) -> Self {
        if let Some(name) = name {
            return Self::Named(name);
        }
        if let Some(chosen) = headers.get(PROXY_KEY) {
            return Self::Chosen(chosen.as_bytes().trim_ascii());
        }
        let names = [header::AUTHORIZATION.as_str(), "api-key", "x-api-key"];
        let sent = names.iter().find_map(|name| headers.get(*name));
        sent.map_or(Self::Anonymous, |value| {
            // A key is the same credential in any header, with or without `Bearer` before it.
            let value = value.as_bytes().trim_ascii();
            Self::PassedOn(parse_bearer(value).unwrap_or(value))
        })
    }
}

/// SECURITY: not derived, so that a log line cannot show a credential.
impl fmt::Debug for ClientIdentity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "Named({name})"),
            Self::PassedOn(_) => f.write_str("PassedOn([hidden])"),
            Self::Chosen(_) => f.write_str("Chosen([hidden])"),
            Self::Anonymous => f.write_str("Anonymous"),
        }
    }
}

/// Derives accounts, tenants and hinted session ids with the installation's secret.
#[derive(Clone, Debug)]
pub struct Tenants {
    secret: InstallationSecret,
    run_key: Secret,
}

impl Tenants {
    pub fn new(secret: InstallationSecret) -> Self {
        Self {
            run_key: Secret::new(secret.derive_run_key()),
            secret,
        }
    }

    /// Whether a credential is the key with which `plimsoll run` names the account of its clients, for all their sessions.
    pub fn is_run_key(&self, credential: &[u8]) -> bool {
        self.run_key.reveal().as_bytes().ct_eq(credential).into()
    }

    pub fn derive_account(&self, client: ClientIdentity<'_>) -> Account {
        let mut digest = KeyedDigest::new(&self.secret, b"account");
        match client {
            ClientIdentity::Named(name) => digest.mix_part(1, name.as_bytes()),
            ClientIdentity::PassedOn(credential) => digest.mix_part(2, credential),
            ClientIdentity::Anonymous => digest.mix_part(3, b""),
            // The dashboard and the command line send the chosen text as a credential.
            ClientIdentity::Chosen(text) => digest.mix_part(2, text),
        }
        Account::from_bytes(digest.finish())
    }

    /// Derives the account of a login from the parts that stay the same when its token is renewed.
    pub fn derive_login(&self, parts: &[&[u8]]) -> Account {
        let mut digest = KeyedDigest::new(&self.secret, b"login");
        parts.iter().for_each(|part| digest.mix_part(1, part));
        Account::from_bytes(digest.finish())
    }

    /// A label for an account without a name: 8 hexadecimal digits, the same for the same key and no part of any id.
    pub(super) fn label_account(&self, account: &Account) -> String {
        let mut digest = KeyedDigest::new(&self.secret, b"label");
        digest.mix_part(1, account.as_bytes());
        hex::encode(&digest.finish()[..4])
    }

    /// The account with the end user, if the request names one.
    pub fn derive_tenant(
        &self,
        client: ClientIdentity<'_>,
        headers: &HeaderMap,
        conversation: Option<&Conversation>,
    ) -> Tenant {
        self.derive_tenant_of(self.derive_account(client), headers, conversation)
    }

    /// Derives the tenant as [`Self::derive_tenant`] does, for a known account.
    pub fn derive_tenant_of(
        &self,
        account: Account,
        headers: &HeaderMap,
        conversation: Option<&Conversation>,
    ) -> Tenant {
        let mut digest = KeyedDigest::new(&self.secret, b"tenant");
        digest.mix_part(1, account.as_bytes());
        for (tag, name) in [(2, "user"), (3, "safety_identifier")] {
            if let Some(conversation) = conversation {
                mix_field(&mut digest, tag, conversation, name);
            }
        }
        if let Some(user) = headers.get("x-openwebui-user-id") {
            digest.mix_part(4, user.as_bytes());
        }
        Tenant::from_parts(digest.finish(), account)
    }

    /// The id of the session that a hint of this tenant names.
    pub fn hinted_session(&self, tenant: &Tenant, hint: &SessionHint) -> SessionId {
        let mut digest = KeyedDigest::new(&self.secret, b"hint");
        digest.mix_part(1, tenant.id());
        digest.mix_part(2, hint.source.as_bytes());
        digest.mix_part(3, &hint.value);
        SessionId::from_bytes(digest.finish())
    }
}

/// Mixes in the decoded text of a top-level field. If the field has no text (a number, a lone surrogate), its bytes are
/// mixed in, so that different unusual values give different tenants.
fn mix_field(digest: &mut KeyedDigest, tag: u8, conversation: &Conversation, name: &str) {
    if let Some(text) = conversation.text_value(name) {
        digest.mix_part(tag, text.as_bytes());
    } else if let Some(field) = conversation.find_field(name)
        && field.kind != JsonKind::Null
    {
        digest.mix_part(tag | 0x80, conversation.span_bytes(field.value));
    }
}

/// A keyed digest of tagged, length-prefixed parts. No two lists of parts give the same input.
struct KeyedDigest(blake3::Hasher);

impl KeyedDigest {
    fn new(secret: &InstallationSecret, purpose: &[u8]) -> Self {
        let mut keyed = Self(blake3::Hasher::new_keyed(secret.as_bytes()));
        keyed.mix_part(0, purpose);
        keyed
    }

    fn mix_part(&mut self, tag: u8, part: &[u8]) {
        self.0.update(&[tag]);
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    fn finish(&self) -> [u8; 16] {
        let mut short = [0; 16];
        self.0.finalize_xof().fill(&mut short);
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::fixture;

    fn tenants() -> Tenants {
        Tenants::new(InstallationSecret::from_bytes([7; 32]))
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn accounts_differ_by_kind_of_client_and_by_installation() {
        let tenants = tenants();
        let named = ClientIdentity::Named("alice");
        let alice = tenants.derive_account(named);
        assert_eq!(alice, tenants.derive_account(named));
        for other in [
            ClientIdentity::PassedOn(b"alice"),
            ClientIdentity::Anonymous,
        ] {
            assert_ne!(alice, tenants.derive_account(other));
        }
        let other = Tenants::new(InstallationSecret::from_bytes([8; 32]));
        assert_ne!(alice, other.derive_account(named));
    }

    #[test]
    fn the_credential_is_found_in_each_of_its_headers() {
        for (name, value) in [
            ("authorization", "Bearer kay"),
            ("authorization", " bearer  kay "),
            ("authorization", "kay"),
            ("api-key", "kay"),
            ("x-api-key", "kay"),
        ] {
            let headers = headers(&[(name, value)]);
            let passed_on = ClientIdentity::from_headers(None, &headers);
            assert!(
                passed_on == ClientIdentity::PassedOn(b"kay"),
                "{name}: {value}"
            );
            assert!(!format!("{passed_on:?}").contains("kay"));
            let named = ClientIdentity::from_headers(Some("bob"), &headers);
            assert_eq!(named, ClientIdentity::Named("bob"));
        }
        // The SDKs of `anthropic-version: 2026-10-21` send a key as `Bearer`.
        let key = ClientIdentity::PassedOn(b"sk-ant-api03-kay");
        for (name, value) in [
            ("authorization", "Bearer sk-ant-api03-kay"),
            ("x-api-key", "sk-ant-api03-kay"),
        ] {
            let headers = headers(&[(name, value)]);
            assert!(
                ClientIdentity::from_headers(None, &headers) == key,
                "{name}"
            );
        }
        let chosen = headers(&[("x-plimsoll-key", "chosen"), ("x-api-key", "kay")]);
        let chosen = ClientIdentity::from_headers(None, &chosen);
        assert!(chosen == ClientIdentity::Chosen(b"chosen"));
        assert!(!format!("{chosen:?}").contains("chosen"));
        let empty = HeaderMap::new();
        let nobody = ClientIdentity::from_headers(None, &empty);
        assert_eq!(nobody, ClientIdentity::Anonymous);
    }

    #[test]
    fn end_users_have_separate_tenants() {
        let tenants = tenants();
        let tenant = |fields: &[(&str, &str)], pairs: &[(&'static str, &'static str)]| {
            let conversation = fixture::with_fields(fields);
            let headers = headers(pairs);
            tenants.derive_tenant(ClientIdentity::Anonymous, &headers, Some(&conversation))
        };
        let all = [
            tenant(&[], &[]),
            tenant(&[("user", "\"ab\"")], &[]),
            tenant(&[("safety_identifier", "\"ab\"")], &[]),
            tenant(&[("user", "\"a\""), ("safety_identifier", "\"b\"")], &[]),
            tenant(&[("user", "5")], &[]),
            tenant(&[("user", "\"5\"")], &[]),
            tenant(&[], &[("x-openwebui-user-id", "ab")]),
        ];
        for (index, tenant) in all.iter().enumerate() {
            assert_eq!(tenant.account(), all[0].account());
            for other in &all[index + 1..] {
                assert_ne!(tenant.id(), other.id());
            }
        }
        assert_eq!(all[0], tenant(&[("user", "null")], &[]));
    }
}
