//! What a user attaches to a message is shortened where the budget needs it; the words stay.

use serde_json::{Value, json};

use super::*;
use crate::conversation::Format;

const WORDS: &str = "Mend the parser, and keep its interface as it is.";
const END: &str = "Run the tests at the end.";

fn lines(count: usize) -> String {
    (0..count)
        .map(|line| format!("let value{line} = read_line({line});\n"))
        .collect()
}

fn fenced_task(count: usize) -> String {
    format!(
        "{WORDS}\n\nsrc/parser.rs\n```rust\n{}```\n{END}",
        lines(count)
    )
}

fn step(format: Format, at: usize, chars: usize) -> Vec<Value> {
    let (id, output) = (
        format!("call{at}"),
        format!("result {at} ").repeat(chars / 10),
    );
    match format {
        Format::Messages => vec![
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "read", "input": {}}]}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": output}]}),
        ],
        Format::Responses => vec![
            json!({"type": "function_call", "call_id": id, "name": "read", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": id, "output": output}),
        ],
        _ => vec![
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": id, "content": output}),
        ],
    }
}

fn index(format: Format, messages: &[Value]) -> Conversation {
    let body = match format {
        Format::Responses => json!({ "input": messages }),
        _ => json!({ "messages": messages }),
    };
    format.index_body(Bytes::from(body.to_string())).unwrap()
}

/// The messages that go out.
fn sent(format: Format, conversation: &Conversation, planned: &Plan) -> Vec<Value> {
    let sent = planned.edits.apply(&conversation.body).to_bytes();
    let again = format.index_body(sent.clone()).unwrap();
    let settings = GuardConfig::counted_by_characters();
    let second = plan(&again, &policy(&settings), &SessionKnowledge::default());
    // Each text is rounded up by itself where it is planned.
    let (now, said) = (second.report.raw_before, planned.report.raw_after);
    assert!(now <= said + 4, "{now} sent, {said} planned");
    assert!(
        second.edits.is_empty() || now > said,
        "a second pass finds something to do"
    );
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let list = if format == Format::Responses {
        "input"
    } else {
        "messages"
    };
    sent[list].as_array().unwrap().clone()
}

fn knowledge_after(planned: &Plan, conversation: &Conversation) -> SessionKnowledge {
    let counted = conversation
        .items
        .iter()
        .filter(|it| !it.author.is_system());
    SessionKnowledge {
        memory: planned.memory.clone(),
        history: planned.history,
        sent_messages: counted.count(),
        ..SessionKnowledge::default()
    }
}

/// Sends a conversation that grows by `steps`, and gives what was sent of its task each time. The same conversation
/// without a state gets the same.
fn grow(format: Format, task: &Value, steps: usize) -> Vec<Value> {
    let settings = GuardConfig::counted_by_characters();
    let (mut messages, mut knowledge) = (vec![task.clone()], SessionKnowledge::default());
    let mut tasks = Vec::new();
    for at in 0..=steps {
        let conversation = index(format, &messages);
        let planned = plan(&conversation, &policy(&settings), &knowledge);
        assert!(!planned.report.over_budget, "request {at}");
        let now = sent(format, &conversation, &planned);
        tasks.push(now[0].clone());
        assert_eq!(
            now.last(),
            messages.last().filter(|_| at > 0).or(now.last()),
            "{at}"
        );
        let alone = plan(
            &conversation,
            &policy(&settings),
            &SessionKnowledge::default(),
        );
        assert_eq!(
            sent(format, &conversation, &alone)[0],
            now[0],
            "request {at}"
        );
        knowledge = knowledge_after(&planned, &conversation);
        messages.extend(step(format, at, 2_000));
    }
    tasks
}

#[test]
fn a_file_in_the_task_is_shortened_once_and_the_words_stay() {
    let task = |text: &str| json!({"role": "user", "content": text});
    let whole = fenced_task(500);
    let tasks = grow(Format::Chat, &task(&whole), 12);
    assert_eq!(tasks[0], task(&whole), "it fits");
    let last = tasks.last().unwrap()["content"].as_str().unwrap();
    assert!(last.len() < whole.len() / 2, "{last}");
    assert!(
        last.starts_with(&format!("{WORDS}\n\nsrc/parser.rs\n```rust\nlet value0 ")),
        "{last}"
    );
    assert!(last.contains("characters truncated] ..."), "{last}");
    assert!(
        last.ends_with(&format!("read_line(499);\n```\n{END}")),
        "{last}"
    );
    let forms = tasks.windows(2).filter(|two| two[0] != two[1]).count();
    assert_eq!(forms, 1, "once");
}

#[test]
fn an_attachment_that_does_not_fit_alone_is_shortened_as_far_as_it_must() {
    let whole = fenced_task(2_000);
    let tasks = grow(Format::Chat, &json!({"role": "user", "content": whole}), 8);
    let first = tasks[0]["content"].as_str().unwrap();
    let last = tasks[8]["content"].as_str().unwrap();
    for text in [first, last] {
        assert!(text.starts_with(WORDS) && text.ends_with(END), "{text}");
    }
    assert!(
        first.len() > 3 * last.len(),
        "{} {}",
        first.len(),
        last.len()
    );
    // 8,192 tokens at four characters each, without the room for an answer.
    assert!(first.len() > 20_000, "{}", first.len());
}

#[test]
fn documents_and_large_parts_of_a_task_are_shortened_in_each_format() {
    let file = lines(400);
    let text = |text: &str| json!({"type": "text", "text": text});
    let input = |text: &str| json!({"type": "input_text", "text": text});
    let message = |content: Value| json!({"role": "user", "content": content});
    let document = json!({"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": file}});
    let tagged = format!("<file path=\"a.rs\">\n{file}</file>\n{WORDS}");
    for (format, content) in [
        (Format::Chat, json!([text(WORDS), text(&file)])),
        (Format::Chat, json!([text(WORDS), text(&tagged)])),
        (Format::Messages, json!([document, text(WORDS)])),
        (Format::Messages, json!([text(WORDS), text(&file)])),
        (Format::Responses, json!([input(&tagged)])),
        (Format::Responses, json!([input(&file), input(WORDS)])),
    ] {
        let tasks = grow(format, &message(content.clone()), 12);
        let last = tasks.last().unwrap().to_string();
        assert_eq!(tasks[0], message(content), "it fits");
        assert!(
            last.contains(WORDS) && last.contains("characters truncated"),
            "{last}"
        );
        assert!(
            last.contains("value0 ") && last.contains("read_line(399)"),
            "{last}"
        );
        assert!(last.len() < file.len() / 2, "{}", last.len());
    }
}

#[test]
fn words_that_are_not_attached_stay_whole() {
    let words = format!("<task>\n{}</task>", lines(150));
    let task = json!({"role": "user", "content": words});
    let tasks = grow(Format::Chat, &task, 12);
    assert!(tasks.iter().all(|it| *it == task));
}

#[test]
fn an_attachment_of_a_later_message_is_shortened_before_the_message_goes() {
    let settings = GuardConfig::counted_by_characters();
    let mut messages = vec![json!({"role": "user", "content": "Help me."})];
    messages.push(json!({"role": "assistant", "content": "Gladly."}));
    messages.push(json!({"role": "user", "content": fenced_task(500)}));
    for at in 0..12 {
        messages.extend(step(Format::Chat, at, 2_000));
    }
    let conversation = index(Format::Chat, &messages);
    let planned = plan(
        &conversation,
        &policy(&settings),
        &SessionKnowledge::default(),
    );
    let now = sent(Format::Chat, &conversation, &planned);
    let asked = now
        .iter()
        .filter_map(|it| it["content"].as_str())
        .find(|it| it.starts_with(WORDS));
    let asked = asked.unwrap();
    assert!(
        asked.ends_with(END) && asked.contains("characters truncated"),
        "{asked}"
    );
}

#[test]
fn of_a_text_that_takes_much_of_the_room_both_ends_stay() {
    let words = format!("{WORDS}\n{}{END}", lines(500));
    let tasks = grow(Format::Chat, &json!({"role": "user", "content": words}), 12);
    let last = tasks[12]["content"].as_str().unwrap();
    assert!(last.starts_with(WORDS) && last.ends_with(END), "{last}");
    assert!(
        last.contains("characters truncated") && last.len() < words.len() / 2,
        "{last}"
    );
}

#[test]
fn a_document_that_is_no_text_gives_way_to_a_notice() {
    let pdf = "JVBERi0xLjQK".repeat(4_000);
    let document = json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": pdf}});
    let picture =
        json!({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}});
    let words = json!({"type": "text", "text": WORDS});
    let task = json!({"role": "user", "content": [document, document, document, picture, words]});
    let tasks = grow(Format::Messages, &task, 12);
    assert_eq!(tasks[0], task);
    let last = &tasks[12]["content"];
    assert!(
        last[0]["text"]
            .as_str()
            .unwrap()
            .contains("attachment was left out"),
        "{last}"
    );
    assert_eq!(
        (&last[3], &last[4]),
        (&task["content"][3], &task["content"][4])
    );
}

/// What the client puts behind the newest message makes it no older.
#[test]
fn the_newest_message_is_shortened_as_far_as_it_must_whatever_follows_it() {
    let settings = GuardConfig::counted_by_characters();
    let asked = json!({"role": "user", "content": fenced_task(2_000)});
    for behind in [
        json!({"role": "assistant", "content": "Here is the plan, step by step:"}),
        json!({"role": "system", "content": "Answer in French."}),
    ] {
        for before in [
            vec![],
            vec![
                json!({"role": "user", "content": "Hello."}),
                json!({"role": "assistant", "content": "Hello."}),
            ],
        ] {
            let messages = [before, vec![asked.clone(), behind.clone()]].concat();
            let conversation = index(Format::Chat, &messages);
            let planned = plan(
                &conversation,
                &policy(&settings),
                &SessionKnowledge::default(),
            );
            let report = &planned.report;
            assert!(
                !report.over_budget,
                "{behind} {} {:?} {:?}",
                report.raw_after, report.budget, report.truncated
            );
            let now = sent(Format::Chat, &conversation, &planned);
            let text = now[now.len() - 2]["content"].as_str().unwrap();
            assert!(text.len() > 18_000 && text.ends_with(END), "{}", text.len());
        }
    }
}

/// A limit is that of one message: users repeat themselves.
#[test]
fn an_equal_message_that_came_before_stays_as_it_was_sent() {
    let settings = GuardConfig::counted_by_characters();
    let system = json!({"role": "system", "content": "s".repeat(11_000)});
    let asked = json!({"role": "user", "content": fenced_task(280)});
    let answer = json!({"role": "assistant", "content": "Done."});
    let mut messages = vec![system, asked.clone()];
    let mut knowledge = SessionKnowledge::default();
    let mut before: Vec<Value> = Vec::new();
    for request in 0..3 {
        let conversation = index(Format::Chat, &messages);
        let planned = plan(&conversation, &policy(&settings), &knowledge);
        let now = sent(Format::Chat, &conversation, &planned);
        if planned.report.folded.is_none() && planned.report.cleared.is_none() {
            assert!(now.starts_with(&before), "request {request}");
        }
        knowledge = knowledge_after(&planned, &conversation);
        before = now;
        messages.extend([answer.clone(), asked.clone()]);
    }
}

#[test]
fn a_request_to_compact_keeps_what_the_user_attached() {
    let settings = GuardConfig::counted_by_characters();
    let asked = json!({"role": "user", "content": fenced_task(2_000)});
    let trigger = json!({"type": "compaction_trigger"});
    let conversation = index(Format::Responses, &[asked.clone(), trigger]);
    assert!(conversation.asks_to_compact());
    let planned = plan(
        &conversation,
        &policy(&settings),
        &SessionKnowledge::default(),
    );
    let sent = planned.edits.apply(&conversation.body).to_bytes();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(sent["input"][0], asked);
}

/// A question goes where it takes much of the room: as it is sent, and not as it came.
#[test]
fn the_words_of_the_newest_question_stay_where_a_step_follows_it() {
    let settings = GuardConfig::counted_by_characters();
    let user = |text: String| json!({"role": "user", "content": text});
    let asked = format!("NEWEST fix this\n```\n{}```\nAT ONCE", lines(120));
    for steps in 1..4 {
        let mut messages = vec![
            user(fenced_task(150)),
            json!({"role": "assistant", "content": "Done."}),
        ];
        messages.push(user(asked.clone()));
        messages.extend((0..steps).flat_map(|at| step(Format::Chat, at, 200)));
        let conversation = index(Format::Chat, &messages);
        let policy = Policy {
            window: 4_096,
            ..policy(&settings)
        };
        let planned = plan(&conversation, &policy, &SessionKnowledge::default());
        let sent = planned.edits.apply(&conversation.body).to_bytes();
        let sent = String::from_utf8(sent.to_vec()).unwrap();
        assert!(!planned.report.over_budget);
        for words in [WORDS, END, "NEWEST fix this", "AT ONCE"] {
            assert!(sent.contains(words), "{steps} steps: {words}");
        }
    }
}

/// The last try of a request that was refused without a number has hardly any budget: a short task is no attachment.
#[test]
fn the_words_of_a_short_task_stay_where_only_what_must_stay_is_sent() {
    let settings = GuardConfig::counted_by_characters();
    let words = "Rename the parser, and list its functions. ".repeat(20);
    let task = json!({"role": "user", "content": words});
    let mut messages = vec![task.clone()];
    messages.extend((0..10).flat_map(|at| step(Format::Chat, at, 2_000)));
    let conversation = index(Format::Chat, &messages);
    let policy = Policy {
        input_limit: Some(1),
        ..policy(&settings)
    };
    let knowledge = SessionKnowledge {
        refused: RefusalLessons {
            sends_only_required: true,
            ..RefusalLessons::default()
        },
        ..SessionKnowledge::default()
    };
    let planned = plan(&conversation, &policy, &knowledge);
    let sent = planned.edits.apply(&conversation.body).to_bytes();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    assert!(planned.report.folded.is_some());
    let first = sent["messages"][0]["content"].as_str().unwrap();
    assert!(first.starts_with(&words), "{first}");
}

#[test]
fn sounds_in_the_task_stay() {
    let sound =
        json!({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}});
    let words = json!({"type": "text", "text": WORDS});
    let task = json!({"role": "user", "content": [sound, sound, sound, words]});
    let tasks = grow(Format::Chat, &task, 12);
    for now in tasks {
        // The note of a cut may follow them.
        let parts = now["content"].as_array().unwrap();
        assert_eq!(parts[..4], task["content"].as_array().unwrap()[..]);
    }
}
