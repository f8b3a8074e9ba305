//! What a model writes down for itself: the first step, pointers, how to verify, details.
//!
//! Drawn from the conversation as it stands, so that a reader of the notes finds the session in
//! them again. Bounded: a note is a few hundred characters, whatever was said.

use serde_json::Value;

use super::{
    check::role,
    prose,
    wanted::{CLOSING, OPENING, is_notice, is_record, text_of},
};

/// Messages that are looked at, the newest first.
const LOOKED_AT: usize = 40;
/// Characters of one quotation.
const QUOTED: usize = 100;
/// Files that are named.
const FILES: usize = 4;

/// The notes of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Package {
    step: String,
    files: Vec<String>,
    command: Option<String>,
    detail: Option<String>,
    chinese: bool,
}

impl Package {
    pub(super) fn of(messages: &[Value]) -> Self {
        let newest = messages.iter().rev().take(LOOKED_AT);
        let mut package = Self {
            step: prose::topic(&task(messages)),
            chinese: messages
                .last()
                .is_some_and(|one| prose::is_chinese(&text_of(one))),
            ..Self::default()
        };
        for message in newest {
            package.look(message);
        }
        package
    }

    fn look(&mut self, message: &Value) {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
            let said = |name: &str| arguments[name].as_str().map(quote);
            let file = said("path").or_else(|| said("file"));
            if let Some(file) = file.filter(|file| !self.files.contains(file)) {
                self.files.push(file);
                self.files.truncate(FILES);
            }
            self.command = self.command.take().or_else(|| said("command"));
        }
        let answers = matches!(role(message), "tool" | "function");
        if answers && self.detail.is_none() {
            let text = text_of(message);
            let line = text.lines().find(|line| !line.trim().is_empty());
            self.detail = line.filter(|_| !is_notice(&text)).map(quote);
        }
    }

    /// One line for each thing, in the language of the notice.
    pub(super) fn lines(&self) -> [String; 4] {
        let [first, pointers, verify, detail, none] = match self.chinese {
            true => ["第一步：继续", "线索：", "验证：", "细节：", "无"],
            false => [
                "First step: go on with ",
                "Pointers: ",
                "Verify: ",
                "Detail: ",
                "none",
            ],
        };
        let files = match self.files.is_empty() {
            true => none.to_owned(),
            false => self.files.join(", "),
        };
        let or_none = |one: &Option<String>| one.clone().unwrap_or_else(|| none.to_owned());
        [
            format!("{first}{}", self.step),
            format!("{pointers}{files}"),
            format!("{verify}{}", or_none(&self.command)),
            format!("{detail}{}", or_none(&self.detail)),
        ]
    }

    /// All of it, as the block that stands at the end of an answer.
    pub(super) fn block(&self) -> String {
        format!("{OPENING}\n{}\n{CLOSING}", self.lines().join("\n"))
    }
}

/// What the user wants: the newest words of a user that are neither a notice nor a record of what
/// was said before, else the first ones.
pub(super) fn task(messages: &[Value]) -> String {
    let mut users = messages.iter().filter(|one| role(one) == "user");
    let newest = users.clone().rev().map(text_of);
    let plain = newest
        .into_iter()
        .find(|text| !is_notice(text) && !is_record(text));
    plain
        .or_else(|| users.next().map(text_of))
        .unwrap_or_default()
}

fn quote(text: &str) -> String {
    text.trim().chars().take(QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn notes_are_drawn_from_the_conversation() {
        let call = |name: &str, arguments: &str| {
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": "a",
                "type": "function", "function": {"name": name, "arguments": arguments}}]})
        };
        let messages = [
            json!({"role": "user", "content": "Repair the broken tide tables"}),
            call("run", r#"{"command": "cargo test tides"}"#),
            json!({"role": "tool", "tool_call_id": "a", "content": "\n3 of 9 failed\nmore"}),
            call("read", r#"{"path": "src/tides.rs"}"#),
            call("read", r#"{"path": "src/tides.rs"}"#),
            json!({"role": "user", "content": "Call add_reminder now."}),
        ];
        let package = Package::of(&messages);
        assert_eq!(
            package.lines(),
            [
                "First step: go on with Repair broken tide",
                "Pointers: src/tides.rs",
                "Verify: cargo test tides",
                "Detail: 3 of 9 failed",
            ]
        );
        let block = package.block();
        assert!(block.starts_with(OPENING) && block.ends_with(CLOSING));
    }

    #[test]
    fn notes_are_bounded_and_there_is_always_something() {
        let long = "x ".repeat(100_000);
        let messages = [
            json!({"role": "user", "content": long}),
            json!({"role": "tool", "content": long}),
        ];
        assert!(Package::of(&messages).block().len() < 1_000);
        assert!(Package::of(&[]).lines().iter().all(|line| line.len() > 8));
        let chinese =
            [json!({"role": "user", "content": "请用 add_reminder 写下提醒项，然后继续工作。"})];
        assert!(Package::of(&chinese).lines()[0].starts_with("第一步"));
    }
}
