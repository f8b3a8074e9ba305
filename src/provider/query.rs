//! The query of a request: the client's, and what the settings add to it.

use form_urlencoded::parse;

/// A path with `ours` behind the query that it has. Of the client's parameters those go that ours
/// has too, in any case of letters, since some servers take the first and some the last. The
/// others stay as they are spelled.
pub(super) fn with(path: &str, ours: Option<&str>) -> String {
    let Some(ours) = ours else {
        return path.to_owned();
    };
    let (path, theirs) = path.split_once('?').unwrap_or((path, ""));
    let is_ours =
        |name: &str| parse(ours.as_bytes()).any(|(own, _)| own.eq_ignore_ascii_case(name));
    let kept = theirs.split('&').filter(|parameter| {
        let name = parse(parameter.as_bytes()).next();
        name.is_some_and(|(name, _)| !is_ours(&name))
    });
    let parameters: Vec<_> = kept.chain([ours]).collect();
    format!("{path}?{}", parameters.join("&"))
}

#[cfg(test)]
mod tests {
    use super::with;

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
            assert_eq!(with(path, ours), expected, "{path} {ours:?}");
        }
    }
}
