//! Whose conversation it is: the first part of every key under which something is stored.
//!
//! Promises that nothing of one client can be named by another, even with the same words: all
//! digests here are keyed with a secret of the installation, so a tenant can neither be guessed
//! nor tested for from outside. Never holds a credential: only its digest leaves this file.
//!
//! Two widths: the [`Account`] is who pays (the client key, or the credential that is passed on)
//! and scopes the session API; the [`Tenant`] is narrower by the end user the request names, and
//! scopes what may be inherited.

use std::fmt;

use http::{HeaderMap, header};

use super::{hint::SessionHint, installation_secret::InstallationSecret};
use crate::{
    conversation::Conversation,
    json::scan::JsonKind,
    store::{Account, SessionId, Tenant},
};

/// How a request proved who it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ClientIdentity<'a> {
    /// The name under `[clients]` whose key was sent.
    Named(&'a str),
    /// A credential that goes to the provider as it is; only its digest is kept.
    PassedOn(&'a [u8]),
    Anonymous,
}

impl<'a> ClientIdentity<'a> {
    /// The name where our own keys are used, else the credential among the headers, else nobody.
    pub fn from_headers(name: Option<&'a str>, headers: &'a HeaderMap) -> Self {
        if let Some(name) = name {
            return Self::Named(name);
        }
        [header::AUTHORIZATION.as_str(), "api-key", "x-api-key"]
            .iter()
            .find_map(|credential| headers.get(*credential))
            .map_or(Self::Anonymous, |value| Self::PassedOn(value.as_bytes()))
    }
}

/// SECURITY: derived, so that a log line cannot show a credential.
impl fmt::Debug for ClientIdentity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "Named({name})"),
            Self::PassedOn(_) => f.write_str("PassedOn([hidden])"),
            Self::Anonymous => f.write_str("Anonymous"),
        }
    }
}

/// Makes tenants and hinted session ids with the installation's secret.
#[derive(Clone, Debug)]
pub struct Tenants {
    secret: InstallationSecret,
}

impl Tenants {
    pub fn new(secret: InstallationSecret) -> Self {
        Self { secret }
    }

    /// The account of a client; enough for the session API.
    pub fn derive_account(&self, client: ClientIdentity<'_>) -> Account {
        let mut digest = KeyedDigest::new(&self.secret, b"account");
        match client {
            ClientIdentity::Named(name) => digest.mix_part(1, name.as_bytes()),
            ClientIdentity::PassedOn(credential) => digest.mix_part(2, credential),
            ClientIdentity::Anonymous => digest.mix_part(3, b""),
        }
        Account::from_bytes(digest.finish())
    }

    /// The tenant of a request: the account, with the end user where one is named.
    pub fn derive_tenant(
        &self,
        client: ClientIdentity<'_>,
        headers: &HeaderMap,
        conversation: Option<&Conversation>,
    ) -> Tenant {
        let account = self.derive_account(client);
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

    /// The id of the session a hint names, for this tenant alone.
    pub fn hinted_session(&self, tenant: &Tenant, hint: &SessionHint) -> SessionId {
        let mut digest = KeyedDigest::new(&self.secret, b"hint");
        digest.mix_part(1, tenant.id());
        digest.mix_part(2, hint.source().as_bytes());
        digest.mix_part(3, hint.value());
        SessionId::from_bytes(digest.finish())
    }
}

/// Mixes a top-level field in by its decoded text; where there is none (a number, a lone
/// surrogate) by its bytes, so that no two users fall together for being unusual.
fn mix_field(digest: &mut KeyedDigest, tag: u8, conversation: &Conversation, name: &str) {
    if let Some(text) = conversation.text_value(name) {
        digest.mix_part(tag, text.as_bytes());
    } else if let Some(field) = conversation.find_field(name)
        && field.kind != JsonKind::Null
    {
        digest.mix_part(tag | 0x80, conversation.span_bytes(field.value));
    }
}

/// A keyed digest of tagged, length-prefixed pieces: no two lists of pieces give the same input.
struct KeyedDigest(blake3::Hasher);

impl KeyedDigest {
    fn new(secret: &InstallationSecret, purpose: &[u8]) -> Self {
        let mut keyed = Self(blake3::Hasher::new_keyed(secret.as_bytes()));
        keyed.mix_part(0, purpose);
        keyed
    }

    fn mix_part(&mut self, tag: u8, piece: &[u8]) {
        self.0.update(&[tag]);
        self.0.update(&(piece.len() as u64).to_le_bytes());
        self.0.update(piece);
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
    fn kinds_of_clients_never_meet() {
        let tenants = tenants();
        let alice = tenants.derive_account(ClientIdentity::Named("alice"));
        assert_eq!(
            alice,
            tenants.derive_account(ClientIdentity::Named("alice"))
        );
        assert_ne!(
            alice,
            tenants.derive_account(ClientIdentity::PassedOn(b"alice"))
        );
        assert_ne!(alice, tenants.derive_account(ClientIdentity::Anonymous));
        let other = Tenants::new(InstallationSecret::from_bytes([8; 32]));
        assert_ne!(alice, other.derive_account(ClientIdentity::Named("alice")));
    }

    #[test]
    fn the_credential_is_found_in_each_of_its_headers() {
        for name in ["authorization", "api-key", "x-api-key"] {
            let headers = headers(&[(name, "Bearer k")]);
            assert_eq!(
                ClientIdentity::from_headers(None, &headers),
                ClientIdentity::PassedOn(b"Bearer k")
            );
            assert_eq!(
                ClientIdentity::from_headers(Some("bob"), &headers),
                ClientIdentity::Named("bob")
            );
            assert!(
                !format!("{:?}", ClientIdentity::from_headers(None, &headers)).contains("Bearer")
            );
        }
        assert_eq!(
            ClientIdentity::from_headers(None, &HeaderMap::new()),
            ClientIdentity::Anonymous
        );
    }

    #[test]
    fn end_users_are_apart_and_cannot_be_confused() {
        let tenants = tenants();
        let of = |fields: &[(&str, &str)], pairs: &[(&'static str, &'static str)]| {
            let conversation = fixture::with_fields(fields);
            tenants.derive_tenant(
                ClientIdentity::Anonymous,
                &headers(pairs),
                Some(&conversation),
            )
        };
        let all = [
            of(&[], &[]),
            of(&[("user", "\"ab\"")], &[]),
            of(&[("safety_identifier", "\"ab\"")], &[]),
            of(&[("user", "\"a\""), ("safety_identifier", "\"b\"")], &[]),
            of(&[("user", "5")], &[]),
            of(&[("user", "\"5\"")], &[]),
            of(&[], &[("x-openwebui-user-id", "ab")]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert_eq!(one.account(), all[0].account());
            for other in &all[index + 1..] {
                assert_ne!(one.id(), other.id());
            }
        }
        assert_eq!(all[0], of(&[("user", "null")], &[]));
    }
}
