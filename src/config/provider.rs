//! Providers: names, addresses, credentials, profiles.
//!
//! A base URL, a header or a variable's name that may hold a key is refused without being shown.

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header::AUTHORIZATION};
use serde::{Deserialize, Serialize};

use super::{
    layer::Layers,
    load::Environment,
    problem::nearest,
    profile::{self, PROFILES, Profile},
    secret::Secret,
    section::{Section, settings},
    setting::Show,
};

/// The built-in provider's name.
pub const SIMULATED: &str = "simulated";

/// What the names of the proxy's own headers begin with.
pub const OWN_HEADERS: &str = "x-plimsoll-";

/// First segments of paths that are served by the proxy itself.
const RESERVED: [&str; 2] = ["v1", "plimsoll"];

/// Headers that belong to a connection.
const CONNECTION_HEADERS: [&str; 6] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "upgrade",
    "te",
];

settings! {
    pub struct ProviderConfig read from s {
        /// Without a slash at its end; `None` for the built-in `simulated`. `{model}` in it stands for the
        /// name of the request's model.
        pub base_url: Option<String> = read_base_url(s);
        /// Models this provider serves under their bare names; patterns with a trailing `*`.
        pub models: Vec<String> = s.patterns("models", &[], "a model's name");
        pub auth: Auth = read_auth(s);
        /// A row of the profile table: `openai`, `template`, …
        pub profile: &'static Profile = read_profile(s, base_url.as_deref());
        /// The header for an injected key, without `Bearer`; unset: `Authorization`, with it.
        pub key_header: Option<HeaderName> = read_key_header(s);
        /// Added to every request, in the place of the client's of that name.
        pub headers: HeaderMap = read_headers(s);
        /// Added to the query of every request. It may hold a key.
        pub query: Option<Secret> = read_query(s);
        pub connect_timeout: Duration = s.millis("connect_timeout_ms", 10_000, 1);
        /// From the last byte of the request to the first of the answer.
        pub first_byte_timeout: Duration = s.millis("first_byte_timeout_ms", 600_000, 1);
        /// Between two reads of an answer.
        pub idle_timeout: Duration = s.millis("idle_timeout_ms", 300_000, 1);
        /// Whether its list of models is asked for windows; unset: where the catalogue does not know it.
        pub ask_models: Option<bool> = s.option("ask_models", Show::Plain);
        /// Failures in a row that open the breaker; 0: it never opens.
        pub breaker_failures: u32 = s.plain("breaker_failures", 5);
        /// How long an open breaker lets no request through where somebody else can answer.
        pub breaker_open: Duration = s.millis("breaker_open_ms", 30_000, 1);
    }
}

/// Whose credentials go to a provider.
#[derive(Clone, Debug, PartialEq)]
pub enum Auth {
    /// The client's own `Authorization` is passed on.
    Client,
    /// A key of the settings.
    Key(Secret),
    None,
}

/// What `auth` may say.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum WrittenAuth {
    Client,
    None,
}

/// The providers of the settings, and the one that is built in.
pub(super) fn read_providers(root: &mut Section) -> BTreeMap<String, ProviderConfig> {
    let mut providers = root.sections("providers", |s| {
        hold_name(s);
        ProviderConfig::read(s)
    });
    providers.insert(SIMULATED.to_owned(), make_simulated());
    providers
}

/// The built-in provider: all defaults, and neither an address nor credentials.
fn make_simulated() -> ProviderConfig {
    let (layers, environment) = (Layers::default(), Environment::default());
    ProviderConfig {
        profile: profile::named("openai").unwrap_or(&PROFILES[0]),
        ask_models: Some(false),
        breaker_failures: 0,
        ..ProviderConfig::read(&mut Section::new(&layers, &environment))
    }
}

fn hold_name(s: &mut Section) {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    let name = s.name();
    let message = if name == SIMULATED {
        "is built in and cannot be configured; choose another name"
    } else if RESERVED.contains(&name) {
        "is the beginning of paths of our own; choose another name"
    } else if name.is_empty() || !name.chars().all(plain) {
        "must be of the characters a-z, 0-9, _ and -, since it stands in paths and model names"
    } else {
        return;
    };
    s.refuse_name(message);
}

/// The name of a provider, of which there must be one.
pub(super) fn read_provider(s: &mut Section, key: &str) -> Option<String> {
    let name: String = s.option(key, Show::Plain)?;
    let mut known = s.names("providers");
    known.push(SIMULATED.to_owned());
    if !known.contains(&name) {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let message = match nearest(&name, &known) {
            Some(near) => format!("there is no such provider; did you mean {near:?}?"),
            None => format!(
                "there is no such provider; add [providers.{name}], or write one of {}",
                known.join(", ")
            ),
        };
        s.refuse_text(key, &name, message);
    }
    Some(name)
}

/// The base URL without a slash at its end.
fn read_base_url(s: &mut Section) -> Option<String> {
    let key = "base_url";
    let Some(written) = s.option::<String>(key, Show::Address) else {
        let message = "is missing; write the address that a client would be given, such as \
                       https://api.openai.com/v1";
        s.refuse(key, None, message);
        return None;
    };
    // SECURITY: a URL with userinfo or a query may hold a key, so it is not shown.
    if written.contains(['@', '?', '#']) {
        let message = "must have no user, query or fragment (not shown, it may hold a key); write \
                       scheme, host and path only, and name the key's variable in api_key_env";
        s.refuse(key, None, message);
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

fn read_auth(s: &mut Section) -> Auth {
    let key = "auth";
    let auth: Option<WrittenAuth> = s.option(key, Show::Plain);
    let variable: Option<String> = s.option("api_key_env", Show::Variable);
    match (auth, variable) {
        (None, None) => s.refuse(
            key,
            None,
            "say whose credentials go there: api_key_env = \"NAME\" for a key of yours, \
             auth = \"client\" to pass the client's own on, or auth = \"none\"",
        ),
        (Some(_), Some(_)) => s.refuse(
            key,
            None,
            "auth and api_key_env exclude each other; leave one of them out",
        ),
        (Some(WrittenAuth::None), None) => {}
        (Some(WrittenAuth::Client), None) => {
            // SECURITY: a client's `Authorization` would be its key to the proxy, not to the provider.
            if !s.names("clients").is_empty() {
                let message = "cannot be used together with [clients]: their keys are for this proxy \
                               and must not be sent on; use api_key_env";
                s.refuse_text(key, "client", message);
            }
            return Auth::Client;
        }
        (None, Some(variable)) => return resolve_key(s, &variable).map_or(Auth::None, Auth::Key),
    }
    Auth::None
}

fn resolve_key(s: &mut Section, variable: &str) -> Option<Secret> {
    let key = "api_key_env";
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if variable.is_empty()
        || !variable.chars().all(plain)
        || variable.starts_with(|c: char| c.is_ascii_digit())
    {
        let message = "must be the name of an environment variable (the value is not shown, it may be \
                       a key), such as OPENAI_API_KEY";
        s.refuse(key, None, message);
        return None;
    }
    let name = s.name().to_owned();
    let value = s.environment.value(variable).unwrap_or("").trim();
    // SECURITY: there are keys of letters and digits alone.
    if value.is_empty() && variable.contains(|c: char| c.is_ascii_lowercase()) {
        let message = format!(
            "provider {name} needs an environment variable that is not set (its name is not \
             shown, it may be a key)"
        );
        s.refuse(key, None, message);
        return None;
    }
    let message = if value.is_empty() {
        format!("provider {name} needs the environment variable {variable}, which is not set")
    } else if HeaderValue::from_str(value).is_err() {
        format!("the environment variable {variable} holds characters that no key can have")
    } else {
        return Some(Secret::new(value));
    };
    s.refuse_text(key, variable, message);
    None
}

fn read_profile(s: &mut Section, base_url: Option<&str>) -> &'static Profile {
    let written: Option<String> = s.option("profile", Show::Plain);
    let guessed = profile::guess_by_host(base_url);
    let wanted = written.as_deref().unwrap_or(guessed);
    profile::named(wanted).unwrap_or_else(|| {
        let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
        let names = names.join(", ");
        let message = format!("there is no such profile; write one of {names}");
        s.refuse_text("profile", wanted, message);
        &PROFILES[0]
    })
}

fn read_key_header(s: &mut Section) -> Option<HeaderName> {
    let key = "key_header";
    let written: String = s.option(key, Show::Plain)?;
    let shown = Some(format!("{written:?}"));
    let name = parse_header_name(s, key, &written, shown)?;
    if !s.is_set("api_key_env") {
        s.refuse(key, None, "has no key to carry; name one in api_key_env");
    }
    (name != AUTHORIZATION).then_some(name)
}

fn read_headers(s: &mut Section) -> HeaderMap {
    let mut headers = HeaderMap::new();
    s.entries("headers", |s, name| {
        let value: String = s.option(name, Show::Hidden)?;
        let header = parse_header_name(s, name, name, None)?;
        // SECURITY: a key stands in the environment, never in the file.
        if header == AUTHORIZATION {
            let message = "carries a key; name its variable in api_key_env";
            s.refuse(name, None, message);
            return None;
        }
        match HeaderValue::from_str(&value) {
            Ok(mut value) => {
                // It may be a key all the same, under a name that nobody knows.
                value.set_sensitive(true);
                headers.insert(header, value);
            }
            Err(_) => s.refuse(name, None, "holds characters that no header can have"),
        }
        Some(())
    });
    headers
}

fn parse_header_name(
    s: &mut Section,
    key: &str,
    name: &str,
    shown: Option<String>,
) -> Option<HeaderName> {
    let header = HeaderName::from_bytes(name.as_bytes()).ok();
    let can_be_set = |header: &HeaderName| {
        let name = header.as_str();
        !name.starts_with(OWN_HEADERS) && !CONNECTION_HEADERS.contains(&name)
    };
    let header = header.filter(can_be_set);
    if header.is_none() {
        let message = "is not the name of a header that can be set; write one that the \
                       provider knows, such as api-key";
        s.refuse(key, shown, message);
    }
    header
}

fn read_query(s: &mut Section) -> Option<Secret> {
    let query: String = s.option("query", Show::Hidden)?;
    let sound = format!("http://localhost/?{query}").parse::<Uri>().is_ok();
    if !sound || query.is_empty() || query.contains(['#', '?']) {
        let message = "must be as it stands behind the ? of a URL, such as \
                       api-version=2024-10-21 (not shown, it may hold a key)";
        s.refuse("query", None, message);
    }
    Some(Secret::new(query))
}
