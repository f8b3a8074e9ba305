//! Continuation blocks in the text.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::{
    DONE, PipelineOutput, TEXT, call, calls, chunk, client, client_call, ended, filtering, finish,
    run, say, usage, whole,
};

#[test]
fn blocks_are_taken_out_as_they_stream() {
    let block = "<continuation_package>\\n1. x\\n</continuation_package>";
    let read = "<continuation_package>\n1. x\n</continuation_package>";
    for texts in [
        &["All done.\\n", block][..],
        &[
            "All done.\\n<cont",
            "inuation_package>\\n1. x\\n</continuation",
            "_package>",
        ],
        &[
            "All done.\\n\\u003c",
            "continuation_package\\u003E",
            "\\n1. x",
            "\\n<",
            "/continuation_package>",
        ],
        &["All done.\\n<continuation_package>\\n1. x\\n</continuation_package>"],
    ] {
        let stream = say(texts) + &finish("stop") + DONE;
        let relayed = run(&[&stream], TEXT);
        assert_eq!(
            client(&relayed.bytes),
            ("All done.\n".into(), vec![], Some("stop".into()))
        );
        let package = relayed.turns[0].package.clone().unwrap();
        assert_eq!(
            (&*package.text, package.before_chars, package.alone),
            (read, 10, false)
        );
        let message: Value = serde_json::from_str(&relayed.turns[0].message).unwrap();
        assert_eq!(message["content"], format!("All done.\n{read}"));
        assert!(!relayed.bytes.contains("continuation"));

        let whole_answer = format!(
            r#"{{"choices":[{{"message":{{"content":"{}"}},"finish_reason":"stop"}}]}}"#,
            texts.concat()
        );
        let (json, turn) = whole(TEXT, &[whole_answer]).pop().unwrap();
        let message: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(message["choices"][0]["message"]["content"], "All done.\n");
        assert_eq!(turn.package, relayed.turns[0].package);
    }
    let stream = say(&["a <cont", "rary> ", "<continuation_"]) + &finish("stop") + DONE;
    let relayed = run(&[&stream], TEXT);
    assert_eq!(client(&relayed.bytes).0, "a <contrary> <continuation_");
    let cut = say(&["a <cont"]);
    let relayed = run(&[&cut], TEXT);
    assert_eq!(client(&relayed.bytes).0, "a <cont");
    let relayed = run(&[cut.trim_end()], TEXT);
    assert_eq!(client(&relayed.bytes).0, "a <cont");
    let in_finish = ended(json!({"content": "b<"}), json!("stop")) + DONE;
    assert_eq!(run(&[&in_finish], TEXT).bytes, in_finish);
}

#[test]
fn an_answer_with_a_block_only_is_continued() {
    let block = [
        "\\n",
        "<continuation_package>x</continuation_package>",
        "\\n",
    ];
    let first = say(&block) + &finish("stop") + &usage(5, 5) + DONE;
    let second = say(&["On it."]) + &finish("stop") + DONE;
    let relayed = run(&[&first, &second], TEXT);
    assert_eq!(client(&relayed.bytes).0, "\n\nOn it.");
    assert!(relayed.turns[0].package.clone().unwrap().alone);
    assert_eq!(relayed.preceding.chars, 2);
    let length = say(&block) + &finish("length") + DONE;
    assert_eq!(
        client(&run(&[&length], TEXT).bytes).2,
        Some("length".into())
    );
    let with_calls =
        say(&block) + &calls(&[call(0, "t", "get", "{\"a\":1}")]) + &finish("tool_calls") + DONE;
    let relayed = run(&[&with_calls], TEXT);
    assert_eq!(client(&relayed.bytes).1, [client_call(0)]);
    assert!(!relayed.turns[0].package.clone().unwrap().alone);
}

#[test]
fn nothing_waits_behind_half_a_tag() {
    for next in [
        calls(&[call(0, "t", "get", "")]),
        chunk(json!({"reasoning_content": "r"})),
        say(&["b"]),
    ] {
        let mut pipeline = filtering(TEXT, false);
        let mut out = VecDeque::new();
        let text = say(&["a <cont"]);
        pipeline.push(text.clone().into(), &mut out);
        assert!(out.is_empty());
        pipeline.push(next.clone().into(), &mut out);
        let relayed = [text, next].map(|event| PipelineOutput::Bytes(event.into()));
        assert_eq!(Vec::from(out), relayed);
    }
}
