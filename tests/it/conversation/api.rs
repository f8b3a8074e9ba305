//! `GET /plimsoll/api/sessions/{id}`: its content and access. Clearing is in `clear.rs`.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Talk, completion_of, header, numbering_provider, proxy_before};
use crate::support::{ClientAnswer, RunningProxy, ScriptedProvider};

/// Sends these headers, and none of the conversation's.
pub(super) async fn ask(
    proxy: &RunningProxy,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> ClientAnswer {
    let client = proxy.client();
    let mut request = client.request(method, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.send_with(request, "").await
}

#[tokio::test]
async fn a_session_counts_up() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = Talk::new(&proxy);
    for (generation, used, level) in [
        (1, Some(100), "healthy"),
        (2, Some(5_000), "caution"),
        (3, Some(7_000), "critical"),
        (4, None, "unknown"),
    ] {
        up.script_next([completion_of("hi", used)]);
        let answer = talk.say("x").await;
        let shown = talk.session(&answer).await;
        let ratio = |of: f64| used.map(|used| f64::from(used) / of);
        let mut expected = json!({
            "id": header(&answer, "session"),
            "generations": generation,
            "messages": 2 * generation - 1,
            "model": "m",
            "provider": "up",
            "health": level,
            "health_reason": (level == "unknown").then_some("no_usage"),
            "prompt_tokens": used,
            "completion_tokens": used.map(|_| 3),
            "total_tokens": used.map(|used| used + 3),
            "cached_tokens": null,
            "cached_share": null,
            "context_limit": 10_000,
            "optimal_max_tokens": 4_429,
            "critical_max_tokens": shown["critical_max_tokens"],
            "hard_util": ratio(10_000.0),
            "optimal_util": ratio(4_429.0),
            "made_of": shown["made_of"],
            "points": shown["points"],
            "folded_until": null,
            "tightened": 0,
            "billed_prompt_tokens": shown["billed_prompt_tokens"],
            "billed_completion_tokens": shown["billed_completion_tokens"],
            "format": "chat",
            "course": 1,
            "recovery": "calm",
            "countdown": null,
            "clear_pending": false,
            "compact_pending": false,
            "auto_compact": "follow",
            "auto_compact_off": null,
            "compacting": false,
            "read_only": false,
            "summaries": 0,
            "summary_failures": 0,
            "summary": null,
            "reminder_count": 0,
            "reminders": [],
            "prompt_count": 0,
            "prompts": [],
            "updated_s": shown["updated_s"],
        });
        for name in ["recovery_held", "fixed_percent"] {
            expected[name] = Value::Null;
        }
        expected["left_out"] = json!(0);
        expected["client"] = shown["client"].clone();
        expected["cuts"] = json!([]);
        // A number parsed from JSON may differ in its last bit, so both are parsed.
        let expected: Value = serde_json::from_str(&expected.to_string()).unwrap();
        assert_eq!(shown, expected);
        let point = json!({
            "generation": generation, "prompt_tokens": used, "cached_tokens": null,
            "completion_tokens": used.map(|_| 3), "marks": [],
        });
        assert_eq!(shown["points"][generation - 1], point);
        assert!(shown["made_of"]["history"].as_u64() > Some(0));
        assert_eq!(shown["made_of"]["ours"], 0);
        assert_eq!(shown["made_of"]["left_out"], 0);
        assert!(shown["updated_s"].as_u64().unwrap() > 1_700_000_000);
    }
}

#[tokio::test]
async fn a_key_sees_its_own_sessions() {
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 10_000)
        .client("alice", "sk-secret-a", &["*"])
        .client("bob", "sk-secret-b", &["*"])
        .set(|config| config.admin.key_sha256 = Some(Sha256::digest("sk-secret-admin").into()));
    let proxy = proxy.start().await;
    let mut talk = Talk::new(&proxy).with("authorization", "Bearer sk-secret-a");
    let answer = talk.say("x").await;
    assert_eq!(talk.session(&answer).await["generations"], 1);
    let path = format!("/plimsoll/api/sessions/{}", header(&answer, "session"));
    let bearer = async |key: &str| {
        let value = format!("Bearer {key}");
        ask(&proxy, Method::GET, &path, &[("authorization", &value)]).await
    };
    let other = bearer("sk-secret-b").await;
    other.is_error(404, "session_not_found");
    assert_eq!(bearer("sk-secret-admin").await.status, StatusCode::OK);
    bearer("sk-secret-x").await.is_error(401, "invalid_api_key");
    let none = ask(&proxy, Method::GET, &path, &[]).await;
    none.is_error(401, "invalid_api_key");
    // A session of another client looks like one that does not exist.
    let missing = format!("/plimsoll/api/sessions/{}", "0".repeat(32));
    let auth = [("authorization", "Bearer sk-secret-b")];
    let missing = ask(&proxy, Method::GET, &missing, &auth).await;
    assert_eq!(missing.body, other.body);
    assert_eq!(missing.headers.len(), other.headers.len());
    // The administrator's key opens no other path.
    let models = [("authorization", "Bearer sk-secret-admin")];
    let models = ask(&proxy, Method::GET, "/v1/models", &models).await;
    models.is_error(401, "invalid_api_key");
}

#[tokio::test]
async fn without_keys_sessions_belong_to_the_credential() {
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = Talk::new(&proxy).with("authorization", "Bearer sk-secret-a");
    let answer = talk.say("x").await;
    assert_eq!(talk.session(&answer).await["generations"], 1);
    let other = Talk::new(&proxy).with("authorization", "Bearer sk-secret-b");
    assert_eq!(other.session(&answer).await, Value::Null);
    assert_eq!(Talk::new(&proxy).session(&answer).await, Value::Null);
    // Without a credential there is one anonymous account.
    let mut nobody = Talk::new(&proxy);
    let answer = nobody.say("x").await;
    assert_eq!(nobody.session(&answer).await["generations"], 1);
    assert_eq!(talk.session(&answer).await, Value::Null);
}

#[tokio::test]
async fn other_pages_methods_and_paths_are_refused() {
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let answer = Talk::new(&proxy).say("x").await;
    let path = format!("/plimsoll/api/sessions/{}", header(&answer, "session"));
    for (name, value, code) in [
        ("host", "example.com", "foreign_host"),
        ("host", "127.0.0.1.example.com", "foreign_host"),
        ("origin", "https://example.com", "foreign_origin"),
        ("origin", "null", "foreign_origin"),
    ] {
        let got = ask(&proxy, Method::GET, &path, &[(name, value)]).await;
        got.is_error(403, code);
    }
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        let got = ask(&proxy, method, &path, &[]).await;
        got.is_error(405, "method_not_allowed");
        assert_eq!(got.headers["allow"], "GET, HEAD, PATCH");
    }
    let head = ask(&proxy, Method::HEAD, &path, &[]).await;
    assert!(head.status == 200 && head.body.is_empty());
    let id = header(&answer, "session");
    for malformed in [
        "x".to_owned(),
        String::new(),
        format!("{id}0"),
        id.to_uppercase() + "/",
        format!("{}g", &id[1..]),
        format!("{id}/x"),
    ] {
        let path = format!("/plimsoll/api/sessions/{malformed}");
        let got = ask(&proxy, Method::GET, &path, &[]).await;
        got.is_error(404, "session_not_found");
    }
    let got = ask(&proxy, Method::GET, "/plimsoll/api/other", &[]).await;
    got.is_error(404, "path_not_found");
}
