//! What the newest words ask of the model beside its work: notes for itself, a new course, a summary.
//!
//! Read as a model would: from the newest words, whoever they are from, and only where the tools
//! that they name are offered. What stands before the model's own last answer is history.

use serde_json::{Value, json};

use super::{
    request::{SimulatedRequest, message_role},
    scripted_agent::{ReplyContent, TEXT},
};

const ADD: &str = "add_reminder";
const UPDATE: &str = "update_reminder";
const CLEAR: &str = "clear_mind";
/// Tools for the model's own memory; it calls them only when asked to.
const TOOLS: &[&str] = &[ADD, UPDATE, "delete_reminder", CLEAR];

const PACKAGE: [&str; 2] = ["<continuation_package>", "</continuation_package>"];
/// What opens the block of a summary that is asked for; its key follows.
const SUMMARY: &str = "<summary key=\"";
/// What stands before the number of answers that remain.
const REMAINING: [&str; 2] = ["this reply included: ", "（含本次）："];
/// With so few answers left the model begins the new course itself.
const FEW_REMAINING: u32 = 2;
/// How the first note begins where all are shown.
const FIRST_NOTE: &str = "<reminder id=\"r1\"";
/// Characters of one quotation.
const QUOTED: usize = 100;

pub(super) fn is_memory_tool(name: &str) -> bool {
    TOOLS.contains(&name)
}

/// What the request asks for, if the model can do it.
pub(super) fn find_requested_reply(request: &SimulatedRequest<'_>) -> Option<ReplyContent> {
    let messages = request.messages;
    let is_text = request.answer_schema().is_none();
    if let Some(summary) = write_summary(messages).filter(|_| is_text) {
        return Some(ReplyContent::from_text(summary));
    }
    let texts = newest_texts(messages);
    let notice = texts.iter().rev().find(|text| is_notice(text))?;
    let note = write_note(messages, notice);
    let free = {
        let choice = request.tool_choice();
        choice != "none" && !choice["function"]["name"].is_string()
    };
    let can = |name: &str| {
        free && notice.contains(name) && request.tools().any(|tool| tool["name"] == name)
    };
    if !can(ADD) {
        let asked = is_text && notice.contains(PACKAGE[0]);
        let [start, end] = PACKAGE;
        return asked.then(|| ReplyContent::from_text(format!("{TEXT}\n\n{start}\n{note}\n{end}")));
    }
    let few = read_remaining(notice).is_some_and(|left| left <= FEW_REMAINING);
    // Notes of an earlier course are brought up to date, so that they do not grow in number.
    let has_note = messages
        .iter()
        .any(|one| message_text(one).contains(FIRST_NOTE));
    Some(match few && can(CLEAR) {
        true if has_note => ReplyContent::from_call(CLEAR, &json!({})),
        true => ReplyContent::from_call(CLEAR, &json!({"reminder_content": note})),
        false if has_note && can(UPDATE) => {
            ReplyContent::from_call(UPDATE, &json!({"id": "r1", "content": note}))
        }
        false => ReplyContent::from_call(ADD, &json!({"content": note})),
    })
}

fn is_notice(text: &str) -> bool {
    text.contains(ADD) || text.contains(PACKAGE[0])
}

/// All that was said since the model's last answer, but for results of its own memory's calls.
fn newest_texts(messages: &[Value]) -> Vec<String> {
    let last = messages
        .iter()
        .rposition(|one| message_role(one) == "assistant");
    let (before, newest) = messages.split_at(last.map_or(0, |at| at + 1));
    let calls = before.last().and_then(|one| one["tool_calls"].as_array());
    let is_own = |call: &&Value| {
        call["function"]["name"]
            .as_str()
            .is_some_and(is_memory_tool)
    };
    let own = calls.into_iter().flatten().filter(is_own);
    let own: Vec<&Value> = own.map(|call| &call["id"]).collect();
    let said = newest.iter().filter(|one| match message_role(one) {
        "user" => true,
        "tool" => !own.contains(&&one["tool_call_id"]),
        _ => false,
    });
    said.map(message_text).collect()
}

/// The text of a message, its parts with a space between.
fn message_text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

/// The first words of a user.
fn find_task(messages: &[Value]) -> String {
    let task = messages.iter().find(|one| message_role(one) == "user");
    task.map(message_text).unwrap_or_default()
}

/// The answers that remain, as the notice tells them.
fn read_remaining(notice: &str) -> Option<u32> {
    let (_, after) = REMAINING.iter().find_map(|mark| notice.rsplit_once(mark))?;
    let end = after.find(|it: char| !it.is_ascii_digit());
    after[..end.unwrap_or(after.len())].parse().ok()
}

/// A note from which the work can go on, in the language of the notice.
fn write_note(messages: &[Value], notice: &str) -> String {
    let mut newest = messages.iter().rev();
    let call = newest
        .clone()
        .find_map(|one| one["tool_calls"][0]["function"]["arguments"].as_str());
    let result = newest
        .find(|one| message_role(one) == "tool")
        .map(message_text);
    let line = result.as_deref().and_then(|text| text.lines().next());
    let [first, pointers, detail] = match notice.contains('【') {
        true => ["第一步：继续", "线索：", "细节："],
        false => ["First step: go on with ", "Pointers: ", "Detail: "],
    };
    format!(
        "{first}{}\n{pointers}{}\n{detail}{}",
        quote_start(&find_task(messages)),
        quote_start(call.unwrap_or("-")),
        quote_start(line.unwrap_or("-")),
    )
}

/// The summary that the last message asks for, from the conversation before it or from the record
/// in it.
fn write_summary(messages: &[Value]) -> Option<String> {
    let (last, before) = messages.split_last()?;
    let asked = message_text(last);
    let (_, after) = asked
        .rsplit_once(SUMMARY)
        .filter(|_| message_role(last) == "user")?;
    let (key, _) = after.split_once('"')?;
    let record = asked.rsplit_once("\n</transcript>");
    let record = record.and_then(|(record, _)| Some(record.split_once("\n<transcript")?.1));
    let (task, newest) = match record {
        Some(record) => {
            // The first line ends the tag, and each message begins with a line in brackets.
            let mut lines = record.lines().skip(1).filter(|line| !line.starts_with('['));
            let task = lines.next().unwrap_or_default().to_owned();
            (task, lines.last().unwrap_or_default().to_owned())
        }
        None => {
            let newest = before
                .iter()
                .map(message_text)
                .rfind(|text| !text.is_empty());
            (find_task(before), newest.unwrap_or_default())
        }
    };
    let (task, newest) = (quote_start(&task), quote_start(&newest));
    Some(format!(
        "{SUMMARY}{key}\">\n<done>Worked on: {task}</done>\n<to_do>{task}</to_do>\n\
         <current_state>{newest}</current_state>\n<key_context>none</key_context>\n\
         <next_steps>Go on with: {task}</next_steps>\n<cautions>none</cautions>\n</summary>"
    ))
}

/// The beginning of a text in one line, without what could look like a tag.
fn quote_start(text: &str) -> String {
    let start = text.trim().chars().take(QUOTED);
    start
        .map(|it| match it {
            '<' | '>' | '\n' => ' ',
            it => it,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTICE: &str = "The window fills up: save it with add_reminder, update_reminder or \
        clear_mind. Replies that remain, this reply included: 4.";

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    fn result(text: &str) -> Value {
        json!({"role": "tool", "tool_call_id": "1", "content": text})
    }

    fn calling(name: &str) -> Value {
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
            "function": {"name": name, "arguments": "{}"}}]})
    }

    fn find(messages: &[Value], more: &Value) -> Option<ReplyContent> {
        let names = ["read_file", ADD, UPDATE, CLEAR];
        let tools = names.map(|name| json!({"type": "function", "function": {"name": name}}));
        let mut body = json!({"model": "plimsoll-8k", "messages": messages, "tools": tools});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        find_requested_reply(&SimulatedRequest::from_body(&body).unwrap())
    }

    fn find_call(messages: &[Value]) -> Option<String> {
        let said = find(messages, &json!({}))?;
        Some(said.tool.expect("a call"))
    }

    #[test]
    fn a_notice_is_followed_wherever_it_stands() {
        let parts = json!({"role": "user", "content": [{"type": "text", "text": NOTICE}]});
        let (read, page) = (calling("read_file"), result("text"));
        for messages in [
            vec![user("Mend it"), user(NOTICE)],
            vec![user(&format!("Mend it\n\n{NOTICE}"))],
            vec![parts],
            vec![user("a"), read.clone(), page, user(NOTICE)],
            vec![user("a"), read, result(&format!("text\n[{NOTICE}]"))],
        ] {
            assert_eq!(find_call(&messages).as_deref(), Some(ADD), "{messages:?}");
        }
    }

    #[test]
    fn what_was_answered_is_history_and_nothing_is_done_that_cannot_be_done() {
        let answered = [user(NOTICE), calling(ADD), result("Noted. add_reminder")];
        assert_eq!(find_call(&answered), None);
        assert_eq!(find_call(&[user("Mend it")]), None);
        let none = json!({"tool_choice": "none"});
        assert!(find(&[user(NOTICE)], &none).is_none());
        let other = json!({"tools": [{"type": "function", "function": {"name": "read_file"}}]});
        assert!(find(&[user(NOTICE)], &other).is_none());
    }

    #[test]
    fn the_mind_is_cleared_when_few_answers_remain() {
        for (left, expected) in [("5", ADD), ("3", ADD), ("2", CLEAR), ("1", CLEAR)] {
            let english = NOTICE.replace('4', left);
            let chinese =
                format!("还有回复（含本次）：{left} 次。请用 add_reminder 或 clear_mind。");
            for text in [english, chinese] {
                assert_eq!(
                    find_call(&[user(&text)]).as_deref(),
                    Some(expected),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn a_note_of_an_earlier_course_is_brought_up_to_date() {
        let kept = user("<reminder id=\"r1\">x</reminder>");
        let find_said = |notice: &str| find(&[kept.clone(), user(notice)], &json!({})).unwrap();
        let said = find_said(NOTICE);
        assert_eq!(said.tool.as_deref(), Some(UPDATE));
        assert!(said.text.contains("\"id\":\"r1\""), "{}", said.text);
        let said = find_said(&NOTICE.replace('4', "1"));
        assert_eq!((said.tool.as_deref(), &*said.text), (Some(CLEAR), "{}"));
    }

    #[test]
    fn without_tools_a_block_is_asked_for() {
        let asks =
            user("Please end your answer with <continuation_package>…</continuation_package>");
        let said = find(&[user("Mend it"), asks], &json!({"tools": null})).unwrap();
        assert_eq!(said.tool, None);
        let block = said.text.strip_prefix(TEXT).unwrap().trim_start();
        assert!(block.starts_with(PACKAGE[0]) && block.ends_with(PACKAGE[1]));
        assert!(block.contains("First step: go on with Mend it"));
    }

    #[test]
    fn a_summary_has_the_key_and_every_section() {
        let ask = "Answer with <summary key=\"ab12\">";
        let said = [user("Mend the <lights>"), result("all good"), user(ask)];
        let summary = write_summary(&said).unwrap();
        assert!(summary.starts_with("<summary key=\"ab12\">\n<done>Worked on: Mend the  lights <"));
        assert!(summary.contains("<current_state>all good<"), "{summary}");
        let record = format!(
            "Between the <transcript> tags it is.\n\n<transcript key=\"abc\">\n[abc user]\nMend \
             the lights\n[abc tool result]\nall good\n</transcript>\n\n{ask}"
        );
        let summary = write_summary(&[user(&record)]).unwrap();
        assert!(summary.contains("<to_do>Mend the lights<"), "{summary}");
        assert!(summary.contains("<current_state>all good<"), "{summary}");
        assert_eq!(write_summary(&said[..1]), None);
    }
}
