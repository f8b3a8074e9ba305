//! Encryption of stored states and commands: XChaCha20-Poly1305 with a key derived from
//! `store.encrypt_key_env`.
//!
//! Stored bytes are a marker, a unique nonce, and the ciphertext with its tag. No version byte of a state or of commands
//! equals the marker, so plain bytes that were stored before a key was configured are still read. The tag covers the tenant,
//! and for commands the session; a state itself holds its session. So nothing decrypts for another tenant or session. The
//! tag does not cover the age: if an older state is put in the place of a newer one, it decrypts.

use std::borrow::Cow;

use bytes::Bytes;
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};

use super::{SessionId, Tenant, id_generator::IdGenerator};
use crate::config::secret::SecretKey;

/// First byte of encrypted bytes. Versions of plain bytes count up from 1.
const MARKER: u8 = 0xe1;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// Bytes that encryption adds.
pub const ADDED_BYTES: usize = 1 + NONCE_BYTES + TAG_BYTES;

/// Context string of the key derivation.
const CONTEXT: &str = "plimsoll: states of sessions at rest, XChaCha20-Poly1305, 1";

/// Encrypts and decrypts. If there is no key, plain bytes pass unchanged.
pub(super) struct StateCipher {
    cipher: Option<XChaCha20Poly1305>,
    nonces: IdGenerator,
}

/// The kind and owner of encrypted bytes.
#[derive(Clone, Copy)]
pub(super) enum SealedSubject<'a> {
    State(&'a Tenant),
    Commands(&'a Tenant, SessionId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecryptError {
    #[error("encrypted, but no key is configured; set store.encrypt_key_env")]
    NoKey,
    #[error("encrypted with another key or for another session, or damaged")]
    Refused,
}

impl StateCipher {
    pub(super) fn new(key: Option<&SecretKey>) -> Result<Self, getrandom::Error> {
        let derived = key.map(|key| blake3::derive_key(CONTEXT, key.reveal()));
        Ok(Self {
            cipher: derived.map(|key| XChaCha20Poly1305::new(&key.into())),
            nonces: IdGenerator::new()?,
        })
    }

    pub(super) fn encrypt_bytes(
        &self,
        subject: SealedSubject<'_>,
        plain: Vec<u8>,
    ) -> Result<Bytes, DecryptError> {
        let Some(cipher) = &self.cipher else {
            // A boxed slice has no spare capacity; the store may keep it for long.
            return Ok(plain.into_boxed_slice().into());
        };
        let nonce: [u8; NONCE_BYTES] = self.nonces.next_bytes();
        let payload = Payload {
            msg: &plain,
            aad: &subject.associated_data(),
        };
        // Fails for hundreds of gigabytes only.
        let sealed = cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| DecryptError::Refused)?;
        Ok([&[MARKER], &nonce[..], &sealed].concat().into())
    }

    /// # Errors
    /// If the bytes are encrypted with another key or for another subject, or damaged.
    pub(super) fn decrypt_bytes<'a>(
        &self,
        subject: SealedSubject<'_>,
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
            aad: &subject.associated_data(),
        };
        let plain = cipher.decrypt(&XNonce::from(*nonce), payload);
        plain.map(Cow::from).map_err(|_| DecryptError::Refused)
    }
}

impl SealedSubject<'_> {
    /// The kinds differ in length and in the first byte.
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

    fn cipher(key: u8) -> StateCipher {
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
    fn bytes_decrypt_with_their_key_for_their_owner_only() {
        let (tenant, other) = (tenant("a"), tenant("b"));
        let state = SealedSubject::State(&tenant);
        let commands = SealedSubject::Commands(&tenant, session(1));
        for subject in [state, commands] {
            let plain = b"some text";
            let sealed = cipher(1).encrypt_bytes(subject, plain.to_vec()).unwrap();
            assert_eq!(sealed.len(), plain.len() + ADDED_BYTES);
            let decrypt = |cipher: StateCipher, subject| {
                let plain = cipher.decrypt_bytes(subject, &sealed);
                plain.map(Cow::into_owned)
            };
            // Another process with the same key.
            assert_eq!(decrypt(cipher(1), subject), Ok(plain.to_vec()));
            assert_eq!(decrypt(cipher(2), subject), Err(DecryptError::Refused));
            let keyless = StateCipher::new(None).unwrap();
            assert_eq!(decrypt(keyless, subject), Err(DecryptError::NoKey));
            for wrong in [
                SealedSubject::State(&other),
                SealedSubject::Commands(&other, session(1)),
                SealedSubject::Commands(&tenant, session(2)),
            ] {
                assert_eq!(decrypt(cipher(1), wrong), Err(DecryptError::Refused));
            }
        }
        let sealed = cipher(1).encrypt_bytes(state, Vec::new()).unwrap();
        let mistaken = cipher(1).decrypt_bytes(commands, &sealed);
        assert_eq!(mistaken, Err(DecryptError::Refused));
    }

    #[test]
    fn nonces_are_unique() {
        let (tenant, shared) = (tenant("a"), cipher(1));
        let nonce = |cipher: &StateCipher| {
            let sealed = cipher.encrypt_bytes(SealedSubject::State(&tenant), Vec::new());
            sealed.unwrap()[1..=NONCE_BYTES].to_vec()
        };
        let mut nonces: Vec<_> = (0..4_000)
            .map(|_| nonce(&shared))
            .chain((0..1_000).map(|_| nonce(&cipher(1))))
            .collect();
        nonces.sort();
        nonces.dedup();
        assert_eq!(nonces.len(), 5_000);
    }

    #[test]
    fn plain_bytes_from_before_there_was_a_key_are_read() {
        let tenant = tenant("a");
        let subject = SealedSubject::State(&tenant);
        for plain in [&b""[..], b"\x03state", b"\x01orders"] {
            assert_eq!(&*cipher(1).decrypt_bytes(subject, plain).unwrap(), plain);
            let keyless = StateCipher::new(None).unwrap();
            let stored = keyless.encrypt_bytes(subject, plain.to_vec()).unwrap();
            assert_eq!(stored, plain);
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_refused(plain: Vec<u8>, at: prop::sample::Index, bit in 0..8_u8) {
            let tenant = tenant("a");
            let subject = SealedSubject::State(&tenant);
            let mut sealed = cipher(1).encrypt_bytes(subject, plain).unwrap().to_vec();
            // Without the marker the bytes count as plain, and no state has such a version.
            let at = 1 + at.index(sealed.len() - 1);
            sealed[at] ^= 1 << bit;
            prop_assert_eq!(cipher(1).decrypt_bytes(subject, &sealed), Err(DecryptError::Refused));
            prop_assert_eq!(cipher(1).decrypt_bytes(subject, &sealed[..at]), Err(DecryptError::Refused));
        }

        #[test]
        fn decrypting_any_bytes_never_panics(mut bytes: Vec<u8>, marked: bool) {
            if marked {
                bytes.insert(0, MARKER);
            }
            let tenant = tenant("a");
            let decrypted = cipher(1).decrypt_bytes(SealedSubject::State(&tenant), &bytes);
            prop_assert_eq!(decrypted.is_err(), bytes.first() == Some(&MARKER));
        }
    }
}
