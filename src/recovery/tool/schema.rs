//! Schemas of the proxy-executed tools: compact, since every request carries them.

use std::sync::LazyLock;

use bytes::Bytes;

use super::{ADD, CLEAR, DELETE, UPDATE};
use crate::{
    format::{ToolArgument, ToolForm, ToolSchema},
    guard::injections::InjectedTools,
    recovery::Language,
};

/// The schemas in the form of a request's own tools.
pub(super) fn get_tool_schemas(form: ToolForm, language: Language) -> InjectedTools {
    static SCHEMAS: LazyLock<[[Bytes; ToolForm::ALL.len()]; 2]> = LazyLock::new(|| {
        [&ENGLISH, &CHINESE]
            .map(|texts| ToolForm::ALL.map(|form| Bytes::from(write_schemas(texts, form))))
    });
    InjectedTools {
        field: form.field_name(),
        json: SCHEMAS[language as usize][form as usize].clone(),
    }
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

fn write_schemas(texts: &SchemaTexts, form: ToolForm) -> String {
    let argument = |name, description, required| ToolArgument {
        name,
        description,
        required,
    };
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::recovery::tool::TOOL_NAMES;

    fn elements(form: ToolForm, language: Language) -> Vec<Value> {
        let schemas = get_tool_schemas(form, language);
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
                let schemas = get_tool_schemas(form, language);
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
                assert_eq!(names, TOOL_NAMES);
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
    fn optional_arguments_of_strict_tools_may_be_null() {
        let kind = |form| {
            let clear = elements(form, Language::English).pop().unwrap();
            clear["function"]["parameters"]["properties"]["reminder_content"]["type"].clone()
        };
        assert_eq!(kind(ToolForm::ChatTools), json!("string"));
        assert_eq!(kind(ToolForm::ChatStrictTools), json!(["string", "null"]));
    }
}
