//! Whole answers of Responses.

use serde_json::{Value, json};

use super::{FILTER, Scripted, complete, ok};
use crate::{
    json::text::digest_text,
    relay::{Format, buffer_filtered_answer},
};

fn response(output: &Value, status: &str, id: &str) -> String {
    json!({
        "id": id, "object": "response", "status": status, "output": output, "error": null,
        "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": 10, "total_tokens": 19},
    })
    .to_string()
}

#[tokio::test]
async fn outputs_and_usage_of_all_answers_are_joined() {
    let call =
        json!({"type": "function_call", "call_id": "o", "name": "clear_mind", "arguments": "{}"});
    let thought = json!({"type": "reasoning", "id": "rs", "summary": []});
    let text =
        |text: &str| json!({"type": "message", "content": [{"type": "output_text", "text": text}]});
    let package = text("<continuation_package>x</continuation_package>");
    let client_call = json!({"type": "function_call", "call_id": "c", "name": "get", "arguments": "{\"a\":1.50}"});
    for (last, status) in [
        (vec![text("Two."), client_call], "completed"),
        (vec![call.clone()], "incomplete"),
        (vec![], "incomplete"),
    ] {
        let first = response(&json!([thought, text("One."), call]), "completed", "first");
        let answers = vec![
            ok(response(&json!([package]), "completed", "second")),
            ok(response(&last.clone().into(), status, "third")),
        ];
        let mut driver = Scripted {
            answers,
            turns: Vec::new(),
        };
        let format = Format::Responses;
        let read =
            buffer_filtered_answer(format, ok(first), FILTER, &mut driver, "p", |_| true).await;
        let (body, summary, _, preceding) = complete(read);
        let json: Value = serde_json::from_str(&body).unwrap();
        let mut output = vec![thought.clone(), text("One.")];
        output.extend(last.into_iter().filter(|item| *item != call));
        assert_eq!(json["output"], Value::from(output));
        assert_eq!(
            (&json["id"], &json["status"]),
            (&json!("first"), &json!(status))
        );
        assert_eq!(json["usage"]["output_tokens"], 30);
        assert_eq!(json["usage"]["total_tokens"], 39);
        let usage = summary.usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            (9, Some(30))
        );
        assert!(!summary.call_ids.contains(&digest_text(b"o")));
        assert_eq!(
            (preceding.chars, preceding.digest),
            (4, digest_text(b"One."))
        );
        let turns = &driver.turns;
        assert_eq!(turns.len(), 2);
        assert_eq!(&*turns[0].proxy_calls[0].arguments, "{}");
        let list: Value = serde_json::from_str(&format!("[{}]", turns[0].message)).unwrap();
        assert_eq!(list, json!([thought, text("One."), call]));
        assert!(turns[1].package.as_ref().unwrap().alone);
    }
}
