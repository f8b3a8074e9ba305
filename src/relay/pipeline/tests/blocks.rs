//! Continuation blocks in the text.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::{
    DONE, PipelineOutput, TEXT, call, calls, chunk, client, ended, finish, run, say, sifting,
    theirs, usage, whole,
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
        let came = run(&[&stream], TEXT);
        assert_eq!(
            client(&came.bytes),
            ("All done.\n".into(), vec![], Some("stop".into()))
        );
        let package = came.spoken[0].package.clone().unwrap();
        assert_eq!(
            (&*package.text, package.before_chars, package.alone),
            (read, 10, false)
        );
        let message: Value = serde_json::from_str(&came.spoken[0].message).unwrap();
        assert_eq!(message["content"], format!("All done.\n{read}"));
        assert!(!came.bytes.contains("continuation"));

        let whole_answer = format!(
            r#"{{"choices":[{{"message":{{"content":"{}"}},"finish_reason":"stop"}}]}}"#,
            texts.concat()
        );
        let (json, spoken) = whole(TEXT, &[whole_answer]).pop().unwrap();
        let message: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(message["choices"][0]["message"]["content"], "All done.\n");
        assert_eq!(spoken.package, came.spoken[0].package);
    }
    let stream = say(&["a <cont", "rary> ", "<continuation_"]) + &finish("stop") + DONE;
    let came = run(&[&stream], TEXT);
    assert_eq!(client(&came.bytes).0, "a <contrary> <continuation_");
    let cut = say(&["a <cont"]);
    let came = run(&[&cut], TEXT);
    assert_eq!(client(&came.bytes).0, "a <cont");
    let came = run(&[cut.trim_end()], TEXT);
    assert_eq!(client(&came.bytes).0, "a <cont");
    let in_finish = ended(json!({"content": "b<"}), json!("stop")) + DONE;
    assert_eq!(run(&[&in_finish], TEXT).bytes, in_finish);
}

#[test]
fn a_block_alone_is_gone_on_with() {
    let block = [
        "\\n",
        "<continuation_package>x</continuation_package>",
        "\\n",
    ];
    let first = say(&block) + &finish("stop") + &usage(5, 5) + DONE;
    let second = say(&["On it."]) + &finish("stop") + DONE;
    let came = run(&[&first, &second], TEXT);
    assert_eq!(client(&came.bytes).0, "\n\nOn it.");
    assert!(came.spoken[0].package.clone().unwrap().alone);
    assert_eq!(came.before.chars, 2);
    let length = say(&block) + &finish("length") + DONE;
    assert_eq!(
        client(&run(&[&length], TEXT).bytes).2,
        Some("length".into())
    );
    let with_calls =
        say(&block) + &calls(&[call(0, "t", "get", "{\"a\":1}")]) + &finish("tool_calls") + DONE;
    let came = run(&[&with_calls], TEXT);
    assert_eq!(client(&came.bytes).1, [theirs(0)]);
    assert!(!came.spoken[0].package.clone().unwrap().alone);
}

#[test]
fn what_comes_behind_half_a_tag_does_not_wait() {
    for next in [
        calls(&[call(0, "t", "get", "")]),
        chunk(json!({"reasoning_content": "r"})),
        say(&["b"]),
    ] {
        let mut pipeline = sifting(TEXT, false);
        let mut out = VecDeque::new();
        let text = say(&["a <cont"]);
        pipeline.push(text.clone().into(), &mut out);
        assert!(out.is_empty());
        pipeline.push(next.clone().into(), &mut out);
        let came = [text, next].map(|event| PipelineOutput::Bytes(event.into()));
        assert_eq!(Vec::from(out), came);
    }
}
