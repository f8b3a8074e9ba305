//! What is counted of the store of sessions.

use std::{sync::Arc, time::Duration};

use prometheus::{Histogram, IntCounter};

use super::make::Make;

/// From a look into memory to a server that is far away, in seconds.
const BUCKETS: [f64; 12] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
];

/// What a store may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOperation {
    Find,
    Save,
    Order,
    Session,
    Share,
}

impl StoreOperation {
    const ALL: [Self; 5] = [
        Self::Find,
        Self::Save,
        Self::Order,
        Self::Session,
        Self::Share,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Find => "find",
            Self::Save => "save",
            Self::Order => "order",
            Self::Session => "session",
            Self::Share => "share",
        }
    }
}

/// Counts what a store was asked for; without an owner, for nobody.
#[derive(Clone, Debug, Default)]
pub struct StoreCounts(Option<Arc<[Counted]>>);

/// One operation.
#[derive(Debug)]
struct Counted {
    errors: IntCounter,
    took: Histogram,
}

impl StoreCounts {
    pub(super) fn new(make: &Make<'_>) -> prometheus::Result<Self> {
        let errors = make.counters(
            "plimsoll_store_errors_total",
            "What the store of sessions failed to do or did not do in time, by what it was \
             asked for.",
            &["operation"],
        )?;
        let took = make.histograms(
            "plimsoll_store_duration_seconds",
            "How long the store of sessions took, failures included.",
            &["operation"],
            &BUCKETS,
        )?;
        let counted = StoreOperation::ALL.map(|operation| Counted {
            errors: errors.with_label_values(&[operation.word()]),
            took: took.with_label_values(&[operation.word()]),
        });
        Ok(Self(Some(Arc::new(counted))))
    }

    /// The store failed, or did not answer in time.
    pub fn failed(&self, operation: StoreOperation) {
        if let Some(counted) = &self.0 {
            counted[operation as usize].errors.inc();
        }
    }

    /// The store answered, was given up, or failed, after so long.
    pub fn took(&self, operation: StoreOperation, took: Duration) {
        if let Some(counted) = &self.0 {
            counted[operation as usize].took.observe(took.as_secs_f64());
        }
    }
}
