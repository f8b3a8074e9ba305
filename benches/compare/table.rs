//! The tables as aligned markdown.

use std::fmt::Write as _;

use crate::{
    bodies::SIZES,
    figures::{DIRECT, Figure, Figures, LoadKind, NGINX, TableRow},
    load::STREAMS,
    run::{RunResults, SLOW_ROUNDS},
};

/// The text in place of a missing figure.
const NONE: &str = "–";

pub(crate) fn tables(found: &RunResults) -> String {
    let mut out = heading(found);
    for size in SIZES {
        let kinds = [
            LoadKind::Latency,
            LoadKind::Busy,
            LoadKind::Open,
            LoadKind::Stream,
        ];
        if measured(found, &kinds, size.name) {
            let _ = writeln!(out, "\n**{}**\n", size.title);
            out += &requests(found, size.name);
        }
    }
    if GROWING
        .iter()
        .any(|(kind, size, _)| measured(found, &[*kind], size))
    {
        let _ = writeln!(out, "\n**Conversations that grow: CPU each**\n");
        out += &growing(found);
    }
    let events_kinds = [LoadKind::Streams, LoadKind::Events, LoadKind::Flood];
    if measured(found, &events_kinds, SIZES[0].name) {
        let _ = writeln!(out, "\n**Streamed events**\n");
        out += &events(found);
    }
    if measured(found, &[LoadKind::Memory], SIZES[0].name) {
        let _ = writeln!(out, "\n**Memory**\n");
        out += &memory(found);
    }
    out + &refusals(found)
}

fn measured(found: &RunResults, kinds: &[LoadKind], size: &'static str) -> bool {
    let mut cases = found
        .peers
        .iter()
        .flat_map(|(name, _)| kinds.iter().map(move |kind| (*name, *kind, size)));
    cases.any(|case| found.figures.rounds(case) > 0 || found.figures.refused(case).is_some())
}

fn heading(found: &RunResults) -> String {
    let versions: Vec<String> = found
        .peers
        .iter()
        .filter(|(_, version)| !version.is_empty())
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    let mut out = format!(
        "{}.\nMedians of {} rounds (portkey, headroom, litellm: {}); in brackets the ratio to nginx.\n",
        versions.join(", "),
        found.rounds,
        found.rounds.min(SLOW_ROUNDS)
    );
    for (name, why) in &found.missing {
        let _ = writeln!(out, "\n{name} was not measured: {why}");
    }
    out
}

fn requests(found: &RunResults, size: &'static str) -> String {
    let figures = &found.figures;
    let mut rows = vec![
        [
            "",
            "added, median",
            "added, 99 %",
            "first byte of a stream, added",
            "50 events, added",
            "requests/s",
            "CPU each",
            "core",
            "open loop, median",
            "99 %",
            "at",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for (name, _) in &found.peers {
        let case = |kind| (*name, kind, size);
        let (latency, busy) = (case(LoadKind::Latency), case(LoadKind::Busy));
        let (open, stream) = (case(LoadKind::Open), case(LoadKind::Stream));
        rows.push(vec![
            (*name).to_owned(),
            added(figures, latency, Figure::Median),
            added(figures, latency, Figure::Late),
            added(figures, stream, Figure::First),
            added(figures, stream, Figure::Whole),
            plain(figures, busy, Figure::Rate, count),
            compared(figures, busy, Figure::Cpu, time),
            plain(figures, busy, Figure::Share, percent),
            compared(figures, open, Figure::Median, time),
            compared(figures, open, Figure::Late, time),
            plain(figures, open, Figure::Asked, |it| {
                format!("{}/s", count(it))
            }),
        ]);
    }
    laid_out(&rows)
}

/// The columns of the table of growing conversations.
const GROWING: [(LoadKind, &str, &str); 8] = [
    (LoadKind::Growing, "1k", "1 KB"),
    (LoadKind::Growing, "100k", "100 KB"),
    (LoadKind::Growing, "1m", "1 MB"),
    (LoadKind::Growing, "4m", "4 MB"),
    (LoadKind::GrowingMessages, "100k", "Messages, 100 KB"),
    (LoadKind::GrowingMessages, "1m", "Messages, 1 MB"),
    (LoadKind::GrowingResponses, "100k", "Responses, 100 KB"),
    (LoadKind::GrowingResponses, "1m", "Responses, 1 MB"),
];

fn growing(found: &RunResults) -> String {
    let titles = GROWING.map(|(_, _, title)| title.to_owned());
    let mut rows = vec![[vec![String::new()], titles.to_vec()].concat()];
    let fast = found.peers.iter().map(|(name, _)| *name);
    let has_any = |name: &&'static str| {
        let mut cases = GROWING.iter();
        *name != DIRECT
            && cases.any(|(kind, size, _)| found.figures.rounds((name, *kind, size)) > 0)
    };
    for name in fast.filter(has_any) {
        let cells = GROWING
            .map(|(kind, size, _)| compared(&found.figures, (name, kind, size), Figure::Cpu, time));
        rows.push([vec![name.to_owned()], cells.to_vec()].concat());
    }
    laid_out(&rows)
}

fn events(found: &RunResults) -> String {
    let head = [
        "",
        "added to an event, median",
        "99 %",
        "CPU each",
        "32 streams without pauses, of the direct rate",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (name, _) in &found.peers {
        let case = |kind| (*name, kind, SIZES[0].name);
        rows.push(vec![
            (*name).to_owned(),
            added(&found.figures, case(LoadKind::Events), Figure::Event),
            added(&found.figures, case(LoadKind::Events), Figure::EventLate),
            compared(
                &found.figures,
                case(LoadKind::Flood),
                Figure::EventCpu,
                time,
            ),
            share_of_direct(&found.figures, case(LoadKind::Streams), Figure::Rate),
        ]);
    }
    laid_out(&rows)
}

fn memory(found: &RunResults) -> String {
    let streams = format!("{STREAMS} open streams");
    let head = ["", "idle, fresh", "idle, after a request", &streams];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (name, _) in found.peers.iter().filter(|(name, _)| *name != DIRECT) {
        let case = (*name, LoadKind::Memory, SIZES[0].name);
        // Also where the streams were refused.
        let idle = |figure| {
            let idle = found.figures.median(case, figure);
            idle.map_or_else(|| NONE.to_owned(), megabytes)
        };
        rows.push(vec![
            (*name).to_owned(),
            idle(Figure::Fresh),
            idle(Figure::Idle),
            plain(&found.figures, case, Figure::Open, megabytes),
        ]);
    }
    laid_out(&rows)
}

fn refusals(found: &RunResults) -> String {
    let mut out = String::new();
    for ((name, kind, size), why) in found.figures.refusals() {
        let why: String = why
            .chars()
            .take(160)
            .filter(|it| !it.is_control())
            .collect();
        let kind = format!("{kind:?}").to_lowercase();
        let _ = writeln!(out, "- {name}, {size}, {kind}: {why}");
    }
    if out.is_empty() {
        out
    } else {
        format!("\nRefused:\n\n{out}")
    }
}

/// The difference to no proxy, whose row has its own time.
fn added(figures: &Figures, case: TableRow, figure: Figure) -> String {
    if case.0 == DIRECT {
        return plain(figures, case, figure, |it| format!("({})", time(it)));
    }
    let value = figures.added(case, figure).map(time);
    cell(figures, case, value, figures.added_ratio(case, figure))
}

fn compared(figures: &Figures, case: TableRow, figure: Figure, show: fn(f64) -> String) -> String {
    let value = figures.median(case, figure).map(show);
    cell(figures, case, value, figures.ratio(case, figure))
}

/// What the peer reaches of the figure without a proxy, in the same rounds.
fn share_of_direct(figures: &Figures, case: TableRow, figure: Figure) -> String {
    cell(
        figures,
        case,
        figures.share(case, figure).map(percent),
        None,
    )
}

fn plain(figures: &Figures, case: TableRow, figure: Figure, show: fn(f64) -> String) -> String {
    cell(figures, case, figures.median(case, figure).map(show), None)
}

fn cell(figures: &Figures, case: TableRow, value: Option<String>, ratio: Option<f64>) -> String {
    match (value, ratio) {
        _ if figures.refused(case).is_some() => "refused".to_owned(),
        (None, _) => NONE.to_owned(),
        (Some(value), Some(ratio)) if case.0 != NGINX => format!("{value} ({})", factor(ratio)),
        (Some(value), _) => value,
    }
}

fn factor(ratio: f64) -> String {
    if ratio.abs() < 9.95 {
        return format!("{ratio:.2}");
    }
    count(ratio)
}

/// Three digits and a unit.
pub(crate) fn time(seconds: f64) -> String {
    let micros = seconds * 1e6;
    match micros.abs() {
        it if it < 9.95 => format!("{micros:.1} µs"),
        it if it < 999.5 => format!("{micros:.0} µs"),
        it if it < 9_995.0 => format!("{:.2} ms", micros / 1e3),
        it if it < 99_950.0 => format!("{:.1} ms", micros / 1e3),
        it if it < 999_500.0 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

/// With a comma for thousands.
pub(crate) fn count(value: f64) -> String {
    if value < 9.95 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

pub(crate) fn megabytes(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}

/// Aligned columns; the first is text, the others are figures.
fn laid_out(rows: &[Vec<String>]) -> String {
    let width = |at: usize| {
        let all = rows.iter().filter_map(|row| row.get(at));
        all.map(|it| it.chars().count()).max().unwrap_or(0)
    };
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().enumerate().map(|(at, cell)| match at {
            0 => format!("{cell:<0$}", width(at)),
            _ => format!("{cell:>0$}", width(at)),
        });
        let _ = writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "));
        if number == 0 {
            let rule = (0..row.len()).map(|at| match at {
                0 => "-".repeat(width(at).max(3)),
                _ => format!("{}:", "-".repeat(width(at).max(3) - 1)),
            });
            let _ = writeln!(out, "| {} |", rule.collect::<Vec<_>>().join(" | "));
        }
    }
    out
}
