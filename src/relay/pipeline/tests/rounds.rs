//! Several answers that the client sees as one.

use serde_json::{Value, json};

use super::{DONE, TOOLS, call, calls, chunk, client, ended, finish, messages, run, usage};
use crate::json::text;

#[test]
fn several_answers_are_joined() {
    let first = [
        chunk(json!({"role": "assistant", "content": "Let me note that."})),
        calls(&[call(0, "o", "add_reminder", "{}")]),
        finish("tool_calls"),
        usage(100, 20),
        DONE.into(),
    ]
    .concat();
    let second = first
        .replace("one", "two")
        .replace("note that.", "note more. ");
    let third = [
        chunk(json!({"role": "assistant", "content": ""})),
        chunk(json!({"role": "assistant", "content": "Ready"})),
        calls(&[call(0, "t", "get", "{}")]),
        finish("tool_calls"),
        usage(130, 7),
        DONE.into(),
    ]
    .concat()
    .replace("one", "three");
    let relayed = run(&[&first, &second, &third], TOOLS);
    let text = "Let me note that.\n\nLet me note more. Ready";
    let call = (0, "t".to_owned(), "get".to_owned(), "{}".to_owned());
    assert_eq!(
        client(&relayed.bytes),
        (text.into(), vec![call], Some("tool_calls".into()))
    );
    let messages = messages(&relayed.bytes);
    let events = messages.iter().filter(|message| message.is_object());
    assert!(events.clone().all(|message| message["id"] == "one"));
    let role = |message: &&Value| message["choices"][0]["delta"].get("role").is_some();
    assert_eq!(events.clone().filter(role).count(), 1);
    let usage = events
        .clone()
        .find_map(|message| message.get("usage"))
        .unwrap();
    assert_eq!(
        *usage,
        json!({"prompt_tokens": 130, "completion_tokens": 47, "total_tokens": 177})
    );
    let preceding = text.strip_suffix("Ready").unwrap();
    assert_eq!(relayed.preceding.chars as usize, preceding.chars().count());
    assert_eq!(
        relayed.preceding.digest,
        text::digest_text(text::escape_text(preceding).as_bytes())
    );
    assert_eq!(
        relayed.summary.text,
        text::digest_text(text::escape_text(text).as_bytes())
    );
    assert_eq!(relayed.summary.usage.unwrap().completion_tokens, Some(47));
    assert_eq!(relayed.summary.usage.unwrap().prompt_tokens, 130);
    let reported: Vec<_> = relayed
        .turns
        .iter()
        .map(|turn| turn.usage.unwrap().completion_tokens)
        .collect();
    assert_eq!(reported, [Some(20), Some(20), Some(7)]);
    // Where nothing is for the proxy, no message is needed.
    assert_eq!(&*relayed.turns[2].message, "");
    assert_eq!(
        &*relayed.turns[0].message,
        r#"{"content":"Let me note that.","role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"add_reminder"},"id":"o","type":"function"}]}"#
    );
}

#[test]
fn usage_is_summed_in_every_member() {
    let first = [
        calls(&[call(0, "o", "clear_mind", "{}")]),
        finish("stop"),
        usage(9, 10),
        DONE.into(),
    ]
    .concat();
    let spelled = r#"{"prompt_tokens":3,"completion_tokens":4,"total_tokens":8}"#;
    let summed = r#"{"prompt_tokens":3,"completion_tokens":14,"total_tokens":18}"#;
    for place in [
        format!(
            r#"data: {{"choices":[{{"delta":{{}},"finish_reason":"stop"}}],"usage":{spelled}}}"#
        ),
        format!(
            r#"data: {{"choices":[{{"delta":{{}},"finish_reason":"stop","usage":{spelled}}}]}}"#
        ),
        format!(
            r#"data: {{"choices":[{{"delta":{{}},"finish_reason":"stop"}}],"x_groq":{{"usage":{spelled}}}}}"#
        ),
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"x\"}}}}],\"usage\":{spelled}}}\n\n{}",
            finish("stop").trim_end()
        ),
    ] {
        let second = format!("{place}\n\n{DONE}");
        let relayed = run(&[&first, &second], TOOLS);
        assert_eq!(relayed.bytes, second.replace(spelled, summed));
    }
}

#[test]
fn text_in_a_finish_chunk_is_kept() {
    let call = call(0, "o", "clear_mind", "{}");
    let first = [
        ended(
            json!({"role": "assistant", "content": "x", "tool_calls": [call]}),
            json!("tool_calls"),
        ),
        DONE.into(),
    ]
    .concat();
    let second = ended(json!({"content": "y"}), json!("stop")) + DONE;
    let relayed = run(&[&first, &second], TOOLS);
    assert_eq!(
        client(&relayed.bytes),
        ("x\n\ny".into(), vec![], Some("stop".into()))
    );
    // Some providers give no finish reason at all.
    let call = calls(&[call]);
    let relayed = run(&[&(call + DONE), &second], TOOLS);
    assert_eq!(relayed.bytes, second);
}
