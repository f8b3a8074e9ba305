//! Schemas of the proxy-executed tools: compact, since every request carries them.

use std::sync::LazyLock;

use super::{ADD, CLEAR, DELETE, RECALL, UPDATE};
use crate::{
    format::{ToolArgument, ToolForm, ToolSchema},
    guard::injections::{InjectedTools, ToolSet},
    recovery::Language,
};

/// The schemas of a set that is not empty, in the form of a request's own tools. The schema of `recall` is the same in
/// any language, since it may be the only one.
pub(super) fn get_tool_schemas(form: ToolForm, language: Language, set: ToolSet) -> InjectedTools {
    type OfForms = [[InjectedTools; 3]; ToolForm::ALL.len()];
    static SCHEMAS: LazyLock<[OfForms; 2]> = LazyLock::new(|| {
        [&ENGLISH, &CHINESE].map(|texts| {
            ToolForm::ALL.map(|form| {
                let (reminders, recall) = (write_schemas(texts, form), write_recall(form));
                let all = format!("{reminders},{recall}");
                let sets = [
                    (ToolSet::Reminders, reminders),
                    (ToolSet::Recall, recall),
                    (ToolSet::All, all),
                ];
                sets.map(|(set, json)| InjectedTools::new(form.field_name(), json.into(), set))
            })
        })
    });
    let of_set = match set {
        ToolSet::Nothing | ToolSet::Reminders => 0,
        ToolSet::Recall => 1,
        ToolSet::All => 2,
    };
    let mut tools = SCHEMAS[language as usize][form as usize][of_set].clone();
    tools.set = set;
    tools
}

/// Descriptions of the tools and their arguments.
struct SchemaTexts {
    add: &'static str,
    content: &'static str,
    update: &'static str,
    id: &'static str,
    delete: &'static str,
    clear: &'static str,
    last: &'static str,
}

const ENGLISH: SchemaTexts = SchemaTexts {
    add: "Save a note for yourself. It stays when older messages are removed from the context.",
    content: "Next step, pointers, how to verify, details easy to lose",
    update: "Replace the text of a saved note.",
    id: "Such as r1",
    delete: "Delete a saved note.",
    clear: "Start a new course: older messages leave your context; the task, your notes and the \
            newest steps stay. Save what matters first.",
    last: "A last note to save",
};

const CHINESE: SchemaTexts = SchemaTexts {
    add: "为自己保存一条提醒项。较早的消息移出上下文后，它仍会保留。",
    content: "下一步、线索、如何验证、容易遗漏的细节",
    update: "改写一条已保存的提醒项。",
    id: "如 r1",
    delete: "删除一条已保存的提醒项。",
    clear: "开始新一程对话：较早的消息移出上下文，任务、提醒项和最新的步骤保留。请先保存要点。",
    last: "最后要保存的提醒项",
};

const fn argument(name: &'static str, description: &'static str, required: bool) -> ToolArgument {
    ToolArgument {
        name,
        description,
        required,
    }
}

fn write_schemas(texts: &SchemaTexts, form: ToolForm) -> String {
    let content = |description| argument("content", description, true);
    let id = || argument("id", texts.id, true);
    let last = argument("reminder_content", texts.last, false);
    let tool = |name, description, arguments: &[ToolArgument]| {
        form.write_tool(&ToolSchema {
            name,
            description,
            arguments,
        })
    };
    [
        tool(ADD, texts.add, &[content(texts.content)]),
        tool(UPDATE, texts.update, &[id(), content("")]),
        tool(DELETE, texts.delete, &[id()]),
        tool(CLEAR, texts.clear, &[last]),
    ]
    .join(",")
}

/// A description of the look-up alone made models browse, so this one also says what the tool is for.
fn write_recall(form: ToolForm) -> String {
    form.write_tool(&ToolSchema {
        name: RECALL,
        description: "Show text that was truncated or left out of the context, by the id its placeholder names. \
                      Only for what you need and cannot see; not for browsing.",
        arguments: &[
            argument("id", "Such as m17 or earlier", true),
            argument("lines", "Such as 120-180", false),
            argument("pattern", "Regular expression", false),
        ],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::recovery::tool::{TOOL_NAMES, list_names};

    fn elements(form: ToolForm, language: Language) -> Vec<Value> {
        let schemas = get_tool_schemas(form, language, ToolSet::Reminders);
        let list = format!("[{}]", std::str::from_utf8(&schemas.json).unwrap());
        serde_json::from_str(&list).unwrap()
    }

    #[test]
    fn schemas_are_valid_and_compact_in_every_form() {
        for language in [Language::English, Language::Chinese] {
            for form in [
                ToolForm::ChatTools,
                ToolForm::ChatStrictTools,
                ToolForm::ChatFunctions,
            ] {
                let schemas = get_tool_schemas(form, language, ToolSet::Reminders);
                let strict = form == ToolForm::ChatStrictTools;
                assert_eq!(
                    schemas.field == "functions",
                    form == ToolForm::ChatFunctions
                );
                let text = std::str::from_utf8(&schemas.json).unwrap();
                let chars = text.chars().count();
                let most = if strict { 1_800 } else { 1_500 };
                assert!(chars <= most, "{form:?} {language:?}: {chars}");
                let tokens = tiktoken_rs::o200k_base_singleton().encode_ordinary(text);
                let tokens = tokens.len();
                assert!(tokens <= 350, "{form:?} {language:?}: {tokens} tokens");
                let elements = elements(form, language);
                let function = |element: &Value| match form {
                    ToolForm::ChatFunctions => element.clone(),
                    _ => {
                        assert_eq!(element["type"], "function");
                        element["function"].clone()
                    }
                };
                let names: Vec<_> = elements
                    .iter()
                    .map(|element| function(element)["name"].as_str().unwrap().to_owned())
                    .collect();
                assert_eq!(names, list_names(ToolSet::Reminders));
                for element in &elements {
                    let function = function(element);
                    assert_eq!(function.get("strict").is_some(), strict);
                    let parameters = &function["parameters"];
                    assert_eq!(parameters.get("additionalProperties").is_some(), strict);
                    let properties = parameters["properties"].as_object().unwrap();
                    if strict {
                        let required = parameters["required"].as_array().unwrap();
                        assert_eq!(required.len(), properties.len());
                    }
                }
            }
        }
    }

    #[test]
    fn recall_is_short_and_follows_the_reminder_tools() {
        for form in ToolForm::ALL {
            let [all, reminders, recall] = [ToolSet::All, ToolSet::Reminders, ToolSet::Recall]
                .map(|set| get_tool_schemas(form, Language::Chinese, set).json);
            let joined = [&reminders[..], b",", &recall].concat();
            assert_eq!(all, joined);
            let text = std::str::from_utf8(&recall).unwrap();
            let tokens = tiktoken_rs::o200k_base_singleton().encode_ordinary(text);
            let most = if form == ToolForm::ChatStrictTools {
                125
            } else {
                105
            };
            assert!(tokens.len() <= most, "{form:?}: {} tokens", tokens.len());
            let description: Value = serde_json::from_str(text).unwrap();
            let description = match form {
                ToolForm::ChatFunctions | ToolForm::MessagesTools | ToolForm::ResponsesTools => {
                    description["description"].clone()
                }
                _ => description["function"]["description"].clone(),
            };
            let description = description.as_str().unwrap();
            let tokens = tiktoken_rs::o200k_base_singleton().encode_ordinary(description);
            assert!(tokens.len() < 40, "{} tokens", tokens.len());
        }
        assert_eq!(list_names(ToolSet::All), TOOL_NAMES);
        assert_eq!(list_names(ToolSet::Recall), ["recall"]);
    }

    #[test]
    fn optional_arguments_of_strict_tools_may_be_null() {
        let kind = |form| {
            let clear = elements(form, Language::English).pop().unwrap();
            clear["function"]["parameters"]["properties"]["reminder_content"]["type"].clone()
        };
        assert_eq!(kind(ToolForm::ChatTools), json!("string"));
        assert_eq!(kind(ToolForm::ChatStrictTools), json!(["string", "null"]));
    }
}
