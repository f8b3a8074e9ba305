//! What is wrong with providers: their addresses, keys, windows and clocks.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_provider_from_answering_is_found() {
    let gone = free_address();
    let fault = |cause, remedy| Expected {
        level: "fault",
        subject: "providers.up",
        cause,
        remedy,
    };
    SetUp::before(&format!("http://{gone}/v1"), "auth = \"none\"")
        .finds(fault("Connection refused", "start the server"));

    let tls = Redis::with_tls("redis-server");
    SetUp::before(
        &format!("https://127.0.0.1:{}/v1", tls.port()),
        "auth = \"none\"",
    )
    .finds(fault("UnknownIssuer", "server.ca_file"));

    // No server of names is asked for a label that is too long.
    let host = format!("{}.invalid", "a".repeat(64));
    SetUp::before(&format!("http://{host}/v1"), "auth = \"none\"")
        .finds(fault("lookup", "correct the host in base_url"));

    SetUp::before("https://provider.invalid/v1", "api_key_env = \"KEY\"")
        .variable("HTTPS_PROXY", &format!("http://{gone}"))
        .finds(fault("through a proxy", "NO_PROXY"));

    let up = provider("401 Unauthorized", "", json!({})).await;
    let with_key = SetUp::before(&base_url(&up), "api_key_env = \"KEY\"");
    with_key.finds(fault(
        "refuses the key in KEY (status 401",
        "set a key there that this provider knows",
    ));
    let shown = String::from_utf8(with_key.run(&[]).stdout).unwrap();
    assert!(
        shown.starts_with("fault    providers.up: refuses the key in KEY"),
        "{shown}"
    );

    SetUp::before(&base_url(&up), "auth = \"none\"\nprofile = \"ollama\"").finds(fault(
        "asks for a key",
        "api_key_env, in place of auth = \"none\"",
    ));

    let up = provider("403 Forbidden", "", json!({})).await;
    SetUp::before(&base_url(&up), "api_key_env = \"KEY\"").finds(fault(
        "refuses the key in KEY (status 403",
        "may list models",
    ));

    let up = provider("404 Not Found", "", json!({})).await;
    SetUp::before(&format!("http://{}/v1/v1", up.address), "auth = \"none\"").finds(Expected {
        level: "warning",
        subject: "providers.up.base_url",
        cause: "has /v1 twice",
        remedy: "write it once",
    });
    SetUp::before(&format!("http://{}/api", up.address), "auth = \"none\"").finds(Expected {
        level: "warning",
        ..fault(
            "/api/models is not there (status 404",
            "correct the path of base_url",
        )
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_and_clocks_that_differ_are_found() {
    let smaller = |name| Expected {
        level: "warning",
        subject: name,
        cause: "65536 tokens are set, and up reports that it holds 8192",
        remedy: "set 8192 here, or start the server with 65536",
    };
    let list = json!({"data": [{"id": LISTED, "meta": {"n_ctx": 8192}}]});
    let up = provider("200 OK", "", list).await;
    let model = format!("auth = \"none\"\n[models.\"up/{LISTED}\"]\ncontext_length = 65536");
    let subject = format!("models.\"up/{LISTED}\".context_length");
    SetUp::before(&base_url(&up), &model).finds(smaller(&subject));

    // What an engine has loaded counts, not what the model could hold.
    for (profile, path, loaded) in [
        (
            "ollama",
            "/api/ps",
            json!({"models": [{"name": "listed:latest", "context_length": 8192}]}),
        ),
        (
            "lmstudio",
            "/api/v0/models",
            json!({"data": [{"id": LISTED, "loaded_context_length": 8192}]}),
        ),
    ] {
        let up = ScriptedProvider::start_answering(move |request| {
            // As LM Studio before 0.4.
            if request.line.contains("/api/v1/") {
                return vec![answer("404 Not Found", "", "{}")];
            }
            let is_loaded = request.line.contains(path);
            let all = json!({"data": [{"id": LISTED}, {"id": "listed:latest"}]});
            vec![answer(
                "200 OK",
                "",
                if is_loaded { &loaded } else { &all }.to_string(),
            )]
        });
        let up = up.await;
        SetUp::before(&base_url(&up), &format!("profile = \"{profile}\"\n{model}"))
            .finds(smaller(&subject));
    }

    let date = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let up = provider("200 OK", date, json!({"data": []})).await;
    SetUp::before(&base_url(&up), "auth = \"none\"").finds(Expected {
        level: "fault",
        subject: "clock",
        cause: "from that of up",
        remedy: "NTP",
    });
}
