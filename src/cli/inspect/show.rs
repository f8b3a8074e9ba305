//! The explanation of a plan as text, for a screen of 80 columns. Plain characters, no colour.

use std::{
    fmt::Display,
    io::{self, Write},
};

use crate::cli::table::{group_digits, write_table};
use crate::guard::explain::{ClearedMessages, FoldedMessages, PlanExplanation, Removals};

/// Longer names of models and tools are cut.
const MODEL_CHARS: usize = 48;
const TOOL_CHARS: usize = 20;

pub(super) fn write_explanation(
    out: &mut impl Write,
    explained: &PlanExplanation,
) -> io::Result<()> {
    write_table(out, &describe_model(explained))?;
    writeln!(out)?;
    write_table(out, &describe_makeup(explained))?;
    writeln!(out, "\nwhat is done (messages count from 0)")?;
    write_lines(out, &describe_edits(explained))?;
    if let Some(held) = &explained.recovery_held {
        writeln!(out, "\nrecovery is held back")?;
        writeln!(out, "  {held}")?;
    }
    if let Some(held) = &explained.recall_held {
        writeln!(out, "\nthe tool recall is held back\n  {held}")?;
    }
    let Some(next) = &explained.next else {
        return Ok(());
    };
    writeln!(out, "\nwhat goes next, when it no longer fits")?;
    match describe_removals(next) {
        lines if lines.is_empty() => writeln!(out, "  nothing: all that is left must stay"),
        lines => write_lines(out, &lines),
    }
}

fn write_lines(out: &mut impl Write, lines: &[String]) -> io::Result<()> {
    lines.iter().try_for_each(|line| writeln!(out, "  {line}"))
}

fn describe_model(explained: &PlanExplanation) -> [[String; 2]; 6] {
    let (model, window) = (&explained.model, &explained.window);
    let name = model.name.as_deref().unwrap_or("none named");
    let provider = model.provider.as_deref().unwrap_or("no provider");
    let mut held = format!("{} tokens ({})", group_digits(window.tokens), window.source);
    if let Some(limit) = window.input_limit {
        held += &format!(", at most {} of them prompt", group_digits(limit));
    }
    let open = "open: nothing is cut before the provider refuses it".to_owned();
    let budget = explained.budget_tokens.map(group_digits);
    let budget = budget.map_or(open, |budget| format!("{budget} tokens for the prompt"));
    let caution = group_digits(model.caution_above);
    let critical = model.critical_above.map(group_digits);
    let critical = critical.map_or(String::new(), |above| format!(", critical above {above}"));
    let level = format!("by reported tokens: caution above {caution}{critical}");
    let served = format!("{provider}, profile {}", explained.profile);
    [
        ["model".to_owned(), sanitize_name(name, MODEL_CHARS)],
        ["served by".to_owned(), served],
        ["window".to_owned(), held],
        ["budget".to_owned(), budget],
        ["level".to_owned(), level],
        ["actions".to_owned(), explained.actions.clone()],
    ]
}

/// Each kind of content with its estimated tokens and its share of the window, before and after the edits.
fn describe_makeup(explained: &PlanExplanation) -> Vec<[String; 3]> {
    let (came, goes) = (&explained.as_it_came, &explained.as_it_goes);
    let (before, after) = (&came.shares, &goes.shares);
    let (window, reserve) = (explained.window.tokens.max(1), explained.reserve_tokens);
    let share_cell = |tokens: u32| {
        let percent = f64::from(tokens) * 100.0 / f64::from(window);
        format!("{:>12} {percent:>6.1} %", group_digits(tokens))
    };
    let count_cell = |count: usize| format!("{:>12}", group_digits(count));
    let heading = ["tokens, estimated", "  as it came", "  as it goes"];
    let shares = [
        ("system", before.system, after.system),
        ("tools", before.tools, after.tools),
        ("history", before.history, after.history),
        ("tool results", before.tool_results, after.tool_results),
        ("images", before.images, after.images),
        ("whole prompt", came.prompt, goes.prompt),
        ("over the budget", came.over, goes.over),
        ("free", came.free, goes.free),
        ("reserve", reserve, reserve),
    ];
    let counts = [
        ("messages", came.messages, goes.messages),
        ("bytes", came.bytes, goes.bytes),
    ];
    let heading = [heading.map(str::to_owned)].into_iter();
    heading
        .chain(shares.map(|(name, from, to)| [name.into(), share_cell(from), share_cell(to)]))
        .chain(counts.map(|(name, from, to)| [name.into(), count_cell(from), count_cell(to)]))
        .collect()
}

fn describe_edits(explained: &PlanExplanation) -> Vec<String> {
    let mut lines = Vec::new();
    for text in &explained.shortened {
        let (how, message) = (text.how, text.message);
        let part = text.part.map_or(String::new(), |at| format!(", part {at}"));
        let name = sanitize_name(&text.name, TOOL_CHARS);
        let sizes = format_change(text.before, text.after);
        lines.push(format!(
            "{how} message {message}{part}  {name}  {sizes} tokens"
        ));
    }
    if let Some(short) = &explained.short_tools {
        let count = format_count(short.tools, "tool");
        let and_more = if short.descriptions {
            " and descriptions"
        } else {
            ""
        };
        let tokens = group_digits(short.tokens);
        lines.push(format!(
            "shorten {count}: annotations{and_more} (~{tokens} tokens)"
        ));
    }
    for cut in &explained.truncated {
        let (message, tool) = (cut.message, sanitize_name(&cut.tool, TOOL_CHARS));
        let sizes = format_change(cut.before, cut.after);
        let harder = if cut.tighter { "  harder" } else { "" };
        lines.push(format!(
            "truncate message {message}  {tool}  {sizes} characters{harder}"
        ));
    }
    lines.extend(describe_removals(&explained.removals));
    if let Some(cap) = explained.answer_cap.filter(|cap| cap.is_lowered()) {
        let tokens = format_change(cap.asked, cap.sent);
        lines.push(format!("lower the answer's cap: {tokens} tokens"));
    }
    if explained.reserve_given_up > 0 {
        let usual = explained.reserve_tokens + explained.reserve_given_up;
        let tokens = format_change(usual, explained.reserve_tokens);
        lines.push(format!("keep less for the answer: {tokens} tokens"));
    }
    if lines.is_empty() {
        lines.push("nothing: it goes on byte for byte".to_owned());
    }
    let mut say = |words: &str| lines.push(words.to_owned());
    if let Some(reason) = &explained.stands_back {
        say("the guard stands back:");
        say(&reason.why);
    }
    if explained.uncut_because.is_some() {
        say("the window is only guessed, so nothing is cut by it: what the provider refuses");
        say("is fitted to what the refusal says (models.NAME.context_length sets it)");
    }
    if explained.as_it_goes.over > 0 && explained.stands_back.is_none() {
        say("still over: the rest must stay; it is sent, and the provider decides");
    }
    lines
}

fn describe_removals(removals: &Removals) -> Vec<String> {
    let cleared = removals.cleared.as_ref().map(describe_cleared);
    let folded = removals.folded.as_ref().map(describe_folded);
    cleared.into_iter().chain(folded).collect()
}

fn describe_cleared(cleared: &ClearedMessages) -> String {
    let counts = [
        (cleared.results, "result"),
        (cleared.inputs, "input"),
        (cleared.media, "attachment"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts = counts.map(|(count, noun)| format_count(*count, noun));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let messages = describe_range(cleared.first, cleared.last);
    let tokens = group_digits(cleared.tokens);
    format!("clear {counts} of {messages} (~{tokens} tokens)")
}

fn describe_folded(folded: &FoldedMessages) -> String {
    let range = describe_range(folded.first, folded.last);
    let count = format_count(folded.messages, "message");
    format!(
        "fold {range} ({count}, ~{} tokens)",
        group_digits(folded.tokens)
    )
}

fn describe_range(first: usize, last: usize) -> String {
    if first == last {
        return format!("message {first}");
    }
    format!("messages {first} to {last}")
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
