//! A stream of the toy format: what a new format gets of the pipeline once its answers are read.

use serde_json::{Value, json};

use super::{BOTH, cut_at, filtering_as, run_pipeline};
use crate::{conversation::Format, json::text};

fn stream(events: &[Value]) -> String {
    let events = events.iter().map(|event| format!("data: {event}\n\n"));
    events.collect()
}

#[test]
fn hidden_pieces_are_removed_and_usage_is_read_at_every_cut() {
    let begun = |tag: &str| json!({"tag": tag, "engine": "m"});
    let wants = |piece: u64, tool: &str| json!({"piece": piece, "want": {"ticket": format!("t_{tool}"), "tool": tool, "with": "{\"a\": 1}"}});
    let shut = |piece: u64| json!({"piece": piece, "shut": true});
    let line = |piece: u64| json!({"piece": piece, "line": ""});
    let more = |piece: u64, text: &str| json!({"piece": piece, "more": text});
    let over = |why: &str, read: u32, wrote: u32| json!({"over": why, "spent": {"read": read, "wrote": wrote}});
    let first = stream(&[
        begun("a1"),
        line(0),
        more(0, "One moment."),
        shut(0),
        wants(1, "add_reminder"),
        shut(1),
        over("wants", 100, 20),
    ]);
    let second = stream(&[
        begun("a2"),
        line(0),
        more(0, "A boat "),
        more(
            0,
            "and a pier.\n\n<continuation_package>hidden</continuation_package>",
        ),
        shut(0),
        wants(1, "clear_mind"),
        shut(1),
        wants(2, "look"),
        shut(2),
        over("wants", 130, 7),
    ]);
    let expected = [
        begun("a1"),
        line(0),
        more(0, "One moment."),
        shut(0),
        line(1),
        more(1, "A boat "),
        more(1, "and a pier.\n\n"),
        shut(1),
        wants(2, "look"),
        shut(2),
        over("wants", 130, 27),
    ];
    for size in [1, 7, 64, usize::MAX] {
        let pipeline = filtering_as(Format::Toy, BOTH, false);
        let relayed = run_pipeline(pipeline, &[&first, &second], |answer| cut_at(answer, size));
        let events = relayed.bytes.split_terminator("\n\n");
        let events = events.map(|event| event.strip_prefix("data: ").unwrap());
        let events: Vec<Value> = events.map(|it| serde_json::from_str(it).unwrap()).collect();
        assert_eq!(events, expected);
        let [hidden, last] = &relayed.turns[..] else {
            panic!("two answers");
        };
        assert_eq!(hidden.proxy_calls[0].name.as_ref(), "add_reminder");
        assert_eq!(hidden.proxy_calls[0].arguments.as_ref(), "{\"a\": 1}");
        assert_eq!(hidden.usage.unwrap().prompt_tokens, 100);
        let item = Format::Toy.index_items(&[&hidden.message]).unwrap();
        assert_eq!((item.calls.len(), item.blocks.len()), (1, 1));
        assert_eq!(last.client_calls, 1);
        assert!(last.package.as_ref().unwrap().text.contains("hidden"));
        let usage = relayed.summary.usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            (130, Some(27))
        );
        assert_eq!(relayed.summary.call_ids, [text::digest_text(b"t_look")]);
        assert!(relayed.summary.done && relayed.summary.finished);
    }
}
