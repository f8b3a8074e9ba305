//! The page at `/plimsoll/`: how full every session's window is, as a picture.
//!
//! Its files are in the binary, as they stand in `assets/`: no build step, and nothing is fetched from
//! elsewhere. They hold nothing of anybody, so they need no key; all that is shown comes from our API, which
//! does.
//!
//! SECURITY: what sessions are called and what models wrote is a stranger's text. The page puts it in
//! as text only, and these headers let no script run that is not one of its files, no other page
//! show it in a frame, and nothing of it leave for anywhere but this proxy.
//!
//! Each script is one concept: `api.js` asks, `events.js` follows the stream of events and comes back when that
//! ends, `share.js` has one tab of a browser read it for all tabs with its key, `poll.js` asks where there can be
//! no stream, `sessions.js` has all sessions, `rows.js` puts only those rows into the document that are in sight,
//! `words.js` has all words in both languages. A view draws once in a frame, however many events came.

use std::sync::LazyLock;

use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION,
        REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    },
};
use sha2::{Digest, Sha256};

use crate::wire::{Body, whole_body};

/// One file of the page.
#[derive(Debug)]
struct File {
    /// What follows `/plimsoll`.
    path: &'static str,
    kind: HeaderValue,
    bytes: &'static [u8],
    /// A digest of the bytes, quoted.
    tag: HeaderValue,
}

/// Where the page is, from `/plimsoll`; relative, so that it holds behind a prefix too.
const PAGE_LOCATION: HeaderValue = HeaderValue::from_static("plimsoll/");

/// Beside every file. A file is asked for again each time, and is sent only where it is another.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
        ),
    ),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
];

/// All files, by their names in `assets/`.
macro_rules! files {
    ($($name:literal)+) => {
        [$(File::new(concat!("/", $name), include_bytes!(concat!("assets/", $name)))),+]
    };
}

static FILES: LazyLock<[File; 33]> = LazyLock::new(|| {
    files! {
        "index.html" "mark.svg"
        "chart.css" "colours.css" "controls.css" "gauge.css" "list.css" "page.css" "view.css"
        "api.js" "auto.js" "chart.js" "dialog.js" "dom.js" "empty.js" "events.js" "format.js" "gauge.js"
        "hint.js" "in-force.js" "list.js" "made-of.js" "main.js" "poll.js" "providers.js" "report.js"
        "row.js" "rows.js" "session.js" "sessions.js" "settings.js" "share.js" "words.js"
    }
});

/// Whether the page has something at `path`, which follows `/plimsoll`.
pub fn has_file(path: &str) -> bool {
    path.is_empty() || find_file(path).is_some()
}

/// The answer to a request with these headers for what is at `path`, which follows `/plimsoll`; `None` where
/// nothing is.
pub fn answer_file(path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    if path.is_empty() {
        return Some(make_answer(
            StatusCode::PERMANENT_REDIRECT,
            b"",
            [(LOCATION, &PAGE_LOCATION)],
        ));
    }
    let file = find_file(path)?;
    // What the reader has already is not sent again.
    if has_tag(headers, &file.tag) {
        return Some(make_answer(
            StatusCode::NOT_MODIFIED,
            b"",
            [(ETAG, &file.tag)],
        ));
    }
    let own = [(CONTENT_TYPE, &file.kind), (ETAG, &file.tag)];
    Some(make_answer(StatusCode::OK, file.bytes, own))
}

fn make_answer<const N: usize>(
    status: StatusCode,
    bytes: &'static [u8],
    own: [(HeaderName, &HeaderValue); N],
) -> Response<Body> {
    let mut answer = Response::new(whole_body(bytes));
    *answer.status_mut() = status;
    answer.headers_mut().extend(HEADERS);
    let own = own.map(|(name, value)| (name, value.clone()));
    answer.headers_mut().extend(own);
    answer
}

/// Whether `If-None-Match` names that tag.
fn has_tag(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|tag| tag.trim().trim_start_matches("W/"))
        .any(|known| known == "*" || known.as_bytes() == tag.as_bytes())
}

fn find_file(path: &str) -> Option<&'static File> {
    // The page itself is at the folder, and nowhere else.
    let path = match path {
        "/" => "/index.html",
        "/index.html" => return None,
        path => path,
    };
    FILES.iter().find(|file| file.path == path)
}

impl File {
    fn new(path: &'static str, bytes: &'static [u8]) -> Self {
        let kind = match path.rsplit_once('.') {
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "html")) => "text/html; charset=utf-8",
            Some((_, "js")) => "text/javascript; charset=utf-8",
            _ => "image/svg+xml",
        };
        let tag = format!("\"{}\"", hex::encode(&Sha256::digest(bytes)[..16]));
        Self {
            path,
            kind: HeaderValue::from_static(kind),
            bytes,
            tag: HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("\"\"")),
        }
    }
}

#[cfg(test)]
mod tests;
