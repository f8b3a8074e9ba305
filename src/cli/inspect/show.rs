//! The report as text, for a screen of 80 columns. Plain characters, no colour.

use std::io::{self, Write};

use crate::{
    cli::table::{self, grouped},
    guard::found::{Cleared, Found, Made, Next, Shortened, Span, Truncated},
};

/// Cells of a bar.
const CELLS: u64 = 20;
/// Characters of a name that are shown.
const MODEL_CHARS: usize = 60;
const TOOL_CHARS: usize = 20;

pub(super) fn write(out: &mut impl Write, found: &Found) -> io::Result<()> {
    table::write(out, &head(found))?;
    writeln!(out, "\nestimated tokens, and per cent of the window")?;
    shares(out, found)?;
    writeln!(out, "\nwhat would be done (messages count from 0)")?;
    done(out, found)?;
    if let Some(next) = &found.next {
        writeln!(out, "\nwhat goes first next, when it no longer fits")?;
        next_to_go(out, next)?;
    }
    Ok(())
}

fn head(found: &Found) -> Vec<[String; 2]> {
    let row = |name: &str, value: String| [name.to_owned(), value];
    let model = found
        .model
        .as_deref()
        .map_or("none named".into(), |name| plain(name, MODEL_CHARS));
    let provider = found.provider.as_deref().unwrap_or("no provider");
    let window = &found.window;
    let limit = window.input_limit.map_or(String::new(), |tokens| {
        format!(", of the prompt alone {}", format_count(tokens))
    });
    vec![
        row("model", model),
        row(
            "served by",
            format!("{provider}, profile {}", found.profile),
        ),
        row(
            "window",
            format!(
                "{} tokens ({}){limit}",
                format_count(window.tokens),
                window.source
            ),
        ),
        row(
            "budget",
            format!(
                "{} tokens for the prompt",
                format_count(found.budget_tokens)
            ),
        ),
    ]
}

/// One row: what it is, and its tokens as the request came and as it goes.
type Row = (&'static str, fn(&Made) -> u32);

fn shares(out: &mut impl Write, found: &Found) -> io::Result<()> {
    const ROWS: [Row; 5] = [
        ("system", |made| made.system),
        ("tools", |made| made.tools),
        ("history", |made| made.history),
        ("tool results", |made| made.tool_results),
        ("images", |made| made.images),
    ];
    let (came, goes) = (&found.as_it_came, &found.as_it_goes);
    let window = found.window.tokens;
    let edited = found.is_edited();
    if edited {
        writeln!(out, "  {:<12}{:>21}{:>21}", "", "as it came", "as it goes")?;
    }
    let mut line = |name: &str, before: u32, after: u32| {
        let mut text = format!("  {name:<12}{}", cell(before, window));
        if edited {
            text.push_str(&cell(after, window));
        }
        writeln!(out, "{text}  {}", bar(after, window))
    };
    for (name, tokens) in ROWS {
        line(name, tokens(came), tokens(goes))?;
    }
    line("reserve", found.reserve_tokens, found.reserve_tokens)?;
    line("held back", found.held_back(), found.held_back())?;
    line("free", came.free, goes.free)?;
    if came.over > 0 || goes.over > 0 {
        line("over", came.over, goes.over)?;
    }
    Ok(())
}

fn cell(tokens: u32, window: u32) -> String {
    let percent = f64::from(tokens) * 100.0 / f64::from(window.max(1));
    format!("{:>12} {percent:>6.1} %", format_count(tokens))
}

/// A bar of so many tokens. What is there is seen, however little it is.
fn bar(tokens: u32, window: u32) -> String {
    let filled = (u64::from(tokens) * CELLS).div_ceil(u64::from(window.max(1)));
    let filled = filled.min(CELLS) as usize;
    "#".repeat(filled) + &".".repeat(CELLS as usize - filled)
}

fn done(out: &mut impl Write, found: &Found) -> io::Result<()> {
    if let Some(reason) = &found.stands_back {
        writeln!(out, "  Nothing ({}):\n  {}.", reason.word, reason.why)?;
    } else if !found.is_edited() {
        writeln!(out, "  Nothing: it goes on byte for byte.")?;
    }
    let rows: Vec<_> = found.shortened.iter().map(shortened_row).collect();
    table::write(out, &rows)?;
    let rows: Vec<_> = found.truncated.iter().map(cut_row).collect();
    table::write(out, &rows)?;
    if let Some(cleared) = &found.cleared {
        writeln!(out, "  clear {}", clearing(cleared))?;
    }
    if let Some(folded) = &found.folded {
        writeln!(out, "  fold {}", stretch(folded))?;
    }
    if let Some(cap) = found.lowered_cap() {
        let (asked, sent) = (format_count(cap.asked), format_count(cap.sent));
        writeln!(out, "  lower the answer's cap: {asked} -> {sent} tokens")?;
    }
    let (came, goes) = (&found.as_it_came, &found.as_it_goes);
    size(out, "as it came", came)?;
    if found.is_edited() {
        size(out, "as it goes", goes)?;
    }
    if goes.over > 0 && found.stands_back.is_none() {
        writeln!(
            out,
            "  Still over: nothing more can go. It is sent, and the provider decides."
        )?;
    }
    Ok(())
}

fn size(out: &mut impl Write, name: &str, made: &Made) -> io::Result<()> {
    let (messages, bytes) = (format_count(made.messages), format_count(made.bytes));
    let tokens = format_count(made.prompt);
    let noun = if made.messages == 1 {
        "message, "
    } else {
        "messages,"
    };
    writeln!(
        out,
        "  {name}  {messages:>6} {noun}  {bytes:>11} bytes, {tokens:>10} tokens, estimated"
    )
}

fn shortened_row(text: &Shortened) -> [String; 4] {
    let part = text
        .part
        .map_or(String::new(), |part| format!(", part {part}"));
    [
        format!("{} message {}{part}", text.how, text.message),
        plain(&text.name, TOOL_CHARS),
        format!(
            "{} -> {} tokens",
            format_count(text.tokens_before),
            format_count(text.tokens_after)
        ),
        String::new(),
    ]
}

fn cut_row(cut: &Truncated) -> [String; 4] {
    let why = if cut.tighter { "harder" } else { "" };
    [
        format!("truncate message {}", cut.message),
        plain(&cut.tool, TOOL_CHARS),
        format!(
            "{} -> {} characters",
            format_count(cut.chars_before),
            format_count(cut.chars_after)
        ),
        why.to_owned(),
    ]
}

fn next_to_go(out: &mut impl Write, next: &Next) -> io::Result<()> {
    if next.results.is_empty() && next.cut.is_none() && next.clear.is_none() {
        return writeln!(
            out,
            "  Nothing: there are only the pinned start and the newest message or step."
        );
    }
    if !next.results.is_empty() {
        writeln!(
            out,
            "  the largest tool results, each as soon as it passes its limit"
        )?;
        let rows: Vec<_> = next
            .results
            .iter()
            .map(|result| {
                [
                    format!("  message {}", result.message),
                    plain(&result.tool, TOOL_CHARS),
                    format!(
                        "{} of {} characters",
                        format_count(result.chars),
                        format_count(result.limit_chars)
                    ),
                    format!("~{} tokens", format_count(result.tokens)),
                ]
            })
            .collect();
        table::write(out, &rows)?;
        more(out, next.results_in_all - next.results.len(), "result")?;
    }
    if let Some(clear) = &next.clear {
        writeln!(out, "  old tool rounds: {}", clearing(clear))?;
    }
    match &next.cut {
        None => writeln!(
            out,
            "  no turn: there are only the pinned start and the newest message or step"
        ),
        Some(cut) => {
            writeln!(out, "  the next cut folds {}", stretch(cut))?;
            if next.turns_in_all == 1 {
                return Ok(());
            }
            for turn in &next.turns {
                writeln!(out, "    {}", stretch(turn))?;
            }
            more(out, next.turns_in_all - next.turns.len(), "turn")
        }
    }
}

fn more(out: &mut impl Write, count: usize, what: &str) -> io::Result<()> {
    match count {
        0 => Ok(()),
        1 => writeln!(out, "    and 1 {what} more"),
        _ => writeln!(out, "    and {count} {what}s more"),
    }
}

/// How much of what is cleared, in one line.
fn clearing(cleared: &Cleared) -> String {
    let counts = [
        (cleared.results, "result"),
        (cleared.inputs, "input"),
        (cleared.media, "image"),
    ];
    let counts: Vec<String> = counts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, noun)| format!("{count} {noun}{}", if count == 1 { "" } else { "s" }))
        .collect();
    let (counts, tokens) = (counts.join(", "), format_count(cleared.tokens));
    let messages = range(cleared.first, cleared.last);
    format!("{counts} of {messages} (~{tokens} tokens)")
}

fn stretch(span: &Span) -> String {
    let (messages, tokens) = (range(span.first, span.last), format_count(span.tokens));
    if span.first == span.last {
        return format!("{messages} (~{tokens} tokens)");
    }
    let number = format_count(span.messages);
    format!("{messages} ({number} messages, ~{tokens} tokens)")
}

fn range(first: usize, last: usize) -> String {
    match first == last {
        true => format!("message {first}"),
        false => format!("messages {first} to {last}"),
    }
}

fn format_count(number: impl TryInto<u64>) -> String {
    grouped(number.try_into().unwrap_or(u64::MAX))
}

/// A name from the request, as it may stand on a terminal: short, and nothing that moves the
/// cursor.
fn plain(name: &str, most: usize) -> String {
    let shown: String = name.chars().take(most).collect();
    let rest = if name.chars().nth(most).is_some() {
        "…"
    } else {
        ""
    };
    shown.replace(char::is_control, "?") + rest
}
