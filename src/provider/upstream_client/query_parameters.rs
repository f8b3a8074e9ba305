//! The query of a request: the client's parameters, and those that the settings add.

use form_urlencoded::parse;
use http::{HeaderValue, Response, header::LOCATION};

/// Appends the `configured` query to a path. It replaces the client's parameters of the same names, in
/// any case of letters, since some servers read the first one and some the last. The others stay as
/// they are spelled.
pub(super) fn append_query(path: &str, configured: Option<&str>) -> String {
    let Some(configured) = configured else {
        return path.to_owned();
    };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut parameters: Vec<_> = client_parameters(query, configured).collect();
    parameters.push(configured);
    format!("{path}?{}", parameters.join("&"))
}

/// Removes the configured parameters from the address of a redirect.
///
/// SECURITY: servers repeat the query there, and the configured one may hold a key.
pub(super) fn strip_injected_query<B>(answer: &mut Response<B>, configured: Option<&str>) {
    let Some(configured) = configured.filter(|_| answer.status().is_redirection()) else {
        return;
    };
    // An unreadable address may hold the key, so it is dropped.
    let location = answer.headers_mut().remove(LOCATION);
    let Some(Ok(address)) = location.as_ref().map(HeaderValue::to_str) else {
        return;
    };
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let kept: Vec<_> = client_parameters(query, configured).collect();
    let mark = if kept.is_empty() { "" } else { "?" };
    if let Ok(stripped) = HeaderValue::try_from(format!("{path}{mark}{}", kept.join("&"))) {
        answer.headers_mut().insert(LOCATION, stripped);
    }
}

/// The parameters of a query that the configured one does not have.
fn client_parameters<'q>(query: &'q str, configured: &'q str) -> impl Iterator<Item = &'q str> {
    query.split('&').filter(move |parameter| {
        parse(parameter.as_bytes()).next().is_some_and(|(name, _)| {
            !parse(configured.as_bytes()).any(|(known, _)| known.eq_ignore_ascii_case(&name))
        })
    })
}

#[cfg(test)]
mod tests {
    use http::{Response, header::LOCATION};

    use super::{append_query, strip_injected_query};

    #[test]
    fn a_redirect_does_not_show_the_configured_query() {
        let check = |status: u16, location: &str, query: Option<&str>, expected: &str| {
            let answer = Response::builder()
                .status(status)
                .header(LOCATION, location);
            let mut answer = answer.body(()).unwrap();
            strip_injected_query(&mut answer, query);
            assert_eq!(answer.headers()[LOCATION], expected, "{status} {location}");
        };
        let query = Some("v=2&code=secret");
        let repeated = "http://a/x/?a=1&v=2&code=secret";
        check(307, repeated, query, "http://a/x/?a=1");
        check(308, "/x/?%43ode=secret", query, "/x/");
        check(307, "/x/", query, "/x/");
        check(307, "/x/?v=2", None, "/x/?v=2");
        check(201, "/x/1?v=2", query, "/x/1?v=2");
    }

    #[test]
    fn the_configured_query_replaces_the_clients_parameters() {
        for (path, configured, expected) in [
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
            let found = append_query(path, configured);
            assert_eq!(found, expected, "{path} {configured:?}");
        }
    }
}
