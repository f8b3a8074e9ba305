//! Which conversation continues which, over sockets.

use serde_json::{Value, json};

use super::{Talk, completion, completion_of, header, numbering_provider, proxy_before, user};
use crate::support::{ScriptedProvider, answer};

#[tokio::test]
async fn a_growing_conversation_is_one_session() {
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 100_000).start().await;
    let mut talk = Talk::new(&proxy);
    talk.messages
        .push(json!({"role": "system", "content": "s"}));
    let mut session = None;
    for generation in 1..=30 {
        let answer = talk.say("go on").await;
        let id = header(&answer, "session").to_owned();
        assert_eq!(*session.get_or_insert_with(|| id.clone()), id);
        let shown = talk.session(&answer).await;
        assert_eq!(shown["generations"], generation);
        assert_eq!(shown["prompt_tokens"], 999 + generation);
        // A changed time of day in the system prompt does not matter.
        talk.messages[0] = json!({"role": "system", "content": format!("s {generation}")});
    }
}

#[tokio::test]
async fn a_retry_does_not_count_twice() {
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = Talk::new(&proxy);
    let first = talk.say("x").await;
    talk.messages.push(user("y"));
    for _ in 0..3 {
        let again = talk.ask().await;
        assert_eq!(header(&again, "session"), header(&first, "session"));
        assert_eq!(talk.session(&again).await["generations"], 2);
    }
}

#[tokio::test]
async fn regenerating_editing_and_branching_continue_their_ancestor() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = Talk::new(&proxy);
    let mut last = None;
    for (turn, used) in [(1, 100), (2, 200), (3, 300), (4, 400)] {
        up.script_next([completion_of(&format!("answer {turn}"), Some(used))]);
        last = Some(talk.say(&format!("turn {turn}")).await);
    }
    let last = last.unwrap();
    // Each as a stream, whose head shows the state that was found.
    talk.fields = json!({"stream": true});
    for (kept, added, inherited, generations) in [
        // The last answer again.
        (7, None, "300", 4),
        // The third user message rewritten.
        (4, Some("otherwise"), "200", 3),
        // A branch from the first answer.
        (2, Some("another way"), "100", 2),
        // The main line continues nevertheless.
        (8, Some("turn 5"), "400", 5),
    ] {
        let mut branch = Talk::new(&proxy);
        branch.fields = talk.fields.clone();
        branch.messages = talk.messages[..kept].to_vec();
        branch.messages.extend(added.map(user));
        up.script_next(super::stream_of_deltas(
            &[json!({"content": "b"})],
            Some(900),
        ));
        let got = branch.ask().await;
        assert_eq!(header(&got, "session"), header(&last, "session"));
        assert_eq!(header(&got, "prompt-tokens"), inherited);
        assert_eq!(branch.session(&got).await["generations"], generations);
    }
}

#[tokio::test]
async fn a_different_first_message_is_a_new_session() {
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = Talk::new(&proxy);
    let first = talk.say("x").await;
    talk.messages[0] = user("x!");
    let other = talk.say("y").await;
    assert_ne!(header(&first, "session"), header(&other, "session"));
    assert_eq!(talk.session(&other).await["generations"], 1);
}

#[tokio::test]
async fn identical_conversations_of_two_clients_never_share() {
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("the same", Some(9))]).await;
    let keys = proxy_before(&up, 10_000)
        .client("alice", "sk-secret-a", &["*"])
        .client("bob", "sk-secret-b", &["*"]);
    for proxy in [keys, proxy_before(&up, 10_000)] {
        let proxy = proxy.start().await;
        let mut a = Talk::new(&proxy).with("authorization", "Bearer sk-secret-a");
        let mut b = Talk::new(&proxy).with("authorization", "Bearer sk-secret-b");
        let mut ids = Vec::new();
        for generation in 1..=4 {
            for talk in [&mut a, &mut b] {
                let answer = talk.say("go on").await;
                assert_eq!(talk.session(&answer).await["generations"], generation);
                ids.push(header(&answer, "session").to_owned());
            }
        }
        assert_ne!(ids[0], ids[1]);
        assert!(ids.chunks(2).all(|pair| pair == &ids[..2]));
        // A client that copies the whole conversation of another begins a new session.
        let theirs = a.messages.clone();
        let mut thief = Talk::new(&proxy).with("authorization", "Bearer sk-secret-b");
        thief.messages = [vec![user("only hers")], theirs].concat();
        a.messages = thief.messages.clone();
        a.say("more").await;
        thief.messages = a.messages.clone();
        let stolen = thief.say("and more").await;
        assert!(!ids.contains(&header(&stolen, "session").to_owned()));
        assert_eq!(thief.session(&stolen).await["generations"], 1);
        // A session header does not open it either.
        let mut hinting = Talk::new(&proxy)
            .with("authorization", "Bearer sk-secret-b")
            .with("x-plimsoll-session", &ids[0]);
        let hinted = hinting.say("what did she say?").await;
        assert_ne!(header(&hinted, "session"), ids[0]);
    }
}

#[tokio::test]
async fn users_of_one_credential_have_separate_sessions() {
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("the same", Some(9))]).await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut ids = Vec::new();
    for name in ["u1", "u2"] {
        let mut talk = Talk::new(&proxy);
        talk.fields = json!({"user": name});
        talk.say("x").await;
        let answer = talk.say("y").await;
        assert_eq!(talk.session(&answer).await["generations"], 2);
        ids.push(header(&answer, "session").to_owned());
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn a_session_header_groups_but_shares_no_state() {
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut one = Talk::new(&proxy).with("x-plimsoll-session", "my session");
    let mut two = Talk::new(&proxy).with("x-plimsoll-session", "my session");
    let first = one.say("x").await;
    let second = two.say("quite another").await;
    assert_eq!(header(&first, "session"), header(&second, "session"));
    assert_eq!(two.session(&second).await["generations"], 1);
    assert_eq!(
        header(&one.say("y").await, "session"),
        header(&first, "session")
    );
    // A session id of the proxy is accepted from its own client.
    let id = header(&first, "session");
    let mut three = Talk::new(&proxy).with("x-plimsoll-session", id);
    assert_eq!(header(&three.say("a third").await, "session"), id);
    let made_up = "0".repeat(32);
    let mut four = Talk::new(&proxy).with("x-plimsoll-session", &made_up);
    assert_ne!(header(&four.say("a fourth").await, "session"), made_up);
}

/// Sends an answer and the client's message of it, and checks that the session is found.
async fn assert_found_again(answered: Value, echoed: Value) {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = Talk::new(&proxy);
    talk.messages.push(user("x"));
    up.script_next([answer("200 OK", "", completion(&answered, Some(42)))]);
    let first = talk.ask().await;
    talk.messages.push(echoed.clone());
    for call in echoed["tool_calls"].as_array().into_iter().flatten() {
        let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "ok"});
        talk.messages.push(result);
    }
    let got = {
        up.script_next([completion_of("hi", Some(1))]);
        talk.ask().await
    };
    assert_eq!(
        header(&got, "session"),
        header(&first, "session"),
        "{echoed}"
    );
    assert_eq!(talk.session(&got).await["generations"], 2);
}

#[tokio::test]
async fn an_answer_in_another_json_spelling_is_recognised() {
    let call = |arguments: &str| json!([{"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}]);
    let parts = json!([{"type": "text", "text": "said"}]);
    let plain = json!({"content": "said"});
    assert_found_again(
        plain.clone(),
        json!({"role": "assistant", "content": parts}),
    )
    .await;
    // Text trimmed by a client is found by the question it answers.
    assert_found_again(
        json!({"content": " said\n"}),
        json!({"role": "assistant", "content": "said"}),
    )
    .await;
    let called = json!({"content": null, "tool_calls": call("{\"a\":1,\"b\":\"\u{e9}\"}")});
    for echoed in [
        json!({"role": "assistant", "tool_calls": call("{\"a\": 1, \"b\": \"\\u00e9\"}")}),
        json!({"role": "assistant", "content": "", "tool_calls": call("{\"b\":\"\u{e9}\",\"a\":1}"), "refusal": null}),
        json!({"tool_calls": call("{}"), "role": "assistant", "content": null, "reasoning_content": "hm"}),
    ] {
        assert_found_again(called.clone(), echoed).await;
    }
}

#[tokio::test]
async fn auxiliary_requests_leave_no_state() {
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("a title", Some(9))]).await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = Talk::new(&proxy);
    let first = talk.say("x").await;
    let mut title = Talk::new(&proxy);
    title.fields = json!({"max_tokens": 20});
    title.messages = talk.messages.clone();
    let answer = title.say("make a title").await;
    assert_eq!(header(&answer, "session"), header(&first, "session"));
    assert_eq!(talk.session(&first).await["generations"], 1);
    let mut alone = Talk::new(&proxy);
    alone.fields = json!({"max_completion_tokens": 1});
    let answer = alone.say("hi").await;
    assert_eq!(alone.session(&answer).await, Value::Null);
}

/// What a chat app asks beside a chat, with and without the header that names it, is no session of its own and changes
/// nothing of the chat's. A conversation that begins with the same words is found by its second request.
#[tokio::test]
async fn tasks_of_a_chat_app_leave_no_session() {
    const TASK: &str = "### Task:\nGenerate a concise title.\n### Chat History:\n<chat_history>\nUSER: x\n</chat_history>";
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let in_chat = || Talk::new(&proxy).with("x-openwebui-chat-id", "chat");
    let mut talk = in_chat();
    let first = talk.say("x").await;
    in_chat().say(TASK).await;
    let named = "x-plimsoll-task";
    let words = "Name this chat.";
    in_chat().with(named, "title_generation").say(words).await;
    Talk::new(&proxy).say(TASK).await;
    Talk::new(&proxy).with(named, "a").say(words).await;
    let listed = proxy.client().get("/plimsoll/api/sessions").await.json();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1, "{listed}");
    let shown = talk.session(&first).await;
    assert_eq!(
        (&shown["generations"], &shown["prompt_tokens"]),
        (&json!(1), &json!(1000))
    );
    // A turn has the header, too, and nothing in it.
    talk.headers.insert(named, "".parse().unwrap());
    let second = talk.say("y").await;
    assert_eq!(header(&second, "session"), header(&first, "session"));
    assert_eq!(talk.session(&second).await["generations"], 2);
    let mut alike = Talk::new(&proxy);
    alike.say(TASK).await;
    let answer = alike.say("Another.").await;
    assert_eq!(alike.session(&answer).await["generations"], 1);
}
