//! Clients that compact: an entry that asks to, answered by the provider or by the proxy, and what comes back of it.

use http::Method;
use plimsoll::config::ClientCompaction;
use serde_json::{Value, json};

use super::{WINDOW, entries, of_type, response, said, step};
use crate::support::{
    AgentGeneration, ClientAnswer, ProxyBuilder, ReceivedRequest, ResponsesAgent, RunningProxy,
    ScriptedProvider, answer, model_with_early_levels, stream_of, user_entry, words,
};

const DONE: &str = "The leak at frame nine was mended.";

fn before(up: &ScriptedProvider) -> ProxyBuilder {
    up.proxy().model("m", model_with_early_levels(WINDOW))
}

fn answering(up: &ScriptedProvider) -> ProxyBuilder {
    before(up).set(|config| config.responses.compaction = ClientCompaction::Answer)
}

fn trigger() -> Value {
    json!({"type": "compaction_trigger"})
}

/// An agent with a few steps, whose input ends in the trigger.
fn compacting_agent(proxy: &RunningProxy) -> ResponsesAgent {
    let mut agent = ResponsesAgent::new(proxy);
    for nth in 0..4 {
        agent.push(step(&format!("call_{nth}"), &words(700, nth)));
    }
    agent.push([user_entry("Mind the pump."), trigger()]);
    agent
}

/// The only entry of the answer.
fn compaction(generation: &AgentGeneration) -> Value {
    let output = generation.message["output"].as_array().unwrap();
    let [entry] = &output[..] else {
        panic!("{output:?}")
    };
    assert_eq!(entry["type"], "compaction");
    assert!(entry["id"].as_str().unwrap().starts_with("cmp_"));
    entry.clone()
}

/// Asks with the entry in the place of what was compacted; the message that the provider gets for it.
async fn come_back(up: &ScriptedProvider, agent: &mut ResponsesAgent, entry: Value) -> String {
    let user = user_entry("Find every leak and mend it.");
    agent.fields["input"] = json!([user, entry, user_entry("Go on.")]);
    up.script_next([answer("200 OK", "", response(&[said("fine")], 900))]);
    let stream = std::mem::replace(&mut agent.fields["stream"], false.into());
    agent.ask().await;
    agent.fields["stream"] = stream;
    let raw = up.last_request().body;
    let sent: Value = serde_json::from_slice(&raw).unwrap();
    let [first, note, last] = entries(&sent) else {
        panic!("{sent}")
    };
    assert_eq!([first, last], [&user, &user_entry("Go on.")]);
    assert_eq!(note["role"], "developer");
    note["content"][0]["text"].as_str().unwrap().to_owned()
}

/// A provider that makes summaries.
async fn start_summariser() -> ScriptedProvider {
    ScriptedProvider::start_answering(|received: &ReceivedRequest| {
        let text = String::from_utf8(received.body.clone()).unwrap();
        let Some((_, key)) = text.rsplit_once("<summary key=\\\"") else {
            return vec![answer("200 OK", "", response(&[said("fine")], 900))];
        };
        let key = key.split('\\').next().unwrap();
        let block = format!(
            "<summary key=\"{key}\">\n<done>{DONE}</done>\n<to_do>Caulk the deck.</to_do>\n\
             <current_state>Afloat.</current_state>\n<key_context>Oak.</key_context>\n\
             <next_steps>Caulk.</next_steps>\n<cautions>none</cautions>\n</summary>"
        );
        vec![answer("200 OK", "", response(&[said(&block)], 5_000))]
    })
    .await
}

#[tokio::test]
async fn a_compaction_is_left_to_the_provider_unless_told_otherwise() {
    let entry = json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"});
    let whole = response(std::slice::from_ref(&entry), 3_000);
    let end: Value = serde_json::from_str(&whole).unwrap();
    let events = [
        json!({"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1", "output": []}}),
        json!({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": entry}),
        json!({"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": entry}),
        json!({"type": "response.completed", "sequence_number": 3, "response": end}),
    ];
    let write = |event: &Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap()
        )
    };
    let events: String = events.iter().map(write).collect();
    let up = ScriptedProvider::start().await;
    let proxy = before(&up).start().await;
    let mut agent = compacting_agent(&proxy);
    up.script_next([answer("200 OK", "", &whole)]);
    let got = agent.send().await;
    assert_eq!(got.text(), whole);
    assert_eq!(got.headers["x-plimsoll-actions"], "none");
    assert_eq!(up.last_request().body, agent.fields.to_string().as_bytes());

    agent.fields["stream"] = true.into();
    for size in [1, 7, 100_000] {
        up.script_next(stream_of(events.as_bytes().chunks(size)));
        let got = agent.send().await;
        assert!(got.whole);
        let lines = got
            .text()
            .lines()
            .filter(|line| !line.starts_with(": plimsoll"));
        let lines: Vec<&str> = lines.collect();
        assert_eq!(
            lines.join("\n").replace("\n\n\n", "\n\n"),
            events.trim_end_matches('\n').to_owned() + "\n"
        );
    }
    // The entry of a provider comes back as it was.
    agent.fields["stream"] = false.into();
    agent.fields["input"] = json!([user_entry("a"), entry, user_entry("b")]);
    up.script_next([answer("200 OK", "", response(&[said("c")], 9))]);
    agent.ask().await;
    assert_eq!(up.last_request().body, agent.fields.to_string().as_bytes());
}

#[tokio::test]
async fn the_proxy_answers_with_a_ledger() {
    for stream in [false, true] {
        let up = ScriptedProvider::start().await;
        let proxy = answering(&up).start().await;
        let mut agent = compacting_agent(&proxy).set("stream", stream);
        agent = agent
            .with("user-agent", "codex_exec/0.169")
            .with("session-id", "s1");
        let generation = agent.ask().await;
        assert_eq!(up.count_requests(), 0, "no provider is asked");
        let entry = compaction(&generation);
        assert_eq!(generation.finish, "completed");
        assert_eq!(generation.message["model"], "m");
        assert_eq!(generation.usage["total_tokens"], 0);
        assert_ne!(generation.message["created_at"], 0);
        if stream {
            assert_eq!(
                generation.answer.headers["x-plimsoll-actions"],
                "compacting"
            );
            let text = generation.answer.text();
            assert!(
                text.contains(": plimsoll actions=compaction=ledger\n\n"),
                "{text}"
            );
        } else {
            assert_eq!(generation.action("compaction"), Some("ledger"))
        }
        // The same conversation gives the same entry.
        assert_eq!(compaction(&agent.ask().await), entry);
        let metrics = agent.client.get("/metrics").await;
        let counted = "plimsoll_compactions_total{content=\"ledger\"} 2";
        assert!(metrics.text().contains(counted), "{}", metrics.text());

        let session = generation.answer.headers["x-plimsoll-session"].clone();
        let note = come_back(&up, &mut agent, entry.clone()).await;
        for part in ["[Note by the context guard", "Mind the pump.", "read_file"] {
            assert!(note.contains(part), "{note}");
        }
        let next = agent.set("stream", false);
        up.script_next([answer("200 OK", "", response(&[said("fine")], 900))]);
        let after = next.ask().await;
        assert_eq!(after.answer.headers["x-plimsoll-session"], session);
        assert_eq!(after.header("course"), generation.header("course"));
        // Even without the guard: no provider knows the entry.
        let off = next.with("x-plimsoll-guard", "off");
        up.script_next([answer("200 OK", "", response(&[said("fine")], 900))]);
        off.ask().await;
        let sent = String::from_utf8(up.last_request().body).unwrap();
        assert!(
            sent.contains("Mind the pump.") && !sent.contains("\"compaction\""),
            "{sent}"
        );
    }
}

#[tokio::test]
async fn the_proxy_answers_with_a_summary_where_compaction_is_on() {
    for stream in [false, true] {
        let up = start_summariser().await;
        let proxy = answering(&up).set(|config| config.compaction.auto = true);
        let proxy = proxy.start().await;
        let mut agent = compacting_agent(&proxy).set("stream", stream);
        let generation = agent.ask().await;
        let entry = compaction(&generation);
        assert_eq!(generation.usage["input_tokens"], 5_000);
        assert_eq!(generation.usage["output_tokens"], 3);
        assert_eq!(up.count_requests(), 1);
        let asked = up.last_request();
        assert_eq!(asked.line, "POST /v1/responses HTTP/1.1");
        let asked: Value = serde_json::from_slice(&asked.body).unwrap();
        let kept = entries(&agent.fields).len() - 1;
        assert_eq!(entries(&asked)[..kept], entries(&agent.fields)[..kept]);
        let last = entries(&asked).last().unwrap().to_string();
        assert!(last.contains("<summary key="), "{last}");
        assert_eq!(of_type(entries(&asked), "compaction_trigger").count(), 0);
        // The same request sent again has the same summary.
        assert_eq!(compaction(&agent.ask().await), entry);
        assert_eq!(up.count_requests(), 1);
        let note = come_back(&up, &mut agent, entry.clone()).await;
        assert!(note.contains(DONE) && note.contains("summarised"), "{note}");

        // The next one has the earlier note to read.
        let agent = {
            let mut agent = agent;
            agent.push(step("call_9", &words(2_500, 9)));
            agent.push([trigger()]);
            agent
        };
        compaction(&agent.ask().await);
        let asked = String::from_utf8(up.last_request().body).unwrap();
        assert!(
            asked.contains(DONE) && asked.contains("<summary key="),
            "{asked}"
        );
    }
}

#[tokio::test]
async fn a_summary_that_fails_leaves_the_ledger() {
    for stream in [false, true] {
        let up = ScriptedProvider::start().await;
        let proxy = answering(&up).set(|config| config.compaction.auto = true);
        let proxy = proxy.start().await;
        let mut agent = compacting_agent(&proxy).set("stream", stream);
        up.script_next([answer("500 Internal Server Error", "", "{}")]);
        let entry = compaction(&agent.ask().await);
        assert_eq!(up.count_requests(), 1);
        assert!(
            come_back(&up, &mut agent, entry.clone())
                .await
                .contains("Mind the pump.")
        );
        // A ledger is added to the one before, and a short conversation is not summarised.
        agent.fields["input"] = json!([
            user_entry("a"),
            entry,
            user_entry("And the keel?"),
            trigger()
        ]);
        let asked = up.count_requests();
        let entry = compaction(&agent.ask().await);
        assert_eq!(up.count_requests(), asked);
        let note = come_back(&up, &mut agent, entry).await;
        assert!(
            note.contains("Mind the pump.") && note.contains("And the keel?"),
            "{note}"
        );
        assert_eq!(note.matches("[Note by the context guard").count(), 1);
    }
}

async fn post_list(proxy: &RunningProxy, body: &Value, guard: &str) -> ClientAnswer {
    post_list_as("application/json", proxy, body, guard).await
}

async fn post_list_as(kind: &str, proxy: &RunningProxy, body: &Value, guard: &str) -> ClientAnswer {
    let client = proxy.client();
    let request = client.request(Method::POST, "/v1/responses/compact");
    let request = request
        .header("content-type", kind)
        .header("x-plimsoll-guard", guard);
    client.send_with(request, body.to_string()).await
}

#[tokio::test]
async fn a_compacted_list_has_the_users_messages_and_the_entry() {
    let up = ScriptedProvider::start().await;
    let proxy = answering(&up).start().await;
    let mut agent = compacting_agent(&proxy);
    let got = post_list(&proxy, &agent.fields, "on").await;
    assert_eq!(got.headers["x-plimsoll-actions"], "compaction=ledger");
    let list = got.json();
    assert_eq!(list["object"], "response.compaction");
    assert_eq!(list["usage"]["input_tokens"], 0);
    let [first, second, entry] = &list["output"].as_array().unwrap()[..] else {
        panic!("{list}")
    };
    let users: Vec<&Value> = of_type(entries(&agent.fields), "message").collect();
    assert_eq!([first, second], users[..]);
    assert_eq!(up.count_requests(), 0);
    come_back(&up, &mut agent, entry.clone()).await;
    // The output is the whole next input, and its tokens are counted as of a message.
    agent.fields["input"] = list["output"].clone();
    let client = proxy.client();
    let request = client.request(Method::POST, "/v1/responses/input_tokens");
    up.script_next([answer(
        "200 OK",
        "",
        r#"{"object": "response.input_tokens", "input_tokens": 17}"#,
    )]);
    let request = request.header("content-type", "application/json");
    client.send_with(request, agent.fields.to_string()).await;
    let counted: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    assert_eq!(entries(&counted)[2]["role"], "developer");

    let text = json!({"model": "m", "input": "Where is the harbour?"});
    let list = post_list(&proxy, &text, "on").await.json();
    assert_eq!(
        list["output"][0],
        json!({"role": "user", "content": "Where is the harbour?"})
    );
    assert_eq!(list["output"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_list_is_compacted_whatever_the_content_type() {
    let up = ScriptedProvider::start().await;
    let proxy = answering(&up).start().await;
    let agent = compacting_agent(&proxy);
    for kind in [
        "text/plain",
        "application/octet-stream",
        "text/json; charset=utf-8",
    ] {
        let got = post_list_as(kind, &proxy, &agent.fields, "on").await;
        assert_eq!(
            got.headers["x-plimsoll-actions"], "compaction=ledger",
            "{kind}"
        );
    }
    assert_eq!(up.count_requests(), 0);
}

#[tokio::test]
async fn what_the_proxy_cannot_compact_is_left_to_the_provider() {
    let up = ScriptedProvider::start().await;
    let proxy = answering(&up).start().await;
    let compacted = r#"{"object": "response.compaction", "output": [], "usage": {}}"#;
    let held = json!({"model": "m", "previous_response_id": "resp_0", "input": [user_entry("a")]});
    let stored = json!({"model": "m", "previous_response_id": "resp_0"});
    let plain = json!({"model": "m", "input": [user_entry("a")]});
    for (body, guard) in [
        (held, "on"),
        (stored, "on"),
        (plain.clone(), "off"),
        (plain, "dry-run"),
    ] {
        up.script_next([answer("200 OK", "", compacted)]);
        assert_eq!(post_list(&proxy, &body, guard).await.text(), compacted);
        assert_eq!(up.last_request().body, body.to_string().as_bytes());
    }
    let whole = response(
        &[json!({"type": "compaction", "encrypted_content": "x"})],
        9,
    );
    for (field, value, guard) in [
        ("previous_response_id", "resp_0", "on"),
        ("conversation", "conv_0", "on"),
        ("user", "u", "off"),
        ("user", "u", "dry-run"),
    ] {
        let agent = compacting_agent(&proxy).set(field, value);
        let agent = agent.with("x-plimsoll-guard", guard);
        up.script_next([answer("200 OK", "", &whole)]);
        assert_eq!(agent.send().await.text(), whole);
        assert_eq!(up.last_request().body, agent.fields.to_string().as_bytes());
    }
    let disabled = answering(&up).set(|config| {
        config.guard.enabled = false;
        config.recovery.enabled = false;
    });
    let disabled = disabled.start().await;
    let agent = compacting_agent(&disabled);
    up.script_next([answer("200 OK", "", &whole)]);
    assert_eq!(agent.send().await.text(), whole);
    // Only its provider can read an entry that the proxy did not make, and what it stands for would be lost.
    let mut agent = compacting_agent(&proxy);
    let foreign = json!({"type": "compaction", "encrypted_content": "gAAA"});
    agent.fields["input"][0] = foreign;
    up.script_next([answer("200 OK", "", &whole)]);
    assert_eq!(agent.send().await.text(), whole);
    assert_eq!(up.last_request().body, agent.fields.to_string().as_bytes());
    up.script_next([answer("200 OK", "", compacted)]);
    let got = post_list(&proxy, &agent.fields, "on").await;
    assert_eq!(got.text(), compacted);
}
