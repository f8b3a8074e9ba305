//! Who may answer a request, and in which order they are tried.
//!
//! The order follows from the session's seed by weighted rendezvous hashing, so that any replica finds the place
//! whose cache is warm; where one place is taken away, only its own sessions move.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Target;

/// Who may answer a request for a model.
#[derive(Clone, Debug)]
pub struct ModelCandidates {
    /// The places that serve it with their weights, then those of each fallback; nobody twice.
    pub(super) groups: Vec<Vec<(Target, u32)>>,
    /// Whether the name that was asked for is one of the settings' own: an alias, or a model with
    /// deployments. Such a name may be given to a client by itself, whoever answers then.
    pub asked_is_configured: bool,
}

impl ModelCandidates {
    /// Leaves out the places of the model that the client may not use; whether any is left. Fallbacks
    /// are whoever runs the proxy's to decide, and go with them.
    pub fn retain_permitted(&mut self, allowed: impl Fn(&Target) -> bool) -> bool {
        let Some(own) = self.groups.first_mut() else {
            return false;
        };
        own.retain(|(target, _)| allowed(target));
        !own.is_empty()
    }

    /// All of them in the order in which one request tries them. The same seed gives the same order,
    /// so that a session stays where its cache is warm. Weights are shares of the seeds, and without
    /// one of the places only its own seeds go elsewhere (weighted rendezvous hashing). Fallbacks
    /// come in the order of the settings.
    pub fn order_by_seed(self, seed: u64) -> Vec<Target> {
        let mut order = Vec::new();
        for group in self.groups {
            let scored = group.into_iter().map(|(target, weight)| {
                let score = score_target(seed, &target, weight);
                (score, target)
            });
            let mut scored: Vec<_> = scored.collect();
            scored.sort_by(|(a, _), (b, _)| b.total_cmp(a));
            order.extend(scored.into_iter().map(|(_, target)| target));
        }
        order
    }

    /// Whoever comes first in that order, of the places of the model itself.
    pub fn first_by_seed(mut self, seed: u64) -> Option<Target> {
        self.groups.truncate(1);
        self.order_by_seed(seed).into_iter().next()
    }

    /// All of them as they are written.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.groups.iter().flatten().map(|(target, _)| target)
    }

    /// The places of the model itself with their weights, without fallbacks.
    pub fn deployments(&self) -> &[(Target, u32)] {
        self.groups.first().map_or(&[], Vec::as_slice)
    }

    /// The place of the largest weight, the first written among equals.
    pub fn pick_heaviest(self) -> Option<Target> {
        let places = self.groups.into_iter().next()?.into_iter();
        // Of equals the last one is found, which is the first one written from the back.
        let heaviest = places.rev().max_by_key(|(_, weight)| *weight);
        heaviest.map(|(target, _)| target)
    }
}

/// The place with the highest score comes first. `-weight / ln(u)` of a uniform `u` in (0, 1) wins
/// exactly as often as the weight is a share of all weights.
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
