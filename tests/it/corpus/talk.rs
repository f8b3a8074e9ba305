//! A conversation made of any bytes, so that fuzzing changes its texts and not whether it is JSON.

use std::fmt::Write as _;

/// Words for texts: plain, escaped, of many bytes, and those that the guard writes.
const WORDS: [&str; 12] = [
    "word ",
    "line\\n",
    "\\u00e9\\u4e2d",
    "\\ud83d\\ude00",
    "漢字。",
    "😀",
    "\\\\\\\"",
    "... [9 characters truncated] ...",
    "[Note by the context guard:",
    "</reminders>",
    "src/main.rs:1: error",
    "\\/",
];

/// Reads the bytes in order, then zeros.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        usize::from(*first)
    }
}

/// A request of about 40 messages; most of them are valid for every provider.
pub(super) fn talk(data: &[u8]) -> Vec<u8> {
    let mut bytes = Bytes(data);
    let fields = bytes.next();
    let mut messages = Vec::new();
    while !bytes.0.is_empty() && messages.len() < 40 {
        step(&mut bytes, &mut messages);
    }
    let mut body = String::from("{\"model\":\"m\"");
    if fields & 1 == 1 {
        body.push_str(
            ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]",
        );
    }
    if fields & 2 == 2 {
        body.push_str(", \"max_tokens\" : 100");
    }
    let between = if fields & 4 == 4 { ",\n  " } else { "," };
    let _ = write!(body, ",\"messages\":[{}]}}", messages.join(between));
    body.into_bytes()
}

/// One message, or a call with its results.
fn step(bytes: &mut Bytes<'_>, messages: &mut Vec<String>) {
    let kind = bytes.next();
    let content = content(bytes);
    let note = [
        "",
        "\"plimsoll\":{\"name\":\"notes\",\"priority\":\"low\"},",
    ][kind / 16 % 2];
    let mut say = |role: &str, more: &str| {
        messages.push(format!(
            "{{{note}\"role\":\"{role}\",\"content\":{content}{more}}}"
        ));
    };
    match kind % 16 {
        0 => say("system", ""),
        1 => say("developer", ""),
        2..=5 => say("user", ""),
        6..=8 => say("assistant", ""),
        9 => say("tool", ",\"tool_call_id\":\"c0\""),
        10 => {
            let call = ",\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}";
            say("assistant", call);
            messages.push("{\"role\":\"function\",\"name\":\"f\",\"content\":\"done\"}".into());
        }
        kind => {
            let count = kind % 3 + 1;
            let arguments = text(bytes).replace('\\', "/").replace('\n', " ");
            let calls: Vec<_> = (0..count).map(|at| format!(
                "{{\"id\":\"c{at}\",\"type\":\"function\",\"function\":{{\"name\":\"f\",\"arguments\":\"{{\\\"p\\\":\\\"{arguments}\\\"}}\"}}}}"
            )).collect();
            say(
                "assistant",
                &format!(",\"tool_calls\":[{}]", calls.join(",")),
            );
            for at in 0..count {
                let content = self::content(bytes);
                messages.push(format!(
                    "{{\"role\":\"tool\",\"tool_call_id\":\"c{at}\",\"content\":{content}}}"
                ));
            }
        }
    }
}

/// A string, or parts.
fn content(bytes: &mut Bytes<'_>) -> String {
    let kind = bytes.next();
    let said = text(bytes);
    match kind % 8 {
        0 => format!("[{{\"type\":\"text\",\"text\":\"{said}\"}}]"),
        1 => format!(
            "[{{\"type\":\"text\",\"text\":\"{said}\"}},{{\"type\":\"image_url\",\"image_url\":{{\"url\":\"https://x/y.png\"}}}}]"
        ),
        2 => format!(
            "[{{\"type\":\"text\",\"text\":\"{said}\",\"cache_control\":{{\"type\":\"ephemeral\"}}}},{{\"type\":\"text\",\"text\":\"end\"}}]"
        ),
        _ => format!("\"{said}\""),
    }
}

/// One word up to some hundred.
fn text(bytes: &mut Bytes<'_>) -> String {
    let (word, many) = (bytes.next(), bytes.next());
    let count = match many {
        0..200 => many % 20 + 1,
        200..250 => many,
        _ => 400,
    };
    WORDS[word % WORDS.len()].repeat(count)
}
