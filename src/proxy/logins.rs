//! The account of a ChatGPT login whose token is renewed: the ids of account and user in the token stay the same, so that a
//! session outlives its token.
//!
//! SECURITY: the proxy does not verify the token or its ids. So the ids count only if every candidate is the login's own
//! host, if the token is the only credential in the request, and if that host has answered this very token, in a
//! conversation, with a 2xx while this proxy runs. Until then the token is an account of its own, so that no stored state
//! enters its request. A token with the ids of somebody else has no valid signature. The account is used to find sessions
//! only: the session API, the page and commands use the credential itself. The token of a subscription at Anthropic is
//! opaque, and nobody verifies anything else in the request, so such a token stays an account of its own; Claude Code names
//! its account by `x-plimsoll-key`.

use std::num::NonZeroUsize;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{HeaderMap, request::Parts};
use lru::LruCache;
use parking_lot::Mutex;
use serde::Deserialize;

use super::{
    App,
    outgoing::{CHATGPT_ACCOUNT, read_only_token},
};
use crate::{
    provider::{ModelCandidates, Provider},
    session::{Account, Tenants},
};

/// Tokens that are remembered as answered. Beyond this, the one that was used longest ago is forgotten.
const MAX_ANSWERED: NonZeroUsize = NonZeroUsize::new(4_096).expect("not zero");
/// Bytes of the claims of a token, in base64.
const MAX_CLAIMS_BYTES: usize = 16 << 10;
/// Bytes of an id of an account or a user.
const MAX_ID_BYTES: usize = 256;

/// Keyed digests of the tokens that their host has answered.
#[derive(Debug)]
pub struct AnsweredLogins(Mutex<LruCache<Account, ()>>);

impl Default for AnsweredLogins {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_ANSWERED)))
    }
}

/// The ids in a token of a ChatGPT login, as far as they name an account.
#[derive(Deserialize)]
struct Claims {
    /// The user: an account may be that of a whole company.
    sub: String,
    #[serde(rename = "https://api.openai.com/auth")]
    auth: AuthClaims,
}

#[derive(Deserialize)]
struct AuthClaims {
    chatgpt_account_id: String,
}

/// Finds the account of the login that a request carries, if every candidate is that login's own host, and the host has
/// answered this token. Returns `None` if the credential itself is the account.
pub(super) fn find_login_account(
    app: &App,
    parts: &Parts,
    candidates: &ModelCandidates,
) -> Option<Account> {
    let provider = &candidates.targets().next()?.provider;
    let mut targets = candidates.targets();
    if !targets.all(|target| target.provider.config.is_chatgpt_itself()) {
        return None;
    }
    let tenants = &app.sessions.tenants;
    let token = read_only_token(app, parts, provider)?;
    app.logins.0.lock().get(&digest_token(tenants, token))?;
    read_chatgpt_account(tenants, &parts.headers, token)
}

/// Remembers a login that its host answered in a conversation with a 2xx.
pub(super) fn note_answered_login(app: &App, parts: &Parts, provider: &Provider) {
    if !provider.config.is_chatgpt_itself() {
        return;
    }
    let tenants = &app.sessions.tenants;
    if let Some(token) = read_only_token(app, parts, provider)
        && read_chatgpt_account(tenants, &parts.headers, token).is_some()
    {
        app.logins.0.lock().put(digest_token(tenants, token), ());
    }
}

fn digest_token(tenants: &Tenants, token: &[u8]) -> Account {
    tenants.derive_login(&[b"token", token])
}

/// The account and the user in the token, where the header names the same account.
fn read_chatgpt_account(tenants: &Tenants, headers: &HeaderMap, token: &[u8]) -> Option<Account> {
    let mut named = headers.get_all(CHATGPT_ACCOUNT).iter();
    let (named, None) = (named.next()?, named.next()) else {
        return None;
    };
    let claims = token.split(|byte| *byte == b'.').nth(1)?;
    if claims.len() > MAX_CLAIMS_BYTES {
        return None;
    }
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    let (account, user) = (claims.auth.chatgpt_account_id, claims.sub);
    let is_whole =
        is_valid_id(&account) && is_valid_id(&user) && named.as_bytes() == account.as_bytes();
    is_whole.then(|| tenants.derive_login(&[b"chatgpt", account.as_bytes(), user.as_bytes()]))
}

fn is_valid_id(text: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&text.len()) && !text.bytes().any(|it| it.is_ascii_control())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::session::installation_secret::InstallationSecret;

    fn token(claims: &Value) -> String {
        let claims = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
        format!("eyJhbGciOiJSUzI1NiJ9.{claims}.signature")
    }

    #[test]
    fn a_chatgpt_account_is_that_of_token_and_header() {
        let tenants = Tenants::new(InstallationSecret::from_bytes([3; 32]));
        let read = |claims: Value, named: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for named in named {
                headers.append(CHATGPT_ACCOUNT, named.parse().unwrap());
            }
            read_chatgpt_account(&tenants, &headers, token(&claims).as_bytes())
        };
        let claims = |account: &str, user: &str, expires: u64| {
            let auth = json!({"chatgpt_account_id": account, "chatgpt_plan_type": "plus"});
            json!({"https://api.openai.com/auth": auth, "sub": user, "exp": expires})
        };
        let first = read(claims("acct-1", "user-1", 1), &["acct-1"]);
        assert!(first.is_some());
        assert_eq!(read(claims("acct-1", "user-1", 2), &["acct-1"]), first);
        // Colleagues have one account, and are two.
        let other = read(claims("acct-1", "user-2", 1), &["acct-1"]);
        assert!(other.is_some() && other != first);
        for (claims, named) in [
            (claims("acct-1", "user-1", 1), &["acct-2"][..]),
            (claims("acct-1", "user-1", 1), &["acct-1", "acct-2"]),
            (claims("acct-1", "user-1", 1), &[]),
            (claims("", "user-1", 1), &[""]),
            (claims("acct-1", "", 1), &["acct-1"]),
            (claims("acct-1", &"u".repeat(257), 1), &["acct-1"]),
            (json!({"sub": "user-1"}), &["acct-1"]),
            (json!(["acct-1"]), &["acct-1"]),
        ] {
            assert_eq!(read(claims.clone(), named), None, "{claims} {named:?}");
        }
        let headers = HeaderMap::from_iter([(CHATGPT_ACCOUNT, "acct-1".parse().unwrap())]);
        for text in ["", "a", "..", "a.!.c", "a.W10.c"] {
            let found = read_chatgpt_account(&tenants, &headers, text.as_bytes());
            assert_eq!(found, None, "{text}");
        }
    }

    #[test]
    fn the_tokens_that_are_remembered_are_bounded() {
        let (logins, most) = (AnsweredLogins::default(), MAX_ANSWERED.get());
        let tenants = Tenants::new(InstallationSecret::from_bytes([3; 32]));
        for at in 0..most + 10 {
            let token = format!("token {at}");
            let key = digest_token(&tenants, token.as_bytes());
            logins.0.lock().put(key, ());
        }
        assert_eq!(logins.0.lock().len(), most);
    }
}
