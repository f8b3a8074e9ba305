//! What OpenTelemetry's conventions for generative AI count, under their names as Prometheus spells
//! them.
//!
//! Clients can name any model, so only a name that somebody spelt out becomes a label, and of those
//! at most [`MAX_MODELS`]; all others are `other`. The handles of one model are looked up once for
//! each request.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use prometheus::{Histogram, HistogramVec};

use super::{Metrics, make::Make, requests::Ended};
use crate::telemetry::Operation;

/// Models of providers that have series of their own, for each kind of operation.
const MAX_MODELS: usize = 256;

/// The boundaries that the conventions ask for.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
const SECONDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];

/// What stands for a model that nobody spelt out.
const OTHER: &str = "other";

const OPERATION: &str = "gen_ai_operation_name";
const PROVIDER: &str = "gen_ai_provider_name";
const MODEL: &str = "gen_ai_request_model";

pub(super) struct GenAi {
    all: Arc<All>,
    known: RwLock<Known>,
}

struct All {
    tokens: HistogramVec,
    took: HistogramVec,
    first_chunk: HistogramVec,
}

#[derive(Default)]
struct Known {
    /// By operation, provider and model.
    series: [HashMap<Box<str>, Models>; Operation::COUNT],
    /// Without those of `other`.
    models: [usize; Operation::COUNT],
}

type Models = HashMap<Box<str>, Arc<Series>>;

/// The handles of one model of a provider, each made when it is first needed.
pub struct Series {
    all: Arc<All>,
    labels: [Box<str>; 3],
    input: OnceLock<Histogram>,
    output: OnceLock<Histogram>,
    took: OnceLock<Histogram>,
    first_chunk: OnceLock<Histogram>,
}

impl GenAi {
    pub(super) fn new(make: &Make<'_>) -> prometheus::Result<Self> {
        let all = All {
            tokens: make.histograms(
                "gen_ai_client_token_usage",
                "Tokens of one request as its provider reported them, all its rounds together.",
                &[OPERATION, PROVIDER, MODEL, "gen_ai_token_type"],
                &TOKENS,
            )?,
            took: make.histograms(
                "gen_ai_client_operation_duration_seconds",
                "From the first byte of a request to the last of its answer; error_type is empty \
                 where it did not fail.",
                &[OPERATION, PROVIDER, MODEL, "error_type"],
                &SECONDS,
            )?,
            first_chunk: make.histograms(
                "gen_ai_client_operation_time_to_first_chunk_seconds",
                "From the first byte of a request to the first of its answer, of streams only.",
                &[OPERATION, PROVIDER, MODEL],
                &SECONDS,
            )?,
        };
        Ok(Self {
            all: Arc::new(all),
            known: RwLock::default(),
        })
    }

    fn of(
        &self,
        operation: Operation,
        provider: &str,
        model: &str,
        is_spelt_out: impl FnOnce() -> bool,
    ) -> Arc<Series> {
        if let Some(found) = self.found(operation, provider, model) {
            return found;
        }
        let model = if is_spelt_out() { model } else { OTHER };
        if let Some(found) = self.found(operation, provider, model) {
            return found;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let at = operation as usize;
        let full = known.models[at] >= MAX_MODELS;
        let model = if full { OTHER } else { model };
        let of_provider = known.series[at].entry(provider.into()).or_default();
        let mut new = false;
        let series = of_provider.entry(model.into()).or_insert_with(|| {
            new = model != OTHER;
            let labels = [operation.word(), provider, model].map(Box::from);
            Arc::new(Series::new(&self.all, labels))
        });
        let series = Arc::clone(series);
        known.models[at] += usize::from(new);
        series
    }

    fn found(&self, operation: Operation, provider: &str, model: &str) -> Option<Arc<Series>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let of_provider = known.series[operation as usize].get(provider)?;
        of_provider.get(model).map(Arc::clone)
    }
}

impl Metrics {
    /// The series of a model of a provider. `is_spelt_out`: whether its name is more than a client's
    /// own words; asked where the model is new here.
    pub fn series(
        &self,
        operation: Operation,
        provider: &str,
        model: &str,
        is_spelt_out: impl FnOnce() -> bool,
    ) -> Arc<Series> {
        self.gen_ai.of(operation, provider, model, is_spelt_out)
    }
}

impl Series {
    fn new(all: &Arc<All>, labels: [Box<str>; 3]) -> Self {
        Self {
            all: Arc::clone(all),
            labels,
            input: OnceLock::new(),
            output: OnceLock::new(),
            took: OnceLock::new(),
            first_chunk: OnceLock::new(),
        }
    }

    pub(super) fn ended(&self, ended: &Ended<'_>) {
        let seconds = ended.took.as_secs_f64();
        match ended.error {
            None => {
                let took = || self.with(&self.all.took, Some(""));
                self.took.get_or_init(took).observe(seconds);
            }
            Some(error) => self.with(&self.all.took, Some(error)).observe(seconds),
        }
        if let Some(first) = ended.first_chunk.filter(|_| ended.error.is_none()) {
            let of = || self.with(&self.all.first_chunk, None);
            let of = self.first_chunk.get_or_init(of);
            of.observe(first.as_secs_f64());
        }
        let Some(answered) = ended.answered else {
            return;
        };
        let of = |kind, handle: &OnceLock<Histogram>, tokens: Option<u32>| {
            if let Some(tokens) = tokens {
                let histogram = || self.with(&self.all.tokens, Some(kind));
                handle.get_or_init(histogram).observe(f64::from(tokens));
            }
        };
        of("input", &self.input, answered.input_tokens());
        of("output", &self.output, answered.output_tokens());
    }

    fn with(&self, of: &HistogramVec, last: Option<&str>) -> Histogram {
        let [operation, provider, model] = self.labels.each_ref().map(|label| &**label);
        match last {
            Some(last) => of.with_label_values(&[operation, provider, model, last]),
            None => of.with_label_values(&[operation, provider, model]),
        }
    }
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Series").field(&self.labels).finish()
    }
}
