//! Settings of models, which override the catalogue.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::{
    loading::section::{Section, Visibility, settings},
    provider::read_provider,
    recovery::{CADENCE, WHY_CADENCE},
};

const TOKENS: &str = "the unit is tokens";
const WINDOW: RangeInclusive<u32> = 1024..=100_000_000;

settings! {
    #[derive(Default)]
    pub struct ModelConfig read from s {
        pub provider: Option<String> = read_provider(s, "provider");
        pub context_length: Option<u32> = s.read_optional_number("context_length", WINDOW, TOKENS);
        pub input_length: Option<u32> = s.read_optional_number("input_length", WINDOW, TOKENS);
        pub optimal_max_tokens: Option<u32> =
            s.read_optional_number("optimal_max_tokens", 1..=u32::MAX, TOKENS);
        pub critical_max_tokens: Option<u32> =
            s.read_optional_number("critical_max_tokens", 1..=u32::MAX, TOKENS);
        /// Unset: `recovery.caution_cadence`.
        pub caution_cadence: Option<u32> = s.read_optional_number("caution_cadence", CADENCE, WHY_CADENCE);
        /// Whether recovery may act for this model; unset: it may.
        pub recovery: Option<bool> = s.read_option("recovery", Visibility::Plain);
        /// Empty: its provider serves it, under this name.
        pub deployments: Vec<Deployment> = read_deployments(s);
        /// Models to fall back to, in this order, after all deployments failed.
        pub fallback: Vec<String> = s.read_plain("fallback", Vec::new());
        /// A model with a larger window, used where the conversation would be cut for this one.
        pub larger: Option<String> = s.read_option("larger", Visibility::Plain);
    }
}

/// One of several models at providers that serve a name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Deployment {
    /// `provider/model`.
    pub model: String,
    /// Its share of the sessions, relative to the other deployments.
    #[serde(default = "default_weight")]
    pub weight: u32,
}

const fn default_weight() -> u32 {
    1
}

fn read_deployments(s: &mut Section) -> Vec<Deployment> {
    let key = "deployments";
    let deployments: Vec<Deployment> = s.read_plain(key, Vec::new());
    for Deployment { model, weight } in &deployments {
        if model.is_empty() || model.contains('*') {
            let message = "must be the name of one model, provider/model";
            s.refuse_text(key, model, message);
        }
        let why = "it is the weight of a deployment beside the others";
        s.check_range(key, *weight, &(1..=1_000_000), why);
    }
    deployments
}
