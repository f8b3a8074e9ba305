//! What opens and closes a breaker, and what is retried.

use std::time::Duration;

use plimsoll::{config::Auth, guard::profile::find_profile};

use super::{ask, breaker, counter_value, falls_back, good_answer, retries};
use crate::support::{
    COMPLETION, ProviderStep, ProxyBuilder, SECRET, ScriptedProvider, answer, refuse_as_openai,
    send_bytes, within_time,
};

/// Two providers without keys; one failure opens a breaker.
fn pair(up: &ScriptedProvider, other: &ScriptedProvider, fallback: &[&str]) -> ProxyBuilder {
    let proxy = up.proxy().provider("other", other);
    proxy
        .providers(|provider| {
            provider.auth = Auth::None;
            provider.breaker_failures = 1;
        })
        .set(|config| falls_back(config, fallback))
}

async fn two_providers() -> (ScriptedProvider, ScriptedProvider) {
    (
        ScriptedProvider::start().await,
        ScriptedProvider::start_answering(|_| good_answer(false)).await,
    )
}

#[tokio::test]
async fn errors_caused_by_the_client_open_no_breaker_and_try_no_fallback() {
    let (up, other) = two_providers().await;
    let proxy = pair(&up, &other, &["other/b"]).set(retries).start().await;
    let client = proxy.client();
    let refusals = [
        "400 No", "401 No", "403 No", "404 No", "409 No", "413 No", "422 No", "501 No",
    ];
    let steps = refusals.map(|status| {
        let theirs = r#"{"error":{"message":"no such thing","code":"theirs"}}"#;
        vec![answer(status, "", theirs)]
    });
    // A window too small for any cut, and no candidate has a larger one.
    let steps: Vec<_> = steps.into_iter().chain([refuse_as_openai(5, 9)]).collect();
    for (count, steps) in steps.into_iter().enumerate() {
        up.script_next(steps);
        let got = client.chat(ask(false)).await;
        assert!(got.status.is_client_error() || got.status == 501);
        assert_eq!(got.headers["x-plimsoll-provider"], "up");
        assert_eq!(
            (up.count_requests(), other.count_requests()),
            (count + 1, 0),
            "{}",
            got.text()
        );
        assert_eq!(breaker(&client, "up").await, "closed");
    }
}

#[tokio::test]
async fn a_provider_with_an_open_breaker_is_passed_over() {
    let (up, other) = two_providers().await;
    let proxy = pair(&up, &other, &["other/b"]);
    let proxy = proxy.providers(|provider| provider.breaker_open = Duration::from_millis(300));
    let proxy = proxy.start().await;
    let client = proxy.client();
    up.script_next([answer("503 No", "", "")]);
    let got = client.chat(ask(false)).await;
    assert_eq!(got.headers["x-plimsoll-attempts"], "2");
    assert_eq!(breaker(&client, "up").await, "open");
    let got = client.chat(ask(false)).await;
    assert_eq!(got.headers["x-plimsoll-provider"], "other");
    assert_eq!(got.headers["x-plimsoll-attempts"], "1");
    assert_eq!(up.count_requests(), 1);
    within_time(async { while breaker(&client, "up").await != "half_open" {} }).await;
    // The probe fails unnoticed by the client.
    up.script_next([ProviderStep::Close]);
    assert_eq!(client.chat(ask(false)).await.status, 200);
    assert_eq!(breaker(&client, "up").await, "open");
    within_time(async { while breaker(&client, "up").await != "half_open" {} }).await;
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let got = client.chat(ask(false)).await;
    assert_eq!(got.headers["x-plimsoll-provider"], "up");
    assert_eq!(breaker(&client, "up").await, "closed");
}

#[tokio::test]
async fn the_only_candidate_is_asked_despite_an_open_breaker() {
    let (up, other) = two_providers().await;
    let proxy = pair(&up, &other, &[]).start().await;
    let client = proxy.client();
    up.script_next([ProviderStep::Close]);
    let got = client.chat(ask(false)).await;
    got.is_error(502, "provider_unreachable");
    assert_eq!(breaker(&client, "up").await, "open");
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(client.chat(ask(false)).await.status, 200);
    assert_eq!(other.count_requests(), 0);
    // Where all are open, they are asked in order.
    let proxy = pair(&up, &other, &["other/b"]).start().await;
    let client = proxy.client();
    for _ in 0..2 {
        up.script_next([ProviderStep::Close]);
        other.script_next([ProviderStep::Close]);
        let got = client.chat(ask(false)).await;
        got.is_error(502, "provider_unreachable");
    }
    assert_eq!((up.count_requests(), other.count_requests()), (4, 2));
}

#[tokio::test]
async fn an_opened_breaker_ends_retries_where_a_fallback_exists() {
    let (up, other) = two_providers().await;
    let proxy = pair(&up, &other, &["other/b"]).set(retries).start().await;
    let client = proxy.client();
    up.script_next([ProviderStep::Close]);
    let got = client.chat(ask(false)).await;
    assert_eq!(got.headers["x-plimsoll-provider"], "other");
    assert_eq!(
        up.count_requests(),
        1,
        "it is not asked again once it is open"
    );
    // Without a fallback all retries are made.
    let proxy = pair(&up, &other, &[]).set(retries).start().await;
    proxy.chat(ask(false)).await;
    assert_eq!(up.count_requests(), 4);
}

#[tokio::test]
async fn a_client_that_retries_gets_no_retries_by_the_proxy() {
    let (up, other) = two_providers().await;
    let proxy = pair(&up, &other, &[]).set(retries).start().await;
    let client = proxy.client();
    for (value, calls) in [("1", 1), ("0", 3), ("3", 1)] {
        let before = up.count_requests();
        for _ in 0..calls {
            up.script_next([answer("503 No", "", "")]);
        }
        let mut request = client.chat_request(ask(false));
        let value = value.parse().unwrap();
        request
            .headers_mut()
            .insert("x-stainless-retry-count", value);
        assert_eq!(client.send(request).await.status, 503);
        assert_eq!(up.count_requests() - before, calls);
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_wait_for_a_retry() {
    let (up, other) = two_providers().await;
    let proxy = pair(&up, &other, &[]).set(retries);
    let proxy = proxy.set(|config| {
        config.retry.max_delay = Duration::from_secs(9);
        config.retry.max_time = Duration::from_secs(30);
    });
    let proxy = proxy.start().await;
    up.script_next([answer("429 No", "retry-after: 8\r\n", "")]);
    let watch = proxy.client();
    {
        let client = proxy.client();
        let asked = client.chat(ask(false));
        tokio::pin!(asked);
        let retrying = async {
            up.requests(1).await;
            let name = "plimsoll_retries_total{provider=\"up\"}";
            while counter_value(&watch, name).await == 0 {}
            assert_eq!(
                counter_value(&watch, "plimsoll_requests_in_flight").await,
                1
            );
        };
        tokio::select! {
            got = &mut asked => panic!("the wait is not over: {got:?}"),
            () = within_time(retrying) => {}
        }
    }
    within_time(async { while counter_value(&watch, "plimsoll_requests_in_flight").await > 0 {} })
        .await;
    assert_eq!(up.count_requests(), 1);
}

/// The limit of one client's account does not affect another's.
#[tokio::test]
async fn a_rate_limit_of_one_clients_account_spares_other_clients() {
    let (up, other) = two_providers().await;
    let proxy = pair(&up, &other, &["other/b"]);
    let proxy = proxy.set(|config| {
        config.providers.get_mut("up").unwrap().auth = Auth::Client;
    });
    let proxy = proxy.start().await;
    let client = proxy.client();
    let send_as = async |who: &str| {
        let mut request = client.chat_request(ask(false));
        let key = format!("Bearer {SECRET}-{who}").parse().unwrap();
        request.headers_mut().insert("authorization", key);
        client.send(request).await
    };
    up.script_next([answer("429 No", "retry-after: 50\r\n", "")]);
    let got = send_as("alice").await;
    assert_eq!(got.headers["x-plimsoll-provider"], "other");
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let got = send_as("bob").await;
    assert_eq!(got.headers["x-plimsoll-provider"], "up");
}

#[tokio::test]
async fn a_rate_limit_of_the_proxys_account_pauses_the_provider_for_all() {
    let (up, other) = two_providers().await;
    let proxy = pair(&up, &other, &["other/b"]).start().await;
    let client = proxy.client();
    up.script_next([answer("429 No", "retry-after: 50\r\n", "")]);
    for _ in 0..3 {
        let got = client.chat(ask(false)).await;
        assert_eq!(got.headers["x-plimsoll-provider"], "other");
    }
    assert_eq!(up.count_requests(), 1);
    assert_eq!(breaker(&client, "up").await, "closed");
}

/// Where the head of an answer is inspected, an answer that began is still not retried elsewhere.
#[tokio::test]
async fn an_answer_that_began_is_never_retried_elsewhere() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    for steps in [
        vec![send_bytes(head), ProviderStep::Close],
        vec![
            send_bytes(head.replace("200 OK", "404 No")),
            ProviderStep::Close,
        ],
    ] {
        let (up, other) = two_providers().await;
        let proxy = pair(&up, &other, &["other/b"]).set(retries);
        let proxy =
            proxy.providers(|provider| provider.profile = find_profile("template").unwrap());
        let proxy = proxy.start().await;
        up.script_next(steps);
        let got = proxy.chat(ask(false)).await;
        got.is_error(502, "provider_bad_answer");
        assert_eq!((up.count_requests(), other.count_requests()), (1, 0));
    }
    // A failure counts whether or not its body is read to the end.
    let (up, other) = two_providers().await;
    let proxy = pair(&up, &other, &["other/b"]).start().await;
    up.script_next([
        send_bytes(head.replace("200 OK", "503 No")),
        ProviderStep::Close,
    ]);
    let got = proxy.chat(ask(false)).await;
    assert_eq!(got.headers["x-plimsoll-provider"], "other");
}
