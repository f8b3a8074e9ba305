//! A conversation as a record to be read: for a model that is not its own, or that cannot hold it.
//!
//! Each message begins with a line that carries the key of the request, which nobody knew who
//! wrote the conversation: no tool's output can put words into the user's mouth. Fences are
//! neutralised, media named and left out.

use super::{measure::Measure, prompt::Wanted};
use crate::{
    guard::{
        fence,
        units::{Unit, UnitKind},
    },
    json::scan::Text,
    wire::chat::{Content, Conversation, Message, PartKind, Role},
};

/// Requests that one summary may take.
const MAX_CHUNKS: usize = 12;
/// What a unit may weigh where the whole would be too much; raw tokens, tried in this order.
const HELD_TO: [u32; 4] = [u32::MAX, 2_000, 500, 120];

/// Parts of the record that each fit into `room` raw tokens, oldest first. `None` where there are
/// too many however short the messages are held.
pub(super) fn chunks(
    part: &Conversation,
    units: &[Unit],
    wanted: &Wanted,
    room: u32,
    measure: &Measure,
) -> Option<Vec<String>> {
    let tried = HELD_TO.iter().map(|&held| held.min(room));
    let mut tried: Vec<u32> = tried.collect();
    tried.dedup();
    tried
        .into_iter()
        .find_map(|held| divided(part, units, wanted, (room, held), measure))
}

/// With no unit that weighs more than `held`.
fn divided(
    part: &Conversation,
    units: &[Unit],
    wanted: &Wanted,
    (room, held): (u32, u32),
    measure: &Measure,
) -> Option<Vec<String>> {
    let mut chunks: Vec<String> = Vec::new();
    let mut taken = 0;
    for unit in units.iter().filter(|unit| unit.kind != UnitKind::System) {
        // A line end between two.
        let text = render(part, unit, &wanted.key, held.saturating_sub(1), measure);
        let tokens = measure.tokens(&text) + 1;
        let last = chunks.last_mut().filter(|_| taken + tokens <= room);
        if let Some(chunk) = last {
            taken += tokens;
            line(chunk, &text);
        } else if chunks.len() == MAX_CHUNKS {
            return None;
        } else {
            taken = tokens;
            chunks.push(text);
        }
    }
    (!chunks.is_empty()).then_some(chunks)
}

/// A unit in at most so many raw tokens: each of its texts whole, or its head and tail.
fn render(part: &Conversation, unit: &Unit, key: &str, most: u32, measure: &Measure) -> String {
    let mut entries = entries(part, unit, key);
    let whole = write(&entries);
    if measure.tokens(&whole) <= most {
        return whole;
    }
    let heads = entries.iter().map(|entry| measure.tokens(&entry.head) + 2);
    let room = most.saturating_sub(heads.fold(0, u32::saturating_add));
    let weights = entries.iter().map(|entry| measure.tokens(&entry.text));
    let each = share(weights.collect(), room);
    for entry in &mut entries {
        entry.text = measure.within(std::mem::take(&mut entry.text), each);
    }
    // So many calls that their heads alone are too much.
    measure.within(write(&entries), most)
}

/// What each of these may weigh, so that all of them together weigh no more than `room`: those
/// that are small leave theirs to the others.
fn share(mut weights: Vec<u32>, room: u32) -> u32 {
    weights.sort_unstable();
    let (mut left, mut count) = (room, weights.len() as u32);
    for weight in weights {
        let each = left / count;
        if weight > each {
            return each;
        }
        left -= weight;
        count -= 1;
    }
    room
}

/// One line of ours, and what was said.
struct Entry {
    head: String,
    text: String,
}

fn write(entries: &[Entry]) -> String {
    let mut text = String::new();
    for said in entries.iter().flat_map(|entry| [&entry.head, &entry.text]) {
        line(&mut text, said);
    }
    text
}

/// A unit, message by message and call by call.
fn entries(part: &Conversation, unit: &Unit, key: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for message in &part.messages[unit.messages.clone()] {
        let who = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool | Role::Function => "tool result",
            Role::System | Role::Developer | Role::Other => "other",
        };
        entries.push(Entry {
            head: format!("[{key} {who}]"),
            text: contents(part, message),
        });
        let shown = |text: Option<Text>| text.map(|text| part.shown(text)).unwrap_or_default();
        entries.extend(part.calls(message).iter().map(|call| {
            let said = format!("{} {}", shown(call.name), shown(call.arguments));
            Entry {
                head: format!("[{key} calls]"),
                text: fence::neutral(&said).into_owned(),
            }
        }));
    }
    entries
}

fn contents(part: &Conversation, message: &Message) -> String {
    let mut text = String::new();
    if let Content::Text(said) = message.content {
        line(&mut text, &fence::neutral(&part.shown(said)));
    }
    for piece in part.parts(message) {
        match piece.kind {
            PartKind::Text(said) => line(&mut text, &fence::neutral(&part.shown(said))),
            PartKind::Image { .. } => line(&mut text, "(an image, left out)"),
            PartKind::Media => line(&mut text, "(a file or a recording, left out)"),
            PartKind::Other => {}
        }
    }
    text
}

fn line(text: &mut String, said: &str) {
    if said.is_empty() {
        return;
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(said);
}

/// What goes before a further part of the record.
pub(super) fn so_far(summary: &str, key: &str) -> String {
    format!(
        "[{key} summary of all before]\n{}\n",
        fence::neutral(summary)
    )
}

#[cfg(test)]
mod tests;
