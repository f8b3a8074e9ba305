//! A summary, where the last message asks for one: the block it shows, with its sections filled.
//!
//! Drawn from the conversation before it, or from the record in it, and bounded. A model that was
//! asked so calls no tool.

use serde_json::Value;

use super::{check::role, prose, wanted::text_of};

/// What opens the block that is asked for; its key follows.
const OPENING: &str = "<summary key=\"";
/// What stands around a record.
const RECORD: [&str; 2] = ["<transcript", "\n</transcript>"];
/// Characters of one quotation.
const QUOTED: usize = 160;
/// Files that are named.
const FILES: usize = 8;
/// Words that tell of a failure.
const FAILED: [&str; 4] = ["error", "failed", "错误", "失败"];

/// Whether this message asks for a summary.
pub(super) fn is_asked(message: &Value) -> bool {
    role(message) == "user" && text_of(message).contains(OPENING)
}

/// The summary that the last message asks for.
pub(super) fn block(messages: &[Value]) -> Option<String> {
    let (last, before) = messages.split_last()?;
    let asked = text_of(last);
    let (_, after) = asked.rsplit_once(OPENING)?;
    let (key, _) = after.split_once('"')?;
    let chinese = asked.contains('摘');
    let lines = match record(&asked) {
        Some(record) => record.lines().map(str::to_owned).collect(),
        None => said(before),
    };
    let [worked, go_on, none] = match chinese {
        true => ["处理了：", "继续：", "无"],
        false => ["Worked on: ", "Go on with: ", "none"],
    };
    let topic = prose::topic(&task(&lines));
    let files = files(&lines);
    let newest = lines.iter().rev().find(|line| is_text(line));
    let failed = |line: &&String| FAILED.iter().any(|word| line.contains(word));
    let failure = lines.iter().rev().filter(|line| is_text(line)).find(failed);
    let or_none = |text: Option<&String>| text.map_or_else(|| none.to_owned(), |it| quote(it));
    let sections = [
        ("done", format!("{worked}{}", quote(&topic))),
        ("to_do", quote(&task(&lines))),
        ("current_state", or_none(newest)),
        (
            "key_context",
            if files.is_empty() {
                none.to_owned()
            } else {
                files.join("\n")
            },
        ),
        ("next_steps", format!("{go_on}{}", quote(&topic))),
        ("cautions", or_none(failure)),
    ];
    let sections = sections.map(|(tag, text)| format!("<{tag}>{text}</{tag}>\n"));
    Some(format!(
        "{OPENING}{key}\">\n{}</summary>",
        sections.concat()
    ))
}

/// The record in the message that asks, without the line that opens it.
fn record(asked: &str) -> Option<&str> {
    let (before, _) = asked.rsplit_once(RECORD[1])?;
    // What is said before it names the tag, too.
    let at = before.find(&format!("\n{}", RECORD[0]))?;
    before[at + 1..].split_once('\n').map(|(_, record)| record)
}

/// All lines of a conversation but for its instructions.
fn said(messages: &[Value]) -> Vec<String> {
    let mut lines = Vec::new();
    for message in messages
        .iter()
        .filter(|one| !matches!(role(one), "system" | "developer"))
    {
        lines.extend(text_of(message).lines().map(str::to_owned));
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let arguments = calls.filter_map(|call| call["function"]["arguments"].as_str());
        lines.extend(arguments.map(str::to_owned));
    }
    lines
}

fn task(lines: &[String]) -> String {
    lines
        .iter()
        .find(|line| is_text(line))
        .cloned()
        .unwrap_or_default()
}

/// Not the line before a message of a record, and not empty.
fn is_text(line: &str) -> bool {
    let line = line.trim();
    let label = line.starts_with('[') && line.ends_with(']');
    !label && !line.is_empty()
}

/// The newest files that are named, each once, in their order.
fn files(lines: &[String]) -> Vec<String> {
    let edge = |letter: char| !letter.is_alphanumeric() && !matches!(letter, '/' | '.' | '_');
    let words = lines.iter().rev().flat_map(|line| {
        line.split(|letter: char| letter.is_whitespace() || matches!(letter, '"' | ',' | ':'))
    });
    let paths = words.map(|word| word.trim_matches(edge)).filter(|word| {
        let name = word.rsplit('/').next().unwrap_or_default();
        word.len() <= QUOTED / 2 && word.contains('/') && name.contains('.') && !word.contains('<')
    });
    let mut found: Vec<String> = Vec::new();
    for path in paths {
        if found.len() < FILES && !found.iter().any(|one| one == path) {
            found.push(path.to_owned());
        }
    }
    found.reverse();
    found
}

/// The beginning of a text, without what could look like a tag.
fn quote(text: &str) -> String {
    let letters = text.trim().chars().take(QUOTED);
    letters
        .map(|letter| if letter == '<' { '(' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ASK: &str =
        "Summarise it. Answer with this block:\n<summary key=\"abc\">\n<done>…</done>\n</summary>";

    #[test]
    fn a_summary_is_drawn_from_the_conversation() {
        let messages = [
            json!({"role": "system", "content": "You are careful."}),
            json!({"role": "user", "content": "Repair the broken tide tables"}),
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": "a",
                "function": {"name": "read", "arguments": r#"{"path":"src/tides.rs"}"#}}]}),
            json!({"role": "tool", "tool_call_id": "a", "content": "1 test failed\nat <done>"}),
            json!({"role": "user", "content": ASK}),
        ];
        assert!(is_asked(&messages[4]) && !is_asked(&messages[1]));
        assert_eq!(
            block(&messages).unwrap(),
            "<summary key=\"abc\">\n<done>Worked on: Repair broken tide</done>\n\
             <to_do>Repair the broken tide tables</to_do>\n\
             <current_state>at (done></current_state>\n\
             <key_context>src/tides.rs</key_context>\n\
             <next_steps>Go on with: Repair broken tide</next_steps>\n\
             <cautions>1 test failed</cautions>\n</summary>"
        );
    }

    #[test]
    fn a_record_is_read_like_a_conversation() {
        let text = format!(
            "Between the <transcript> tags it is.\n\n<transcript key=\"abc\">\n[abc user]\nMend \
             the harbour lights\n[abc tool result]\nall good in lib/lights.py\n</transcript>\n\n{ASK}"
        );
        let summary = block(&[json!({"role": "user", "content": text})]).unwrap();
        for held in [
            "<to_do>Mend the harbour lights<",
            "<key_context>lib/lights.py<",
            "<cautions>none<",
        ] {
            assert!(summary.contains(held), "{held}: {summary}");
        }
        assert!(!summary.contains("transcript"), "{summary}");
    }

    #[test]
    fn it_is_bounded_and_there_is_always_something() {
        let long = "x/y.z ".repeat(100_000);
        let messages = [
            json!({"role": "user", "content": long}),
            json!({"role": "user", "content": ASK}),
        ];
        assert!(block(&messages).unwrap().len() < 2_000);
        assert!(
            block(&messages[1..])
                .unwrap()
                .contains("<cautions>none</cautions>")
        );
        assert_eq!(block(&messages[..1]), None);
        assert_eq!(block(&[]), None);
    }
}
