//! The tools of a chat completions request: the client's, and the proxy-executed ones beside them.

use smallvec::SmallVec;

use crate::{
    conversation::Conversation,
    format::tools::{ClientTools, ToolForm, ToolSchema, write_object_schema},
    json::scan::{JsonKind, JsonScanner, JsonString, MalformedJson},
};

/// An element of `tools` or `functions`, as far as it is read.
#[derive(Default)]
struct Tool {
    /// Wherever its kind of tool puts names.
    names: SmallVec<[JsonString; 1]>,
    /// Of a function, whether it is strict.
    strict: Option<bool>,
}

/// A list of tools, or one of them, is not as the formats say.
struct Unreadable;

impl From<MalformedJson> for Unreadable {
    fn from(_: MalformedJson) -> Self {
        Self
    }
}

pub(in crate::format) fn read_client_tools(
    conversation: &Conversation,
    reserved: impl Iterator<Item = &'static str>,
) -> Option<ClientTools> {
    let tools = read_tools(conversation, "tools").ok()?;
    let functions = read_tools(conversation, "functions").ok()?;
    let form = match (&tools[..], &functions[..]) {
        ([], []) => return None,
        ([], _) => ToolForm::ChatFunctions,
        // Some providers refuse tools of which some are strict and others are not.
        _ => {
            let mut strict = tools.iter().filter_map(|tool| tool.strict).peekable();
            match strict.peek().is_some() && strict.all(|strict| strict) {
                true => ToolForm::ChatStrictTools,
                false => ToolForm::ChatTools,
            }
        }
    };
    let names = tools.iter().chain(&functions).flat_map(|tool| &tool.names);
    let names: Vec<_> = names.map(|name| conversation.decode_text(*name)).collect();
    let taken = reserved.filter(|reserved| names.iter().any(|name| name == reserved));
    Some(ClientTools {
        form,
        taken: taken.collect(),
    })
}

/// The elements of a list of tools, none if it is absent.
///
/// Schemas may be most of a body, so they are walked without being read.
fn read_tools(conversation: &Conversation, name: &str) -> Result<Vec<Tool>, Unreadable> {
    let mut tools = Vec::new();
    let field = conversation.find_field(name);
    let Some(field) = field.filter(|field| field.kind != JsonKind::Null) else {
        return Ok(tools);
    };
    JsonScanner::new(&conversation.body, field.value.start as usize).walk_array(|scan| {
        let mut tool = Tool::default();
        let mut seen = SmallVec::<[String; 3]>::new();
        scan.walk_object(|scan, key| {
            let key = conversation.decode_text(key);
            match &*key {
                "name" => tool.names.extend(take_name(scan)?),
                "function" | "custom" if scan.peek() != Some(b'n') => {
                    let strict = read_function(conversation, scan, &mut tool.names)?;
                    if &*key == "function" {
                        tool.strict = Some(strict);
                    }
                }
                _ => return Ok(scan.take_value().map(|_| ())?),
            }
            note_member(&mut seen, &key)
        })?;
        tools.push(tool);
        Ok::<_, Unreadable>(())
    })?;
    Ok(tools)
}

/// Whether a function, or a custom tool, is strict; adds its name.
fn read_function(
    conversation: &Conversation,
    scan: &mut JsonScanner<'_>,
    names: &mut SmallVec<[JsonString; 1]>,
) -> Result<bool, Unreadable> {
    let mut strict = false;
    let mut seen = SmallVec::<[String; 3]>::new();
    scan.walk_object(|scan, key| {
        let key = conversation.decode_text(key);
        match &*key {
            "name" => names.extend(take_name(scan)?),
            "strict" => {
                strict = match scan.take_value()?.1 {
                    JsonKind::True => true,
                    JsonKind::False | JsonKind::Null => false,
                    _ => return Err(Unreadable),
                }
            }
            _ => return Ok(scan.take_value().map(|_| ())?),
        }
        note_member(&mut seen, &key)
    })?;
    Ok(strict)
}

/// Of a member that stands twice, parsers choose differently.
fn note_member(seen: &mut SmallVec<[String; 3]>, key: &str) -> Result<(), Unreadable> {
    if seen.iter().any(|it| it == key) {
        return Err(Unreadable);
    }
    seen.push(key.to_owned());
    Ok(())
}

fn take_name(scan: &mut JsonScanner<'_>) -> Result<Option<JsonString>, Unreadable> {
    match scan.peek() {
        Some(b'"') => Ok(Some(scan.take_string()?)),
        Some(b'n') => Ok(scan.take_value().map(|_| None)?),
        _ => Err(Unreadable),
    }
}

pub(in crate::format) fn write_tool(form: ToolForm, tool: &ToolSchema<'_>) -> String {
    let &ToolSchema {
        name,
        description,
        arguments,
    } = tool;
    let strict = form == ToolForm::ChatStrictTools;
    let strictly = if strict { r#","strict":true"# } else { "" };
    let parameters = write_object_schema(arguments, strict);
    let function = format!(
        r#"{{"name":"{name}","description":"{description}"{strictly},"parameters":{parameters}}}"#
    );
    match form {
        ToolForm::ChatFunctions => function,
        _ => format!(r#"{{"type":"function","function":{function}}}"#),
    }
}
