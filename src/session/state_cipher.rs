//! Encryption of what a store holds of a session: XChaCha20-Poly1305, under a key derived from the
//! one of the settings.
//!
//! Stored is a marker, which is the version of no state and of no orders; a nonce that never comes
//! twice; and what was written, with a tag. The tag also covers whose it is, so that nothing opens
//! under another tenant's name, nor orders under another session's; the session of a state stands in
//! the state. What was stored plain before there was a key is still read. Says nothing of when
//! something was written, so an older state in the place of a newer one opens.

use std::borrow::Cow;

use bytes::Bytes;
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};

use super::{SessionId, Tenant, id_generator::IdGenerator};
use crate::config::secret::SecretKey;

/// First byte of all that is encrypted. Versions of what is not count up from 1.
const MARKER: u8 = 0xe1;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// Bytes that encryption adds.
pub const ADDED_BYTES: usize = 1 + NONCE_BYTES + TAG_BYTES;

/// Names what the key is derived for; another name makes another key.
const CONTEXT: &str = "plimsoll: states of sessions at rest, XChaCha20-Poly1305, 1";

/// Encrypts and opens; without a key it does neither, and plain bytes pass as they are.
pub(super) struct StateCipher {
    cipher: Option<XChaCha20Poly1305>,
    nonces: IdGenerator,
}

/// What something is, and whose.
#[derive(Clone, Copy)]
pub(super) enum SealedSubject<'a> {
    State(&'a Tenant),
    Commands(&'a Tenant, SessionId),
}

/// Why something encrypted cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecryptError {
    #[error("it is encrypted, and store.encrypt_key_env names no key")]
    NoKey,
    #[error("it was encrypted with another key or for another session, or it is damaged")]
    Refused,
}

impl StateCipher {
    /// # Errors
    /// Where the system gives no random bits.
    pub(super) fn new(key: Option<&SecretKey>) -> Result<Self, getrandom::Error> {
        let derived = key.map(|key| blake3::derive_key(CONTEXT, key.reveal()));
        Ok(Self {
            cipher: derived.map(|key| XChaCha20Poly1305::new(&key.into())),
            nonces: IdGenerator::new()?,
        })
    }

    /// What is to be stored.
    pub(super) fn encrypt_bytes(
        &self,
        of: SealedSubject<'_>,
        plain: Vec<u8>,
    ) -> Result<Bytes, DecryptError> {
        let Some(cipher) = &self.cipher else {
            // Without the room that it grew into: the store may keep it for long.
            return Ok(plain.into_boxed_slice().into());
        };
        let nonce: [u8; NONCE_BYTES] = self.nonces.next_bytes();
        let payload = Payload {
            msg: &plain,
            aad: &of.associated_data(),
        };
        // Fails only for hundreds of gigabytes.
        let sealed = cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| DecryptError::Refused)?;
        Ok([&[MARKER], &nonce[..], &sealed].concat().into())
    }

    /// What was stored.
    ///
    /// # Errors
    /// It is encrypted, and not with this key for this tenant, or not whole.
    pub(super) fn decrypt_bytes<'a>(
        &self,
        of: SealedSubject<'_>,
        stored: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, DecryptError> {
        let Some((&MARKER, rest)) = stored.split_first() else {
            return Ok(stored.into());
        };
        let cipher = self.cipher.as_ref().ok_or(DecryptError::NoKey)?;
        let (nonce, sealed) = rest
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or(DecryptError::Refused)?;
        let payload = Payload {
            msg: sealed,
            aad: &of.associated_data(),
        };
        let opened = cipher.decrypt(&XNonce::from(*nonce), payload);
        opened.map(Cow::from).map_err(|_| DecryptError::Refused)
    }
}

impl SealedSubject<'_> {
    /// Differs in length or in its first byte for all that must not be mistaken for another.
    fn associated_data(self) -> Vec<u8> {
        match self {
            Self::State(tenant) => [b"s", &tenant.id()[..]].concat(),
            Self::Commands(tenant, session) => {
                [b"o", &tenant.id()[..], &session.as_bytes()[..]].concat()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use proptest::prelude::*;

    use super::*;
    use crate::session::{ClientIdentity, Tenants, installation_secret::InstallationSecret};

    fn seal(key: u8) -> StateCipher {
        StateCipher::new(Some(&SecretKey::new([key; 32]))).unwrap()
    }

    fn tenant(name: &str) -> Tenant {
        let tenants = Tenants::new(InstallationSecret::from_bytes([5; 32]));
        tenants.derive_tenant(ClientIdentity::Named(name), &HeaderMap::new(), None)
    }

    fn session(number: u8) -> SessionId {
        SessionId::from_bytes([number; 16])
    }

    #[test]
    fn it_opens_with_its_key_for_its_owner_alone() {
        let (own, other) = (tenant("a"), tenant("b"));
        for of in [
            SealedSubject::State(&own),
            SealedSubject::Commands(&own, session(1)),
        ] {
            let sealed = seal(1)
                .encrypt_bytes(of, b"what was said".to_vec())
                .unwrap();
            assert_eq!(sealed.len(), b"what was said".len() + ADDED_BYTES);
            // Another process with the same key.
            assert_eq!(
                &*seal(1).decrypt_bytes(of, &sealed).unwrap(),
                b"what was said"
            );
            assert_eq!(
                seal(2).decrypt_bytes(of, &sealed),
                Err(DecryptError::Refused)
            );
            let without = StateCipher::new(None).unwrap();
            assert_eq!(without.decrypt_bytes(of, &sealed), Err(DecryptError::NoKey));
            for wrong in [
                SealedSubject::State(&other),
                SealedSubject::Commands(&other, session(1)),
                SealedSubject::Commands(&own, session(2)),
            ] {
                assert_eq!(
                    seal(1).decrypt_bytes(wrong, &sealed),
                    Err(DecryptError::Refused)
                );
            }
        }
        let sealed = seal(1)
            .encrypt_bytes(SealedSubject::State(&own), Vec::new())
            .unwrap();
        let mistaken = seal(1).decrypt_bytes(SealedSubject::Commands(&own, session(1)), &sealed);
        assert_eq!(mistaken, Err(DecryptError::Refused));
    }

    #[test]
    fn no_nonce_comes_twice() {
        let (own, one) = (tenant("a"), seal(1));
        let mut nonces: Vec<_> = (0..4_000)
            .map(|_| {
                one.encrypt_bytes(SealedSubject::State(&own), Vec::new())
                    .unwrap()
            })
            .chain((0..1_000).map(|_| {
                seal(1)
                    .encrypt_bytes(SealedSubject::State(&own), Vec::new())
                    .unwrap()
            }))
            .map(|sealed| sealed[1..=NONCE_BYTES].to_vec())
            .collect();
        nonces.sort();
        nonces.dedup();
        assert_eq!(nonces.len(), 5_000);
    }

    #[test]
    fn what_was_stored_plain_is_read_as_it_is() {
        let own = tenant("a");
        for plain in [&b""[..], b"\x03state", b"\x01orders"] {
            assert_eq!(
                &*seal(1)
                    .decrypt_bytes(SealedSubject::State(&own), plain)
                    .unwrap(),
                plain
            );
            let without = StateCipher::new(None).unwrap();
            let stored = without
                .encrypt_bytes(SealedSubject::State(&own), plain.to_vec())
                .unwrap();
            assert_eq!(stored, plain);
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_refused(plain: Vec<u8>, at: prop::sample::Index, bit in 0..8_u8) {
            let own = tenant("a");
            let mut sealed = seal(1).encrypt_bytes(SealedSubject::State(&own), plain).unwrap().to_vec();
            // Without its marker it is nothing of ours, and no state has such a version.
            let at = 1 + at.index(sealed.len() - 1);
            sealed[at] ^= 1 << bit;
            prop_assert_eq!(seal(1).decrypt_bytes(SealedSubject::State(&own), &sealed), Err(DecryptError::Refused));
            prop_assert_eq!(seal(1).decrypt_bytes(SealedSubject::State(&own), &sealed[..at]), Err(DecryptError::Refused));
        }

        #[test]
        fn opening_anything_never_panics(mut bytes: Vec<u8>, marked: bool) {
            if marked {
                bytes.insert(0, MARKER);
            }
            let own = tenant("a");
            let opened = seal(1).decrypt_bytes(SealedSubject::State(&own), &bytes);
            prop_assert_eq!(opened.is_err(), bytes.first() == Some(&MARKER));
        }
    }
}
