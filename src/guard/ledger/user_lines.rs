//! What the user said: a line for every message.

use super::{
    LINE_CHARS,
    excerpt::{excerpt_chars, excerpt_line},
    ledger_budget::LedgerBudget,
};
use crate::conversation::{Author, Conversation};

const OF: &str = "what the user said";
/// No line gets shorter than this before lines are dropped; characters of Latin text.
const LEAST_CHARS: usize = 30;
/// Stands for lines that were dropped.
const MORE: &str = "…";
/// A line is read as far as so many times an even share of the room: short ones leave room to others.
const UNEVEN: f64 = 3.0;

/// The section of it, which leaves `kept` to those that follow.
pub(super) fn write_user_section(
    conversation: &Conversation,
    removed: &[usize],
    purse: &mut LedgerBudget,
    kept: f64,
) -> String {
    let room = purse.remaining_room() - kept - purse.fence_cost(OF);
    let lines = pick_lines(conversation, &by_user(conversation, removed), room, purse);
    purse.write_lines(OF, &lines)
}

/// Messages of the user's, but for the first of the conversation, which is never left out.
fn by_user(conversation: &Conversation, removed: &[usize]) -> Vec<usize> {
    let messages = &conversation.items;
    let first = messages.iter().position(|m| m.author == Author::User);
    let said = removed.iter().copied();
    said.filter(|&at| messages[at].author == Author::User && Some(at) != first)
        .collect()
}

fn pick_lines(
    conversation: &Conversation,
    said: &[usize],
    room: f64,
    purse: &LedgerBudget,
) -> Vec<String> {
    let read =
        |at: usize, most| excerpt_line(excerpt_chars(conversation, &conversation.items[at]), most);
    let least = LEAST_CHARS as f64 * purse.character_cost('a');
    // What a line takes at least.
    let cost = |line: &str| purse.text_cost(line).min(least) + purse.line_frame_cost();
    let shown = if (least + purse.line_frame_cost()) * said.len() as f64 <= room {
        UserMessages::take_all(said)
    } else {
        UserMessages::take_fitting(said, room, cost(MORE), |at| cost(&read(at, LEAST_CHARS)))
    };
    let even = room / (shown.messages.len().max(1) as f64 * purse.character_cost('a'));
    let most = ((even * UNEVEN) as usize).clamp(LEAST_CHARS, LINE_CHARS);
    let mut lines: Vec<String> = shown.messages.iter().map(|&at| read(at, most)).collect();
    if shown.dropped {
        lines.insert(1, MORE.to_owned());
    }
    lines.retain(|line| !line.is_empty());
    shorten_lines(&mut lines, room, purse);
    lines
}

/// The messages that get a line.
struct UserMessages {
    messages: Vec<usize>,
    /// Some between the first and the second did not.
    dropped: bool,
}

impl UserMessages {
    fn take_all(said: &[usize]) -> Self {
        Self {
            messages: said.to_vec(),
            dropped: false,
        }
    }

    /// As many as there is room for: where that is not all, the very first and the newest, with a
    /// line for those between them.
    fn take_fitting(said: &[usize], room: f64, more: f64, cost: impl Fn(usize) -> f64) -> Self {
        let (mut left, mut costs) = (room, Vec::new());
        for &at in said.iter().rev() {
            let cost = cost(at);
            if cost > left {
                break;
            }
            left -= cost;
            costs.push(cost);
        }
        let Some(&first) = said.first().filter(|_| costs.len() < said.len()) else {
            return Self::take_all(said);
        };
        let newest = |count: usize| &said[said.len() - count..];
        let beside = cost(first) + more;
        let mut count = costs.len();
        while left < beside && count > 0 {
            count -= 1;
            left += costs[count];
        }
        if count == 0 {
            return Self::take_all(newest(costs.len().min(1)));
        }
        Self {
            messages: [&[first], newest(count)].concat(),
            dropped: true,
        }
    }
}

/// Brings the longest lines down to one length, so that all of them fit.
fn shorten_lines(lines: &mut [String], room: f64, purse: &LedgerBudget) {
    let costs: Vec<f64> = lines.iter().map(|line| purse.text_cost(line)).collect();
    let room = room - lines.len() as f64 * purse.line_frame_cost();
    if costs.iter().sum::<f64>() <= room {
        return;
    }
    let mut sorted = costs.clone();
    sorted.sort_by(f64::total_cmp);
    let (mut left, mut level) = (room, 0.0);
    for (place, cost) in sorted.iter().enumerate() {
        level = left / (sorted.len() - place) as f64;
        if *cost > level {
            break;
        }
        left -= cost;
    }
    for (line, cost) in lines.iter_mut().zip(costs) {
        if cost > level {
            cut_line(line, level, purse);
        }
    }
}

/// The beginning of a line, with an ellipsis.
fn cut_line(line: &mut String, most: f64, purse: &LedgerBudget) {
    let mut left = most - purse.text_cost(MORE);
    let end = line.char_indices().find(|&(_, c)| {
        left -= purse.character_cost(c);
        left < 0.0
    });
    line.truncate(end.map_or(line.len(), |(at, _)| at));
    line.truncate(line.trim_end().len());
    line.push_str(MORE);
}
