//! Measured values by round, and their summaries: medians of the rounds, differences to no proxy,
//! and ratios to nginx in the same round.

use std::collections::{BTreeMap, HashMap};

use plimsoll::conversation::Format;

/// Times in seconds, memory in bytes, rates a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Figure {
    Median,
    /// The 99th percentile.
    Late,
    Rate,
    Cpu,
    /// Share of the peer's core.
    Share,
    /// The rate of an open loop.
    Asked,
    First,
    Whole,
    Event,
    EventLate,
    EventCpu,
    /// Memory after the start, and after a first request.
    Fresh,
    Idle,
    Open,
}

/// What is asked of a peer during one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub(crate) enum LoadKind {
    /// One connection, closed loop: latency.
    Latency,
    /// Many connections, closed loop: throughput and processor time.
    Busy,
    /// Requests at fixed times, whether or not answers have come; latency from the planned time.
    Open,
    /// One connection, streams without pauses: the first byte, and the whole.
    Stream,
    /// Many connections with streams without pauses, closed loop: events a second.
    Streams,
    /// A few paced streams: the delay added to each event.
    Events,
    /// Many paced streams: the processor time of each event.
    Flood,
    /// Memory, idle and with 1,000 open streams. One turn only.
    Memory,
    /// As `Busy`, with a conversation on each connection that grows with every request.
    Growing,
    /// The same in Messages.
    GrowingMessages,
    /// The same in Responses.
    GrowingResponses,
}

impl LoadKind {
    pub(crate) const fn format(self) -> Format {
        match self {
            Self::GrowingMessages => Format::Messages,
            Self::GrowingResponses => Format::Responses,
            _ => Format::Chat,
        }
    }

    pub(crate) const fn grows(self) -> bool {
        matches!(
            self,
            Self::Growing | Self::GrowingMessages | Self::GrowingResponses
        )
    }
}

pub(crate) type FigureSample = BTreeMap<Figure, f64>;

/// A row of a table: a peer under a load.
pub(crate) type TableRow = (&'static str, LoadKind, &'static str);

#[derive(Default)]
pub(crate) struct Figures {
    rounds: HashMap<TableRow, BTreeMap<usize, FigureSample>>,
    refused: HashMap<TableRow, String>,
}

/// Without a proxy.
pub(crate) const DIRECT: &str = "direct";
/// The peer that all are compared with.
pub(crate) const NGINX: &str = "nginx";

impl Figures {
    pub(crate) fn keep_sample(&mut self, case: TableRow, round: usize, sample: FigureSample) {
        let rounds = self.rounds.entry(case).or_default();
        rounds.entry(round).or_default().extend(sample);
    }

    pub(crate) fn record_refusal(&mut self, case: TableRow, why: String) {
        self.refused.insert(case, why);
    }

    pub(crate) fn refused(&self, case: TableRow) -> Option<&str> {
        self.refused.get(&case).map(String::as_str)
    }

    /// Each refusal, in a fixed order.
    pub(crate) fn refusals(&self) -> Vec<(TableRow, &str)> {
        let mut all: Vec<_> = self
            .refused
            .iter()
            .map(|(case, why)| (*case, why.as_str()))
            .collect();
        all.sort_by_key(|((peer, kind, size), _)| (*peer, *kind as usize, *size));
        all
    }

    pub(crate) fn rounds(&self, case: TableRow) -> usize {
        self.rounds.get(&case).map_or(0, BTreeMap::len)
    }

    fn each(&self, case: TableRow, figure: Figure) -> impl Iterator<Item = (usize, f64)> + '_ {
        let rounds = self.rounds.get(&case).into_iter().flatten();
        rounds.filter_map(move |(round, sample)| Some((*round, *sample.get(&figure)?)))
    }

    pub(crate) fn median(&self, case: TableRow, figure: Figure) -> Option<f64> {
        middle(self.each(case, figure).map(|(_, value)| value))
    }

    /// The difference to the same load without a proxy, in the same round.
    pub(crate) fn added(&self, case: TableRow, figure: Figure) -> Option<f64> {
        middle(self.each_added(case, figure).map(|(_, value)| value))
    }

    fn each_added(
        &self,
        case: TableRow,
        figure: Figure,
    ) -> impl Iterator<Item = (usize, f64)> + '_ {
        let direct: BTreeMap<_, _> = self.each((DIRECT, case.1, case.2), figure).collect();
        self.each(case, figure)
            .filter_map(move |(round, value)| Some((round, value - direct.get(&round)?)))
    }

    /// The ratio to nginx in the same round.
    pub(crate) fn ratio(&self, case: TableRow, figure: Figure) -> Option<f64> {
        let own = self.each(case, figure);
        quotient(own, self.each((NGINX, case.1, case.2), figure))
    }

    /// The ratio to the same load without a proxy, in the same round.
    pub(crate) fn share(&self, case: TableRow, figure: Figure) -> Option<f64> {
        let own = self.each(case, figure);
        quotient(own, self.each((DIRECT, case.1, case.2), figure))
    }

    /// The ratio of these differences.
    pub(crate) fn added_ratio(&self, case: TableRow, figure: Figure) -> Option<f64> {
        let own = self.each_added(case, figure);
        quotient(own, self.each_added((NGINX, case.1, case.2), figure))
    }
}

fn quotient(
    own: impl Iterator<Item = (usize, f64)>,
    nginx: impl Iterator<Item = (usize, f64)>,
) -> Option<f64> {
    let nginx: BTreeMap<_, _> = nginx.collect();
    // A difference may be zero or negative on a busy machine; then there is no ratio.
    middle(own.filter_map(|(round, value)| {
        let other = *nginx.get(&round)?;
        (other > 0.0).then_some(value / other)
    }))
}

fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let value = quantile(values, 0.5);
    value.is_finite().then_some(value)
}

/// The quantile of a share; between two values, their mean. NaN for an empty list.
pub(crate) fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    let Some(last) = all.len().checked_sub(1) else {
        return f64::NAN;
    };
    if share == 0.5 {
        return f64::midpoint(all[last / 2], all[all.len() / 2]);
    }
    all[(last as f64 * share).round() as usize]
}
