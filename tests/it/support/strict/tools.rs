//! Tool definitions that an edit made shorter: what a schema accepts is as it was, and of a description the beginning stays.

use serde_json::{Map, Value};

/// What a value is to JSON Schema.
#[derive(Clone, Copy)]
enum Place {
    Tool,
    Schema,
    /// Schemas by names.
    Named,
    Data,
}

/// Whether `after` begins with the tools of `before`, perhaps shorter. Returns the others.
pub(crate) fn strip_client_tools<'a>(before: &[Value], after: &'a [Value]) -> Option<&'a [Value]> {
    let (theirs, others) = after.split_at_checked(before.len())?;
    let pairs = before.iter().zip(theirs);
    let mut pairs = pairs.map(|(before, after)| keeps_meaning(before, after, Place::Tool));
    pairs.all(|kept| kept).then_some(others)
}

/// The tools in `additional_tools` entries are kept, perhaps shorter.
pub(super) fn keeps_entry(before: &Value, after: &Value) -> bool {
    let (mut rest, mut now) = (before.clone(), after.clone());
    let (was, is) = (rest["tools"].take(), now["tools"].take());
    let lists = was.as_array().zip(is.as_array());
    rest == now
        && lists.map_or(was == is, |(before, after)| {
            strip_client_tools(before, after).is_some()
        })
}

fn keeps_meaning(before: &Value, after: &Value, place: Place) -> bool {
    match (before, after, place) {
        (_, _, Place::Data) => before == after,
        (Value::Array(before), Value::Array(after), Place::Schema) => {
            before.len() == after.len()
                && before
                    .iter()
                    .zip(after)
                    .all(|(before, after)| keeps_meaning(before, after, place))
        }
        (Value::Object(before), Value::Object(after), _) => keeps_members(before, after, place),
        _ => before == after,
    }
}

fn keeps_members(before: &Map<String, Value>, after: &Map<String, Value>, place: Place) -> bool {
    let is_new = |key: &String| !before.contains_key(key);
    if after.keys().any(is_new) || before.get("defer_loading") == Some(&Value::Bool(true)) {
        return before == after;
    }
    before
        .iter()
        .all(|(key, was)| match (place, after.get(key)) {
            (Place::Schema, None) => may_go(key, was),
            (_, None) => false,
            (Place::Tool | Place::Schema, Some(now)) if key == "description" => {
                is_beginning(was, now)
            }
            (Place::Tool, Some(now)) if key == "tools" => {
                let lists = was.as_array().zip(now.as_array());
                lists.map_or(was == now, |(was, now)| {
                    strip_client_tools(was, now).is_some_and(<[Value]>::is_empty)
                })
            }
            (_, Some(now)) => keeps_meaning(was, now, place_of(key, place)),
        })
}

fn may_go(key: &str, value: &Value) -> bool {
    match key {
        "$schema" | "$comment" | "title" => value.is_string(),
        "examples" => value.is_array(),
        "description" => value == "",
        _ => false,
    }
}

fn is_beginning(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::String(before), Value::String(after)) => {
            before.starts_with(after.as_str()) && (before.is_empty() || !after.trim().is_empty())
        }
        _ => before == after,
    }
}

fn place_of(key: &str, place: Place) -> Place {
    match (place, key) {
        (Place::Tool, "function") => Place::Tool,
        (Place::Tool, "parameters" | "input_schema") => Place::Schema,
        (Place::Named, _) => Place::Schema,
        (
            Place::Schema,
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
            | "dependencies",
        ) => Place::Named,
        (
            Place::Schema,
            "items"
            | "prefixItems"
            | "additionalItems"
            | "additionalProperties"
            | "anyOf"
            | "allOf"
            | "oneOf"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "propertyNames"
            | "contentSchema"
            | "unevaluatedItems"
            | "unevaluatedProperties",
        ) => Place::Schema,
        _ => Place::Data,
    }
}
