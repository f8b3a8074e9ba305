//! Requests that the guard does not edit: the provider gets the same bytes. And what it keeps of conversations that are
//! not valid.

use plimsoll::guard::profile::find_profile;
use serde_json::{Value, json};

use super::{Talk, completion, completion_of, header, proxy_before, user};
use crate::support::{COMPLETION, RunningProxy, ScriptedProvider, answer, strict};

/// A conversation that is far too long for 8,192 tokens.
fn long_conversation(proxy: &RunningProxy) -> Talk {
    let mut talk = Talk::new(proxy);
    for turn in 0..60 {
        talk.messages.push(user(&"a long question? ".repeat(40)));
        talk.messages
            .push(json!({"role": "assistant", "content": format!("answer {turn}")}));
    }
    talk.messages.push(user("and now?"));
    talk
}

/// Asserts that the body is sent unchanged, with these actions in the header.
async fn assert_untouched(up: &ScriptedProvider, talk: &Talk, actions: &str) {
    up.script_next([completion_of("hi", Some(9_000))]);
    let answer = talk.ask().await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        String::from_utf8_lossy(&up.last_request().body),
        talk.body()
    );
    assert_eq!(header(&answer, "actions"), actions);
    // Usage is read nevertheless.
    assert_eq!(header(&answer, "health"), "critical");
    assert_eq!(talk.session(&answer).await["prompt_tokens"], 9_000);
}

#[tokio::test]
async fn guard_off_changes_nothing_and_a_dry_run_reports() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 8_192).start().await;
    let plain = long_conversation(&proxy);
    up.script_next([completion_of("hi", Some(3_000))]);
    let guarded = plain.ask().await;
    let actions = header(&guarded, "actions").to_owned();
    assert!(actions.starts_with("dropped="), "{actions}");
    assert!(up.last_request().body.len() < plain.body().len() / 2);
    // A new session, so that no calibration of the first moves the plan of the second.
    let proxy = proxy_before(&up, 8_192).start().await;
    let dry = long_conversation(&proxy).with("x-plimsoll-guard", "dry-run");
    assert_untouched(&up, &dry, &format!("dry-run, {actions}")).await;
    let off = long_conversation(&proxy).with("x-plimsoll-guard", "off");
    assert_untouched(&up, &off, "guard-off").await;
}

/// The guard keeps its state while it is off, and plans afterwards as without state.
#[tokio::test]
async fn a_guard_switched_off_for_a_while_keeps_its_cuts() {
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("hi", None)]).await;
    let proxy = proxy_before(&up, 8_192).start().await;
    let whole = long_conversation(&proxy);
    let mut cut = false;
    for turn in 0..60 {
        let mut talk = Talk::new(&proxy);
        talk.messages = whole.messages[..=2 * turn].to_vec();
        let off = (10..30).contains(&turn) || turn % 7 == 3;
        if off {
            talk = talk.with("x-plimsoll-guard", "off");
        }
        let answer = talk.ask().await;
        let sent = up.last_request().body;
        if off {
            assert_eq!(sent, talk.body().as_bytes());
            continue;
        }
        let fresh = proxy_before(&up, 8_192).start().await;
        let alone = Talk {
            client: fresh.client(),
            ..talk
        };
        assert_eq!(
            header(&alone.ask().await, "actions"),
            header(&answer, "actions")
        );
        assert_eq!(up.last_request().body, sent, "turn {turn}");
        cut |= sent != alone.body().as_bytes();
    }
    assert!(cut);
}

#[tokio::test]
async fn a_disabled_guard_changes_nothing() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 8_192).set(|config| config.guard.enabled = false);
    let proxy = proxy.start().await;
    assert_untouched(&up, &long_conversation(&proxy), "guard-off").await;
}

#[tokio::test]
async fn requests_with_provider_side_context_management_are_left_alone() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 8_192).start().await;
    for fields in [
        json!({"truncation": "auto"}),
        json!({"transforms": ["middle-out"]}),
        json!({"context_management": {"edits": [{"type": "clear_tool_uses"}]}}),
        json!({"plugins": [{"id": "context-compression"}]}),
    ] {
        let mut talk = long_conversation(&proxy);
        talk.fields = fields;
        assert_untouched(&up, &talk, "left-to-provider").await;
    }
}

#[tokio::test]
async fn what_does_not_pair_goes_as_it_came_and_the_rest_is_guarded() {
    let up = ScriptedProvider::start().await;
    let openai = find_profile("openai").unwrap();
    let orphan = json!({"role": "tool", "tool_call_id": "nobody", "content": "x"});
    let open = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let other = json!({"role": "tool", "tool_call_id": "d", "content": "y ".repeat(4_000)});
    for (at, odd) in [
        (0, vec![orphan.clone()]),
        (20, vec![orphan.clone()]),
        (40, vec![open.clone()]),
        (40, vec![open, other]),
    ] {
        let proxy = proxy_before(&up, 8_192).start().await;
        let mut talk = long_conversation(&proxy);
        talk.messages.splice(at..at, odd.clone());
        up.script_next([completion_of("hi", Some(3_000))]);
        let got = talk.ask().await;
        assert!(header(&got, "actions").starts_with("dropped="), "{at}");
        let sent = up.last_request().body;
        let parsed: Value = serde_json::from_slice(&sent).unwrap();
        let parsed = parsed["messages"].as_array().unwrap();
        assert!(parsed.windows(odd.len()).any(|row| row == odd), "{at}");
        assert_eq!(
            strict::find_broken_rules(talk.body().as_bytes(), &sent, openai),
            []
        );
    }
    // One that fits goes as it came, and the provider's error is the client's.
    let proxy = proxy_before(&up, 8_192).start().await;
    let mut talk = Talk::new(&proxy);
    talk.messages = vec![orphan, user("and now?")];
    let error = r#"{"error":{"message":"messages with role 'tool' must be a response"}}"#;
    up.script_next([answer("400 Bad Request", "", error)]);
    let got = talk.ask().await;
    assert_eq!((got.status.as_u16(), got.text()), (400, error));
    assert_eq!(header(&got, "actions"), "none");
    assert_eq!(up.last_request().body, talk.body().as_bytes());
}

#[tokio::test]
async fn json_without_a_conversation_is_forwarded() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let deep = format!("{}1{}", "[".repeat(600), "]".repeat(600));
    for body in [
        "[]".to_owned(),
        "null".to_owned(),
        "{}".to_owned(),
        r#"{"model":"m","messages":"x"}"#.to_owned(),
        r#"{"model":"m","messages":[1]}"#.to_owned(),
        r#"{"model":"m","messages":[{"role":"user","content":"a"}],"messages":[]}"#.to_owned(),
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x","y":{deep}}}]}}"#),
        r#" { "model" : "m" , "messages" : [ ] , "n" : 1e999 } "#.to_owned(),
    ] {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        let got = proxy.chat(body.clone()).await;
        assert_eq!(
            (got.status.as_u16(), got.text()),
            (200, COMPLETION),
            "{body:.80}"
        );
        assert_eq!(String::from_utf8_lossy(&up.last_request().body), body);
    }
    proxy
        .chat("{\"model\":")
        .await
        .is_error(400, "invalid_json");
}

#[tokio::test]
async fn lone_surrogates_pass_and_keep_their_session() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let ask = r#"{"model":"m","messages":[{"role":"user","content":"a \ud800 b"}]}"#;
    let reply = completion(&json!({"content": "@"}), Some(9)).replace('@', r"x \udc00");
    up.script_next([answer("200 OK", "", &reply)]);
    let first = proxy.chat(ask).await;
    assert_eq!(first.text(), reply);
    assert_eq!(up.last_request().body, ask.as_bytes());
    assert_eq!(header(&first, "prompt-tokens"), "9");
    let next = ask.replace(
        "}]}",
        r#"},{"role":"assistant","content":"x \uDC00"},{"role":"user","content":"\ud83d"}]}"#,
    );
    up.script_next([answer("200 OK", "", &reply)]);
    let second = proxy.chat(next.clone()).await;
    assert_eq!(up.last_request().body, next.as_bytes());
    assert_eq!(header(&second, "session"), header(&first, "session"));
    assert_eq!(header(&second, "actions"), "none");
}

#[tokio::test]
async fn a_model_named_with_its_provider_is_the_one_edit() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let ask =
        r#"{ "messages" : [ {"content":"x","role":"user", "z":1e2} ] , "model" : "up/m" , "n":1}"#;
    up.script_next([completion_of("hi", Some(9))]);
    let answer = proxy.chat(ask).await;
    assert_eq!(header(&answer, "actions"), "none");
    let sent = String::from_utf8(up.last_request().body).unwrap();
    assert_eq!(sent, ask.replace("up/m", "m"));
    assert_ne!(serde_json::from_str::<Value>(&sent).unwrap(), Value::Null);
}
