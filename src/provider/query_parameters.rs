//! The query of a request: the client's, and what the settings add to it.

use form_urlencoded::parse;
use http::{HeaderValue, Response, header::LOCATION};

/// A path with `ours` behind the query that it has. Of the client's parameters those go that ours
/// has too, in any case of letters, since some servers take the first and some the last. The
/// others stay as they are spelled.
pub(super) fn append_query(path: &str, ours: Option<&str>) -> String {
    let Some(ours) = ours else {
        return path.to_owned();
    };
    let (path, theirs) = path.split_once('?').unwrap_or((path, ""));
    let parameters: Vec<_> = client_parameters(theirs, ours).chain([ours]).collect();
    format!("{path}?{}", parameters.join("&"))
}

/// Takes what is ours out of the address that a redirect names.
///
/// SECURITY: servers repeat the query there, and ours may hold a key.
pub(super) fn strip_injected_query<B>(answer: &mut Response<B>, ours: Option<&str>) {
    let Some(ours) = ours.filter(|_| answer.status().is_redirection()) else {
        return;
    };
    let place = answer.headers_mut().remove(LOCATION);
    // What cannot be read may hold it.
    let Some(address) = place.as_ref().and_then(|place| place.to_str().ok()) else {
        return;
    };
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let kept: Vec<_> = client_parameters(query, ours).collect();
    let mark = if kept.is_empty() { "" } else { "?" };
    if let Ok(hidden) = HeaderValue::try_from(format!("{path}{mark}{}", kept.join("&"))) {
        answer.headers_mut().insert(LOCATION, hidden);
    }
}

/// The parameters of a query that ours does not have.
fn client_parameters<'q>(query: &'q str, ours: &'q str) -> impl Iterator<Item = &'q str> {
    query.split('&').filter(move |parameter| {
        let name = parse(parameter.as_bytes()).next();
        let is_ours =
            |name: &str| parse(ours.as_bytes()).any(|(own, _)| own.eq_ignore_ascii_case(name));
        name.is_some_and(|(name, _)| !is_ours(&name))
    })
}

#[cfg(test)]
mod tests {
    use http::{Response, header::LOCATION};

    use super::{append_query, strip_injected_query};

    #[test]
    fn a_redirect_does_not_tell_ours() {
        let check = |status: u16, place: &str, ours: Option<&str>, expected: &str| {
            let answer = Response::builder().status(status).header(LOCATION, place);
            let mut answer = answer.body(()).unwrap();
            strip_injected_query(&mut answer, ours);
            assert_eq!(answer.headers()[LOCATION], expected, "{status} {place}");
        };
        let ours = Some("v=2&code=secret");
        check(
            307,
            "http://a/x/?a=1&v=2&code=secret",
            ours,
            "http://a/x/?a=1",
        );
        check(308, "/x/?%43ode=secret", ours, "/x/");
        check(307, "/x/", ours, "/x/");
        check(307, "/x/?v=2", None, "/x/?v=2");
        check(201, "/x/1?v=2", ours, "/x/1?v=2");
    }

    #[test]
    fn ours_stands_behind_the_clients() {
        for (path, ours, expected) in [
            ("/chat", None, "/chat"),
            ("/chat?", None, "/chat?"),
            ("/chat?a=1", None, "/chat?a=1"),
            ("/chat", Some("v=2"), "/chat?v=2"),
            ("/chat?", Some("v=2"), "/chat?v=2"),
            ("/chat?a=1", Some("v=2&w=3"), "/chat?a=1&v=2&w=3"),
            (
                "/chat?a=%2F&b&a=+x&=y",
                Some("v=2"),
                "/chat?a=%2F&b&a=+x&=y&v=2",
            ),
            ("/chat?v=1&a=1&V=3&%76=4&v", Some("v=2"), "/chat?a=1&v=2"),
            ("/chat?a=v%3D1?x", Some("v=2"), "/chat?a=v%3D1?x&v=2"),
            ("/chat?vv=1", Some("v=2"), "/chat?vv=1&v=2"),
        ] {
            assert_eq!(append_query(path, ours), expected, "{path} {ours:?}");
        }
    }
}
