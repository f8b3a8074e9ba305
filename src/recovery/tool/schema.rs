//! The schemas of our tools: compact, since every request carries them.

use std::sync::LazyLock;

use bytes::Bytes;

use super::{ADD, CLEAR, DELETE, UPDATE};
use crate::{guard::record::OwnTools, recovery::Language};

/// How a request lists its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Tools,
    /// Every function of the client is `strict`.
    StrictTools,
    /// The legacy `functions`.
    Functions,
}

/// The schemas, as a request of that form carries them.
pub(super) fn own(form: Form, language: Language) -> OwnTools {
    static WRITTEN: LazyLock<[[Bytes; 3]; 2]> = LazyLock::new(|| {
        [&ENGLISH, &CHINESE].map(|texts| {
            [Form::Tools, Form::StrictTools, Form::Functions]
                .map(|form| Bytes::from(write(texts, form)))
        })
    });
    let field = match form {
        Form::Tools | Form::StrictTools => "tools",
        Form::Functions => "functions",
    };
    OwnTools {
        field,
        json: WRITTEN[language as usize][form as usize].clone(),
    }
}

/// What the tools and their arguments are for.
struct Texts {
    add: &'static str,
    content: &'static str,
    update: &'static str,
    id: &'static str,
    delete: &'static str,
    clear: &'static str,
    last: &'static str,
}

const ENGLISH: Texts = Texts {
    add: "Save a note for yourself. It stays when older messages are removed from the context.",
    content: "Next step, pointers, how to verify, details easy to lose",
    update: "Replace the text of a saved note.",
    id: "Such as r1",
    delete: "Delete a saved note.",
    clear: "Start a new course: older messages leave your context; the task, your notes and the \
            newest steps stay. Save what matters first.",
    last: "A last note to save",
};

const CHINESE: Texts = Texts {
    add: "为自己保存一条提醒项。较早的消息移出上下文后，它仍会保留。",
    content: "下一步、线索、如何验证、容易遗漏的细节",
    update: "改写一条已保存的提醒项。",
    id: "如 r1",
    delete: "删除一条已保存的提醒项。",
    clear: "开始新一程对话：较早的消息移出上下文，任务、提醒项和最新的步骤保留。请先保存要点。",
    last: "最后要保存的提醒项",
};

/// One argument of a tool.
struct Argument {
    name: &'static str,
    description: &'static str,
    required: bool,
}

fn write(texts: &Texts, form: Form) -> String {
    let argument = |name, description| Argument {
        name,
        description,
        required: true,
    };
    let (id, content) = (
        || argument("id", texts.id),
        || argument("content", texts.content),
    );
    let last = Argument {
        name: "reminder_content",
        description: texts.last,
        required: false,
    };
    let plain = argument("content", "");
    [
        tool(form, ADD, texts.add, &[content()]),
        tool(form, UPDATE, texts.update, &[id(), plain]),
        tool(form, DELETE, texts.delete, &[id()]),
        tool(form, CLEAR, texts.clear, &[last]),
    ]
    .join(",")
}

/// One element of the list. Names and texts need no escapes, as a test holds.
fn tool(form: Form, name: &str, description: &str, arguments: &[Argument]) -> String {
    let strict = form == Form::StrictTools;
    let properties: Vec<_> = arguments
        .iter()
        .map(|argument| property(argument, strict))
        .collect();
    let required: Vec<_> = arguments
        .iter()
        .filter(|argument| argument.required || strict)
        .map(|argument| format!("\"{}\"", argument.name))
        .collect();
    let (properties, required) = (properties.join(","), required.join(","));
    let required = match required.as_str() {
        // Some validators want at least one name in it.
        "" => String::new(),
        names => format!(r#","required":[{names}]"#),
    };
    let (closed, strictly) = match strict {
        true => (r#","additionalProperties":false"#, r#","strict":true"#),
        false => ("", ""),
    };
    let parameters =
        format!(r#"{{"type":"object","properties":{{{properties}}}{required}{closed}}}"#);
    let function = format!(
        r#"{{"name":"{name}","description":"{description}"{strictly},"parameters":{parameters}}}"#
    );
    match form {
        Form::Functions => function,
        _ => format!(r#"{{"type":"function","function":{function}}}"#),
    }
}

fn property(argument: &Argument, strict: bool) -> String {
    let kind = match strict && !argument.required {
        true => r#"["string","null"]"#,
        false => r#""string""#,
    };
    let description = match argument.description {
        "" => String::new(),
        text => format!(r#","description":"{text}""#),
    };
    format!(r#""{}":{{"type":{kind}{description}}}"#, argument.name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::recovery::tool::NAMES;

    fn elements(form: Form, language: Language) -> Vec<Value> {
        let own = own(form, language);
        let list = format!("[{}]", std::str::from_utf8(&own.json).unwrap());
        serde_json::from_str(&list).unwrap()
    }

    #[test]
    fn they_are_valid_and_compact_in_every_form() {
        for language in [Language::English, Language::Chinese] {
            for form in [Form::Tools, Form::StrictTools, Form::Functions] {
                let own = own(form, language);
                assert_eq!(own.field == "functions", form == Form::Functions);
                let text = std::str::from_utf8(&own.json).unwrap();
                let chars = text.chars().count();
                let most = if form == Form::StrictTools {
                    1_800
                } else {
                    1_500
                };
                assert!(chars <= most, "{form:?} {language:?}: {chars}");
                let tokens = tiktoken_rs::o200k_base_singleton().encode_ordinary(text);
                let tokens = tokens.len();
                assert!(tokens <= 350, "{form:?} {language:?}: {tokens} tokens");
                let elements = elements(form, language);
                let function = |element: &Value| match form {
                    Form::Functions => element.clone(),
                    _ => {
                        assert_eq!(element["type"], "function");
                        element["function"].clone()
                    }
                };
                let names: Vec<_> = elements
                    .iter()
                    .map(|element| function(element)["name"].as_str().unwrap().to_owned())
                    .collect();
                assert_eq!(names, NAMES);
                for element in &elements {
                    let function = function(element);
                    let strict = form == Form::StrictTools;
                    assert_eq!(function.get("strict").is_some(), strict);
                    let parameters = &function["parameters"];
                    assert_eq!(parameters.get("additionalProperties").is_some(), strict);
                    let properties = parameters["properties"].as_object().unwrap();
                    let required = parameters
                        .get("required")
                        .map_or(0, |r| r.as_array().unwrap().len());
                    if strict {
                        assert_eq!(required, properties.len());
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_optional_may_be_null_where_strict() {
        let kind = |form| {
            let clear = elements(form, Language::English).pop().unwrap();
            clear["function"]["parameters"]["properties"]["reminder_content"]["type"].clone()
        };
        assert_eq!(kind(Form::Tools), json!("string"));
        assert_eq!(kind(Form::StrictTools), json!(["string", "null"]));
    }
}
