//! The report as text, for a screen of 80 columns. Plain characters, no colour.

use std::{
    fmt::Display,
    io::{self, Write},
};

use crate::cli::table::{draw_bar, group_digits, write_table};
use crate::guard::found::{
    ClearedSpan, MessageRange, NextRemovals, PlanExplanation, RequestMakeup,
};

const BAR_CELLS: usize = 20;
/// Longer names of models and tools are cut.
const MODEL_CHARS: usize = 60;
const TOOL_CHARS: usize = 20;

pub(super) fn write_report(out: &mut impl Write, found: &PlanExplanation) -> io::Result<()> {
    write_table(out, &describe_aim(found))?;
    let guessed = if found.window.is_guessed {
        "guessed "
    } else {
        ""
    };
    writeln!(
        out,
        "\nestimated tokens, and per cent of the {guessed}window"
    )?;
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
    let (tokens, source) = (group_digits(window.tokens), window.source);
    let budget = match found.budget_tokens {
        Some(budget) => format!("{} tokens for the prompt", group_digits(budget)),
        None => "open: nothing is cut before the provider refuses it".to_owned(),
    };
    let rows = [
        ("model", model),
        (
            "served by",
            format!("{provider}, profile {}", found.profile),
        ),
        ("window", format!("{tokens} tokens ({source}){limit}")),
        ("budget", budget),
    ];
    rows.map(|(name, value)| [name.to_owned(), value])
}

/// One row for each kind of content: its tokens in the request and, where the guard edits it, after the edits.
fn write_shares(out: &mut impl Write, found: &PlanExplanation) -> io::Result<()> {
    let (came, goes) = (&found.as_it_came, &found.as_it_goes);
    let (before, after) = (&came.shares, &goes.shares);
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
        ("system", before.system, after.system),
        ("tools", before.tools, after.tools),
        ("history", before.history, after.history),
        ("tool results", before.tool_results, after.tool_results),
        ("images", before.images, after.images),
        ("reserve", reserve, reserve),
        ("held back", held_back, held_back),
        ("free", came.free, goes.free),
        ("over", came.over, goes.over),
    ] {
        let is_of_budget = ["held back", "free"].contains(&name);
        if name == "over" && before == 0 && after == 0
            || is_of_budget && found.budget_tokens.is_none()
        {
            continue;
        }
        let goes = if edited { cell(after) } else { String::new() };
        let bar = draw_bar(after.into(), window, BAR_CELLS);
        writeln!(out, "  {name:<12}{}{goes}  {bar}", cell(before))?;
    }
    Ok(())
}

fn describe_edits(found: &PlanExplanation) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(reason) = &found.stands_back {
        let what = match found.is_edited() {
            true => "Nothing else",
            false => "Nothing",
        };
        lines.push(format!("{what} ({}):", reason.word));
        lines.push(format!("{}.", reason.why));
    } else if !found.is_edited() {
        lines.push("Nothing: it goes on byte for byte.".to_owned());
    }
    if found.uncut_because.is_some() {
        let why = [
            "The window is only guessed, so nothing is cut by it: the provider refuses what",
            "is too long, and the request is fitted to what its refusal says.",
            "models.NAME.context_length sets the window.",
        ];
        lines.extend(why.map(str::to_owned));
    }
    for text in &found.shortened {
        let (how, message) = (text.how, text.message);
        let part = text.part.map_or(String::new(), |at| format!(", part {at}"));
        let name = sanitize_name(&text.name, TOOL_CHARS);
        let sizes = format_change(text.before, text.after);
        lines.push(format!(
            "{how} message {message}{part}  {name}  {sizes} tokens"
        ));
    }
    for cut in &found.truncated {
        let (message, tool) = (cut.message, sanitize_name(&cut.tool, TOOL_CHARS));
        let sizes = format_change(cut.before, cut.after);
        let harder = if cut.tighter { "  harder" } else { "" };
        lines.push(format!(
            "truncate message {message}  {tool}  {sizes} characters{harder}"
        ));
    }
    let cleared = found.cleared.as_ref().map(describe_cleared);
    lines.extend(cleared.map(|cleared| format!("clear {cleared}")));
    let folded = found.folded.as_ref().map(describe_span);
    lines.extend(folded.map(|folded| format!("fold {folded}")));
    if let Some(cap) = found.lowered_cap() {
        let tokens = format_change(cap.asked, cap.sent);
        lines.push(format!("lower the answer's cap: {tokens} tokens"));
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
        let (message, tool) = (result.message, sanitize_name(&result.tool, TOOL_CHARS));
        let (chars, limit) = (group_digits(result.chars), group_digits(result.limit_chars));
        let tokens = group_digits(result.tokens);
        lines.push(format!(
            "  message {message}  {tool}  {chars} of {limit} characters  ~{tokens} tokens"
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
    // A single turn is the cut itself.
    if next.turns_in_all > 1 {
        let turns = next.turns.iter().map(describe_span);
        lines.extend(turns.map(|turn| format!("  {turn}")));
        lines.extend(more(next.turns_in_all, next.turns.len(), "turn"));
    }
    lines
}

fn describe_cleared(cleared: &ClearedSpan) -> String {
    let counts = [
        (cleared.results, "result"),
        (cleared.inputs, "input"),
        (cleared.media, "attachment"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts = counts.map(|(count, noun)| format_count(*count, noun));
    let counts: Vec<_> = counts.collect();
    let (counts, tokens) = (counts.join(", "), group_digits(cleared.tokens));
    let messages = describe_range(cleared.first, cleared.last);
    format!("{counts} of {messages} (~{tokens} tokens)")
}

fn describe_span(span: &MessageRange) -> String {
    let range = describe_range(span.first, span.last);
    let tokens = group_digits(span.tokens);
    match span.first == span.last {
        true => format!("{range} (~{tokens} tokens)"),
        false => format!(
            "{range} ({}, ~{tokens} tokens)",
            format_count(span.messages, "message")
        ),
    }
}

fn describe_range(first: usize, last: usize) -> String {
    match first == last {
        true => format!("message {first}"),
        false => format!("messages {first} to {last}"),
    }
}

fn format_count(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", group_digits(count))
}

fn format_change(before: impl Display, after: impl Display) -> String {
    format!("{} -> {}", group_digits(before), group_digits(after))
}

/// A name from the request for a terminal: cut at `max_chars`, without control characters.
fn sanitize_name(name: &str, max_chars: usize) -> String {
    let mut shown: String = name.chars().take(max_chars).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown.replace(char::is_control, "?")
}
