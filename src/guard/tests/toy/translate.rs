//! Translates chat completions to the toy format and back with serde_json. Texts stay as they are spelled: neither the
//! proxy's code nor a decoder of escapes is used.

use std::collections::BTreeMap;

use serde_json::{json, value::RawValue};

/// Names in chat completions and in the toy format.
type Names = [(&'static str, &'static str)];

const BODY: &Names = &[
    ("model", "engine"),
    ("messages", "log"),
    ("tools", "gear"),
    ("functions", "old_gear"),
    ("stream", "live"),
    ("max_tokens", "reply_limit"),
    ("max_completion_tokens", "hard_limit"),
];
const MESSAGE: &Names = &[
    ("role", "who"),
    ("content", "says"),
    ("tool_calls", "wants"),
    ("tool_call_id", "for"),
    ("name", "alias"),
    ("reasoning_content", "muses"),
];
const ROLE: &Names = &[
    ("system", "owner"),
    ("developer", "maker"),
    ("user", "person"),
    ("assistant", "machine"),
    ("tool", "report"),
    ("function", "report"),
];
const FUNCTION: &Names = &[("name", "tool"), ("arguments", "with")];
const PART: &Names = &[
    ("type", "reel"),
    ("text", "line"),
    ("image_url", "sketch"),
    ("cache_control", "pin"),
];
const IMAGE: &Names = &[("url", "at"), ("detail", "grain")];

/// Members of an object as JSON.
struct Members(BTreeMap<String, String>);

impl Members {
    fn read(object: &str) -> Self {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(object).unwrap();
        let members = members.into_iter();
        Self(
            members
                .map(|(key, value)| (key, value.get().to_owned()))
                .collect(),
        )
    }

    fn write(self) -> String {
        let members = self.0.into_iter();
        let members: Vec<_> = members
            .map(|(key, value)| format!("{}:{value}", json!(key)))
            .collect();
        format!("{{{}}}", members.join(","))
    }

    fn rename_to_toy(mut self, names: &Names) -> Self {
        for (chat, toy) in names {
            self.rename(chat, toy);
        }
        self
    }

    /// # Panics
    /// A member has a name of chat completions: something wrote that format's JSON into a body in the toy format.
    fn rename_to_chat(mut self, names: &Names) -> Self {
        for (chat, toy) in names {
            assert!(!self.has(chat), "{chat} in {:?}", self.0);
            self.rename(toy, chat);
        }
        self
    }

    fn rename(&mut self, from: &str, to: &str) {
        if let Some(value) = self.0.remove(from) {
            self.0.insert(to.to_owned(), value);
        }
    }

    fn put(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Translates the value of a member, if there is one.
    fn change(&mut self, name: &str, translate: impl Fn(&str) -> String) {
        if let Some(value) = self.0.get_mut(name) {
            *value = translate(value);
        }
    }
}

/// Translates each element of a list; anything else stays as it is.
fn each(list: &str, translate: impl Fn(&str) -> String) -> String {
    match serde_json::from_str::<Vec<&RawValue>>(list) {
        Ok(elements) => {
            let elements: Vec<_> = elements.iter().map(|it| translate(it.get())).collect();
            format!("[{}]", elements.join(","))
        }
        Err(_) => list.to_owned(),
    }
}

fn text(body: &[u8]) -> &str {
    std::str::from_utf8(body).unwrap()
}

/// A chat completions body in the toy format.
pub(super) fn to_toy(body: &[u8]) -> Vec<u8> {
    let mut members = Members::read(text(body)).rename_to_toy(BODY);
    members.change("log", |log| each(log, message_to_toy));
    members.write().into_bytes()
}

pub(super) fn message_to_toy(message: &str) -> String {
    let mut members = Members::read(message);
    // The call of a legacy answer stands in no list.
    members.change("function_call", |call| {
        Members::read(call).rename_to_toy(FUNCTION).write()
    });
    members.change("tool_calls", |calls| each(calls, call_to_toy));
    members.rename("function_call", "wants");
    let mut members = members.rename_to_toy(MESSAGE);
    members.change("who", |role| {
        let named = ROLE
            .iter()
            .find(|(chat, _)| role.trim_matches('"') == *chat);
        named.map_or_else(|| role.to_owned(), |(_, toy)| json!(toy).to_string())
    });
    members.change("says", |content| {
        let words = match content {
            "null" => "false".to_owned(),
            content => each(content, part_to_toy),
        };
        format!(r#"{{"words":{words}}}"#)
    });
    members.write()
}

pub(super) fn call_to_toy(call: &str) -> String {
    let mut call = Members::read(call);
    call.0.remove("type");
    let function = call.0.remove("function").unwrap();
    let function = Members::read(&function).rename_to_toy(FUNCTION);
    call.0.extend(function.0);
    call.rename("id", "ticket");
    call.write()
}

fn part_to_toy(part: &str) -> String {
    let mut part = Members::read(part).rename_to_toy(PART);
    // The name of the member tells the type.
    if part.has("line") || part.has("sketch") {
        part.0.remove("reel");
    }
    part.change("sketch", |image| {
        let mut image = Members::read(image).rename_to_toy(IMAGE);
        image.change("grain", |detail| detail.replace("low", "coarse"));
        image.write()
    });
    part.write()
}

/// A body of the toy format as chat completions.
pub(super) fn to_chat(body: &[u8]) -> Vec<u8> {
    let mut members = Members::read(text(body)).rename_to_chat(BODY);
    members.change("messages", |messages| each(messages, entry_to_chat));
    members.write().into_bytes()
}

fn entry_to_chat(entry: &str) -> String {
    let mut members = Members::read(entry);
    members.change("says", |says| {
        let words = Members::read(says).0.remove("words").unwrap();
        match words.as_str() {
            "null" => panic!("a null content of chat completions in the toy format"),
            "false" => "null".to_owned(),
            words => each(words, block_to_chat),
        }
    });
    if members
        .0
        .get("wants")
        .is_some_and(|wants| wants.starts_with('{'))
    {
        members.rename("wants", "function_call");
        members.change("function_call", |call| {
            Members::read(call).rename_to_chat(FUNCTION).write()
        });
    }
    members.change("wants", |calls| each(calls, call_to_chat));
    let legacy = !members.has("for");
    members.change("who", |who| {
        let mut roles = ROLE.iter().filter(|(_, toy)| who.trim_matches('"') == *toy);
        let role = if legacy {
            roles.next_back()
        } else {
            roles.next()
        };
        role.map_or_else(|| who.to_owned(), |(chat, _)| json!(chat).to_string())
    });
    members.rename_to_chat(MESSAGE).write()
}

fn call_to_chat(call: &str) -> String {
    let mut call = Members::read(call);
    let mut function = Members(BTreeMap::new());
    for (_, name) in FUNCTION {
        if let Some(value) = call.0.remove(*name) {
            function.put(name, value);
        }
    }
    call.put("type", r#""function""#);
    call.put("function", function.rename_to_chat(FUNCTION).write());
    call.rename("ticket", "id");
    call.write()
}

fn block_to_chat(block: &str) -> String {
    let mut block = Members::read(block);
    if block.has("line") {
        block.put("reel", r#""text""#);
    }
    if block.has("sketch") {
        block.put("reel", r#""image_url""#);
    }
    block.change("sketch", |image| {
        let mut image = Members::read(image);
        image.change("grain", |grain| grain.replace("coarse", "low"));
        image.rename_to_chat(IMAGE).write()
    });
    block.rename_to_chat(PART).write()
}
