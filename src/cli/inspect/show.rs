//! The report as text, for a screen of 80 columns. Plain characters, no colour.

use std::io::{self, Write};

use crate::{
    cli::table::{self, draw_bar, grouped},
    guard::found::{Cleared, Found, Made, Next, Span},
};

/// Cells of a bar.
const CELLS: usize = 20;
/// Characters of a name that are shown.
const MODEL_CHARS: usize = 60;
const TOOL_CHARS: usize = 20;

pub(super) fn write(out: &mut impl Write, found: &Found) -> io::Result<()> {
    table::write(out, &describe_aim(found))?;
    writeln!(out, "\nestimated tokens, and per cent of the window")?;
    write_shares(out, found)?;
    writeln!(out, "\nwhat would be done (messages count from 0)")?;
    for line in describe_edits(found) {
        writeln!(out, "  {line}")?;
    }
    if let Some(next) = &found.next {
        writeln!(out, "\nwhat goes first next, when it no longer fits")?;
        for line in describe_next(next) {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

fn describe_aim(found: &Found) -> [[String; 2]; 4] {
    let window = &found.window;
    let model = found.model.as_deref();
    let model = model.map_or("none named".into(), |name| plain(name, MODEL_CHARS));
    let provider = found.provider.as_deref().unwrap_or("no provider");
    let limit = window.input_limit.map_or(String::new(), |tokens| {
        format!(", of the prompt alone {}", grouped(tokens))
    });
    let (tokens, budget) = (grouped(window.tokens), grouped(found.budget_tokens));
    [
        ("model", model),
        (
            "served by",
            format!("{provider}, profile {}", found.profile),
        ),
        (
            "window",
            format!("{tokens} tokens ({}){limit}", window.source),
        ),
        ("budget", format!("{budget} tokens for the prompt")),
    ]
    .map(|(name, value)| [name.to_owned(), value])
}

/// One row for each kind of content: its tokens as the request came and, where it is edited, as it goes.
fn write_shares(out: &mut impl Write, found: &Found) -> io::Result<()> {
    let (came, goes) = (&found.as_it_came, &found.as_it_goes);
    let (reserve, held_back) = (found.reserve_tokens, found.held_back());
    let window = u64::from(found.window.tokens.max(1));
    let edited = found.is_edited();
    if edited {
        writeln!(out, "  {:<12}{:>21}{:>21}", "", "as it came", "as it goes")?;
    }
    let cell = |tokens: u32| {
        let percent = f64::from(tokens) * 100.0 / window as f64;
        format!("{:>12} {percent:>6.1} %", grouped(tokens))
    };
    for (name, before, after) in [
        ("system", came.shares.system, goes.shares.system),
        ("tools", came.shares.tools, goes.shares.tools),
        ("history", came.shares.history, goes.shares.history),
        (
            "tool results",
            came.shares.tool_results,
            goes.shares.tool_results,
        ),
        ("images", came.shares.images, goes.shares.images),
        ("reserve", reserve, reserve),
        ("held back", held_back, held_back),
        ("free", came.free, goes.free),
        ("over", came.over, goes.over),
    ] {
        if name == "over" && before == 0 && after == 0 {
            continue;
        }
        let goes = if edited { cell(after) } else { String::new() };
        let bar = draw_bar(after.into(), window, CELLS);
        writeln!(out, "  {name:<12}{}{goes}  {bar}", cell(before))?;
    }
    Ok(())
}

fn describe_edits(found: &Found) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(reason) = &found.stands_back {
        lines.push(format!("Nothing ({}):", reason.word));
        lines.push(format!("{}.", reason.why));
    } else if !found.is_edited() {
        lines.push("Nothing: it goes on byte for byte.".to_owned());
    }
    for text in &found.shortened {
        let part = text.part.map_or(String::new(), |at| format!(", part {at}"));
        let name = plain(&text.name, TOOL_CHARS);
        let (before, after) = (grouped(text.before), grouped(text.after));
        lines.push(format!(
            "{} message {}{part}  {name}  {before} -> {after} tokens",
            text.how, text.message
        ));
    }
    for cut in &found.truncated {
        let tool = plain(&cut.tool, TOOL_CHARS);
        let (before, after) = (grouped(cut.before), grouped(cut.after));
        let why = if cut.tighter { "  harder" } else { "" };
        lines.push(format!(
            "truncate message {}  {tool}  {before} -> {after} characters{why}",
            cut.message
        ));
    }
    let cleared = found.cleared.as_ref().map(describe_cleared);
    lines.extend(cleared.map(|cleared| format!("clear {cleared}")));
    let folded = found.folded.as_ref().map(describe_span);
    lines.extend(folded.map(|folded| format!("fold {folded}")));
    if let Some(cap) = found.lowered_cap() {
        let (asked, sent) = (grouped(cap.asked), grouped(cap.sent));
        lines.push(format!("lower the answer's cap: {asked} -> {sent} tokens"));
    }
    lines.push(format!("as it came  {}", describe_size(&found.as_it_came)));
    if found.is_edited() {
        lines.push(format!("as it goes  {}", describe_size(&found.as_it_goes)));
    }
    if found.as_it_goes.over > 0 && found.stands_back.is_none() {
        let sent = "Still over: nothing more can go. It is sent, and the provider decides.";
        lines.push(sent.to_owned());
    }
    lines
}

fn describe_size(made: &Made) -> String {
    let messages = count(made.messages, "message");
    let (bytes, tokens) = (grouped(made.bytes), grouped(made.prompt));
    format!("{messages}, {bytes} bytes, {tokens} tokens, estimated")
}

fn describe_next(next: &Next) -> Vec<String> {
    let pinned = "there are only the pinned start and the newest message or step";
    if next.results.is_empty() && next.cut.is_none() && next.clear.is_none() {
        return vec![format!("Nothing: {pinned}.")];
    }
    let mut lines = Vec::new();
    if !next.results.is_empty() {
        let heading = "the largest tool results, each as soon as it passes its limit";
        lines.push(heading.to_owned());
    }
    for result in &next.results {
        let tool = plain(&result.tool, TOOL_CHARS);
        let (chars, limit) = (grouped(result.chars), grouped(result.limit_chars));
        let tokens = grouped(result.tokens);
        lines.push(format!(
            "  message {}  {tool}  {chars} of {limit} characters  ~{tokens} tokens",
            result.message
        ));
    }
    let more = |count_in_all: usize, shown: usize, noun: &str| {
        let rest = count_in_all.saturating_sub(shown);
        (rest > 0).then(|| format!("  and {} more", count(rest, noun)))
    };
    lines.extend(more(next.results_in_all, next.results.len(), "result"));
    let cleared = next.clear.as_ref().map(describe_cleared);
    lines.extend(cleared.map(|cleared| format!("old tool rounds: {cleared}")));
    let Some(cut) = &next.cut else {
        lines.push(format!("no turn: {pinned}"));
        return lines;
    };
    lines.push(format!("the next cut folds {}", describe_span(cut)));
    // One turn alone is what the cut is.
    if next.turns_in_all > 1 {
        let turns = next.turns.iter().map(describe_span);
        lines.extend(turns.map(|turn| format!("  {turn}")));
        lines.extend(more(next.turns_in_all, next.turns.len(), "turn"));
    }
    lines
}

/// How much of what is cleared, in one line.
fn describe_cleared(cleared: &Cleared) -> String {
    let counts = [
        (cleared.results, "result"),
        (cleared.inputs, "input"),
        (cleared.media, "image"),
    ];
    let counts = counts.into_iter().filter(|(number, _)| *number > 0);
    let counts: Vec<_> = counts.map(|(number, noun)| count(number, noun)).collect();
    let (counts, tokens) = (counts.join(", "), grouped(cleared.tokens));
    let messages = describe_range(cleared.first, cleared.last);
    format!("{counts} of {messages} (~{tokens} tokens)")
}

fn describe_span(span: &Span) -> String {
    let messages = describe_range(span.first, span.last);
    let number = match span.first == span.last {
        true => String::new(),
        false => format!("{}, ", count(span.messages, "message")),
    };
    format!("{messages} ({number}~{} tokens)", grouped(span.tokens))
}

fn describe_range(first: usize, last: usize) -> String {
    match first == last {
        true => format!("message {first}"),
        false => format!("messages {first} to {last}"),
    }
}

fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// A name from the request, as it may stand on a terminal: short, and nothing that moves the
/// cursor.
fn plain(name: &str, most: usize) -> String {
    let mut shown: String = name.chars().take(most).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown.replace(char::is_control, "?")
}
