//! The dashboard at `/plimsoll/`, which shows the window use of all sessions.
//!
//! The binary holds the files of `assets/`: there is no build step, and the page loads nothing from
//! elsewhere. The files need no key, since they hold no data of clients; the session API, which they read,
//! does.
//!
//! SECURITY: names of sessions and texts of models are untrusted. The page inserts them as text only. The
//! headers below allow only these scripts, forbid frames, and allow requests to this proxy only.
//!
//! Each script is one concept: `api.js` sends requests, `events.js` reads the stream of events and reconnects,
//! `share.js` lets one tab read it for all tabs with the same key, `poll.js` polls where no stream is possible,
//! `sessions.js` holds all sessions, `rows.js` keeps only visible rows in the document, `words.js` holds the
//! texts in both languages. A view draws at most once per frame.

use std::sync::LazyLock;

use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION,
        REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    },
};
use sha2::{Digest, Sha256};

use crate::wire::{Body, split_header_list, whole_body};

/// One file of the page.
#[derive(Debug)]
struct File {
    /// Below `/plimsoll`.
    path: &'static str,
    kind: HeaderValue,
    bytes: &'static [u8],
    /// A digest of the bytes, quoted.
    tag: HeaderValue,
}

/// Redirect from `/` and from `/plimsoll`; relative, so that it works behind a prefix.
const PAGE_LOCATION: HeaderValue = HeaderValue::from_static("plimsoll/");

/// Headers of every file. Browsers revalidate each time, and get only changed files.
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

static FILES: LazyLock<[File; 34]> = LazyLock::new(|| {
    files! {
        "index.html" "mark.svg"
        "chart.css" "colours.css" "controls.css" "gauge.css" "list.css" "page.css" "view.css"
        "api.js" "auto.js" "chart.js" "dialog.js" "dom.js" "empty.js" "events.js" "format.js" "gauge.js"
        "hint.js" "in-force.js" "link.js" "list.js" "made-of.js" "main.js" "poll.js" "providers.js" "report.js"
        "row.js" "rows.js" "session.js" "sessions.js" "settings.js" "share.js" "words.js"
    }
});

/// Whether the dashboard has a file at `path`, which follows `/plimsoll`.
pub fn has_file(path: &str) -> bool {
    path.is_empty() || find_file(path).is_some()
}

/// The answer for the file at `path`, which follows `/plimsoll`; `None` if there is none.
pub fn answer_file(path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    if path.is_empty() {
        let location = [(LOCATION, &PAGE_LOCATION)];
        return Some(make_answer(StatusCode::PERMANENT_REDIRECT, b"", &location));
    }
    let file = find_file(path)?;
    let tag = (ETAG, &file.tag);
    if has_tag(headers, &file.tag) {
        return Some(make_answer(StatusCode::NOT_MODIFIED, b"", &[tag]));
    }
    let headers = [(CONTENT_TYPE, &file.kind), tag];
    Some(make_answer(StatusCode::OK, file.bytes, &headers))
}

fn make_answer(
    status: StatusCode,
    bytes: &'static [u8],
    headers: &[(HeaderName, &HeaderValue)],
) -> Response<Body> {
    let mut answer = Response::new(whole_body(bytes));
    *answer.status_mut() = status;
    answer.headers_mut().extend(HEADERS);
    for (name, value) in headers {
        answer.headers_mut().insert(name, (*value).clone());
    }
    answer
}

/// Whether `If-None-Match` names that tag.
fn has_tag(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    split_header_list(headers, &IF_NONE_MATCH)
        .map(|tag| tag.trim_start_matches("W/"))
        .any(|known| known == "*" || known.as_bytes() == tag.as_bytes())
}

fn find_file(path: &str) -> Option<&'static File> {
    // The page has one address, that of the folder.
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
