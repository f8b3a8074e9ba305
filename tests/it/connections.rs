//! Connections to a provider: which requests may be resent, and timeouts.

mod http2;
mod pooled;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};

use crate::support::{
    COMPLETION, ProviderStep, ReceivedRequest, RunningProxy, SOON, ScriptedProvider, answer,
    send_bytes,
};

const TASKS: usize = 20;
const EACH: usize = 50;

/// A request with its own number.
fn ask(what: &str, task: usize, number: usize) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{what} {task} {number}."}}]}}"#)
}

/// Sends many requests at once; counts them by status.
async fn ask_many(proxy: &RunningProxy, what: fn(usize) -> &'static str) -> HashMap<u16, usize> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = proxy.client();
        tasks.spawn(async move {
            let mut statuses = Vec::new();
            for number in 0..EACH {
                let got = client.chat(ask(what(number), task, number)).await;
                statuses.push(got.status.as_u16());
            }
            statuses
        });
    }
    let mut statuses = HashMap::new();
    for status in tasks.join_all().await.into_iter().flatten() {
        *statuses.entry(status).or_default() += 1;
    }
    statuses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_provider_that_closes_kept_connections_costs_no_request() {
    let up = ScriptedProvider::start_answering(|_| {
        vec![answer("200 OK", "", COMPLETION), ProviderStep::Close]
    })
    .await;
    let proxy = up.proxy().start().await;
    let statuses = ask_many(&proxy, |_| "lives").await;
    assert_eq!(statuses, HashMap::from([(200, TASKS * EACH)]));
    assert_eq!(up.count_requests(), TASKS * EACH, "none was read twice");
}

/// Every other request is read and gets no answer. It may be resent only where the connection
/// delivered an answer before.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_request_on_a_new_connection_is_never_resent() {
    let dies = |seen: &ReceivedRequest| String::from_utf8_lossy(&seen.body).contains("dies");
    let up = ScriptedProvider::start_answering(move |seen| {
        if dies(seen) {
            vec![ProviderStep::Close]
        } else {
            vec![answer("200 OK", "", COMPLETION)]
        }
    })
    .await;
    let proxy = up.proxy().start().await;
    let what = |number| ["lives", "dies"][number % 2];
    let statuses = ask_many(&proxy, what).await;
    let half = TASKS * EACH / 2;
    assert_eq!(statuses, HashMap::from([(200, half), (502, half)]));

    let (mut used, mut refused, mut again) = (HashSet::new(), HashSet::new(), 0);
    for seen in up.requests(TASKS * EACH).await {
        let first = used.insert(seen.connection);
        let text = String::from_utf8_lossy(&seen.body).into_owned();
        if dies(&seen) {
            assert!(!refused.contains(&text), "{text}");
            if first {
                refused.insert(text);
            } else {
                again += 1;
            }
        }
    }
    assert_eq!(
        refused.len(),
        half,
        "each had a connection of its own at last"
    );
    assert!(again > 0, "some died on a connection that was used before");
}

#[tokio::test]
async fn an_answer_that_stalls_is_reported_as_a_timeout() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .providers(|provider| provider.idle_timeout = SOON)
        .start()
        .await;
    let half = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    up.script_next([send_bytes(half), ProviderStep::Stall]);
    let got = proxy.chat(ask("stops", 0, 0)).await;
    got.is_error(504, "provider_timeout");
    assert!(got.text().contains("idle_timeout_ms"), "{}", got.text());
    up.closed(0).await;

    let proxy = up
        .proxy()
        .providers(|provider| provider.first_byte_timeout = SOON)
        .start()
        .await;
    up.script_next([ProviderStep::Stall]);
    let got = proxy.chat(ask("stops", 0, 0)).await;
    got.is_error(504, "provider_timeout");
    let text = got.text();
    assert!(text.contains("first_byte_timeout_ms"), "{text}");
}

/// A proxy whose provider at this address should speak TLS.
async fn over_tls(listener: &TcpListener) -> RunningProxy {
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    let nobody = ScriptedProvider::start().await;
    nobody
        .proxy()
        .providers(|provider| provider.connect_timeout = SOON)
        .set(|config| config.providers.get_mut("up").unwrap().base_url = Some(url))
        .start()
        .await
}

#[tokio::test]
async fn a_connection_that_is_never_established_is_reported_as_a_timeout() {
    // The kernel accepts the connection, and nobody answers the handshake.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = over_tls(&silent).await;
    let got = proxy.chat(ask("waits", 0, 0)).await;
    got.is_error(504, "provider_timeout");
    let text = got.text();
    assert!(text.contains("0.2 s (connect_timeout_ms)"), "{text}");
}

#[tokio::test]
async fn a_provider_without_tls_is_unreachable() {
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = over_tls(&plain).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        let _ = stream.read(&mut [0; 8]).await;
        let refusal = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        let _ = stream.write_all(refusal).await;
        // Stays open until the proxy has read it.
        let _ = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut [0; 8])).await;
    });
    let got = proxy.chat(ask("waits", 0, 0)).await;
    got.is_error(502, "provider_unreachable");
}
