//! The ledger's section of user messages: a line for each.

use super::{LINE_CHARS, excerpt::excerpt_line, ledger_budget::LedgerBudget};
use crate::conversation::{Conversation, texts::decode_chars};

pub(super) const TITLE: &str = "what the user said";
/// No line gets shorter than this before lines are dropped; characters of Latin text.
const LEAST_CHARS: usize = 30;
/// Stands for dropped lines, and ends a shortened line.
const ELLIPSIS: &str = "…";
/// A line may be so many times as long as an even share of the room, since short lines leave room to others.
const UNEVEN: f64 = 3.0;

/// Writes the section. It leaves `reserved` of the room to the sections after it.
pub(super) fn write_user_section(
    conversation: &Conversation,
    removed: &[usize],
    budget: &mut LedgerBudget,
    reserved: f64,
) -> String {
    let room = budget.remaining_room() - reserved - budget.fence_cost(TITLE);
    let messages = removed.iter().copied();
    let messages = messages.filter(|&at| conversation.items[at].is_by_user());
    let messages: Vec<usize> = messages.collect();
    let lines = pick_lines(conversation, &messages, room, budget);
    budget.write_lines(TITLE, &lines)
}

fn pick_lines(
    conversation: &Conversation,
    messages: &[usize],
    room: f64,
    budget: &LedgerBudget,
) -> Vec<String> {
    let excerpt = |at: usize, max_chars| excerpt_message(conversation, at, max_chars);
    let least = LEAST_CHARS as f64 * budget.usual_cost();
    let least_cost = |line: &str| budget.text_cost(line).min(least) + budget.line_frame_cost();
    let (shown, has_dropped) = if (least + budget.line_frame_cost()) * messages.len() as f64 <= room
    {
        (messages.to_vec(), false)
    } else {
        let cost = |at| least_cost(&excerpt(at, LEAST_CHARS));
        choose_messages(messages, room, least_cost(ELLIPSIS), cost)
    };
    let even = room / (shown.len().max(1) as f64 * budget.usual_cost());
    let max_chars = ((even * UNEVEN) as usize).clamp(LEAST_CHARS, LINE_CHARS);
    let lines = shown.iter().map(|&at| excerpt(at, max_chars));
    let mut lines: Vec<String> = lines.collect();
    if has_dropped {
        lines.insert(1, ELLIPSIS.to_owned());
    }
    lines.retain(|line| !line.is_empty());
    shorten_lines(&mut lines, room, budget);
    lines
}

/// What the user says in a message, as one line.
pub(super) fn excerpt_message(conversation: &Conversation, at: usize, max_chars: usize) -> String {
    let words = conversation.user_words(&conversation.items[at]);
    let words = words.flat_map(|raw| decode_chars(raw).chain(['\n']));
    excerpt_line(words, max_chars)
}

/// Chooses as many messages as there is room for. If that is not all, it chooses the first and the newest, with a line at
/// the cost of `ellipsis` between them. Returns also whether messages between the first and the second chosen one get no
/// line.
fn choose_messages(
    messages: &[usize],
    room: f64,
    ellipsis: f64,
    cost: impl Fn(usize) -> f64,
) -> (Vec<usize>, bool) {
    let (mut left, mut costs) = (room, Vec::new());
    for &at in messages.iter().rev() {
        let cost = cost(at);
        if cost > left {
            break;
        }
        left -= cost;
        costs.push(cost);
    }
    let Some(&first) = messages.first().filter(|_| costs.len() < messages.len()) else {
        return (messages.to_vec(), false);
    };
    let newest = |count: usize| &messages[messages.len() - count..];
    let beside = cost(first) + ellipsis;
    let mut count = costs.len();
    while left < beside && count > 0 {
        count -= 1;
        left += costs[count];
    }
    match count {
        0 => (newest(costs.len().min(1)).to_vec(), false),
        _ => ([&[first], newest(count)].concat(), true),
    }
}

/// Cuts the longest lines to one cost, so that all of them fit.
fn shorten_lines(lines: &mut [String], room: f64, budget: &LedgerBudget) {
    let costs: Vec<f64> = lines.iter().map(|line| budget.text_cost(line)).collect();
    let room = room - lines.len() as f64 * budget.line_frame_cost();
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
            cut_line(line, level, budget);
        }
    }
}

/// Cuts a line to a cost, ellipsis included.
fn cut_line(line: &mut String, max_cost: f64, budget: &LedgerBudget) {
    let left = max_cost - budget.text_cost(ELLIPSIS);
    let starts: Vec<usize> = line.char_indices().skip(1).map(|(at, _)| at).collect();
    // No character lowers the cost of the text before it.
    let fitting = starts.partition_point(|&at| budget.text_cost(&line[..at]) <= left);
    let end = fitting.checked_sub(1).map_or(0, |last| starts[last]);
    line.truncate(end);
    line.truncate(line.trim_end().len());
    line.push_str(ELLIPSIS);
}
