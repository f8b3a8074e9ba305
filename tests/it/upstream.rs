//! What a provider's settings add to a request.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use plimsoll::config::{Auth, secret::Secret};

use crate::support::{COMPLETION, SECRET, ScriptedProvider, answer};

const ASK: &str = r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;

#[tokio::test]
async fn a_provider_gets_its_key_its_headers_and_its_query() {
    let up = ScriptedProvider::start().await;
    let ours = format!("{SECRET}-ours");
    let proxy = up.proxy().providers(|provider| {
        provider.auth = Auth::Key(Secret::new(ours.clone()), "KEY".into());
        provider.key_header = Some(HeaderName::from_static("x-own-key"));
        let team = HeaderValue::from_static("research");
        provider.headers = HeaderMap::from_iter([(HeaderName::from_static("x-team"), team)]);
        provider.query = Some(Secret::new("api-version=2024-10-21"));
    });
    let proxy = proxy.start().await;
    let client = proxy.client();
    let paths = [
        ("/v1/chat/completions", "/v1/chat/completions?"),
        (
            "/up/v1/chat/completions?api-version=1&beta=true",
            "/v1/chat/completions?beta=true&",
        ),
        ("/v1/embeddings?a=%20b", "/v1/embeddings?a=%20b&"),
    ];
    for (count, (path, expected)) in paths.into_iter().enumerate() {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        let mut request = client
            .request(Method::POST, path)
            .header("x-team", "theirs");
        for name in ["authorization", "api-key", "x-api-key", "x-own-key"] {
            request = request.header(name, format!("Bearer {SECRET}-theirs"));
        }
        let got = client.send_with(request, ASK).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let seen = up.requests(count + 1).await.pop().unwrap();
        let line = format!("POST {expected}api-version=2024-10-21 HTTP/1.1");
        assert_eq!(seen.line, line);
        let secrets = seen
            .headers
            .iter()
            .filter(|(_, value)| value.contains(SECRET));
        let own = ("x-own-key".to_owned(), ours.clone());
        assert_eq!(secrets.collect::<Vec<_>>(), [&own], "{path}");
        let teams = seen.headers.iter().filter(|(name, _)| name == "x-team");
        assert_eq!(
            teams.collect::<Vec<_>>(),
            [&("x-team".into(), "research".into())]
        );
    }
}
