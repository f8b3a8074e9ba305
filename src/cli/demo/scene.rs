//! What happens in the demo's session: tasks, tools, and results of realistic sizes.
//!
//! Everything is generated from a small generator with a fixed start, so that every run of the
//! demo tells the same story.

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Characters of tool results in recorded coding sessions: share of results below, size.
const SIZES: &[(f64, f64)] = &[
    (0.0, 12.0),
    (0.5, 170.0),
    (0.9, 2_700.0),
    (0.99, 24_000.0),
    (1.0, 87_000.0),
];

const TASKS: &[&str] = &[
    "The tide table service answers 500 for stations without a gauge. Find out why and mend it.",
    "Now add a test for that case, and run the whole suite.",
    "The nightly import is slow since last week. Where does the time go?",
    "Rename `depth` to `depth_m` everywhere, the database column apart.",
    "The retry loop in the uploader never gives up. Put a bound on it, from the settings.",
    "Have a look at the open warnings of the compiler and clear those that are safe to clear.",
    "Write down in docs/harbours.md how a new harbour is added, step by step.",
    "Two users saw times in the wrong zone. Check how we parse the offset of a station.",
    "The cache of stations grows for ever. Bound it, and show me that it is bounded.",
    "Please split src/forecast.rs: it has become too long to read.",
];

const FILES: &[&str] = &[
    "src/station.rs",
    "src/forecast.rs",
    "src/import/nightly.rs",
    "src/upload/retry.rs",
    "src/cache.rs",
    "tests/tides.rs",
];

const CODE: &[&str] = &[
    "pub fn level_at(&self, time: Instant) -> Option<Level> {",
    "    let gauge = self.gauges.get(&station.id)?;",
    "    // A station without a gauge borrows its neighbour's.",
    "    if reading.quality < Quality::Good { continue; }",
    "    let offset = parse_offset(&row.offset).unwrap_or(Offset::UTC);",
    "    self.cache.insert(station.id, forecast.clone());",
    "        .map(|tide| tide.height - station.datum)",
    "    for attempt in 1..=settings.upload.attempts {",
    "}",
    "",
];

const LOG: &[&str] = &[
    "test tides::a_station_without_a_gauge ... ok",
    "test import::nightly_reads_every_row ... ok",
    "warning: unused variable: `datum`",
    "   Compiling harbour v0.4.2",
    "INFO import: read 4096 rows in 1.82 s",
    "DEBUG cache: evicted station 1187",
    "test upload::gives_up_after_the_last_attempt ... FAILED",
];

const FOUND: &[&str] = &[
    "src/station.rs:118:    let gauge = self.gauges.get(&station.id)?;",
    "src/forecast.rs:42:pub fn level_at(&self, time: Instant) -> Option<Level> {",
    "src/import/nightly.rs:77:    let offset = parse_offset(&row.offset)",
    "tests/tides.rs:9:fn a_station_without_a_gauge() {",
];

/// The generator of one session.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    thrown: u64,
}

impl Scene {
    pub(super) fn new() -> Self {
        Self { thrown: 0 }
    }

    pub(super) fn system() -> &'static str {
        "You are a careful programmer working in the repository `harbour`, a service for tide \
         tables. Read before you write, keep changes small, run the tests after each of them, and \
         say in a few sentences what you have done."
    }

    /// What the user says at the start of this turn.
    pub(super) fn task(turn: usize) -> &'static str {
        TASKS[turn % TASKS.len()]
    }

    pub(super) fn tools() -> Value {
        let tool = |name: &str, what: &str, properties: &[&str]| {
            let described: serde_json::Map<String, Value> = properties
                .iter()
                .map(|property| ((*property).to_owned(), json!({"type": "string"})))
                .collect();
            json!({"type": "function", "function": {"name": name, "description": what,
                "parameters": {"type": "object", "properties": described, "required": properties}}})
        };
        json!([
            tool("read_file", "Read a file of the repository", &["path"]),
            tool(
                "run",
                "Run a command and return what it prints",
                &["command"]
            ),
            tool("edit", "Replace a piece of a file", &["path", "old", "new"]),
            tool("search", "Search the repository for a text", &["query"]),
        ])
    }

    /// What a tool returns.
    pub(super) fn result(&mut self, tool: &str) -> String {
        let size = self.size();
        match tool {
            "read_file" => self.lines(CODE, size),
            "search" => self.lines(FOUND, size),
            "run" => self.lines(LOG, size),
            _ => {
                let at = self.below(FILES.len());
                format!("{}: 1 replacement made", FILES[at])
            }
        }
    }

    fn next(&mut self) -> u64 {
        self.thrown += 1;
        xxh3_64_with_seed(&self.thrown.to_le_bytes(), 0x7_1de5)
    }

    fn below(&mut self, sides: usize) -> usize {
        (self.next() % sides as u64) as usize
    }

    /// Characters of the next result, by the shares of [`SIZES`].
    fn size(&mut self) -> usize {
        let share = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        let rows = SIZES.iter().zip(SIZES.iter().skip(1));
        let found = rows.into_iter().find(|(_, (above, _))| share <= *above);
        found.map_or(0, |((low, least), (high, most))| {
            let place = (share - low) / (high - low);
            (least * (most / least).powf(place)) as usize
        })
    }

    fn lines(&mut self, from: &[&str], size: usize) -> String {
        let mut text = String::with_capacity(size + 100);
        while text.len() < size {
            let line = from[self.below(from.len())];
            text.push_str(line);
            text.push('\n');
        }
        text.truncate(size.max(1));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_sizes_of_recorded_sessions() {
        let mut scene = Scene::new();
        let mut sizes: Vec<usize> = (0..20_000).map(|_| scene.size()).collect();
        sizes.sort_unstable();
        assert!((150..190).contains(&sizes[10_000]), "{}", sizes[10_000]);
        assert!((2_300..3_100).contains(&sizes[18_000]), "{}", sizes[18_000]);
        assert!(
            (20_000..28_000).contains(&sizes[19_800]),
            "{}",
            sizes[19_800]
        );
        assert!(sizes[19_999] <= 87_000 && sizes[19_999] > 60_000);
    }

    #[test]
    fn every_tool_returns_something_and_every_run_the_same() {
        let (mut one, mut other) = (Scene::new(), Scene::new());
        for tool in ["read_file", "run", "edit", "search", "unknown"] {
            let result = one.result(tool);
            assert!(!result.is_empty());
            assert_eq!(result, other.result(tool));
        }
        assert_eq!(Scene::tools().as_array().unwrap().len(), 4);
    }
}
