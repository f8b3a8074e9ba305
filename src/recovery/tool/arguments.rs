//! Parses the arguments of a call, with the mistakes that models make.

use serde_json::{Map, Value};

use super::{ReminderError, Reminders, explain_error};

/// Names that models use for a reminder's text, those of the schemas first.
const CONTENT: [&str; 5] = ["content", "reminder_content", "text", "reminder", "note"];
const ID: [&str; 2] = ["id", "reminder_id"];

/// Parses an object, also one that was encoded twice. Empty text and `null` are empty objects.
///
/// # Errors
/// If it is no object; the message is for the model.
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

pub(super) struct ReminderArguments(Map<String, Value>);

impl ReminderArguments {
    /// # Errors
    /// See [`parse_members`].
    pub(super) fn from_json(json: &str) -> Result<Self, String> {
        parse_members(json).map(Self)
    }

    pub(super) fn reminder_text(&self) -> Option<String> {
        match self.first_present(&CONTENT)? {
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
    /// If there is none; the message is for the model.
    pub(super) fn reminder_id(&self, reminders: &Reminders) -> Result<u32, String> {
        let number = match self.first_present(&ID) {
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

    fn first_present(&self, names: &[&str]) -> Option<&Value> {
        let mut present = names.iter().filter_map(|name| self.0.get(*name));
        present.find(|value| !value.is_null())
    }
}
