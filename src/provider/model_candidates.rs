//! The candidates for a model, and the order in which they are tried.
//!
//! Weighted rendezvous hashing orders the deployments by the session's seed, so that every replica
//! picks the one whose cache is warm. Where a deployment is removed, only its own sessions move.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Target;
use crate::{conversation::Format, error::Failure};

/// The candidates for a model.
#[derive(Clone, Debug)]
pub struct ModelCandidates {
    /// The model's deployments with their weights, then those of each fallback; none twice.
    pub(super) groups: Vec<Vec<(Target, u32)>>,
    /// The requested name, without a suffix for the long window.
    pub asked: String,
    /// That name is an alias, or a model with deployments. Such a name may be permitted to a
    /// client by itself, whichever candidate answers.
    pub asked_is_configured: bool,
}

impl ModelCandidates {
    /// Removes the deployments that the client may not use; whether any is left. Fallbacks stay, since
    /// the operator configured them.
    pub fn retain_permitted(&mut self, allowed: impl Fn(&Target) -> bool) -> bool {
        let Some(deployments) = self.groups.first_mut() else {
            return false;
        };
        deployments.retain(|(target, _)| allowed(target));
        !deployments.is_empty()
    }

    /// Removes the candidates that do not speak a format.
    ///
    /// # Errors
    /// None of them does.
    pub fn retain_speakers(&mut self, format: Format) -> Result<(), Failure> {
        let first = self
            .targets()
            .next()
            .map(|target| target.provider.name.clone());
        for group in &mut self.groups {
            group.retain(|(target, _)| target.provider.config.formats.contains(&format));
        }
        self.groups.retain(|group| !group.is_empty());
        match (self.groups.is_empty(), first) {
            (true, Some(provider)) => Err(Failure::FormatNotSpoken {
                provider: provider.to_string(),
                format: format.name(),
            }),
            _ => Ok(()),
        }
    }

    /// Removes the candidates that a check refuses.
    ///
    /// # Errors
    /// It refuses all; the last refusal.
    pub fn retain_checked<E>(&mut self, check: impl Fn(&Target) -> Result<(), E>) -> Result<(), E> {
        let mut last = Ok(());
        for group in &mut self.groups {
            group.retain(|(target, _)| {
                let checked = check(target);
                let is_ok = checked.is_ok();
                if !is_ok {
                    last = checked;
                }
                is_ok
            });
        }
        self.groups.retain(|group| !group.is_empty());
        if self.groups.is_empty() { last } else { Ok(()) }
    }

    /// All candidates in the order in which a request tries them: each deployment comes first for a
    /// share of the seeds that is its weight; fallbacks follow in the order of the settings.
    pub fn order_by_seed(self, seed: u64) -> Vec<Target> {
        let groups = self.groups.into_iter().flat_map(|mut group| {
            let score = |(target, weight): &(Target, u32)| score_target(seed, target, *weight);
            group.sort_by(|first, second| score(second).total_cmp(&score(first)));
            group
        });
        groups.map(|(target, _)| target).collect()
    }

    /// The deployment that a seed tries first.
    pub fn first_by_seed(mut self, seed: u64) -> Option<Target> {
        self.groups.truncate(1);
        self.order_by_seed(seed).into_iter().next()
    }

    /// All candidates in the order of the settings.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.groups.iter().flatten().map(|(target, _)| target)
    }

    /// The model's deployments with their weights, without fallbacks.
    pub fn deployments(&self) -> &[(Target, u32)] {
        self.groups.first().map_or(&[], Vec::as_slice)
    }

    /// The deployment with the largest weight, the first written of equal ones.
    pub fn pick_heaviest(self) -> Option<Target> {
        let deployments = self.groups.into_iter().next()?.into_iter();
        // `max_by_key` returns the last of equal ones, so the order is reversed.
        let heaviest = deployments.rev().max_by_key(|(_, weight)| *weight);
        heaviest.map(|(target, _)| target)
    }
}

/// The deployment with the highest score comes first. `-weight / ln(u)` of a uniform `u` in (0, 1)
/// wins exactly as often as the weight is a share of all weights.
fn score_target(seed: u64, target: &Target, weight: u32) -> f64 {
    let name = format!("{}/{}", target.provider.name, target.model);
    let hash = xxh3_64_with_seed(name.as_bytes(), seed);
    #[expect(
        clippy::cast_precision_loss,
        reason = "the highest 53 bits fit exactly"
    )]
    let uniform = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -f64::from(weight) / uniform.ln()
}
