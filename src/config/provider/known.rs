//! The providers of a proxy whose settings have none: the names of Anthropic's and OpenAI's models go to them, and requests
//! with a ChatGPT login where that belongs, with the client's own credentials, so that a client needs another base URL and
//! nothing more.
//!
//! SECURITY: this sends a credential to an address that no setting names. So each takes the names of its own models only,
//! and credentials of its own kind only.

use std::collections::BTreeMap;

use super::{ProviderConfig, credentials::Auth, make_simulated};
use crate::config::{names::matches_pattern, profile};

/// A provider with its address, its name for people, and the names of its models.
struct KnownProvider {
    name: &'static str,
    base_url: &'static str,
    models: &'static [&'static str],
}

/// The patterns have every name of the catalogue, which a test of `provider` compares. None is a whole name: these would
/// be in the list of models.
const KNOWN: [KnownProvider; 3] = [
    KnownProvider {
        name: "anthropic",
        base_url: "https://api.anthropic.com/v1",
        models: &["claude-*"],
    },
    KnownProvider {
        name: "openai",
        base_url: "https://api.openai.com/v1",
        models: &[
            "gpt-*",
            "chatgpt-*",
            "chat-latest*",
            "o1*",
            "o3*",
            "o4*",
            "codex-*",
            "computer-use-*",
            "daybreak-*",
            "text-embedding-*",
            "text-moderation-*",
            "omni-moderation-*",
            "dall-e-*",
            "whisper-*",
            "tts-*",
            "sora-*",
            "babbage-*",
            "davinci-*",
            "ft:gpt-*",
        ],
    },
    // No name leads here: a login does.
    KnownProvider {
        name: "chatgpt",
        base_url: "https://chatgpt.com/backend-api/codex",
        models: &[],
    },
];

/// The end of the address to which Codex sends a ChatGPT login.
const CODEX_BACKEND: &str = "/backend-api/codex";

/// OpenAI publishes these, and does not serve them.
pub const OPEN_WEIGHTS: &str = "gpt-oss";

const CHATGPT_HOST: &str = "chatgpt.com";

impl ProviderConfig {
    /// Whether it is the own host of a ChatGPT login, and gets the client's credentials by TLS. Another host may answer any token.
    pub fn is_chatgpt_itself(&self) -> bool {
        let address = self.base_url.as_deref().map(str::parse::<http::Uri>);
        let Some(Ok(address)) = address else {
            return false;
        };
        let host = address.host().unwrap_or_default();
        let is_own = host.eq_ignore_ascii_case(CHATGPT_HOST);
        is_own && self.takes_chatgpt_login() && address.scheme_str() == Some("https")
    }

    /// Whether it serves Anthropic's own API.
    pub fn is_for_anthropic(&self) -> bool {
        self.profile.name == "anthropic"
    }

    /// Whether requests with a ChatGPT login go there, as Codex sends them: the backend of that login, with the client's own
    /// credentials.
    pub fn takes_chatgpt_login(&self) -> bool {
        let address = self.base_url.as_deref().unwrap_or_default();
        self.auth == Auth::Client && address.ends_with(CODEX_BACKEND)
    }

    /// Whether it may be asked for a model of this name: one of the proxy's own choice for its own models only.
    pub fn may_serve(&self, model: &str) -> bool {
        let is_own = |pattern: &String| matches_pattern(pattern, model);
        let may_be_own = || self.takes_chatgpt_login() || self.models.iter().any(is_own);
        !self.is_known || !model.contains(OPEN_WEIGHTS) && may_be_own()
    }

    /// Whether it may get this text of a client's request, in which a credential may stand behind the name of a scheme, of a
    /// protocol, or a quotation mark: one of the proxy's own choice gets no key that is seen to be for the other one. Words
    /// of less than `least` bytes are no keys.
    pub fn may_get(&self, text: &[u8], least: usize) -> bool {
        let is_anthropic = self.is_for_anthropic();
        let text = String::from_utf8_lossy(text).to_ascii_lowercase();
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c));
        let fits = |word: &str| {
            let names_anthropic = word.contains("sk-ant-");
            let is_key = names_anthropic || word.starts_with("sk-");
            !is_key
                || word.len() < least
                || names_anthropic == is_anthropic && !self.takes_chatgpt_login()
        };
        !self.is_known || words.all(fits)
    }
}

/// The providers, by name.
pub(super) fn make_known_providers() -> BTreeMap<String, ProviderConfig> {
    let make = |known: KnownProvider| ProviderConfig {
        base_url: Some(known.base_url.to_owned()),
        models: known.models.iter().map(|&name| name.to_owned()).collect(),
        auth: Auth::Client,
        profile: profile::find_profile(known.name).unwrap_or(&profile::PROFILES[0]),
        is_known: true,
        breaker_failures: 5,
        ..make_simulated(true)
    };
    KNOWN
        .into_iter()
        .map(|known| (known.name.to_owned(), make(known)))
        .collect()
}

/// The sections of a settings file that serve them as a proxy without settings does.
pub(in crate::config) fn write_known_sections() -> String {
    let write = |it: &KnownProvider| {
        format!(
            "[providers.{}]\nbase_url = {:?}\nauth = \"client\"\nmodels = {:?}",
            it.name, it.base_url, it.models
        )
    };
    KNOWN.each_ref().map(write).join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Auth, make_known_providers};

    #[test]
    fn each_serves_its_own_models_only() {
        let known = make_known_providers();
        let (anthropic, openai) = (&known["anthropic"], &known["openai"]);
        for name in ["claude-opus-5-5", "claude-next"] {
            assert!(
                anthropic.may_serve(name) && !openai.may_serve(name),
                "{name}"
            );
        }
        for name in [
            "gpt-4o",
            "o3",
            "o4-mini",
            "chatgpt-4o-latest",
            "text-embedding-3-small",
            "ft:gpt-4o-mini:me::1",
        ] {
            assert!(
                openai.may_serve(name) && !anthropic.may_serve(name),
                "{name}"
            );
        }
        for name in [
            "gpt-oss-120b",
            "gpt-oss:20b",
            "ft:gpt-oss-20b:me::1",
            "llama3",
            "deepseek-chat",
            "",
            "gemini-3-pro",
        ] {
            assert!(
                !openai.may_serve(name) && !anthropic.may_serve(name),
                "{name}"
            );
        }
    }

    #[test]
    fn a_chatgpt_login_has_a_provider_of_its_own_which_gets_no_key() {
        let known = make_known_providers();
        let chatgpt = &known["chatgpt"];
        assert!(chatgpt.takes_chatgpt_login() && chatgpt.models.is_empty());
        assert!(chatgpt.may_serve("gpt-5.5") && !chatgpt.may_serve("gpt-oss-20b"));
        for other in ["anthropic", "openai"] {
            assert!(!known[other].takes_chatgpt_login());
        }
        for (credential, may_get) in [
            ("Bearer eyJhbGciOi.x.y", true),
            ("Bearer sk-proj-x", false),
            ("Bearer sk-ant-oat01-x", false),
        ] {
            assert_eq!(
                chatgpt.may_get(credential.as_bytes(), 0),
                may_get,
                "{credential}"
            );
        }
    }

    #[test]
    fn a_login_has_its_own_host_by_tls_only() {
        let known = make_known_providers();
        for (name, expected) in [("chatgpt", true), ("anthropic", false), ("openai", false)] {
            assert_eq!(known[name].is_chatgpt_itself(), expected, "{name}");
        }
        for base_url in [
            "http://chatgpt.com/backend-api/codex",
            "https://chatgpt.com/v1",
            "https://chatgpt.com.example/backend-api/codex",
            "https://example.com/backend-api/codex",
            "",
        ] {
            let mut provider = known["chatgpt"].clone();
            provider.base_url = Some(base_url.to_owned());
            assert!(!provider.is_chatgpt_itself(), "{base_url}");
        }
        let mut keyed = known["chatgpt"].clone();
        keyed.auth = Auth::None;
        assert!(!keyed.is_chatgpt_itself());
    }

    #[test]
    fn a_credential_goes_to_its_own_provider_only() {
        let known = make_known_providers();
        let check = |credential: &str, anthropic: bool, openai: bool| {
            let found =
                ["anthropic", "openai"].map(|name| known[name].may_get(credential.as_bytes(), 0));
            assert_eq!(found, [anthropic, openai], "{credential}");
        };
        check("sk-ant-api03-x", true, false);
        check("Bearer sk-ant-oat01-x", true, false);
        check("openai-insecure-api-key.sk-ant-x", true, false);
        check("sk-proj-x", false, true);
        check("sk-or-v1-x", false, true);
        check("realtime, openai-insecure-api-key.sk-x", false, true);
        check("eyJhbGciOi.x.y", true, true);
        check("", true, true);
        for behind in [
            "Bearer \"",
            "Bearer '",
            "Bearer:",
            "key=",
            "Bearer\u{a0}",
            "Token my_",
        ] {
            check(&format!("{behind}sk-ant-api03-x\""), true, false);
        }
        check("\"SK-proj-x\"", false, true);
        // A language is no key.
        let language = |name: &str| known[name].may_get(b"sk-SK,sk;q=0.9", 16);
        assert!(language("anthropic") && language("openai"));
    }
}
