//! Whole answers of Messages.

use serde_json::{Value, json};

use super::{FILTER, Scripted, complete, ok};
use crate::{
    json::text::digest_text,
    relay::{Format, buffer_filtered_answer},
};

fn message(content: &Value, stop_reason: &str) -> String {
    json!({
        "id": format!("msg_{stop_reason}"), "type": "message", "role": "assistant", "content": content,
        "stop_reason": stop_reason, "usage": {"input_tokens": 9, "cache_read_input_tokens": 1, "output_tokens": 10},
    })
    .to_string()
}

#[tokio::test]
async fn contents_and_usage_of_all_answers_are_joined() {
    let call = json!({"type": "tool_use", "id": "o", "name": "clear_mind", "input": {}});
    let thinking = json!({"type": "thinking", "thinking": "t", "signature": "s"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let package = text("<continuation_package>x</continuation_package>");
    let client_call = json!({"type": "tool_use", "id": "c", "name": "get", "input": {"a": 1.50}});
    for last in [vec![text("Two."), client_call], vec![call.clone()], vec![]] {
        let reason = if last.len() > 1 {
            "tool_use"
        } else {
            "max_tokens"
        };
        let first = message(&json!([thinking, text("One."), call]), "tool_use");
        let answers = vec![
            ok(message(&json!([package]), "end_turn")),
            ok(message(&last.clone().into(), reason)),
        ];
        let mut driver = Scripted {
            answers,
            turns: Vec::new(),
        };
        let format = Format::Messages;
        let read =
            buffer_filtered_answer(format, ok(first), FILTER, &mut driver, "p", |_| true).await;
        let (body, summary, _, preceding) = complete(read);
        let json: Value = serde_json::from_str(&body).unwrap();
        let mut content = vec![thinking.clone(), text("One.")];
        content.extend(last.into_iter().filter(|block| *block != call));
        assert_eq!(json["content"], Value::from(content));
        assert_eq!(
            (&json["id"], &json["stop_reason"]),
            (&json!("msg_tool_use"), &json!(reason))
        );
        assert_eq!(json["usage"]["output_tokens"], 30);
        let usage = summary.usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            (10, Some(30))
        );
        assert_eq!(
            (preceding.chars, preceding.digest),
            (4, digest_text(b"One."))
        );
        let turns = &driver.turns;
        assert_eq!(turns.len(), 2);
        assert_eq!(&*turns[0].proxy_calls[0].arguments, "{}");
        let expected = json!({"role": "assistant", "content": [thinking, text("One."), call]});
        assert_eq!(
            serde_json::from_str::<Value>(&turns[0].message).unwrap(),
            expected
        );
        assert!(turns[1].package.as_ref().unwrap().alone);
    }
}
