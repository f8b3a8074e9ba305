//! Writes a run into the repository: tables into docs/benchmarks.md, plots into docs/measured.

use std::{fs, io, path::Path};

use crate::{
    bodies::SIZES,
    client::io_failure,
    figures::{DIRECT, Figure, Figures, LoadKind, TableRow},
    load::STREAMS,
    plot::{Plot, Series, bars, lines},
    run::RunResults,
    table::{count, megabytes, tables, time},
};

const BEGIN: &str = "<!-- compare: begin -->";
const END: &str = "<!-- compare: end -->";
const PLOTS: [(&str, &str); 4] = [
    ("latency", "Added latency by body size"),
    ("cpu", "Processor time of a request by body size"),
    ("throughput", "Requests a second by body size"),
    ("memory", "Memory, idle and with 1,000 open streams"),
];

/// Writes tables and plots.
///
/// # Errors
/// If a file cannot be written, or docs/benchmarks.md has no place for the tables.
pub(crate) fn write(found: &RunResults) -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("docs/measured");
    fs::create_dir_all(&folder)?;
    for (name, title) in PLOTS {
        fs::write(
            folder.join(format!("{name}.svg")),
            drawn(found, name, title),
        )?;
    }
    let file = root.join("docs/benchmarks.md");
    let text = fs::read_to_string(&file)?;
    let parts = text
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        parts.ok_or_else(|| io_failure("docs/benchmarks.md has no place for the tables"))?;
    let images = PLOTS.map(|(name, title)| format!("![{title}](measured/{name}.svg)\n"));
    let text = format!(
        "{before}{BEGIN}\n\n{}\n{}\n{END}{after}",
        images.join("\n"),
        tables(found)
    );
    fs::write(file, text)
}

fn drawn(found: &RunResults, name: &str, title: &str) -> String {
    type Value = fn(&Figures, TableRow) -> Option<f64>;
    let marks: Vec<(f64, &str)> = SIZES
        .iter()
        .filter(|size| size.name != "250k")
        .map(|size| (size.bytes as f64, size.title))
        .collect();
    let (kind, show, value): (LoadKind, fn(f64) -> String, Value) = match name {
        "latency" => (LoadKind::Latency, time, |it, case| {
            it.added(case, Figure::Median)
        }),
        "cpu" => (LoadKind::Busy, time, |it, case| {
            it.median(case, Figure::Cpu)
        }),
        "throughput" => (LoadKind::Busy, count, |it, case| {
            it.median(case, Figure::Rate)
        }),
        _ => return memory(found, title),
    };
    let series: Vec<Series> = found
        .peers
        .iter()
        .filter(|(peer, _)| *peer != DIRECT || name == "throughput")
        .map(|(peer, _)| {
            let points = SIZES
                .iter()
                .filter(|size| size.name != "250k")
                .filter_map(|size| {
                    let case = (*peer, kind, size.name);
                    let taken = found.figures.refused(case).is_none();
                    let value = value(&found.figures, case).filter(|it| taken && *it > 0.0)?;
                    Some((size.bytes as f64, value))
                });
            Series {
                name: peer,
                points: points.collect(),
            }
        })
        .collect();
    lines(&Plot {
        title,
        marks: &marks,
        show,
        series: &series,
    })
}

fn memory(found: &RunResults, title: &str) -> String {
    let streams = format!("with {} streams", count(STREAMS as f64));
    let series: Vec<Series> = found
        .peers
        .iter()
        .map(|(peer, _)| {
            let case = (*peer, LoadKind::Memory, SIZES[0].name);
            let value = |figure| found.figures.median(case, figure);
            let both = [(0.0, value(Figure::Fresh)), (1.0, value(Figure::Open))];
            let points = both
                .into_iter()
                .filter_map(|(at, value)| Some((at, value?)));
            Series {
                name: peer,
                points: points.collect(),
            }
        })
        .collect();
    bars(&Plot {
        title,
        marks: &[(0.0, "idle"), (1.0, &streams)],
        show: megabytes,
        series: &series,
    })
}
