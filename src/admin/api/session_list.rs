//! `GET sessions`: those of whoever asks, newest first, in pages.

use http::Response;
use serde::Serialize;

use super::{Requester, respond_json, shorten_word, store_failure};
use crate::{
    error::{Failure, format_error_chain},
    proxy::App,
    session::{self, SessionOverview},
    store::Page,
    wire::Body,
};

/// Sessions on a page, where the request does not say.
const TAKE: usize = 100;
/// Sessions before a page.
const MAX_SKIP: usize = 10_000_000;

/// The body of the answer.
#[derive(Debug, Serialize)]
pub(super) struct SessionPage {
    pub(super) sessions: Vec<SessionOverview>,
    /// What to skip for the next page; `null` after the last one.
    pub(super) next: Option<usize>,
    /// Sessions of other keys, of which nothing else is told; `null` where clients have keys, and for
    /// whoever is shown all sessions.
    pub(super) of_other_keys: Option<u64>,
    /// What to do to see those; `null` where there are none.
    pub(super) hint: Option<&'static str>,
}

/// What to do about sessions that are not shown.
const HINT: &str = "Sessions are kept apart by the key that their clients send. Send the same key as \
                    `Authorization: Bearer KEY` to see its sessions, or set admin.local = true in \
                    config.toml to list those of all keys on this machine.";

/// The same where `admin.local` is on, and this request is not shown all sessions.
const LOCAL_HINT: &str = "admin.local is on: requests that send no key and come through no other proxy (no \
                          x-forwarded-*, forwarded, via or x-real-ip) are shown the sessions of all keys. Ask \
                          again that way, or send the key whose sessions you want.";

/// Which page a query asks for.
///
/// # Errors
/// It asks for none that there is, or for something else.
pub(super) fn parse_page(query: Option<&str>) -> Result<Page, Failure> {
    let (mut skip, mut take) = (None, None);
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let (name, found, least, most) = match &*name {
            "skip" => ("skip", &mut skip, 0, MAX_SKIP),
            "take" => ("take", &mut take, 1, Page::MAX_TAKE),
            unknown => {
                let name = shorten_word(unknown);
                return Err(Failure::QueryUnknown { name });
            }
        };
        let wrong = Failure::QueryValue { name, least, most };
        let digits = value.bytes().all(|byte| byte.is_ascii_digit());
        let number = value.parse().ok().filter(|_| digits);
        let number = number.filter(|number| (least..=most).contains(number));
        match number {
            Some(number) if found.replace(number).is_none() => {}
            _ => return Err(wrong),
        }
    }
    Ok(Page {
        skip: skip.unwrap_or(0),
        take: take.unwrap_or(TAKE),
    })
}

/// # Errors
/// The store does not answer.
pub(super) async fn list_sessions(
    app: &App,
    who: &Requester,
    page: Page,
) -> Result<Response<Body>, Failure> {
    let account = who.account.as_ref();
    let found = app
        .sessions
        .list_sessions(account, page)
        .await
        .map_err(store_failure)?;
    let next = page.skip + page.take;
    let of_other_keys = count_others(app, who).await;
    let hint = match app.config.admin.local {
        true => LOCAL_HINT,
        false => HINT,
    };
    let listed = SessionPage {
        hint: of_other_keys.filter(|others| *others > 0).map(|_| hint),
        of_other_keys,
        sessions: found.sessions.iter().map(session::build_overview).collect(),
        next: (found.has_more && next <= MAX_SKIP).then_some(next),
    };
    Ok(respond_json(&listed))
}

/// How many sessions other keys have, where whoever asks may know; `None` also where the store does not
/// answer, since nobody asked for it.
///
/// SECURITY: a number and nothing else, and only on a proxy without client keys, which nobody but users of
/// this machine can reach.
pub(super) async fn count_others(app: &App, who: &Requester) -> Option<u64> {
    let own = who.counts_others(app)?;
    let counted = app.sessions.count_others(&own).await;
    counted
        .inspect_err(|error| {
            tracing::debug!(error = %format_error_chain(error), "sessions of other keys could not be counted");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_a_page_or_is_refused() {
        let check = |query: Option<&str>, expected: Option<(usize, usize)>| {
            let found = parse_page(query).ok().map(|page| (page.skip, page.take));
            assert_eq!(found, expected, "{query:?}");
        };
        check(None, Some((0, 100)));
        check(Some(""), Some((0, 100)));
        check(Some("take=1"), Some((0, 1)));
        check(Some("take=200&skip=007"), Some((7, 200)));
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
