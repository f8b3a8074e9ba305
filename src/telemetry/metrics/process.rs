//! What is counted of the process itself.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::{Metrics, make::Make};

/// What may become of a reload of the settings.
const RELOADS: [&str; 2] = ["ok", "refused"];

pub(super) struct Process {
    pub(super) bytes_in_flight: IntGauge,
    reloads: IntCounterVec,
    spans: SpanCounts,
}

/// What becomes of spans. Those that were made and are neither of the others wait, or found no room.
#[derive(Clone, Debug)]
pub struct SpanCounts {
    pub made: IntCounter,
    pub exported: IntCounter,
    pub failed: IntCounter,
}

impl Process {
    pub(super) fn new(make: &Make<'_>) -> prometheus::Result<Self> {
        let build = make.gauges(
            "plimsoll_build_info",
            "Always 1; the label says which version runs.",
            &["version"],
        )?;
        let version = env!("CARGO_PKG_VERSION");
        build.with_label_values(&[version]).set(1);
        let start = make.gauge(
            "process_start_time_seconds",
            "When the process began, in seconds since 1970.",
        )?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        start.set(now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX)));
        let reloads = make.counters(
            "plimsoll_config_reloads_total",
            "Settings that were read again while the proxy ran, by what became of them.",
            &["result"],
        )?;
        for result in RELOADS {
            reloads.with_label_values(&[result]);
        }
        let spans = make.counters(
            "plimsoll_spans_total",
            "Spans of traces: made, exported to the collector, or failed to be.",
            &["outcome"],
        )?;
        Ok(Self {
            bytes_in_flight: make.gauge(
                "plimsoll_in_flight_bytes",
                "Bytes of requests and answers that are held, of server.max_bytes_in_flight.",
            )?,
            reloads,
            spans: SpanCounts {
                made: spans.with_label_values(&["made"]),
                exported: spans.with_label_values(&["exported"]),
                failed: spans.with_label_values(&["failed"]),
            },
        })
    }
}

impl Metrics {
    /// Settings were read again, and taken or refused.
    pub fn reloaded(&self, taken: bool) {
        let result = RELOADS[usize::from(!taken)];
        let reloads = &self.process.reloads;
        reloads.with_label_values(&[result]).inc();
    }

    /// For whoever exports spans.
    pub fn spans(&self) -> SpanCounts {
        self.process.spans.clone()
    }
}
