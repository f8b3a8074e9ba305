//! Compaction in the session API: refusals, and access by other keys.

use http::Method;

use super::{
    Pair, agent_past_threshold, good_summary, held_summary, switches::switch, wait_for_summary,
};
use crate::support::{Agent, ClientAnswer, full_body};

async fn patch(agent: &Agent, id: &str, body: impl Into<bytes::Bytes>) -> ClientAnswer {
    let path = format!("/plimsoll/api/sessions/{id}");
    let mut request = agent
        .client
        .request(Method::PATCH, &path)
        .body(full_body(body))
        .unwrap();
    request.headers_mut().extend(agent.headers.clone());
    agent.client.send(request).await
}

#[tokio::test]
async fn an_invalid_compaction_switch_is_refused() {
    let pair = Pair::new(good_summary).await;
    let proxy = pair.proxy().start().await;
    let mut agent = Agent::new(&proxy);
    let generation = agent.step().await;
    let id = generation.header("session").unwrap().to_owned();
    for (body, code) in [
        ("", "invalid_json"),
        ("{\"auto_compact\":", "invalid_json"),
        ("[]", "missing_required_parameter"),
        ("{}", "missing_required_parameter"),
        ("{\"auto_compact\":true}", "invalid_value"),
        ("{\"auto_compact\":null}", "invalid_value"),
        ("{\"auto_compact\":\"ON\"}", "invalid_value"),
    ] {
        let answer = patch(&agent, &id, body).await;
        answer.is_error(400, code);
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    }
    let answer = patch(&agent, &id, r#"{"auto_compact":"on","autocompact":"on"}"#).await;
    answer.is_error(400, "unknown_parameter");
    assert!(answer.text().contains("autocompact"), "{}", answer.text());
    patch(&agent, &id, vec![b' '; 70_000])
        .await
        .is_error(413, "body_too_large");
    assert_eq!(agent.session(&generation).await["auto_compact"], "follow");
    for to in ["on", "off", "follow"] {
        switch(&agent, &generation, to).await;
        assert_eq!(agent.session(&generation).await["auto_compact"], to);
    }
    // Methods and paths that do not exist.
    let path = format!("sessions/{id}/compact");
    let answer = agent.api(Method::GET, &path).await;
    answer.is_error(405, "method_not_allowed");
    assert_eq!(answer.headers["allow"], "POST");
    let answer = agent.api(Method::DELETE, &format!("sessions/{id}")).await;
    assert_eq!(answer.headers["allow"], "GET, HEAD, PATCH");
    let answer = agent
        .api(Method::POST, &format!("sessions/{id}/shrink"))
        .await;
    answer.is_error(404, "session_not_found");
}

#[tokio::test]
async fn the_report_says_that_the_switch_waits_for_a_running_summary() {
    let pair = Pair::new(held_summary).await;
    let proxy = pair.proxy().start().await;
    let mut agent = agent_past_threshold(&proxy);
    let generation = agent.step().await;
    pair.up.provider.requests(2).await;
    let session = agent.session(&generation).await;
    assert_eq!(session["compacting"], true);
    assert_eq!(session["auto_compact_off"], "running");
    pair.up.provider.release_stalled();
    let session = wait_for_summary(&agent, &generation).await;
    assert!(session["auto_compact_off"].is_null(), "{session}");
}

#[tokio::test]
async fn other_keys_cannot_read_switch_or_order_compaction() {
    let pair = Pair::new(good_summary).await;
    let proxy = pair.proxy().start().await;
    let mut agent = agent_past_threshold(&proxy).with("authorization", "Bearer sk-secret-a");
    let generation = agent.step().await;
    let session = wait_for_summary(&agent, &generation).await;
    let id = generation.header("session").unwrap();
    let thief = Agent::bare(&proxy).with("authorization", "Bearer sk-secret-b");
    let answer = thief
        .api(Method::POST, &format!("sessions/{id}/compact"))
        .await;
    answer.is_error(404, "session_not_found");
    let answer = patch(&thief, id, r#"{"auto_compact":"off"}"#).await;
    answer.is_error(404, "session_not_found");
    // The owner can read what the model reads.
    assert!(
        session["summary"]
            .as_str()
            .unwrap()
            .contains("Look at the keel.")
    );
    assert_eq!(agent.session(&generation).await["auto_compact"], "follow");
}

#[tokio::test]
async fn the_administrator_sees_numbers_only() {
    use sha2::{Digest, Sha256};
    let pair = Pair::new(good_summary).await;
    let proxy = pair.proxy().set(|config| {
        config.admin.key_sha256 = Some(Sha256::digest("sk-secret-admin").into());
    });
    let proxy = proxy.start().await;
    let mut agent = agent_past_threshold(&proxy);
    let generation = agent.step().await;
    wait_for_summary(&agent, &generation).await;
    let admin = Agent::bare(&proxy).with("authorization", "Bearer sk-secret-admin");
    let known = admin.session(&generation).await;
    assert_eq!(
        (&known["summaries"], &known["summary"]),
        (&1.into(), &serde_json::Value::Null)
    );
    assert!(!known.to_string().contains("keel"), "{known}");
}
