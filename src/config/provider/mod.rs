//! Providers: names, addresses, profiles, timeouts.
//!
//! SECURITY: no message shows a base URL that may contain a key.

mod credentials;
mod known;

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderMap, HeaderName, Uri};
use reqwest::Url;
use serde::{Deserialize, Serialize};

pub use credentials::{Auth, PROXY_HEADER_PREFIX, PROXY_KEY};
use credentials::{read_auth, read_headers, read_key_header, read_query};
pub use known::OPEN_WEIGHTS;
use known::make_known_providers;
pub(super) use known::write_known_sections;

use super::{
    format::{Api, FORMATS, Format},
    loading::{
        environment::Environment,
        layer::Layers,
        problem::find_nearest,
        section::{Section, Visibility, settings},
    },
    outgoing::{Outgoing, ProxySetting, Route, read_proxy},
    profile::{self, PROFILES, Profile},
    secret::Secret,
};

/// The name of the built-in provider.
pub const SIMULATED: &str = "simulated";

settings! {
    pub struct ProviderConfig read from s {
        /// Without a slash at its end; `None` for the built-in `simulated`. `{model}` in it is replaced by the
        /// name of the request's model.
        pub base_url: Option<String> = read_base_url(s);
        /// Models that clients may name without the provider; names or patterns with a `*` at the end.
        pub models: Vec<String> = s.read_patterns("models", &[], "a model's name");
        pub auth: Auth = read_auth(s);
        pub profile: &'static Profile = read_profile(s, base_url.as_deref());
        /// Whether the proxy chose it by itself, since its settings have no provider: see `known.rs`.
        pub is_known: bool = false;
        /// The wire formats that it speaks.
        pub formats: Vec<Format> = read_formats(s, profile, base_url.as_deref());
        pub cache_markers: CacheMarkers = s.read_plain("cache_markers", CacheMarkers::Off);
        pub threads: Threads = s.read_plain("threads", Threads::Pass);
        /// The header that carries the key alone; unset: `Authorization`, with `Bearer`, and `x-api-key` for
        /// Messages where the profile is Anthropic's.
        pub key_header: Option<HeaderName> = read_key_header(s);
        /// Added to every request; a header replaces the client's header of that name.
        pub headers: HeaderMap = read_headers(s);
        /// Whether what tells of the client's address (`X-Forwarded-For`, `Forwarded`, `Via` and the like) is passed on.
        pub forwarded_headers: bool = s.read_plain("forwarded_headers", false);
        /// Added to the query of every request; may contain a key.
        pub query: Option<Secret> = read_query(s);
        /// The proxy through which it is reached.
        pub proxy: ProxySetting = read_proxy(s);
        pub connect_timeout: Duration = s.read_millis("connect_timeout_ms", 10_000, 1);
        /// From the last byte of the request to the first byte of the answer.
        pub first_byte_timeout: Duration = s.read_millis("first_byte_timeout_ms", 600_000, 1);
        /// Between two reads of an answer.
        pub idle_timeout: Duration = s.read_millis("idle_timeout_ms", 300_000, 1);
        /// Whether windows are read from the provider's list of models; unset: of models that the catalogue does
        /// not have.
        pub ask_models: Option<bool> = s.explain_unset("if not in the catalogue")
            .read_option("ask_models", Visibility::Plain);
        /// Whether the models of its own list stand in lists. Unset: yes; those of the built-in `simulated` only while
        /// there is no other provider.
        pub listed: bool = s.read_plain("listed", true);
        /// Failures in a row that open the circuit breaker; 0: never.
        pub breaker_failures: u32 = s.read_plain("breaker_failures", 5);
        /// How long an open breaker skips the provider where another candidate can answer.
        pub breaker_open: Duration = s.read_millis("breaker_open_ms", 30_000, 1);
    }
}

impl ProviderConfig {
    /// The way to it; `None` for a built-in one.
    pub fn find_route(&self, outgoing: &Outgoing) -> Option<Route> {
        let address = Url::parse(self.base_url.as_deref()?).ok()?;
        // A header or a query may be a key.
        let has_credentials =
            self.auth != Auth::None || !self.headers.is_empty() || self.query.is_some();
        Some(outgoing.find_route(&address, has_credentials, &self.proxy))
    }
}

/// Whether the proxy adds cache markers to requests in which the client sets none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheMarkers {
    Off,
    /// In formats that have them.
    Auto,
}

/// What becomes of Messages whose conversation the provider is to hold (`thread`), where they could be guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Threads {
    /// The guard stands back.
    Pass,
    /// They are refused as requests that no thread can take: the client sends the conversation without.
    Refuse,
}

/// The configured providers and the built-in one; where none is configured and `takes_known`, also those that everyone
/// knows.
pub(super) fn read_providers(
    root: &mut Section,
    takes_known: bool,
) -> BTreeMap<String, ProviderConfig> {
    let mut simulated_listed = None;
    let mut providers = root.read_entries("providers", |s, name| {
        if cfg!(feature = "simulated") && name == SIMULATED {
            // Nothing else of it is configured.
            let read = |s: &mut Section| s.read_option("listed", Visibility::Plain);
            simulated_listed = s.read_section(name, read);
            return None;
        }
        let provider = s.read_section(name, ProviderConfig::read);
        check_name(s, name);
        Some(provider)
    });
    let is_configured = !providers.is_empty();
    if takes_known && !is_configured {
        providers = make_known_providers();
    }
    if cfg!(feature = "simulated") {
        let listed = simulated_listed.unwrap_or(!is_configured);
        providers.insert(SIMULATED.to_owned(), make_simulated(listed));
    }
    providers
}

/// The built-in provider: the defaults, without address and credentials.
fn make_simulated(listed: bool) -> ProviderConfig {
    let (layers, environment) = (Layers::default(), Environment::default());
    ProviderConfig {
        profile: profile::find_profile("openai").unwrap_or(&PROFILES[0]),
        ask_models: Some(false),
        listed,
        breaker_failures: 0,
        ..ProviderConfig::read(&mut Section::new(&layers, &environment))
    }
}

/// Unset: chat completions and Responses; also Messages, if the profile has them or the address names Anthropic's API,
/// as the addresses of several clouds do.
fn read_formats(s: &mut Section, profile: &Profile, base_url: Option<&str>) -> Vec<Format> {
    let key = "formats";
    let names = s.read_option::<Vec<String>>(key, Visibility::Plain);
    s.note_choices(key, &FORMATS.map(Format::name));
    let Some(names) = names else {
        let has_messages = profile.speaks_messages
            || base_url.is_none_or(|url| url.to_ascii_lowercase().contains("/anthropic"));
        let is_spoken = |format: &Format| format.api() == Api::OpenAi || has_messages;
        return FORMATS.into_iter().filter(is_spoken).collect();
    };
    let mut formats = Vec::new();
    for name in names {
        match FORMATS.into_iter().find(|format| format.name() == name) {
            Some(format) => formats.push(format),
            None => {
                let known: Vec<_> = FORMATS.iter().map(|format| format.name()).collect();
                let message = format!(
                    "there is no such format; write some of {}",
                    known.join(", ")
                );
                s.refuse_text(key, &name, message);
            }
        }
    }
    if formats.is_empty() {
        s.refuse_value(key, None, "must name a format, such as [\"chat\"]");
    }
    formats
}

fn check_name(s: &mut Section, name: &str) {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    let message = match name {
        "v1" | "plimsoll" => {
            "is reserved, since paths of the proxy begin with it; choose another name"
        }
        name if name.is_empty() || !name.chars().all(plain) => {
            "must have only the characters a-z, 0-9, _ and -, since paths and model names contain it"
        }
        _ => return,
    };
    s.refuse_value(name, None, message);
}

/// The name of a configured provider or of the built-in one.
pub(super) fn read_provider(s: &mut Section, key: &str) -> Option<String> {
    let name: String = s.read_option(key, Visibility::Plain)?;
    let mut known = s.list_keys("providers");
    if cfg!(feature = "simulated") && !known.iter().any(|name| name == SIMULATED) {
        known.push(SIMULATED.to_owned());
    }
    if !known.contains(&name) {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        s.refuse_text(key, &name, explain_no_provider(&name, &known));
    }
    Some(name)
}

fn explain_no_provider(name: &str, known: &[&str]) -> String {
    let remedy = match find_nearest(name, known) {
        Some(near) => format!("did you mean {near:?}?"),
        None if known.is_empty() => format!("none is configured, so add [providers.{name}]"),
        None => format!(
            "add [providers.{name}], or write one of {}",
            known.join(", ")
        ),
    };
    format!("there is no such provider; {remedy}")
}

fn read_base_url(s: &mut Section) -> Option<String> {
    let key = "base_url";
    let Some(written) = s.read_option::<String>(key, Visibility::Address) else {
        let message = "is missing; write the address that a client would be given, such as \
                       https://api.openai.com/v1";
        s.refuse_value(key, None, message);
        return None;
    };
    // SECURITY: user, query and fragment of a URL may contain a key, so the URL is not shown.
    if written.contains(['@', '?', '#']) {
        let message = "must have no user, query or fragment (not shown, it may hold a key); write \
                       scheme, host and path only, and name the key's variable in api_key_env";
        s.refuse_value(key, None, message);
        return None;
    }
    let trimmed = written.trim_end_matches('/');
    let uri = trimmed.parse::<Uri>().ok();
    let uri = uri.filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
    let message = match &uri {
        None => "must be an absolute URL, such as https://api.openai.com/v1",
        Some(uri) if !matches!(uri.scheme_str(), Some("http" | "https")) => {
            "must begin with https:// or http://"
        }
        Some(uri) if uri.path().ends_with("/chat/completions") => {
            "must be the base; leave /chat/completions off"
        }
        Some(uri) if uri.path().split('/').any(|part| matches!(part, "." | "..")) => {
            "must have no . or .. in its path"
        }
        Some(_) => return Some(trimmed.to_owned()),
    };
    s.refuse_text(key, &written, message);
    None
}

fn read_profile(s: &mut Section, base_url: Option<&str>) -> &'static Profile {
    let guessed = profile::guess_by_host(base_url);
    let written: Option<String> = s
        .explain_unset(guessed)
        .read_option("profile", Visibility::Plain);
    let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
    s.note_choices("profile", &names);
    let wanted = written.as_deref().unwrap_or(guessed);
    profile::find_profile(wanted).unwrap_or_else(|| {
        let names = names.join(", ");
        let message = format!("there is no such profile; write one of {names}");
        s.refuse_text("profile", wanted, message);
        &PROFILES[0]
    })
}

#[cfg(test)]
mod tests {
    use super::explain_no_provider;

    #[test]
    fn a_missing_provider_is_explained_with_and_without_others() {
        for (known, remedy) in [
            (&["opneai", "zai"][..], "did you mean \"opneai\"?"),
            (&["zai"], "add [providers.openai], or write one of zai"),
            (&[], "none is configured, so add [providers.openai]"),
        ] {
            let expected = format!("there is no such provider; {remedy}");
            assert_eq!(explain_no_provider("openai", known), expected);
        }
    }
}
