//! Client keys: who sent a request, and how many of the client's requests may run at once.

use std::{collections::BTreeMap, sync::Arc};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL},
};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::limit::{Hold, Limit, LimitMap};
use crate::{
    config::{ClientConfig, PROXY_KEY},
    error::Failure,
    provider,
    wire::{parse_bearer, split_header_list},
};

/// Without client keys, a shorter one names no account: others would guess it.
const LEAST_PROXY_KEY: usize = 16;

/// Headers that carry a bare key. Clients made for Azure or for other APIs use them in place of `Authorization`.
const KEY_HEADERS: [&str; 2] = ["api-key", "x-api-key"];

/// Prefix of the key among the protocols of a websocket: browsers can set no other header there.
pub const KEY_PROTOCOL: &str = "openai-insecure-api-key.";

/// Who sent a request.
#[derive(Clone, Debug)]
pub struct Client {
    /// The name of its key; `None` where no keys are set.
    pub name: Option<Arc<str>>,
    config: Arc<ClientConfig>,
    /// Bounds its concurrent requests.
    limit: Arc<Limit>,
}

/// All client keys.
#[derive(Clone, Debug)]
pub struct Clients {
    with_keys: Vec<Client>,
    /// Every client where no keys are set.
    anonymous: Client,
}

impl Client {
    /// Whether the client may use a model of this name.
    pub fn may_use(&self, name: &str) -> bool {
        let mut patterns = self.model_patterns().iter();
        patterns.any(|pattern| provider::matches_pattern(pattern, name))
    }

    /// Whether the client may use a path; `path` follows `/v1/`.
    ///
    /// The path is compared as it is written: another spelling of an allowed path is not allowed.
    pub fn may_reach(&self, path: &str) -> bool {
        let mut patterns = self.config.paths.iter();
        patterns.any(|pattern| provider::matches_pattern(pattern, path))
    }

    /// Counts a request as running until the result is dropped.
    ///
    /// # Errors
    /// The client has as many running requests as it may have.
    pub fn begin_request(&self) -> Result<Arc<Hold>, Failure> {
        let hold = self.limit.try_take_one();
        hold.map(Arc::new).ok_or(Failure::TooManyRequests)
    }

    /// Whether the client may read the figures of all clients.
    pub fn reads_metrics(&self) -> bool {
        self.config.metrics
    }

    pub fn has_recovery(&self) -> bool {
        self.config.recovery
    }

    /// Whether the client may use every model.
    pub fn is_unlimited(&self) -> bool {
        self.model_patterns().iter().any(|pattern| pattern == "*")
    }

    /// The patterns of the models that the client may use.
    pub(super) fn model_patterns(&self) -> &[String] {
        &self.config.models
    }
}

impl Clients {
    /// `limits` counts running requests by the client's name, so that a limit holds across a reload too.
    pub fn new(config: &BTreeMap<String, ClientConfig>, limits: &LimitMap<String>) -> Self {
        let with_keys = config.iter().map(|(name, client)| {
            let max = client.max_in_flight.map_or(usize::MAX, |max| max as usize);
            Client {
                name: Some(name.as_str().into()),
                config: Arc::new(client.clone()),
                limit: limits.get(name.clone(), max),
            }
        });
        let anonymous = ClientConfig {
            key_sha256: [0; 32],
            models: vec!["*".to_owned()],
            paths: vec!["*".to_owned()],
            max_in_flight: None,
            recovery: true,
            metrics: true,
        };
        Self {
            with_keys: with_keys.collect(),
            anonymous: Client {
                name: None,
                config: Arc::new(anonymous),
                limit: Limit::new(usize::MAX),
            },
        }
    }

    /// Whether clients need keys.
    pub fn have_keys(&self) -> bool {
        !self.with_keys.is_empty()
    }

    /// Finds the client by the key that its request carries.
    ///
    /// # Errors
    /// Keys are set, and the request has none or an unknown one; or none are, and `x-plimsoll-key` is too short.
    pub fn recognise_client(&self, headers: &HeaderMap) -> Result<Client, Failure> {
        if !self.have_keys() {
            let key = headers.get(PROXY_KEY);
            return if key.is_some_and(|key| key.as_bytes().trim_ascii().len() < LEAST_PROXY_KEY) {
                Err(Failure::KeyShort)
            } else {
                Ok(self.anonymous.clone())
            };
        }
        let client = self.find_by_key(find_client_key(headers)?);
        client.cloned().ok_or(Failure::KeyWrong)
    }

    /// Whether what the client sends as its own credentials may go to a provider that takes them (`auth = "client"`).
    ///
    /// SECURITY: if clients have keys, only if the client's key came in a header of its own.
    pub fn may_pass_credentials(&self, headers: &HeaderMap) -> bool {
        !self.have_keys() || headers.contains_key(PROXY_KEY)
    }

    /// Removes the headers whose value is a client key, with or without `Bearer`: no provider may see one.
    pub fn strip_keys(&self, headers: &mut HeaderMap) {
        let values = headers.iter().filter(|(_, value)| {
            let value = value.as_bytes();
            self.is_key(value) || parse_bearer(value).is_some_and(|key| self.is_key(key))
        });
        let names: Vec<HeaderName> = values.map(|(name, _)| name.clone()).collect();
        for name in names {
            headers.remove(name);
        }
    }

    /// Whether a text is a client key.
    pub fn is_key(&self, text: &[u8]) -> bool {
        self.find_by_key(text.trim_ascii()).is_some()
    }

    fn find_by_key(&self, key: &[u8]) -> Option<&Client> {
        let digest: [u8; 32] = Sha256::digest(key).into();
        // Every key is compared, so that the time does not show which one came close.
        let mut found = u32::MAX;
        for (index, client) in (0u32..).zip(&self.with_keys) {
            let same: Choice = client.config.key_sha256.ct_eq(&digest);
            found.conditional_assign(&index, same);
        }
        self.with_keys.get(found as usize)
    }
}

/// The key that a request carries. Of several, the first in the order of this function counts.
fn find_client_key(headers: &HeaderMap) -> Result<&[u8], Failure> {
    if let Some(key) = headers.get(PROXY_KEY) {
        return Ok(key.as_bytes().trim_ascii());
    }
    if let Some(credential) = headers.get(AUTHORIZATION) {
        return parse_bearer(credential.as_bytes()).ok_or(Failure::KeyWrong);
    }
    if let Some(key) = KEY_HEADERS.iter().find_map(|name| headers.get(*name)) {
        return Ok(key.as_bytes().trim_ascii());
    }
    let key = split_header_list(headers, &SEC_WEBSOCKET_PROTOCOL)
        .find_map(|protocol| protocol.strip_prefix(KEY_PROTOCOL));
    key.map(str::as_bytes).ok_or(Failure::KeyMissing)
}

/// Removes the keys from the protocols that a websocket offers.
pub fn strip_protocol_keys(headers: &mut HeaderMap) {
    // A value that cannot be read may hide a key.
    let has_key = |value: &HeaderValue| {
        let text = value.to_str().map(str::to_ascii_lowercase);
        text.map_or(true, |text| text.contains(KEY_PROTOCOL))
    };
    if !headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().any(has_key) {
        return;
    }
    let kept: Vec<_> = split_header_list(headers, &SEC_WEBSOCKET_PROTOCOL)
        .filter(|protocol| !protocol.to_ascii_lowercase().starts_with(KEY_PROTOCOL))
        .collect();
    let kept = HeaderValue::try_from(kept.join(", ")).ok();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(kept) = kept.filter(|kept| !kept.is_empty()) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{find_client_key, strip_protocol_keys};
    use crate::error::Failure;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn a_key_is_found_wherever_clients_put_it() {
        let check = |lines: &[(&'static str, &'static str)], expected: Result<&str, Failure>| {
            let expected = expected.map(str::as_bytes);
            assert_eq!(find_client_key(&headers(lines)), expected, "{lines:?}");
        };
        check(&[("authorization", "bearer  k ")], Ok("k"));
        check(&[("authorization", "Basic k")], Err(Failure::KeyWrong));
        check(&[("api-key", "k")], Ok("k"));
        check(&[("x-api-key", "k")], Ok("k"));
        check(&[("authorization", "Bearer a"), ("api-key", "k")], Ok("a"));
        let beside = [("authorization", "Bearer a"), ("x-plimsoll-key", "k")];
        check(&beside, Ok("k"));
        let offered = "realtime, openai-insecure-api-key.k, openai-beta.realtime-v1";
        check(&[("sec-websocket-protocol", offered)], Ok("k"));
        check(
            &[("sec-websocket-protocol", "realtime")],
            Err(Failure::KeyMissing),
        );
        check(&[], Err(Failure::KeyMissing));
    }

    #[test]
    fn keys_are_removed_from_offered_protocols() {
        let check = |offered: &[&'static str], expected: &[&'static str]| {
            let lines = |values: &[&'static str]| {
                let line = |value: &&'static str| ("sec-websocket-protocol", *value);
                headers(&values.iter().map(line).collect::<Vec<_>>())
            };
            let mut stripped = lines(offered);
            strip_protocol_keys(&mut stripped);
            assert_eq!(stripped, lines(expected), "{offered:?}");
        };
        check(&["realtime ,x"], &["realtime ,x"]);
        check(
            &["realtime, openai-insecure-api-key.k, beta"],
            &["realtime, beta"],
        );
        check(&["a", "OpenAI-Insecure-API-Key.k", "b"], &["a, b"]);
        check(&["openai-insecure-api-key.k"], &[]);
    }
}
