use http::Method;

use super::{ClientRoute, OwnRoute, Route, find_route};
use crate::{conversation::Format, error::Failure};

#[test]
fn routes_follow_method_and_path() {
    let check = |method: Method, path: &str, expected: Result<Route<'_>, Failure>| {
        assert_eq!(find_route(&method, path), expected, "{method} {path}");
    };
    let forward = |provider, path| Ok(Route::Client(ClientRoute::Forward { provider, path }));
    let conversation = |format, provider| {
        Ok(Route::Client(ClientRoute::Conversation {
            format,
            provider,
        }))
    };
    let wrong = |allow| Err(Failure::WrongMethod { allow });
    let p = Some("p");
    let post = Method::POST;
    check(
        post.clone(),
        "/v1/chat/completions",
        conversation(Format::Chat, None),
    );
    check(
        post.clone(),
        "/p/v1/chat/completions",
        conversation(Format::Chat, p),
    );
    check(
        post.clone(),
        "/p/v1/messages",
        conversation(Format::Messages, p),
    );
    check(Method::GET, "/v1/messages", forward(None, "/messages"));
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
    check(
        Method::GET,
        "/v1/models",
        Ok(Route::Client(ClientRoute::Models)),
    );
    check(post.clone(), "/v1/models", wrong("GET, HEAD"));
    check(
        Method::GET,
        "/v1/models/a/b",
        Ok(Route::Client(ClientRoute::Model { id: "a/b" })),
    );
    check(
        Method::DELETE,
        "/v1/models/a/b",
        forward(None, "/models/a/b"),
    );
    check(Method::GET, "/p/v1/models/a", forward(p, "/models/a"));
    check(post.clone(), "/v1/embeddings", forward(None, "/embeddings"));
    check(Method::GET, "/p/v1/models", forward(p, "/models"));
    for (path, meant) in [
        ("/v1/v1/messages", "/v1/messages"),
        ("/v1/messages/", "/v1/messages"),
        ("/v1/chat/completions%20", "/v1/chat/completions"),
        ("/v1/messages%0A", "/v1/messages"),
        ("/p/v1/messages%3Fbeta=true", "/p/v1/messages"),
        ("/v1/v1/chat/completions//", "/v1/chat/completions"),
        ("/p/v1/v1/responses", "/p/v1/responses"),
        ("/v1//messages", "/v1/messages"),
        ("/p/v1//chat//completions", "/p/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/messages", "/v1/messages"),
        ("/responses/", "/v1/responses"),
        (
            "/v1/chat/completions/chat/completions",
            "/v1/chat/completions",
        ),
        ("/v1/messages/v1/messages", "/v1/messages"),
        ("/v1/chat/completions/responses", "/v1/responses"),
        ("/v1/engines/gpt-4/chat/completions", "/v1/chat/completions"),
        (
            "/v1/openai/deployments/m/chat/completions",
            "/v1/chat/completions",
        ),
        ("/v1/openai/deployments/m/responses", "/v1/responses"),
        (
            "/openai/deployments/m/chat/completions",
            "/v1/chat/completions",
        ),
        ("/p/v1/openai/chat/completions", "/p/v1/chat/completions"),
        ("/v1/Chat/Completions", "/v1/chat/completions"),
        ("/v1/%6dessages", "/v1/messages"),
        ("/v1/chat%2fcompletions", "/v1/chat/completions"),
        ("/v1/%2563hat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions;a=b", "/v1/chat/completions"),
        ("/api/v0/chat/completions", "/v1/chat/completions"),
        ("/models", "/v1/models"),
        ("/models/a/B", "/v1/models/a/B"),
        ("/embeddings", "/v1/embeddings"),
        ("/v1/v1/models", "/v1/models"),
        ("/p/v1/v1/embeddings", "/p/v1/embeddings"),
        ("/messages/count_tokens", "/v1/messages/count_tokens"),
    ] {
        let expected = Err(Failure::PathMeant(meant.to_owned()));
        check(post.clone(), path, expected);
    }
    for path in [
        "/v1x",
        "/threads/t/messages",
        "/messages/batches",
        "/chat/completions/id",
        "/responses/id/cancel",
        "/openai/deployments/m/embeddings",
    ] {
        check(post.clone(), &format!("/v1{path}"), forward(None, path));
    }
    let stored = "/chat/completions/id/messages";
    check(Method::GET, &format!("/v1{stored}"), forward(None, stored));
    let ollama = |path| Ok(Route::Client(ClientRoute::Ollama { path }));
    check(post.clone(), "/api/chat", ollama("/../api/chat"));
    check(post.clone(), "/api/show", ollama("/../api/show"));
    check(Method::GET, "/api/tags", ollama("/../api/tags"));
    check(Method::HEAD, "/api/version", ollama("/../api/version"));
    check(post.clone(), "/api/tags", wrong("GET, HEAD"));
    check(Method::GET, "/api/generate", wrong("POST"));
    for path in [
        "pull", "push", "create", "copy", "delete", "ps", "embed", "chat/", "Chat", "",
    ] {
        let path = format!("/api/{path}");
        check(post.clone(), &path, Err(Failure::OllamaPath));
    }
    check(Method::HEAD, "/", Ok(Route::Own(OwnRoute::Root)));
    check(
        Method::GET,
        "/",
        Ok(Route::Own(OwnRoute::Dashboard { path: "" })),
    );
    check(Method::GET, "/healthz", Ok(Route::Own(OwnRoute::Health)));
    check(Method::GET, "/readyz", Ok(Route::Own(OwnRoute::Ready)));
    check(Method::GET, "/metrics", Ok(Route::Own(OwnRoute::Metrics)));
    check(post.clone(), "/metrics", wrong("GET, HEAD"));
    check(
        Method::GET,
        "/plimsoll/api/sessions/x",
        Ok(Route::Own(OwnRoute::Api { path: "sessions/x" })),
    );
    for path in ["", "/", "/main.js"] {
        let full = format!("/plimsoll{path}");
        check(
            Method::GET,
            &full,
            Ok(Route::Own(OwnRoute::Dashboard { path })),
        );
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
