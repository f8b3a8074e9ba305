//! Cuts over sockets: the provider's requests, the client's headers and the log.

use plimsoll::guard::profile::find_profile;
use serde_json::{Value, json};
use tracing::Level;

use super::{Talk, completion_of, header, proxy_before, user};
use crate::support::{ReceivedRequest, ScriptedProvider, log::ThreadLog, strict};

fn call(id: &str, tool: &str) -> Value {
    let function = json!({"name": tool, "arguments": "{}"});
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]})
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": text})
}

fn messages(seen: &ReceivedRequest) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&seen.body).unwrap();
    body["messages"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_big_result_is_truncated_and_logged_once() {
    let log = ThreadLog::begin(Level::WARN);
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("hi", Some(2_000))]).await;
    let proxy = proxy_before(&up, 128_000).start().await;
    let mut talk = Talk::new(&proxy);
    let text = "a line of the file\n".repeat(4_000);
    talk.messages = vec![user("x"), call("c", "read_file"), result("c", &text)];
    let first = talk.ask().await;
    assert_eq!(header(&first, "actions"), "truncated=1");
    let seen = up.request().await;
    assert_eq!(
        strict::find_broken_rules(
            talk.body().as_bytes(),
            &seen.body,
            find_profile("openai").unwrap()
        ),
        []
    );
    let sent = messages(&seen);
    assert_eq!(sent[..2], talk.messages[..2]);
    let cut = sent[2]["content"].as_str().unwrap();
    let marked = cut
        .split_once("... [")
        .and_then(|(_, rest)| rest.split_once(" characters truncated] ..."));
    let count: usize = marked.expect("a marker").0.parse().unwrap();
    assert!(
        cut.len() < 5_000 && cut.starts_with("a line of the file\n") && cut.ends_with("file\n")
    );
    assert!(count > text.len() - 5_000 && count < text.len());

    let lines = log.lines_with("was truncated");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["tool"], "read_file");
    assert_eq!(lines[0]["before_chars"], text.len());
    assert_eq!(lines[0]["after_chars"], cut.chars().count());
    assert_eq!(lines[0]["session"], header(&first, "session"));

    // Later it is cut to the same bytes, without another log line.
    talk.messages
        .push(json!({"role": "assistant", "content": "hi"}));
    talk.messages.push(user("y"));
    let second = talk.ask().await;
    assert_eq!(header(&second, "actions"), "truncated=1");
    assert_eq!(messages(&up.last_request())[2], sent[2]);
    assert_eq!(log.lines_with("was truncated").len(), 1);
}

#[tokio::test]
async fn a_long_history_is_folded_at_a_few_places() {
    let log = ThreadLog::begin(Level::WARN);
    // Roughly a quarter of the body's bytes.
    let up = ScriptedProvider::start_answering(|seen| {
        let used = u32::try_from(seen.body.len() / 4).unwrap();
        vec![completion_of("done, what next?", Some(used))]
    })
    .await;
    // Folds only; clearing has its own test.
    let proxy = proxy_before(&up, 8_192).set(|config| config.guard.clear.enabled = false);
    let proxy = proxy.start().await;
    let mut talk = Talk::new(&proxy);
    let system = json!({"role": "system", "content": "be brief"});
    talk.messages = vec![system.clone(), user("the task")];
    let (mut last, mut dropped, mut cuts, mut session) = (Vec::new(), 0, 0, None);
    for step in 0..80 {
        let id = format!("c{step}");
        talk.messages.push(call(&id, "run"));
        talk.messages.push(result(
            &id,
            &format!("step {step}: {}", "all is well here. ".repeat(60)),
        ));
        let answer = talk.ask().await;
        assert_eq!(answer.status, 200);
        let seen = up.last_request();
        let context = format!("step {step}");
        assert_eq!(
            strict::find_broken_rules(
                talk.body().as_bytes(),
                &seen.body,
                find_profile("openai").unwrap()
            ),
            [],
            "{context}"
        );
        let sent = messages(&seen);
        // The preface is put into the task, so that user and assistant alternate.
        assert_eq!(sent[0], system, "{context}");
        let task = sent[1]["content"].as_str().unwrap();
        assert!(task.starts_with("the task"), "{context}: {task}");
        assert_eq!(
            sent[sent.len() - 2..],
            talk.messages[talk.messages.len() - 2..],
            "{context}"
        );
        let actions = header(&answer, "actions").to_owned();
        let now: usize = actions
            .strip_prefix("dropped=")
            .map_or(0, |count| count.parse().unwrap());
        assert!(now >= dropped, "{context}: {actions}");
        if now == dropped {
            assert!(
                sent.starts_with(&last),
                "{context}: the prefix changed without a cut"
            );
        } else {
            cuts += 1;
        }
        let id = header(&answer, "session").to_owned();
        assert_eq!(*session.get_or_insert_with(|| id.clone()), id);
        let shown = talk.session(&answer).await;
        assert_eq!(shown["generations"], step + 1);
        assert_eq!(shown["folded_until"].is_null(), now == 0, "{context}");
        (last, dropped) = (sent, now);
    }
    assert!((3..12).contains(&cuts), "{cuts} cuts");
    let lines = log.lines_with("was folded");
    assert_eq!(lines.len(), cuts);
    for line in lines {
        assert!(line["messages"].as_u64().unwrap() > 0);
        assert!(line["estimated_tokens"].as_u64().unwrap() > 0);
        assert_eq!(line["due"], "over budget");
        let count = |name: &str| line[name].as_u64().unwrap();
        assert_eq!(count("kept") + count("messages"), count("of"));
        let said = format!("{} of {} messages are kept", count("kept"), count("of"));
        assert!(line["message"].as_str().unwrap().ends_with(&said), "{line}");
    }
}

#[tokio::test]
async fn old_tool_rounds_are_cleared_seldom_and_each_clear_is_logged() {
    let log = ThreadLog::begin(Level::WARN);
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("hi", None)]).await;
    let proxy = proxy_before(&up, 16_384).set(|config| config.guard.clear.at = Some(0.6));
    let proxy = proxy.start().await;
    let mut talk = Talk::new(&proxy);
    talk.messages = vec![user("the task")];
    let (mut last, mut cleared, mut clears) = (Vec::new(), 0, 0);
    for step in 0..36 {
        let id = format!("c{step}");
        talk.messages.push(call(&id, "run"));
        let text = format!("step {step}: {}", "all is well here. ".repeat(60));
        talk.messages.push(result(&id, &text));
        let answer = talk.ask().await;
        let seen = up.last_request();
        let openai = find_profile("openai").unwrap();
        let context = format!("step {step}");
        let broken = strict::find_broken_rules(talk.body().as_bytes(), &seen.body, openai);
        assert_eq!(broken, [], "{context}");
        let (sent, actions) = (messages(&seen), header(&answer, "actions").to_owned());
        let now: usize = actions
            .strip_prefix("cleared=")
            .map_or(0, |count| count.parse().unwrap());
        assert!(now > 0 || actions == "none", "{context}: {actions}");
        let placeholder = |message: &&Value| {
            let text = message["content"].as_str().unwrap_or_default();
            text.starts_with("[An old tool result was left out")
        };
        assert_eq!(sent.iter().filter(placeholder).count(), now, "{context}");
        assert_eq!(sent.len(), talk.messages.len(), "nothing had to go");
        let newest = sent.len().saturating_sub(20);
        assert_eq!(sent[newest..], talk.messages[newest..], "{context}");
        if now == cleared {
            assert!(sent.starts_with(&last), "{context}: another prefix");
        } else {
            assert!(now >= cleared + 5, "{context}: {cleared} to {now}");
            clears += 1;
        }
        (last, cleared) = (sent, now);
    }
    assert!((2..6).contains(&clears), "{clears} times");
    let lines = log.lines_with("were cleared");
    assert_eq!(lines.len(), clears);
    for line in lines {
        assert_eq!(line["due"], "early clearing");
        assert!(line["results"].as_u64().unwrap() > 0);
        assert!(line["estimated_tokens"].as_u64().unwrap() > 0);
    }
}

#[tokio::test]
async fn a_tightened_tool_result_stays_tightened() {
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("hi", Some(5_000))]).await;
    let proxy = proxy_before(&up, 8_192).start().await;
    let mut talk = Talk::new(&proxy);
    let parallel: Vec<Value> = (0..6)
        .map(|at| json!({"id": format!("c{at}"), "type": "function", "function": {"name": "read", "arguments": "{}"}}))
        .collect();
    talk.messages = vec![
        user("x"),
        json!({"role": "assistant", "content": null, "tool_calls": parallel}),
    ];
    for at in 0..6 {
        talk.messages.push(result(
            &format!("c{at}"),
            &format!("file {at} says so. ").repeat(330),
        ));
    }
    let first = talk.ask().await;
    let tightened = talk.session(&first).await["tightened"].as_u64().unwrap();
    assert!(tightened > 0, "{:?}", first.headers);
    let sent = messages(&up.last_request());
    assert!(up.last_request().body.len() < 8_192 * 3);
    talk.messages
        .push(json!({"role": "assistant", "content": "hi"}));
    talk.messages.push(user("y"));
    let second = talk.ask().await;
    assert_eq!(header(&second, "session"), header(&first, "session"));
    let after = messages(&up.last_request());
    if !header(&second, "actions").contains("dropped") {
        assert!(after.starts_with(&sent), "what was tightened changed");
    }
}
