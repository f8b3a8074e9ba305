//! Reminders for tests.

use super::Reminders;

/// Notes with these ids and texts.
pub(crate) fn build_reminders(notes: &[(u32, &str)]) -> Reminders {
    let next = notes.last().map_or(0, |(id, _)| id + 1);
    let notes: Vec<_> = notes
        .iter()
        .map(|(id, text)| serde_json::json!({"id": id, "text": text, "kind": "Note"}))
        .collect();
    let stored = serde_json::json!({"notes": notes, "next": next});
    serde_json::from_value(stored).unwrap()
}
