//! A replica stops behind a real balancer, under load: no request is refused.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

use crate::support::{
    Balancer, COMPLETION, DONE, FINISH, Process, ReceivedRequest, ScriptedProvider, Settings, TEXT,
    TestClient, answer, next, stalled_stream, within_time,
};

const CLIENTS: usize = 8;
/// Requests of each client after the replica has gone.
const AFTER: usize = 20;
const ASK: &str = r#"{"model":"up/m","messages":[{"role":"user","content":"x"}]}"#;
const STREAM: &str =
    r#"{"model":"slow/m","stream":true,"messages":[{"role":"user","content":"long"}]}"#;

/// HAProxy before replicas. It asks each for `/readyz` every 50 ms, and hides nothing: it sends no request twice.
async fn start_balancer(replicas: &[&Process]) -> Balancer {
    let write_settings = |addresses: &[SocketAddr]| {
        let mut settings = format!(
            "global\n  nbthread 1\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  \
             timeout server 60s\n  timeout http-keep-alive 60s\n  retries 0\n  http-reuse always\n\
             listen all\n  bind {}\n  balance roundrobin\n  option httpchk GET /readyz\n  \
             http-check send hdr host localhost\n  http-response set-header x-served-by %s\n  \
             default-server inter 50ms fall 2 rise 1 check\n",
            addresses[0]
        );
        for (number, replica) in replicas.iter().enumerate() {
            settings += &format!("  server r{number} {}\n", replica.address);
        }
        settings
    };
    Balancer::start(1, write_settings).await
}

/// Asks one after another until the count has passed `until`; which replicas answered, and whatever was no answer.
async fn keep_asking(
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    until: Arc<AtomicUsize>,
) -> (Vec<String>, Vec<String>) {
    let client = TestClient::http1(address);
    let (mut served, mut refused) = (Vec::new(), Vec::new());
    while asked.fetch_add(1, SeqCst) < until.load(SeqCst) {
        let answered = client.begin(client.chat_request(ASK)).await;
        let (head, body) = answered.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        match (head.status.as_u16(), body) {
            (200, Ok(_)) => {
                served.push(head.headers["x-served-by"].to_str().unwrap().to_owned());
            }
            (status, body) => refused.push(format!("{status} {body:?}")),
        }
    }
    (served, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_refused_while_a_replica_behind_a_balancer_stops() {
    let quick = |_: &ReceivedRequest| vec![answer("200 OK", "", COMPLETION)];
    let up = ScriptedProvider::start_answering(quick).await;
    let slow = ScriptedProvider::start().await;
    let settings = [(); 2].map(|()| Settings::with_server(&up, "drain_delay_ms = 1500"));
    for settings in &settings {
        settings.write(&format!(
            "[providers.slow]\nbase_url = \"http://{}/v1\"\nauth = \"none\"\nask_models = false",
            slow.address
        ));
    }
    let mut stopped = Process::start(&settings[0].file).await;
    let stays = Process::start(&settings[1].file).await;
    let balancer = start_balancer(&[&stopped, &stays]).await;
    let (asked, until) = (
        Arc::<AtomicUsize>::default(),
        Arc::new(AtomicUsize::new(usize::MAX)),
    );
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(keep_asking(
            balancer.addresses[0],
            Arc::clone(&asked),
            Arc::clone(&until),
        ));
    }
    // A stream that began before ends whole, though the port closes meanwhile.
    slow.script_next(stalled_stream());
    let direct = stopped.client();
    let mut running = direct.begin(direct.chat_request(STREAM)).await.into_body();
    assert_eq!(next(&mut running).await, TEXT);
    within_time(async {
        while asked.load(SeqCst) < 10 * CLIENTS {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stopped.signal("TERM");
    stopped.wait_for_line("draining").await;
    slow.release_stalled();
    let rest = within_time(running.collect()).await.unwrap().to_bytes();
    assert_eq!(rest, format!("{FINISH}{DONE}"));
    let (status, log) = stopped.wait_for_end().await;
    assert!(status.success() && !log.contains("cut off"), "{log}");
    until.store(asked.load(SeqCst) + CLIENTS * AFTER, SeqCst);
    let (mut served, mut refused) = (Vec::new(), Vec::new());
    for (by, not) in within_time(clients.join_all()).await {
        served.extend(by);
        refused.extend(not);
    }
    assert_eq!(refused, [""; 0], "of {}", served.len() + refused.len());
    let by = |name: &str| served.iter().filter(|by| *by == name).count();
    assert!(
        by("r0") >= CLIENTS && by("r1") >= CLIENTS * AFTER,
        "{} {}",
        by("r0"),
        by("r1")
    );
}
