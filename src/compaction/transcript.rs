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
    wire::{
        chat::{Content, Conversation, Message, PartKind, Role},
        scan::Text,
    },
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
    let said = || units.iter().filter(|unit| unit.kind != UnitKind::System);
    let mut first = true;
    HELD_TO.iter().find_map(|&held| {
        if !std::mem::take(&mut first) && held >= room {
            return None;
        }
        let mut chunks: Vec<(String, u32)> = Vec::new();
        for unit in said() {
            let text = render(part, unit, &wanted.key);
            let text = measure.within(text, held.min(room));
            // A line end between two.
            let tokens = measure.tokens(&text) + 1;
            let fits = chunks
                .last_mut()
                .filter(|(_, taken)| *taken + tokens <= room);
            if let Some((chunk, taken)) = fits {
                chunk.push('\n');
                chunk.push_str(&text);
                *taken += tokens;
            } else if chunks.len() == MAX_CHUNKS {
                return None;
            } else {
                chunks.push((text, tokens));
            }
        }
        let chunks: Vec<String> = chunks.into_iter().map(|(chunk, _)| chunk).collect();
        (!chunks.is_empty()).then_some(chunks)
    })
}

/// A unit, message by message.
fn render(part: &Conversation, unit: &Unit, key: &str) -> String {
    let mut text = String::new();
    for message in &part.messages[unit.messages.clone()] {
        let who = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool | Role::Function => "tool result",
            Role::System | Role::Developer | Role::Other => "other",
        };
        line(&mut text, &format!("[{key} {who}]"));
        contents(part, message, &mut text);
        for call in part.calls(message) {
            let shown = |text: Option<Text>| text.map(|text| part.shown(text)).unwrap_or_default();
            line(&mut text, &format!("[{key} calls]"));
            let (name, arguments) = (shown(call.name), shown(call.arguments));
            line(&mut text, &fence::neutral(&format!("{name} {arguments}")));
        }
    }
    text
}

fn contents(part: &Conversation, message: &Message, text: &mut String) {
    if let Content::Text(said) = message.content {
        line(text, &fence::neutral(&part.shown(said)));
    }
    for piece in part.parts(message) {
        match piece.kind {
            PartKind::Text(said) => line(text, &fence::neutral(&part.shown(said))),
            PartKind::Image { .. } => line(text, "(an image, left out)"),
            PartKind::Media => line(text, "(a file or a recording, left out)"),
            PartKind::Other => {}
        }
    }
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
