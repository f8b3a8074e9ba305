//! Parses the arguments of a call, with the mistakes that models make.

use serde_json::{Map, Value};

use super::{ReminderError, Reminders, explain_error};

/// Names that models use for a reminder's text, those of the schemas first.
const CONTENT: [&str; 5] = ["content", "reminder_content", "text", "reminder", "note"];
const ID: [&str; 2] = ["id", "reminder_id"];

/// Parses the object of a call's arguments, also one that was encoded twice. Empty text and `null` are empty objects.
///
/// # Errors
/// If the text is no object; the message is for the model.
pub(super) fn parse_members(json: &str) -> Result<Map<String, Value>, String> {
    let read = |text: &str| match text.trim() {
        "" => Ok(Value::Null),
        text => serde_json::from_str(text),
    };
    let mut value = read(json);
    if let Ok(Value::String(inner)) = &value {
        value = read(inner);
    }
    match value {
        Ok(Value::Object(members)) => Ok(members),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("the arguments are no JSON object. Call again with one.".to_owned()),
        Err(error) => Err(format!(
            "the arguments are no JSON (line {}, column {}). Call again with a JSON object.",
            error.line(),
            error.column()
        )),
    }
}

/// The text of a reminder; `None` if there is none.
pub(super) fn find_text(arguments: &Map<String, Value>) -> Option<String> {
    match first_present(arguments, &CONTENT)? {
        Value::String(text) => Some(text.clone()),
        Value::Array(points) if points.iter().all(Value::is_string) => {
            let points: Vec<_> = points.iter().filter_map(Value::as_str).collect();
            Some(points.join("\n"))
        }
        other => Some(other.to_string()),
    }
}

/// The number of a reminder, written as `r3`, `"3"` or `3`.
///
/// # Errors
/// If there is no number; the message is for the model.
pub(super) fn find_id(
    arguments: &Map<String, Value>,
    reminders: &Reminders,
) -> Result<u32, String> {
    let number = match first_present(arguments, &ID) {
        Some(Value::String(id)) => {
            let id = id.trim().trim_start_matches(['#', '[']);
            let id = id.trim_start_matches(['r', 'R']).trim_end_matches(']');
            id.parse().ok()
        }
        Some(Value::Number(id)) => id
            .as_f64()
            .filter(|id| id.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(id))
            .map(|id| id as u32),
        _ => None,
    };
    number.ok_or_else(|| explain_error(ReminderError::Unknown, reminders))
}

fn first_present<'a>(arguments: &'a Map<String, Value>, names: &[&str]) -> Option<&'a Value> {
    let mut present = names.iter().filter_map(|name| arguments.get(*name));
    present.find(|value| !value.is_null())
}
