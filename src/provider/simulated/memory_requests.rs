//! Follows the proxy's requests in the newest messages: reminders, a new course, a summary.
//!
//! As a model would, it reads everything after its last answer, in messages of any role, and uses only
//! tools that are offered.

use serde_json::{Value, json};

use super::{
    request::{SimulatedRequest, message_role},
    scripted_agent::{ReplyContent, TEXT},
};

const ADD: &str = "add_reminder";
const UPDATE: &str = "update_reminder";
const CLEAR: &str = "clear_mind";
/// Tools for the model's memory; it calls them only on request.
const TOOLS: &[&str] = &[ADD, UPDATE, "delete_reminder", CLEAR];

const PACKAGE: [&str; 2] = ["<continuation_package>", "</continuation_package>"];
/// Opens the block of a requested summary; its key follows.
const SUMMARY: &str = "<summary key=\"";
/// Stands before the number of answers that remain.
const REMAINING: [&str; 2] = ["this reply included: ", "（含本次）："];
/// With so few answers left the model begins the new course itself.
const FEW_REMAINING: u32 = 2;
/// The beginning of the first reminder in a list of reminders.
const FIRST_REMINDER: &str = "<reminder id=\"r1\"";
/// Characters of one quotation.
const QUOTED: usize = 100;

/// Whether a tool serves the model's memory. The agent sees all it works on, so it recalls nothing.
pub(super) fn is_memory_tool(name: &str) -> bool {
    TOOLS.contains(&name) || name == "recall"
}

/// The requested reply, where the offered tools permit it.
pub(super) fn find_requested_reply(request: &SimulatedRequest) -> Option<ReplyContent> {
    let messages = request.messages();
    let is_text = request.answer_schema().is_none();
    if let Some(summary) = write_summary(messages).filter(|_| is_text) {
        return Some(ReplyContent::from_text(summary));
    }
    let is_notice = |text: &&String| text.contains(ADD) || text.contains(PACKAGE[0]);
    let texts = newest_texts(messages);
    let notice = texts.iter().rfind(is_notice)?;
    let reminder = write_reminder(messages, notice);
    let choice = request.tool_choice();
    let is_free = choice != "none" && !choice["function"]["name"].is_string();
    let can_call = |name: &str| {
        is_free && notice.contains(name) && request.tools().any(|tool| tool["name"] == name)
    };
    if !can_call(ADD) {
        let [start, end] = PACKAGE;
        let text = format!("{TEXT}\n\n{start}\n{reminder}\n{end}");
        return (is_text && notice.contains(start)).then(|| ReplyContent::from_text(text));
    }
    let few = read_remaining(notice).is_some_and(|left| left <= FEW_REMAINING);
    // A reminder of an earlier course is updated, so that their number does not grow.
    let mut texts = messages.iter().map(message_text);
    let has_reminder = texts.any(|text| text.contains(FIRST_REMINDER));
    let (tool, arguments) = match few && can_call(CLEAR) {
        true if has_reminder => (CLEAR, json!({})),
        true => (CLEAR, json!({"reminder_content": reminder})),
        false if has_reminder && can_call(UPDATE) => {
            (UPDATE, json!({"id": "r1", "content": reminder}))
        }
        false => (ADD, json!({"content": reminder})),
    };
    Some(ReplyContent::from_call(tool, &arguments))
}

/// The texts after the model's last answer, without results of its memory tools.
fn newest_texts(messages: &[Value]) -> Vec<String> {
    let mut roles = messages.iter().map(message_role);
    let last = roles.rposition(|role| role == "assistant");
    let (before, newest) = messages.split_at(last.map_or(0, |last| last + 1));
    let calls = before.last().and_then(|last| last["tool_calls"].as_array());
    let calls = calls.into_iter().flatten();
    let is_memory_call = |call: &&Value| TOOLS.iter().any(|name| call["function"]["name"] == *name);
    let memory_calls = calls.filter(is_memory_call);
    let memory_ids: Vec<&Value> = memory_calls.map(|call| &call["id"]).collect();
    let texts = newest.iter().filter(|message| match message_role(message) {
        "user" => true,
        "tool" => !memory_ids.contains(&&message["tool_call_id"]),
        _ => false,
    });
    texts.map(message_text).collect()
}

/// The text of a message, its parts joined by spaces.
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

/// The first user message.
fn find_task(messages: &[Value]) -> String {
    let mut messages = messages.iter();
    let task = messages.find(|message| message_role(message) == "user");
    task.map(message_text).unwrap_or_default()
}

/// The number of remaining answers in the notice.
fn read_remaining(notice: &str) -> Option<u32> {
    let (_, after) = REMAINING.iter().find_map(|mark| notice.rsplit_once(mark))?;
    let end = after.find(|character: char| !character.is_ascii_digit());
    after[..end.unwrap_or(after.len())].parse().ok()
}

/// A reminder from which the work can go on, in the language of the notice.
fn write_reminder(messages: &[Value], notice: &str) -> String {
    let mut newest = messages.iter().rev();
    let arguments = "/tool_calls/0/function/arguments";
    let call = newest.find_map(|message| message.pointer(arguments)?.as_str());
    let mut backwards = messages.iter().rev();
    let result = backwards.find(|message| message_role(message) == "tool");
    let result = result.map(message_text);
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

/// The summary that the last message requests, of the transcript in it or of the messages before it.
fn write_summary(messages: &[Value]) -> Option<String> {
    let (last, before) = messages.split_last()?;
    let request = message_text(last);
    let is_user = message_role(last) == "user";
    let (_, after) = request.rsplit_once(SUMMARY).filter(|_| is_user)?;
    let (key, _) = after.split_once('"')?;
    let transcript = request.rsplit_once("\n</transcript>");
    let transcript = transcript.and_then(|(start, _)| Some(start.split_once("\n<transcript")?.1));
    let (task, newest) = match transcript {
        Some(transcript) => {
            // The first line ends the tag, and each message begins with a line in brackets.
            let lines = transcript.lines().skip(1);
            let mut lines = lines.filter(|line| !line.starts_with('['));
            let task = lines.next().unwrap_or_default().to_owned();
            (task, lines.last().unwrap_or_default().to_owned())
        }
        None => {
            let mut texts = before.iter().map(message_text);
            let newest = texts.rfind(|text| !text.is_empty());
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

/// The beginning of a text in one line, without tags.
fn quote_start(text: &str) -> String {
    let start: String = text.trim().chars().take(QUOTED).collect();
    start.replace(['<', '>', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::{super::SimulatedApi, *};

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
        find_requested_reply(&SimulatedRequest::from_body(SimulatedApi::Chat, body).unwrap())
    }

    fn find_call(messages: &[Value]) -> Option<String> {
        let reply = find(messages, &json!({}))?;
        Some(reply.tool.expect("a call"))
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
    fn an_answered_notice_is_ignored_and_only_offered_tools_are_called() {
        let answered = [user(NOTICE), calling(ADD), result("Noted. add_reminder")];
        assert_eq!(find_call(&answered), None);
        assert_eq!(find_call(&[user("Mend it")]), None);
        let none = json!({"tool_choice": "none"});
        assert!(find(&[user(NOTICE)], &none).is_none());
        let other = json!({"tools": [{"type": "function", "function": {"name": "read_file"}}]});
        assert!(find(&[user(NOTICE)], &other).is_none());
    }

    #[test]
    fn a_new_course_begins_when_few_answers_remain() {
        for (left, expected) in [("5", ADD), ("3", ADD), ("2", CLEAR), ("1", CLEAR)] {
            let english = NOTICE.replace('4', left);
            let chinese =
                format!("还有回复（含本次）：{left} 次。请用 add_reminder 或 clear_mind。");
            for text in [english, chinese] {
                let found = find_call(&[user(&text)]);
                assert_eq!(found.as_deref(), Some(expected), "{text}");
            }
        }
    }

    #[test]
    fn a_reminder_of_an_earlier_course_is_updated() {
        let reminder = user("<reminder id=\"r1\">x</reminder>");
        let reply_to = |notice: &str| find(&[reminder.clone(), user(notice)], &json!({})).unwrap();
        let reply = reply_to(NOTICE);
        assert_eq!(reply.tool.as_deref(), Some(UPDATE));
        assert!(reply.text.contains("\"id\":\"r1\""), "{}", reply.text);
        let reply = reply_to(&NOTICE.replace('4', "1"));
        assert_eq!((reply.tool.as_deref(), &*reply.text), (Some(CLEAR), "{}"));
    }

    #[test]
    fn without_tools_the_answer_ends_with_the_requested_block() {
        let notice =
            user("Please end your answer with <continuation_package>…</continuation_package>");
        let reply = find(&[user("Mend it"), notice], &json!({"tools": null})).unwrap();
        assert_eq!(reply.tool, None);
        let block = reply.text.strip_prefix(TEXT).unwrap().trim_start();
        assert!(block.starts_with(PACKAGE[0]) && block.ends_with(PACKAGE[1]));
        assert!(block.contains("First step: go on with Mend it"));
    }

    #[test]
    fn a_summary_has_the_key_and_every_section() {
        let ask = "Answer with <summary key=\"ab12\">";
        let messages = [user("Mend the <lights>"), result("all good"), user(ask)];
        let summary = write_summary(&messages).unwrap();
        assert!(summary.starts_with("<summary key=\"ab12\">\n<done>Worked on: Mend the  lights <"));
        assert!(summary.contains("<current_state>all good<"), "{summary}");
        let transcript = format!(
            "Between the <transcript> tags it is.\n\n<transcript key=\"abc\">\n[abc user]\nMend \
             the lights\n[abc tool result]\nall good\n</transcript>\n\n{ask}"
        );
        let summary = write_summary(&[user(&transcript)]).unwrap();
        assert!(summary.contains("<to_do>Mend the lights<"), "{summary}");
        assert!(summary.contains("<current_state>all good<"), "{summary}");
        assert_eq!(write_summary(&messages[..1]), None);
    }
}
