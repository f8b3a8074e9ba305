//! The catalogue that is fetched.

use super::*;

#[tokio::test]
async fn the_catalogue_is_fetched() {
    let data = tempfile::tempdir().unwrap();
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", CATALOGUE)]).await;
    let config = settings(&up, data.path());
    let registry = Registry::new(&config).unwrap();
    let fetched = within_time(registry.fetch_catalogue()).await.unwrap();
    assert_eq!(fetched.unwrap(), 1);
    let window = registry.resolve_target("up/new", None).unwrap().window;
    assert_eq!(window.tokens, 50_000);
    assert_eq!(window.source, WindowSource::Catalogue);
}

#[tokio::test]
async fn a_proxy_fetches_the_catalogue_at_its_start() {
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", CATALOGUE)]).await;
    let url = format!("http://{}/api.json", up.address);
    let proxy = up.proxy().set(|config| config.catalogue.url = Some(url));
    let proxy = proxy.start().await;
    assert_eq!(up.request().await.line, "GET /api.json HTTP/1.1");
    let client = proxy.client();
    within_time(async {
        while client.get("/v1/models/up/new").await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(up.count_requests(), 1);
}

/// The second process finds what the first one fetched, and asks nobody while that is fresh.
#[tokio::test]
async fn a_fetched_catalogue_is_kept_over_restarts() {
    let data = tempfile::tempdir().unwrap();
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", CATALOGUE)]).await;
    let mut config = settings(&up, data.path());
    config.providers.get_mut("up").unwrap().ask_models = Some(false);
    let first = Registry::new(&config).unwrap();
    first.start();
    let is_known = |registry: &Registry| {
        let window = registry.resolve_target("up/new", None).unwrap().window;
        (window.tokens, window.source) == (50_000, WindowSource::Catalogue)
    };
    within_time(async {
        while !is_known(&first) || !data.path().join("catalogue").exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(first);
    let second = Registry::new(&config).unwrap();
    assert!(is_known(&second), "at once");
    let told = second.describe_catalogue();
    assert!(
        told.starts_with("catalogue: fetched 0 hours ago, 1 models; the rest built in"),
        "{told}"
    );
    second.start();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(up.count_requests(), 1);
    // A list of another address is another list.
    config.catalogue.url = Some(format!("http://{}/other.json", up.address));
    assert!(!is_known(&Registry::new(&config).unwrap()));
    // What cannot be kept is used all the same.
    config.server.data_dir = data.path().join("catalogue").into();
    let third = Registry::new(&config).unwrap();
    let fetched = within_time(third.fetch_catalogue()).await.unwrap();
    assert_eq!(fetched.unwrap(), 1);
    assert!(is_known(&third));
}

/// The default asks a server outside, and so it does not where nothing is to be learnt.
#[tokio::test]
async fn no_catalogue_is_fetched_where_it_is_switched_off_or_of_no_use() {
    let up = ScriptedProvider::start().await;
    let data = tempfile::tempdir().unwrap();
    let fetched = async |config: &Config| {
        let registry = Registry::new(config).unwrap();
        within_time(registry.fetch_catalogue()).await.is_some()
    };
    let mut config = settings(&up, data.path());
    up.script_next([answer("200 OK", "", CATALOGUE)]);
    assert!(fetched(&config).await);
    config.catalogue.url = None;
    assert!(!fetched(&config).await);
    assert_eq!(
        Config::default().catalogue.url.as_deref(),
        Some("https://models.dev/api.json")
    );
    assert!(!fetched(&Config::default()).await);
    assert_eq!(up.count_requests(), 1);
}

/// All that is sent is a GET.
#[tokio::test]
async fn the_request_for_the_catalogue_tells_nothing() {
    let data = tempfile::tempdir().unwrap();
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", CATALOGUE)]).await;
    let registry = Registry::new(&settings(&up, data.path())).unwrap();
    let _ = within_time(registry.fetch_catalogue()).await;
    let seen = up.last_request();
    assert!(
        seen.line.starts_with("GET /api.json?token="),
        "{}",
        seen.line
    );
    assert!(seen.body.is_empty());
    let names: Vec<_> = seen.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["accept", "host"]);
}

/// A proxy without a network serves as if there were none to ask.
#[tokio::test]
async fn a_catalogue_that_is_out_of_reach_delays_nothing() {
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", COMPLETION)]).await;
    // No server listens on a port that was released.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/api.json", gone.local_addr().unwrap());
    drop(gone);
    let proxy = up.proxy().set(|config| config.catalogue.url = Some(url));
    let proxy = proxy.start().await;
    let body = r#"{"model":"gpt-6.2-sol","messages":[{"role":"user","content":"hi"}]}"#;
    let came = proxy.chat(body).await;
    assert_eq!(came.status, 200);
    assert_eq!(came.headers["x-plimsoll-context-limit"], "1050000");
}

#[tokio::test]
async fn a_catalogue_that_cannot_be_fetched_changes_nothing() {
    let data = tempfile::tempdir().unwrap();
    let up = ScriptedProvider::start().await;
    let registry = Registry::new(&settings(&up, data.path())).unwrap();
    let huge = format!("[{}]", " ".repeat(32 << 20));
    let elsewhere = format!("location: http://{}/elsewhere\r\n", up.address);
    for (steps, expected) in [
        (vec![answer("200 OK", "", CATALOGUE)], None),
        (
            vec![answer("500 Internal Server Error", "", CATALOGUE)],
            Some("status 500"),
        ),
        (
            vec![answer("302 Found", &elsewhere, "")],
            Some("status 302"),
        ),
        (vec![answer("200 OK", "", "<html>")], Some("is no list")),
        (vec![answer("200 OK", "", "{}")], Some("is no list")),
        (vec![answer("200 OK", "", huge)], Some("is larger than")),
        (vec![ProviderStep::Close], Some("could not be fetched")),
    ] {
        up.script_next(steps);
        let fetched = within_time(registry.fetch_catalogue()).await.unwrap();
        match (fetched, expected) {
            (Ok(models), None) => assert_eq!(models, 1),
            (Err(error), Some(expected)) => {
                let said = error.to_string();
                assert!(said.contains(expected) && !said.contains(SECRET), "{said}");
            }
            (fetched, _) => panic!("{fetched:?}"),
        }
        let window = registry.resolve_target("up/new", None).unwrap().window;
        assert_eq!(window.tokens, 50_000);
    }
    assert_eq!(up.count_requests(), 7, "no redirect was followed");
}
