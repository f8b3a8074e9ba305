//! `GET sessions`: the sessions that the requester may see, newest first, in pages.

use http::Response;
use serde::Serialize;
use serde_json::Value;

use super::{Requester, log_store_failure, read_number, respond_json, shorten_word};
use crate::{
    error::{Failure, format_error_chain},
    proxy::App,
    session::{self, SessionError, SessionView},
    store::Page,
    wire::Body,
};

/// Default size of a page.
const DEFAULT_TAKE: usize = 100;
/// Most sessions before a page.
const MAX_SKIP: usize = 10_000_000;

#[derive(Debug, Serialize)]
pub(super) struct SessionPage {
    pub(super) sessions: Vec<Value>,
    /// `skip` of the next page; `null` after the last page.
    pub(super) next: Option<usize>,
    /// Number of sessions of other keys; `null` if clients have keys, or if all sessions are shown.
    pub(super) of_other_keys: Option<u64>,
    /// How to see those sessions; `null` if there are none.
    pub(super) hint: Option<&'static str>,
}

/// How to see the sessions of other keys.
const HINT: &str = "Sessions are kept apart by the key that their clients send. Send the same key as \
                    `Authorization: Bearer KEY` to see its sessions, or set admin.local = true in \
                    config.toml to list those of all keys on this machine.";

/// The same if `admin.local` is on but does not apply to this request.
const LOCAL_HINT: &str = "admin.local is on: requests that send no key and come through no other proxy (no \
                          x-forwarded-*, forwarded, via or x-real-ip) are shown the sessions of all keys. Ask \
                          again that way, or send the key whose sessions you want.";

/// Parses `skip`, `take` and `client`.
///
/// # Errors
/// For other parameters, and for numbers that are repeated or out of bounds.
pub(super) fn parse_page(query: Option<&str>) -> Result<(Page, Option<String>), Failure> {
    let (mut skip, mut take, mut client) = (None, None, None);
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let (name, slot, least, most) = match &*name {
            "skip" => ("skip", &mut skip, 0, MAX_SKIP),
            "take" => ("take", &mut take, 1, Page::MAX_TAKE),
            "client" => {
                client = Some(value.into_owned());
                continue;
            }
            unknown => {
                let (name, known) = (shorten_word(unknown), "skip, take and client");
                return Err(Failure::QueryUnknown { name, known });
            }
        };
        read_number(name, &value, slot, (least, most))?;
    }
    let page = Page {
        skip: skip.unwrap_or(0),
        take: take.unwrap_or(DEFAULT_TAKE),
    };
    Ok((page, client))
}

pub(super) async fn list_sessions(
    app: &App,
    requester: &Requester,
    (page, client): (Page, Option<String>),
) -> Result<Response<Body>, Failure> {
    let account = requester.account.as_ref();
    let found = app.sessions.list_sessions(account, page).await;
    let found = found.map_err(log_store_failure)?;
    let next = page.skip + page.take;
    let of_other_keys = count_others(app, requester).await;
    let local = app.config.admin.local;
    let hint = if local { LOCAL_HINT } else { HINT };
    let build_overview = |view: &SessionView| {
        let reader = requester.choose_reader(app, Some(&view.account));
        session::build_overview(view, reader)
    };
    let sessions = found.sessions.iter();
    let wanted = sessions.filter(|view| client.as_ref().is_none_or(|name| **name == *view.client));
    Ok(respond_json(&SessionPage {
        hint: of_other_keys.filter(|others| *others > 0).map(|_| hint),
        of_other_keys,
        sessions: wanted.map(build_overview).collect(),
        next: (found.has_more && next <= MAX_SKIP).then_some(next),
    }))
}

/// Number of sessions of other keys. `None` if the requester may not know it, or if the store fails,
/// since the list is useful without it.
///
/// SECURITY: a number only, and only on a proxy without client keys, which only users of this machine can
/// reach.
pub(super) async fn count_others(app: &App, requester: &Requester) -> Option<u64> {
    let account = requester.account_told_of_others(app)?;
    let count = app.sessions.count_others(&account).await;
    let log_failure = |error: &SessionError| {
        let error = format_error_chain(error);
        tracing::debug!(%error, "sessions of other keys could not be counted");
    };
    count.inspect_err(log_failure).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_queries_are_refused() {
        let check = |query: Option<&str>, expected: Option<(usize, usize)>| {
            let found = parse_page(query).ok();
            let found = found.map(|(page, _)| (page.skip, page.take));
            assert_eq!(found, expected, "{query:?}");
        };
        check(None, Some((0, 100)));
        check(Some(""), Some((0, 100)));
        check(Some("take=1"), Some((0, 1)));
        check(Some("take=200&skip=007"), Some((7, 200)));
        check(Some("client=alice"), Some((0, 100)));
        for wrong in [
            "take=0",
            "take=201",
            "take=",
            "take",
            "take=+1",
            "take=1e1",
            "skip=-1",
            "skip=10000001",
            "skip=99999999999999999999999",
            "skip=1&skip=1",
            "limit=10",
            "Take=1",
        ] {
            check(Some(wrong), None);
        }
    }
}
