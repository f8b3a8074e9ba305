//! Providers: names, addresses, credentials, profiles.
//!
//! A base URL or a variable's name that looks as if it held a key is refused without being shown.

use std::collections::BTreeMap;

use http::Uri;

use super::Checker;
use crate::{
    config::{Auth, ProviderConfig, file, problem::nearest, secret::Secret},
    guard::profile::{self, PROFILES, Profile},
    provider::SIMULATED,
};

/// First segments of paths that are served by ourselves.
const RESERVED: [&str; 2] = ["v1", "plimsoll"];

impl Checker<'_> {
    pub(super) fn providers(&mut self, file: &file::File) -> BTreeMap<String, ProviderConfig> {
        let mut providers = BTreeMap::from([(SIMULATED.to_owned(), self.simulated())]);
        for (name, written) in &file.providers {
            self.provider_name(name);
            let base_url = self.base_url(name, written.base_url.as_deref());
            let wait = |checker: &mut Self, key: &str, value: u64| {
                checker.wait(&["providers", name, key], value, 1)
            };
            self.patterns(&["providers", name, "models"], &written.models);
            let provider = ProviderConfig {
                auth: self.auth(name, written, file),
                profile: self.profile(name, written.profile.as_deref(), base_url.as_ref()),
                base_url: base_url.map(|(base_url, _)| base_url),
                key_header: self.key_header(name, written),
                headers: self.headers(name, &written.headers),
                query: self.query(name, written.query.as_deref()).map(Secret::new),
                models: written.models.clone(),
                connect_timeout: wait(self, "connect_timeout_ms", written.connect_timeout_ms),
                first_byte_timeout: wait(
                    self,
                    "first_byte_timeout_ms",
                    written.first_byte_timeout_ms,
                ),
                idle_timeout: wait(self, "idle_timeout_ms", written.idle_timeout_ms),
                ask_models: written.ask_models,
                breaker_failures: written.breaker_failures,
                breaker_open: wait(self, "breaker_open_ms", written.breaker_open_ms),
            };
            if name != SIMULATED {
                providers.insert(name.clone(), provider);
            }
        }
        providers
    }

    fn simulated(&mut self) -> ProviderConfig {
        let built_in = file::Provider::default();
        let path = ["providers", SIMULATED];
        ProviderConfig {
            base_url: None,
            auth: Auth::None,
            key_header: None,
            headers: http::HeaderMap::new(),
            query: None,
            profile: profile::named("openai").unwrap_or(&PROFILES[0]),
            models: Vec::new(),
            connect_timeout: self.wait(&path, built_in.connect_timeout_ms, 1),
            first_byte_timeout: self.wait(&path, built_in.first_byte_timeout_ms, 1),
            idle_timeout: self.wait(&path, built_in.idle_timeout_ms, 1),
            ask_models: Some(false),
            breaker_failures: 0,
            breaker_open: self.wait(&path, built_in.breaker_open_ms, 1),
        }
    }

    fn provider_name(&mut self, name: &str) {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
        let message = if name == SIMULATED {
            "is built in and cannot be configured; choose another name"
        } else if RESERVED.contains(&name) {
            "is the beginning of paths of our own; choose another name"
        } else if name.is_empty() || !name.chars().all(plain) {
            "must be of the characters a-z, 0-9, _ and -, since it stands in paths and model names"
        } else {
            return;
        };
        self.refuse(&["providers", name], None, message);
    }

    /// The base URL without a slash at its end, and its parts.
    fn base_url(&mut self, name: &str, written: Option<&str>) -> Option<(String, Uri)> {
        let path = ["providers", name, "base_url"];
        let Some(written) = written else {
            self.refuse(
                &path,
                None,
                "is missing; write the address that a client would be given, such as \
                 https://api.openai.com/v1",
            );
            return None;
        };
        let trimmed = written.trim_end_matches('/');
        // SECURITY: a URL with userinfo or a query may hold a key, so it is not shown.
        if written.contains(['@', '?', '#']) {
            self.refuse(
                &path,
                None,
                "must have no user, query or fragment (not shown, it may hold a key); write \
                 scheme, host and path only, and name the key's variable in api_key_env",
            );
            return None;
        }
        let shown = Some(format!("{written:?}"));
        let uri = match trimmed.parse::<Uri>() {
            Ok(uri) if uri.host().is_some_and(|host| !host.is_empty()) => uri,
            _ => {
                let message = "must be an absolute URL, such as https://api.openai.com/v1";
                self.refuse(&path, shown, message);
                return None;
            }
        };
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            self.refuse(&path, shown, "must begin with https:// or http://");
        } else if uri.path().ends_with("/chat/completions") {
            let message = "must be the base; leave /chat/completions off";
            self.refuse(&path, shown, message);
        } else if uri.path().split('/').any(|part| matches!(part, "." | "..")) {
            self.refuse(&path, shown, "must have no . or .. in its path");
        } else {
            return Some((trimmed.to_owned(), uri));
        }
        None
    }

    fn auth(&mut self, name: &str, written: &file::Provider, file: &file::File) -> Auth {
        let path = ["providers", name, "auth"];
        match (written.auth, &written.api_key_env) {
            (None, None) => self.refuse(
                &path,
                None,
                "say whose credentials go there: api_key_env = \"NAME\" for a key of yours, \
                 auth = \"client\" to pass the client's own on, or auth = \"none\"",
            ),
            (Some(_), Some(_)) => self.refuse(
                &path,
                None,
                "auth and api_key_env exclude each other; leave one of them out",
            ),
            (Some(file::Auth::None), None) => {}
            (Some(file::Auth::Client), None) => {
                // SECURITY: a client's `Authorization` would be its key to us, not to the provider.
                if !file.clients.is_empty() {
                    self.refuse(
                        &path,
                        Some("\"client\"".to_owned()),
                        "cannot be used together with [clients]: their keys are for this proxy \
                         and must not be sent on; use api_key_env",
                    );
                }
                return Auth::Client;
            }
            (None, Some(variable)) => {
                if let Some(secret) = self.key(name, variable) {
                    return Auth::Key(secret);
                }
            }
        }
        Auth::None
    }

    fn key(&mut self, name: &str, variable: &str) -> Option<Secret> {
        let path = ["providers", name, "api_key_env"];
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if variable.is_empty()
            || !variable.chars().all(plain)
            || variable.starts_with(|c: char| c.is_ascii_digit())
        {
            self.refuse(
                &path,
                None,
                "must be the name of an environment variable (the value is not shown, it may be \
                 a key), such as OPENAI_API_KEY",
            );
            return None;
        }
        let value = self.environment.value(variable).unwrap_or("").trim();
        // SECURITY: there are keys of letters and digits alone.
        if value.is_empty() && variable.contains(|c: char| c.is_ascii_lowercase()) {
            let message = format!(
                "provider {name} needs an environment variable that is not set (its name is not \
                 shown, it may be a key)"
            );
            self.refuse(&path, None, message);
            return None;
        }
        let message = if value.is_empty() {
            format!("provider {name} needs the environment variable {variable}, which is not set")
        } else if http::HeaderValue::from_str(value).is_err() {
            format!("the environment variable {variable} holds characters that no key can have")
        } else {
            return Some(Secret::new(value));
        };
        self.refuse(&path, Some(format!("{variable:?}")), message);
        None
    }

    fn profile(
        &mut self,
        name: &str,
        written: Option<&str>,
        base_url: Option<&(String, Uri)>,
    ) -> &'static Profile {
        let guessed = base_url.map_or("template", |(_, uri)| profile_of(uri));
        let wanted = written.unwrap_or(guessed);
        profile::named(wanted).unwrap_or_else(|| {
            let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
            self.refuse(
                &["providers", name, "profile"],
                Some(format!("{wanted:?}")),
                format!(
                    "there is no such profile; write one of {}",
                    names.join(", ")
                ),
            );
            &PROFILES[0]
        })
    }

    pub(super) fn default_provider(&mut self, file: &file::File) -> Option<String> {
        if let Some(name) = &file.default_provider {
            self.known_provider(&["default_provider"], name, file);
        }
        file.default_provider.clone()
    }

    pub(super) fn known_provider(&mut self, path: &[&str], name: &str, file: &file::File) {
        if name == SIMULATED || file.providers.contains_key(name) {
            return;
        }
        let mut known: Vec<_> = file.providers.keys().map(String::as_str).collect();
        known.push(SIMULATED);
        let message = match nearest(name, &known) {
            Some(near) => format!("there is no such provider; did you mean {near:?}?"),
            None => format!(
                "there is no such provider; add [providers.{name}], or write one of {}",
                known.join(", ")
            ),
        };
        self.refuse(path, Some(format!("{name:?}")), message);
    }
}

/// The profile of a host that is known; `template`, the strictest, for any other.
fn profile_of(base_url: &Uri) -> &'static str {
    let host = base_url.host().unwrap_or("").to_ascii_lowercase();
    match host.as_str() {
        "api.openai.com" => "openai",
        "api.deepseek.com" => "deepseek",
        "api.mistral.ai" => "mistral",
        "generativelanguage.googleapis.com" => "gemini",
        "api.anthropic.com" => "anthropic",
        "openrouter.ai" => "openrouter",
        host if host.ends_with(".openai.azure.com") => "azure",
        host if host.starts_with("api.moonshot.") => "kimi",
        _ if base_url.port_u16() == Some(11434) => "ollama",
        _ => "template",
    }
}

#[cfg(test)]
mod tests {
    use super::profile_of;

    #[test]
    fn the_profile_is_guessed_from_the_host() {
        for (base_url, profile) in [
            ("https://api.openai.com/v1", "openai"),
            ("https://API.OpenAI.com/v1", "openai"),
            ("https://mine.openai.azure.com/openai/v1", "azure"),
            ("https://api.deepseek.com", "deepseek"),
            ("https://api.moonshot.ai/v1", "kimi"),
            ("https://api.moonshot.cn/v1", "kimi"),
            ("https://api.mistral.ai/v1", "mistral"),
            (
                "https://generativelanguage.googleapis.com/v1beta/openai",
                "gemini",
            ),
            ("https://api.anthropic.com/v1", "anthropic"),
            ("https://openrouter.ai/api/v1", "openrouter"),
            ("http://127.0.0.1:11434/v1", "ollama"),
            ("http://127.0.0.1:8080/v1", "template"),
            ("https://api.openai.com.example/v1", "template"),
        ] {
            let parsed = base_url.parse().unwrap();
            assert_eq!(profile_of(&parsed), profile, "{base_url}");
        }
    }
}
