//! The report as text, for a screen of 80 columns. Plain characters, no colour.

use std::io::{self, Write};

use crate::{
    cli::table::{self, draw_bar, group_digits},
    guard::found::{ClearedSpan, MessageRange, NextRemovals, PlanExplanation, RequestMakeup},
};

/// Cells of a bar.
const CELLS: usize = 20;
/// Characters of a name that are shown.
const MODEL_CHARS: usize = 60;
const TOOL_CHARS: usize = 20;

pub(super) fn write_report(out: &mut impl Write, found: &PlanExplanation) -> io::Result<()> {
    table::write_table(out, &describe_aim(found))?;
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

fn describe_aim(found: &PlanExplanation) -> [[String; 2]; 4] {
    let window = &found.window;
    let model = found.model.as_deref();
    let model = model.map_or("none named".into(), |name| sanitize_name(name, MODEL_CHARS));
    let provider = found.provider.as_deref().unwrap_or("no provider");
    let limit = window.input_limit.map_or(String::new(), |tokens| {
        format!(", of the prompt alone {}", group_digits(tokens))
    });
    let (tokens, budget) = (
        group_digits(window.tokens),
        group_digits(found.budget_tokens),
    );
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
fn write_shares(out: &mut impl Write, found: &PlanExplanation) -> io::Result<()> {
    let (came, goes) = (&found.as_it_came, &found.as_it_goes);
    let (reserve, held_back) = (found.reserve_tokens, found.held_back());
    let window = u64::from(found.window.tokens.max(1));
    let edited = found.is_edited();
    if edited {
        writeln!(out, "  {:<12}{:>21}{:>21}", "", "as it came", "as it goes")?;
    }
    let cell = |tokens: u32| {
        let percent = f64::from(tokens) * 100.0 / window as f64;
        format!("{:>12} {percent:>6.1} %", group_digits(tokens))
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

fn describe_edits(found: &PlanExplanation) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(reason) = &found.stands_back {
        lines.push(format!("Nothing ({}):", reason.word));
        lines.push(format!("{}.", reason.why));
    } else if !found.is_edited() {
        lines.push("Nothing: it goes on byte for byte.".to_owned());
    }
    for text in &found.shortened {
        let part = text.part.map_or(String::new(), |at| format!(", part {at}"));
        let name = sanitize_name(&text.name, TOOL_CHARS);
        let (before, after) = (group_digits(text.before), group_digits(text.after));
        lines.push(format!(
            "{} message {}{part}  {name}  {before} -> {after} tokens",
            text.how, text.message
        ));
    }
    for cut in &found.truncated {
        let tool = sanitize_name(&cut.tool, TOOL_CHARS);
        let (before, after) = (group_digits(cut.before), group_digits(cut.after));
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
        let (asked, sent) = (group_digits(cap.asked), group_digits(cap.sent));
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

fn describe_size(made: &RequestMakeup) -> String {
    let messages = format_count(made.messages, "message");
    let (bytes, tokens) = (group_digits(made.bytes), group_digits(made.prompt));
    format!("{messages}, {bytes} bytes, {tokens} tokens, estimated")
}

fn describe_next(next: &NextRemovals) -> Vec<String> {
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
        let tool = sanitize_name(&result.tool, TOOL_CHARS);
        let (chars, limit) = (group_digits(result.chars), group_digits(result.limit_chars));
        let tokens = group_digits(result.tokens);
        lines.push(format!(
            "  message {}  {tool}  {chars} of {limit} characters  ~{tokens} tokens",
            result.message
        ));
    }
    let more = |count_in_all: usize, shown: usize, noun: &str| {
        let rest = count_in_all.saturating_sub(shown);
        (rest > 0).then(|| format!("  and {} more", format_count(rest, noun)))
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
fn describe_cleared(cleared: &ClearedSpan) -> String {
    let counts = [
        (cleared.results, "result"),
        (cleared.inputs, "input"),
        (cleared.media, "image"),
    ];
    let counts = counts.into_iter().filter(|(number, _)| *number > 0);
    let counts: Vec<_> = counts
        .map(|(number, noun)| format_count(number, noun))
        .collect();
    let (counts, tokens) = (counts.join(", "), group_digits(cleared.tokens));
    let messages = describe_range(cleared.first, cleared.last);
    format!("{counts} of {messages} (~{tokens} tokens)")
}

fn describe_span(span: &MessageRange) -> String {
    let messages = describe_range(span.first, span.last);
    let number = match span.first == span.last {
        true => String::new(),
        false => format!("{}, ", format_count(span.messages, "message")),
    };
    format!("{messages} ({number}~{} tokens)", group_digits(span.tokens))
}

fn describe_range(first: usize, last: usize) -> String {
    match first == last {
        true => format!("message {first}"),
        false => format!("messages {first} to {last}"),
    }
}

fn format_count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", group_digits(number))
}

/// A name from the request, as it may stand on a terminal: short, and nothing that moves the
/// cursor.
fn sanitize_name(name: &str, most: usize) -> String {
    let mut shown: String = name.chars().take(most).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown.replace(char::is_control, "?")
}
