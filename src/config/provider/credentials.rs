//! What is added to a provider's requests: credentials, headers, a query.
//!
//! SECURITY: no message shows a header, a query or a variable's name that may contain a key.

use std::{fs, io::Read as _};

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header::AUTHORIZATION};
use serde::{Deserialize, Serialize};

use crate::config::{
    loading::{section::Section, setting::Visibility},
    secret::Secret,
};

/// The prefix of the proxy's headers.
pub const PROXY_HEADER_PREFIX: &str = "x-plimsoll-";

/// The key of a client of this proxy, beside what it sends to the provider as its own.
pub const PROXY_KEY: HeaderName = HeaderName::from_static("x-plimsoll-key");

/// Of a file with a key; no key is as long.
const MAX_KEY_BYTES: u64 = 64 << 10;

/// Headers of a connection, which a setting cannot add.
const CONNECTION_HEADERS: [&str; 6] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "upgrade",
    "te",
];

const NO_HEADER: &str = "is not the name of a header that can be set; write one that the provider knows, \
                         such as api-key";

/// Whose credentials go to a provider.
#[derive(Clone, Debug, PartialEq)]
pub enum Auth {
    /// The client's `Authorization` is passed on.
    Client,
    /// The key in the environment variable of `api_key_env` or in the file of `api_key_file`, and the name of either.
    Key(Secret, Box<str>),
    None,
}

/// The choices of the setting `auth`.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum WrittenAuth {
    Client,
    None,
}

pub(super) fn read_auth(s: &mut Section) -> Auth {
    let key = "auth";
    s.explain_unset("a key of the settings");
    let auth: Option<WrittenAuth> = s.read_option(key, Visibility::Plain);
    let variable: Option<String> = s.read_option("api_key_env", Visibility::Variable);
    let file: Option<String> = s.read_option("api_key_file", Visibility::Plain);
    let message = match (auth, variable, file) {
        (None, None, None) => {
            "no credentials are chosen; write api_key_env = \"NAME\" or api_key_file = \"PATH\" for a key of yours, \
             auth = \"client\" to pass on the client's, or auth = \"none\""
        }
        (Some(WrittenAuth::None), None, None) => return Auth::None,
        (Some(WrittenAuth::Client), None, None) => return Auth::Client,
        // A key that is not set is empty: the proxy does not start with it.
        (None, Some(variable), None) => {
            let key = resolve_key(s, &variable).unwrap_or_else(|| Secret::new(""));
            return Auth::Key(key, variable.into());
        }
        (None, None, Some(file)) => return Auth::Key(read_key_file(s, &file), file.into()),
        _ => "auth, api_key_env and api_key_file exclude each other; leave all but one out",
    };
    s.refuse_value(key, None, message);
    Auth::None
}

/// The key in an environment variable, without white space around it.
fn resolve_key(s: &mut Section, variable: &str) -> Option<Secret> {
    let key = "api_key_env";
    let secret = s.resolve_secret(key, variable)?;
    let value = secret.reveal().trim();
    if HeaderValue::from_str(value).is_err() {
        let message =
            "names an environment variable with characters that no key can have; set it again";
        s.refuse_text(key, variable, message);
    }
    Some(Secret::new(value))
}

/// The key in a file, without white space around it.
///
/// SECURITY: no message shows the path, in whose place a user may have written the key itself.
fn read_key_file(s: &mut Section, path: &str) -> Secret {
    let key = "api_key_file";
    // Reading a pipe would wait for its writer.
    let is_file = fs::metadata(path).is_ok_and(|data| data.is_file());
    let file = is_file.then(|| fs::File::open(path).ok()).flatten();
    let mut text = String::new();
    let read = file.map(|file| file.take(MAX_KEY_BYTES).read_to_string(&mut text));
    let value = text.trim();
    let message = match read {
        Some(Ok(_)) if value.is_empty() => "names an empty file; write the key into it",
        Some(Ok(_)) if HeaderValue::from_str(value).is_err() => {
            "names a file with characters that no key can have; it holds the key alone"
        }
        Some(Ok(_)) => return Secret::new(value),
        _ => "names no file that can be read (the value is not shown, it may be a secret)",
    };
    s.refuse_value(key, None, message);
    Secret::new("")
}

pub(super) fn read_key_header(s: &mut Section) -> Option<HeaderName> {
    let key = "key_header";
    s.explain_unset("authorization");
    let written: String = s.read_option(key, Visibility::Plain)?;
    let Some(name) = parse_header_name(&written) else {
        s.refuse_text(key, &written, NO_HEADER);
        return None;
    };
    if !s.is_set("api_key_env") && !s.is_set("api_key_file") {
        s.refuse_value(key, None, "has no key to carry; name one in api_key_env");
    }
    (name != AUTHORIZATION).then_some(name)
}

pub(super) fn read_headers(s: &mut Section) -> HeaderMap {
    let mut headers = HeaderMap::new();
    s.read_entries("headers", |s, name| {
        let value: String = s.read_option(name, Visibility::Hidden)?;
        match (parse_header_name(name), HeaderValue::from_str(&value)) {
            (None, _) => s.refuse_value(name, None, NO_HEADER),
            // SECURITY: a key stands in the environment, never in the file.
            (Some(AUTHORIZATION), _) => {
                let message = "carries a key; name its variable in api_key_env";
                s.refuse_value(name, None, message);
            }
            (_, Err(_)) => s.refuse_value(name, None, "holds characters that no header can have"),
            (Some(header), Ok(mut value)) => {
                // SECURITY: it may be a key under a name that is not known.
                value.set_sensitive(true);
                headers.insert(header, value);
            }
        }
        Some(())
    });
    headers
}

/// `None` for a name that is no header, or that a setting cannot add.
fn parse_header_name(name: &str) -> Option<HeaderName> {
    let header = HeaderName::from_bytes(name.as_bytes()).ok()?;
    let is_reserved = header.as_str().starts_with(PROXY_HEADER_PREFIX)
        || CONNECTION_HEADERS.contains(&header.as_str());
    (!is_reserved).then_some(header)
}

pub(super) fn read_query(s: &mut Section) -> Option<Secret> {
    let query: String = s.read_option("query", Visibility::Hidden)?;
    let is_valid = format!("http://localhost/?{query}").parse::<Uri>().is_ok();
    if !is_valid || query.is_empty() || query.contains(['#', '?']) {
        let message = "must be the query of a URL without its ?, such as \
                       api-version=2024-10-21 (not shown, it may hold a key)";
        s.refuse_value("query", None, message);
    }
    Some(Secret::new(query))
}
