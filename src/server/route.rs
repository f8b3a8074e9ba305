//! Method and path -> who answers.

use std::borrow::Cow;

use http::Method;

use crate::{admin::dashboard, error::Failure, http::admission::Client, telemetry::Operation};

/// Who answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// A chat completion, which is guarded.
    Chat {
        provider: Option<&'a str>,
    },
    /// The list of all models.
    Models,
    /// One of them; the id may have slashes, and may be percent-encoded.
    Model {
        id: &'a str,
    },
    /// Everything else of a provider's API goes through untouched. `path` follows `/v1`.
    Forward {
        provider: Option<&'a str>,
        path: &'a str,
    },
    Health,
    Ready,
    Metrics,
    /// Our own API; `path` follows `/plimsoll/api/`.
    Api {
        path: &'a str,
    },
    /// A file of our own page; `path` follows `/plimsoll`.
    Dashboard {
        path: &'a str,
    },
}

impl Route<'_> {
    /// The kind of path, as traces name it, and what is asked of a model there.
    pub fn shape_and_operation(&self) -> (&'static str, Option<Operation>) {
        let path = match self {
            Self::Chat { .. } => "/chat/completions",
            Self::Forward { path, .. } => path,
            Self::Models => return ("/v1/models", None),
            Self::Model { .. } => return ("/v1/models/{id}", None),
            _ => return ("", None),
        };
        let operation = Operation::from_path(path);
        let shape = match operation {
            Some(Operation::Chat) => "/v1/chat/completions",
            Some(Operation::Embeddings) => "/v1/embeddings",
            Some(Operation::TextCompletion) => "/v1/completions",
            None => "/v1/{path}",
        };
        (shape, operation)
    }

    /// # Errors
    /// The client may not use this path.
    pub fn check_path(&self, client: &Client) -> Result<(), Failure> {
        let path = match self {
            Self::Chat { .. } => "chat/completions",
            // One model is a part of the list.
            Self::Models | Self::Model { .. } => "models",
            Self::Forward { path, .. } => path.strip_prefix('/').unwrap_or(path),
            _ => return Ok(()),
        };
        match client.may_reach(path) {
            true => Ok(()),
            false => Err(Failure::PathNotAllowed),
        }
    }
}

/// # Errors
/// Nobody answers this path, or not this method.
pub fn find_route<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, Failure> {
    // SECURITY: `/v1/../admin` would leave the API that the provider's key is meant for.
    if has_dot_segments(path) {
        return Err(Failure::DotSegments);
    }
    // SECURITY: these are answered with the request itself, and so with the provider's key.
    if ["TRACE", "TRACK"].contains(&method.as_str()) {
        let allow = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        return Err(Failure::WrongMethod { allow });
    }
    let reads = [Method::GET, Method::HEAD].contains(method);
    let own = |route| {
        let allow = "GET, HEAD";
        reads.then_some(route).ok_or(Failure::WrongMethod { allow })
    };
    match path {
        "/healthz" => return own(Route::Health),
        "/readyz" => return own(Route::Ready),
        "/metrics" => return own(Route::Metrics),
        "/v1/models" => return own(Route::Models),
        _ => {}
    }
    if let Some(id) = path.strip_prefix("/v1/models/")
        && reads
        && !id.is_empty()
    {
        return Ok(Route::Model { id });
    }
    if let Some(path) = path.strip_prefix("/plimsoll/api/") {
        return Ok(Route::Api { path });
    }
    if let Some(path) = path.strip_prefix("/plimsoll")
        && dashboard::has_file(path)
    {
        return own(Route::Dashboard { path });
    }
    let (provider, path) = split_provider(path).ok_or(Failure::PathNotFound)?;
    if path != "/chat/completions" || reads {
        return Ok(Route::Forward { provider, path });
    }
    if *method == Method::POST {
        return Ok(Route::Chat { provider });
    }
    Err(Failure::WrongMethod {
        // Reading goes on to the provider, which may list stored completions there.
        allow: "POST, GET, HEAD",
    })
}

/// The provider, and what follows `/v1`, slash included.
fn split_provider(path: &str) -> Option<(Option<&str>, &str)> {
    if let Some(rest) = path.strip_prefix("/v1") {
        return (rest.len() > 1 && rest.starts_with('/')).then_some((None, rest));
    }
    let (provider, rest) = path.strip_prefix('/')?.split_once('/')?;
    let rest = rest.strip_prefix("v1")?;
    let sound = !provider.is_empty() && rest.len() > 1 && rest.starts_with('/');
    (sound && provider != "plimsoll").then_some((Some(provider), rest))
}

/// Also where they are spelled with `%2e`, or behind `%2f` and `\`, which some servers decode, some
/// twice; and before `;`, behind which some look for parameters.
fn has_dot_segments(path: &str) -> bool {
    let mut path = Cow::Borrowed(path);
    if path.contains('%') {
        let mut plain = path.to_ascii_lowercase().replace("%25", "%");
        for (coded, character) in [("%2e", "."), ("%2f", "/"), ("%5c", "/"), ("%3b", ";")] {
            plain = plain.replace(coded, character);
        }
        path = plain.into();
    }
    path.split(['/', '\\'])
        .map(|part| part.split(';').next().unwrap_or_default())
        .any(|part| matches!(part, "." | ".."))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::{Route, find_route};
    use crate::error::Failure;

    #[test]
    fn every_path_has_its_route() {
        let check = |method: Method, path: &str, expected: Result<Route<'_>, Failure>| {
            assert_eq!(find_route(&method, path), expected, "{method} {path}");
        };
        let forward = |provider, path| Ok(Route::Forward { provider, path });
        let wrong = |allow| Err(Failure::WrongMethod { allow });
        let p = Some("p");
        let post = Method::POST;
        check(
            post.clone(),
            "/v1/chat/completions",
            Ok(Route::Chat { provider: None }),
        );
        check(
            post.clone(),
            "/p/v1/chat/completions",
            Ok(Route::Chat { provider: p }),
        );
        check(
            Method::PUT,
            "/v1/chat/completions",
            wrong("POST, GET, HEAD"),
        );
        check(
            Method::GET,
            "/v1/chat/completions",
            forward(None, "/chat/completions"),
        );
        check(Method::GET, "/v1/models", Ok(Route::Models));
        check(post.clone(), "/v1/models", wrong("GET, HEAD"));
        check(
            Method::GET,
            "/v1/models/a/b",
            Ok(Route::Model { id: "a/b" }),
        );
        check(
            Method::DELETE,
            "/v1/models/a/b",
            forward(None, "/models/a/b"),
        );
        check(Method::GET, "/p/v1/models/a", forward(p, "/models/a"));
        check(post.clone(), "/v1/embeddings", forward(None, "/embeddings"));
        check(Method::GET, "/p/v1/models", forward(p, "/models"));
        check(Method::GET, "/healthz", Ok(Route::Health));
        check(Method::GET, "/readyz", Ok(Route::Ready));
        check(Method::GET, "/metrics", Ok(Route::Metrics));
        check(post.clone(), "/metrics", wrong("GET, HEAD"));
        check(
            Method::GET,
            "/plimsoll/api/sessions/x",
            Ok(Route::Api { path: "sessions/x" }),
        );
        for path in ["", "/", "/main.js"] {
            let full = format!("/plimsoll{path}");
            check(Method::GET, &full, Ok(Route::Dashboard { path }));
            check(post.clone(), &full, wrong("GET, HEAD"));
        }
        for none in [
            "/",
            "*",
            "",
            "/v1",
            "/v1/",
            "/v2/x",
            "/p",
            "/p/v1/",
            "//v1/x",
            "/v1x/y",
            "/plimsoll/v1/x",
            "/plimsoll/x.js",
            "/plimsollx",
        ] {
            check(post.clone(), none, Err(Failure::PathNotFound));
        }
        for dots in [
            "/v1/../x",
            "/v1/a/..",
            "/v1/./x",
            "/v1/%2e%2E/x",
            "/v1/.%2e%2fx",
            "/v1/..%5cx",
            "/v1/..\\x",
            "/v1/..;/x",
            "/v1/..%3Ba=b/x",
            "/v1/%252e%252e/x",
            "/v1/a%252f..%252Fx",
        ] {
            check(post.clone(), dots, Err(Failure::DotSegments));
        }
        let echoes = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        check(Method::TRACE, "/v1/files", wrong(echoes));
        check("TRACK".parse().unwrap(), "/p/v1/files", wrong(echoes));
        check(post, "/v1/files/a..b", forward(None, "/files/a..b"));
    }
}
