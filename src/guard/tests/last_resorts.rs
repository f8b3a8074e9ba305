//! The last resorts: which of them takes what, and what comes back.

use serde_json::{Value, json};

use super::*;
use crate::{
    conversation::{Format, PlaceMap},
    support::plans::apply_plan,
};

const FORMATS: [Format; 3] = [Format::Chat, Format::Messages, Format::Responses];

fn says(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

/// Some words of so many characters.
fn text(name: &str, chars: usize) -> String {
    format!("{name} {}", "keel mast sail rope ".repeat(chars / 20))
}

/// A step whose call has `members` numbers of some 5 tokens each, which never get shorter.
fn step(format: Format, id: &str, members: usize, result: &str) -> Vec<Value> {
    let members = (0..members).map(|at| (format!("n{at:04}"), json!(1_000_000 + at)));
    let input = Value::Object(members.collect());
    match format {
        Format::Messages => vec![
            json!({"role": "assistant", "content": [
                {"type": "tool_use", "id": id, "name": "f", "input": input}]}),
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": result}]}),
        ],
        Format::Responses => vec![
            json!({"type": "function_call", "call_id": id, "name": "f",
                "arguments": input.to_string()}),
            json!({"type": "function_call_output", "call_id": id, "output": result}),
        ],
        _ => vec![
            json!({"role": "assistant", "tool_calls": [{"id": id, "type": "function",
                "function": {"name": "f", "arguments": input.to_string()}}]}),
            json!({"role": "tool", "tool_call_id": id, "content": result}),
        ],
    }
}

fn index(format: Format, entries: &[Value]) -> Conversation {
    let (key, cap) = match format {
        Format::Responses => ("input", "max_output_tokens"),
        _ => ("messages", "max_tokens"),
    };
    let body = json!({"model": "m", cap: 100, key: entries}).to_string();
    format.index_body(body.into()).unwrap()
}

/// What goes out, and what the session knows then.
fn send(format: Format, entries: &[Value], knowledge: &SessionKnowledge) -> (String, Plan) {
    let mut settings = GuardConfig::counted_by_characters();
    // What is attached to the question stays.
    settings.clear.enabled = false;
    let conversation = index(format, entries);
    let plan = plan(&conversation, &policy(&settings), knowledge);
    assert!(!plan.report.over_budget, "{:?}", plan.report);
    let sent = apply_plan(&conversation, &plan);
    // A second pass over what goes out changes nothing.
    let again = format.index_body(sent.clone()).unwrap();
    let second = super::plan(&again, &policy(&settings), &SessionKnowledge::default());
    assert!(second.edits.is_empty(), "{:?}", second.report);
    (String::from_utf8(sent.to_vec()).unwrap(), plan)
}

fn entries(format: Format, question: &str, members: usize, result: &str) -> Vec<Value> {
    let mut entries = vec![
        says("user", "TASK"),
        says("assistant", "Well."),
        says("user", question),
    ];
    entries.extend(step(format, "a", members, result));
    entries
}

#[test]
fn a_question_stays_where_a_shorter_result_alone_would_do() {
    for format in FORMATS {
        let (question, result) = (text("QUESTION", 7_500), text("RESULT", 6_900));
        let entries = entries(format, &question, 720, &result);
        let (sent, plan) = send(format, &entries, &SessionKnowledge::default());
        assert!(
            sent.contains(&question) && !sent.contains(&result),
            "{format:?}"
        );
        assert_eq!(plan.report.truncated.len(), 1, "{format:?}");
    }
}

#[test]
fn a_result_stays_where_the_question_alone_would_do_and_the_question_comes_back() {
    for format in FORMATS {
        let (question, result) = (text("QUESTION", 9_000), text("RESULT", 2_400));
        let mut entries = entries(format, &question, 1_010, &result);
        let (sent, plan) = send(format, &entries, &SessionKnowledge::default());
        assert!(
            !sent.contains(&question) && sent.contains(&result),
            "{format:?}"
        );
        assert!(plan.report.truncated.is_empty(), "{format:?}");
        let know = |plan: Plan, entries: &[Value]| SessionKnowledge {
            memory: plan.memory,
            history: plan.history,
            sent_messages: index(format, entries).items.len(),
            ..SessionKnowledge::default()
        };
        // As long as the step is the newest, the session sends the same.
        let mut knowledge = know(plan, &entries);
        assert_eq!(send(format, &entries, &knowledge).0, sent, "{format:?}");
        for at in 0..3 {
            entries.extend(step(format, &format!("b{at}"), 2, &text("LATER", 300)));
            let (sent, plan) = send(format, &entries, &knowledge);
            if at == 0 {
                assert_eq!(plan.report.due, Some(Due::QuestionReturns), "{format:?}");
            }
            assert!(
                sent.contains(&question) && sent.contains("LATER"),
                "{format:?} {at}"
            );
            let folded = plan.report.folded.expect("the large step is cut");
            assert_eq!(folded.new, at == 0, "{format:?} {at}");
            let alone = send(format, &entries, &SessionKnowledge::default()).0;
            assert_eq!(sent, alone, "{format:?} {at}: without a state");
            knowledge = know(plan, &entries);
        }
    }
}

/// Without the question, two messages of the model would follow one another: the call without a result stays.
#[test]
fn a_question_stays_where_no_answer_could_take_its_place() {
    let (question, result) = (text("QUESTION", 9_000), text("RESULT", 6_000));
    let mut entries = vec![says("user", "TASK")];
    entries.extend(step(Format::Chat, "b", 1, "").drain(..1));
    entries.push(says("user", &question));
    entries.extend(step(Format::Chat, "a", 1_010, &result));
    let conversation = index(Format::Chat, &entries);
    let mut settings = GuardConfig::counted_by_characters();
    settings.clear.enabled = false;
    let plan = plan(
        &conversation,
        &policy(&settings),
        &SessionKnowledge::default(),
    );
    assert_eq!(plan.report.stood_back, None);
    let sent = String::from_utf8(apply_plan(&conversation, &plan).to_vec()).unwrap();
    assert!(sent.contains(&question) && !sent.contains(&result));
}

/// A long text beside a question must not take the question with it.
#[test]
fn a_short_question_stays_where_a_long_text_beside_it_goes() {
    for format in FORMATS {
        let (question, note) = (text("QUESTION", 60), text("NOTE", 9_000));
        for said in [[&note, &question], [&question, &note]] {
            let mut all = vec![says("user", "TASK"), says("assistant", "Well.")];
            all.extend(said.map(|text| says("user", text)));
            all.extend(step(format, "a", 1_010, &text("RESULT", 2_400)));
            let (sent, _) = send(format, &all, &SessionKnowledge::default());
            assert!(
                sent.contains(&question) && !sent.contains(&note),
                "{format:?}"
            );
        }
    }
}

/// Results as texts, of clients whose models have no tools of their own.
#[test]
fn a_result_that_is_written_as_a_text_gets_shorter_where_it_alone_does_not_fit() {
    for format in FORMATS {
        for head in ["[read_file for 'a.rs'] Result:\n", "OBSERVATION:\n"] {
            let (question, result) = (text("QUESTION", 2_000), text("RESULT", 60_000));
            let all = [
                says("user", "TASK"),
                says("assistant", "Well."),
                says("user", &question),
                says("assistant", "<read_file><path>a.rs</path></read_file>"),
                says("user", &format!("{head}{result}")),
            ];
            let (sent, _) = send(format, &all, &SessionKnowledge::default());
            assert!(sent.contains(&question), "{format:?} {head}");
            let head = head.trim_end();
            assert!(sent.contains(head), "{format:?} {head}");
            assert!(
                sent.contains("RESULT") && sent.contains(" characters truncated]"),
                "{format:?} {head}"
            );
            assert!(!sent.contains(&result), "{format:?} {head}");
        }
    }
}

/// A client takes a step out before the messages that are compared: all remembered places are two lower then, and what was
/// cut behind the question begins before it.
#[test]
fn a_moved_cut_does_not_cover_a_short_question() {
    for format in FORMATS {
        let question = text("QUESTION", 60);
        let mut entries = vec![
            says("user", "TASK"),
            says("assistant", "Well."),
            says("user", &question),
        ];
        for at in 0..12 {
            entries.extend(step(format, &format!("c{at}"), 2, &text("RESULT", 4_000)));
        }
        let (sent, plan) = send(format, &entries, &SessionKnowledge::default());
        assert!(sent.contains(&question), "{format:?}");
        let covers = |memory: &GuardMemory| {
            let spans = memory.list_left_out();
            spans.iter().any(|span| span.contains(&2))
        };
        let mut memory = plan.memory;
        assert!(!covers(&memory), "{format:?}");
        let (first, end) = (20, entries.len() as u32);
        let places = (first..end).map(|place| Some(place - 2)).collect();
        memory.follow_edits(&PlaceMap::new(first, places, end - 2));
        assert!(covers(&memory), "{format:?}");
        entries.drain(3..5);
        let knowledge = SessionKnowledge {
            memory,
            history: plan.history,
            sent_messages: entries.len(),
            ..SessionKnowledge::default()
        };
        let (sent, plan) = send(format, &entries, &knowledge);
        assert!(sent.contains(&question), "{format:?}");
        assert!(plan.report.folded.is_some(), "{format:?}");
    }
}
