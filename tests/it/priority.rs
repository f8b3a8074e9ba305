//! Annotated requests over sockets: the provider's request, the client's headers and the log.

mod caps;

use plimsoll::config::Config;
use serde_json::{Value, json};

use crate::{
    conversation::{Talk, completion_of, header, proxy_before, user},
    support::{COMPLETION, Process, ScriptedProvider, Settings, answer},
};

fn annotation(name: &str, priority: &str) -> Value {
    json!({"name": name, "priority": priority})
}

/// Every message and part annotated, and the expected request.
fn annotated() -> (Vec<Value>, Vec<Value>) {
    let with = vec![
        json!({"role": "system", "content": "rules", "plimsoll": annotation("rules", "critical")}),
        json!({"role": "user", "plimsoll": 7, "content": [
            {"type": "text", "text": "look", "plimsoll": annotation("static_context", "low")},
            {"type": "image_url", "image_url": {"url": "http://x/y.png", "plimsoll": "stays"}, "plimsoll": null},
        ]}),
    ];
    let mut without = with.clone();
    for message in &mut without {
        message.as_object_mut().unwrap().remove("plimsoll");
        for part in message["content"].as_array_mut().into_iter().flatten() {
            part.as_object_mut().unwrap().remove("plimsoll");
        }
    }
    (with, without)
}

fn body(fields: &Value, messages: &[Value]) -> String {
    let mut body = fields.clone();
    body["model"] = "m".into();
    body["messages"] = messages.into();
    body.to_string()
}

#[tokio::test]
async fn annotations_reach_no_provider_whatever_the_guard_does() {
    let orphan = json!({"role": "tool", "tool_call_id": "nobody", "content": "x", "plimsoll": {}});
    let disabled = |config: &mut Config| config.guard.enabled = false;
    for (wish, fields, invalid, off, actions) in [
        ("on", json!({}), false, false, "none"),
        ("off", json!({}), false, false, "guard-off"),
        ("dry-run", json!({}), false, false, "dry-run, none"),
        (
            "on",
            json!({"truncation": "auto"}),
            false,
            false,
            "left-to-provider",
        ),
        ("on", json!({}), true, false, "none"),
        ("on", json!({}), false, true, "guard-off"),
        // A title request, which has no session.
        (
            "on",
            json!({"max_tokens": 8, "stream": true}),
            false,
            false,
            "none",
        ),
    ] {
        let up = ScriptedProvider::start().await;
        let proxy = proxy_before(&up, 100_000);
        let proxy = if off { proxy.set(disabled) } else { proxy };
        let proxy = proxy.start().await;
        let (mut with, mut without) = annotated();
        if invalid {
            with.push(orphan.clone());
            without.push(orphan.clone());
            without[2].as_object_mut().unwrap().remove("plimsoll");
        }
        let mut talk = Talk::new(&proxy).with("x-plimsoll-guard", wish);
        talk.messages = with;
        talk.fields = fields.clone();
        up.script_next([answer("200 OK", "", COMPLETION)]);
        let got = talk.ask().await;
        assert_eq!(header(&got, "actions"), actions, "{wish} {fields}");
        let mut sent = String::from_utf8(up.last_request().body).unwrap();
        // With usage requested, its chunk is at the end.
        sent = sent.replace(r#","stream_options":{"include_usage":true}"#, "");
        assert_eq!(sent, body(&fields, &without));
    }
}

#[tokio::test]
async fn annotations_do_not_change_the_session() {
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("hi", Some(100))]).await;
    let proxy = proxy_before(&up, 100_000).start().await;
    let mut talk = Talk::new(&proxy);
    let (with, without) = annotated();
    talk.messages = with.clone();
    let first = talk.say("one").await;
    talk.messages[..2].clone_from_slice(&without);
    let second = talk.say("two").await;
    talk.messages[..2].clone_from_slice(&with);
    let third = talk.say("three").await;
    assert_eq!(header(&first, "session"), header(&second, "session"));
    assert_eq!(header(&first, "session"), header(&third, "session"));
    assert_eq!(talk.session(&third).await["generations"], 3);
}

#[tokio::test]
async fn caps_and_shares_are_reported_in_the_header() {
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("hi", Some(100))]).await;
    let proxy = proxy_before(&up, 16_384).set(|config| {
        config.guard.caps.insert("schema".into(), 300);
        config.guard.system_share = 0.1;
        config.guard.trim_system = true;
        config.guard.max_prompt_tokens = Some(12_000);
    });
    let proxy = proxy.start().await;
    let system =
        |text: String, note: Value| json!({"role": "system", "content": text, "plimsoll": note});
    let mut talk = Talk::new(&proxy);
    talk.messages = vec![
        system("schema ".repeat(400), annotation("schema", "critical")),
        system("examples ".repeat(300), annotation("examples", "low")),
        json!({"role": "system", "content": "rule. ".repeat(2_000)}),
    ];
    let got = talk.say("go").await;
    assert_eq!(header(&got, "actions"), "capped=1, left-out=1, trimmed=1");
    let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    let text = |at: usize| sent["messages"][at]["content"].as_str().unwrap().to_owned();
    assert!(text(0).len() <= 900 && text(0).contains("characters truncated"));
    assert_eq!(text(1), "[Left out by the context guard: examples]");
    assert!(text(0).len() + text(1).len() + text(2).len() <= 3 * 1_200);
    // The next request has the same prefix.
    talk.say("on").await;
    let again: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    let first = sent["messages"].as_array().unwrap();
    assert_eq!(
        again["messages"].as_array().unwrap()[..first.len()],
        first[..]
    );
}

#[tokio::test]
async fn the_log_reports_the_figures_of_each_request_that_changed_them() {
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("hi", Some(100))]).await;
    let settings = Settings::new(&up);
    settings.write(
        "[models.m]\nprovider = \"up\"\ncontext_length = 100000\n[recovery]\nenabled = false\n\
         [guard]\npreset = \"light\"\n[guard.caps]\nschema = 500",
    );
    let process = Process::start(&settings.file).await;
    let client = process.client();
    let mut messages = vec![
        json!({"role": "system", "content": "sk-secret ".repeat(400), "plimsoll": {"name": "schema"}}),
        json!({"role": "user", "content": "u", "plimsoll": {"name": "sk-secret", "priority": "urgent"}}),
    ];
    for turn in 0..4 {
        let got = client.chat(body(&json!({}), &messages)).await;
        assert_eq!(got.headers["x-plimsoll-actions"], "capped=1");
        messages.push(json!({"role": "assistant", "content": "hi"}));
        messages.push(user(&format!("turn {turn}")));
    }
    process.signal("TERM");
    let (_, log) = process.wait_for_end().await;
    let told: Vec<Value> = log
        .lines()
        .filter(|line| line.contains("size of named texts and system text"))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(told.len(), 4, "{log}");
    for (turn, line) in told.iter().map(Value::to_string).enumerate() {
        assert!(line.contains(" of 500 tokens (0 kept, 1 cut)"), "{line}");
        let messages = 2 + 2 * turn;
        let kept = format!("{messages} of {messages} messages kept");
        assert!(line.contains(&kept), "{line}");
    }
    assert_eq!(told[0]["capped"], 1);
    let odd = log
        .lines()
        .filter(|line| line.contains("not understood: 1"));
    assert_eq!(odd.count(), 4, "once in each request: {log}");
    assert!(!log.contains("sk-secret"), "{log}");
}

/// A user message of text parts, with or without a priority.
fn parts_message(parts: &[(&str, &str)]) -> Value {
    let part = |(text, priority): &(&str, &str)| {
        let mut part = json!({"type": "text", "text": text});
        if !priority.is_empty() {
            part["plimsoll"] = json!({"name": "context", "priority": priority});
        }
        part
    };
    json!({"role": "user", "content": parts.iter().map(part).collect::<Vec<_>>()})
}

/// The texts of the parts of message `at` of the last request.
fn sent_texts(up: &ScriptedProvider, at: usize) -> Vec<String> {
    let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    let parts = sent["messages"][at]["content"].as_array().unwrap().iter();
    parts
        .map(|part| part["text"].as_str().unwrap().to_owned())
        .collect()
}

const GONE: &str = "[Left out by the context guard: context]";

#[tokio::test]
async fn a_low_priority_part_is_cut_where_the_window_is_too_small() {
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("hi", Some(100))]).await;
    let proxy = proxy_before(&up, 12_000).start().await;
    let (large, small) = ("words of it ".repeat(5_900), "a few facts ".repeat(400));
    // The order of the two does not matter.
    for (parts, kept) in [
        ([(&*large, "low"), (&*small, "low")], 1),
        ([(&*small, "low"), (&*large, "low")], 0),
    ] {
        let mut talk = Talk::new(&proxy);
        talk.messages = vec![parts_message(&[parts[0], ("what is it?", ""), parts[1]])];
        let first = talk.ask().await;
        assert_eq!(header(&first, "actions"), "left-out=1");
        let sent = sent_texts(&up, 0);
        let mut expected = [GONE, "what is it?", GONE].map(str::to_owned);
        expected[kept * 2] = small.clone();
        assert_eq!(sent, expected);
        // A cut part stays cut while the conversation grows.
        talk.messages
            .push(json!({"role": "assistant", "content": "hi"}));
        talk.say("and now?").await;
        assert_eq!(sent_texts(&up, 0), expected);
    }
}

#[tokio::test]
async fn annotated_parts_are_cut_before_a_fold_and_critical_ones_stay() {
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("hi", Some(100))]).await;
    let proxy = proxy_before(&up, 16_384).start().await;
    let text = |word: &str, tokens: usize| format!("{word} ").repeat(tokens * 3 / (word.len() + 1));
    let (plain, marked) = (text("plain", 2_500), text("marked", 1_500));
    let mut talk = Talk::new(&proxy);
    talk.messages = vec![
        json!({"role": "system", "content": marked, "plimsoll": annotation("context", "high")}),
        user("start"),
    ];
    for priority in ["medium", "critical", "low"] {
        talk.messages
            .push(json!({"role": "assistant", "content": plain}));
        talk.messages
            .push(parts_message(&[(&marked, priority), (priority, "")]));
    }
    let at = |place: usize| sent_texts(&up, place)[0].clone();
    // 13,500 tokens of 12,096: the low part is cut.
    let got = talk.ask().await;
    assert_eq!(header(&got, "actions"), "left-out=1");
    assert_eq!(
        [at(3), at(5), at(7)],
        [marked.clone(), marked.clone(), GONE.to_owned()]
    );
    // 14,500 with one more question: the low and the medium part are cut.
    talk.messages
        .push(json!({"role": "assistant", "content": plain}));
    talk.messages.push(user("go on"));
    let got = talk.ask().await;
    assert_eq!(header(&got, "actions"), "left-out=3");
    assert_eq!(
        [at(3), at(5), at(7)],
        [GONE.to_owned(), marked, GONE.to_owned()]
    );
}

#[tokio::test]
async fn the_third_layer_of_a_preset_bounds_the_whole_prompt() {
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("hi", None)]).await;
    let settings = Settings::new(&up);
    settings.write(
        "[models.m]\nprovider = \"up\"\ncontext_length = 200000\n[recovery]\nenabled = false\n\
         [guard]\npreset = \"standard\"\nchars_per_token = 2.999",
    );
    let process = Process::start(&settings.file).await;
    let part = |name: &str, tokens: usize, priority: &str| json!({"role": "system", "content": "four".repeat(tokens * 3 / 4), "plimsoll": annotation(name, priority)});
    let ask = async |schema: usize, context: usize, dynamic: usize| {
        let messages = vec![
            part("schema", schema, "high"),
            part("static_context", context, "medium"),
            part("dynamic_context", dynamic, "low"),
            user("what is it?"),
        ];
        let got = process.client().chat(body(&json!({}), &messages)).await;
        let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
        let length = |at: usize| sent["messages"][at]["content"].as_str().unwrap().len();
        let actions = got.headers["x-plimsoll-actions"]
            .to_str()
            .unwrap()
            .to_owned();
        (
            actions,
            [length(0), length(1), length(2)].map(|chars| chars / 3),
        )
    };
    // All layers hold: nothing is cut, though system text exceeds a third.
    let (actions, sent) = ask(3_900, 5_000, 2_000).await;
    assert_eq!((actions.as_str(), sent), ("none", [3_900, 5_000, 2_000]));
    // The whole exceeds 12,000: the low part is cut, and the rest is within its layers.
    let (actions, sent) = ask(20_000, 7_000, 30_000).await;
    assert_eq!(actions, "capped=1, left-out=1");
    assert!(
        sent[0] > 3_800 && sent[0] <= 4_000 && sent[1] == 7_000 && sent[2] < 20,
        "{sent:?}"
    );
}
