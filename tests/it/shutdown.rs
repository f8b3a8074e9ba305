//! The proxy ends when it is told to, and lets running answers end first.

use http_body_util::BodyExt;
use tokio::net::TcpStream;

use crate::support::{
    client::next,
    provider::{DONE, FINISH, Provider, SOON, Step, TEXT, send, stream_head},
    proxy::{Proxy, within},
};

const ASK: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}"#;

#[tokio::test]
async fn running_answers_may_end() {
    let up = Provider::start().await;
    let mut proxy = Proxy::new().provider("up", &up).start().await;
    for (client, idle) in [(proxy.client(), proxy.client_h2())] {
        up.then([
            stream_head(),
            send(TEXT),
            Step::Stall,
            send(FINISH),
            send(DONE),
            Step::Close,
        ]);
        assert_eq!(idle.get("/readyz").await.status, 200);
        let mut body = client.begin(client.chat_request(ASK)).await.into_body();
        assert_eq!(next(&mut body).await, TEXT);
        proxy.stop();
        // The listener is closed before anything else.
        within(async {
            while TcpStream::connect(proxy.address).await.is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        up.release();
        let rest = within(body.collect()).await.unwrap().to_bytes();
        assert_eq!(rest, format!("{FINISH}{DONE}"));
    }
    proxy.gone().await;
}

#[tokio::test]
async fn answers_that_do_not_end_are_cut_off() {
    let up = Provider::start().await;
    let mut proxy = Proxy::new()
        .provider("up", &up)
        .set(|config| config.server.drain_timeout = SOON)
        .start()
        .await;
    up.then([stream_head(), send(TEXT), Step::Stall]);
    up.then([stream_head(), send(TEXT), Step::Stall]);
    let clients = [proxy.client(), proxy.client_h2()];
    let mut bodies = Vec::new();
    for client in &clients {
        let mut body = client.begin(client.chat_request(ASK)).await.into_body();
        assert_eq!(next(&mut body).await, TEXT);
        bodies.push(body);
    }
    proxy.stop();
    proxy.gone().await;
    for body in bodies {
        assert!(within(body.collect()).await.is_err());
    }
    up.closed(0).await;
    up.closed(1).await;
}
