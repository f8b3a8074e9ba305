//! How much a model holds, and who says so.
//!
//! Best first: what an error taught, the provider's own list, the settings, the catalogue, and the
//! catalogue by name. Settings win where they say less than the provider does. What nobody knows is assumed, and said to be.

use super::{catalogue::Found, learnt::Known, listed::Facts};
use crate::config::ModelConfig;

/// The window of a model that nobody knows: it drives cutting only.
pub const ASSUMED_WINDOW: u32 = 96_000;

/// What a model can hold, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub tokens: u32,
    /// The most that a prompt may have, where that is less.
    pub input: Option<u32>,
    pub source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An error of the provider named it.
    Learnt,
    /// The provider's own list of models.
    Provider,
    Config,
    /// The catalogue, of that provider.
    Catalogue,
    /// The catalogue: not of that provider, but of all others that know the name, alike.
    CatalogueByName,
    Assumed,
}

impl Window {
    /// The window in tokens where a source names it; `None`: it is only assumed, which is good enough
    /// to cut by and says nothing about health.
    pub fn known(&self) -> Option<u32> {
        (self.source != Source::Assumed).then_some(self.tokens)
    }
}

impl Source {
    /// As commands and reports name it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Learnt => "an error",
            Self::Provider => "the provider",
            Self::Config => "settings",
            Self::Catalogue => "catalogue",
            Self::CatalogueByName => "catalogue by name",
            Self::Assumed => "assumed",
        }
    }

    /// As the API and the list of models name it.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Learnt => "learnt",
            Self::Provider => "provider",
            Self::Config => "configured",
            Self::Catalogue | Self::CatalogueByName | Self::Assumed => self.word(),
        }
    }
}

/// What all sources together come to. A largest prompt that an error taught does not change the
/// source, which is the window's.
pub(super) fn window(
    learnt: Known,
    listed: Facts,
    told: &ModelConfig,
    catalogue: Option<Found>,
) -> Window {
    let claimed = match (listed.context, told.context_length) {
        (Some(listed), Some(told)) if listed < told => Some((listed, Source::Provider)),
        (_, Some(told)) => Some((told, Source::Config)),
        (Some(listed), None) => Some((listed, Source::Provider)),
        (None, None) => None,
    };
    let claimed = claimed
        .or_else(|| catalogue.map(|found| (found.entry.context, found.source)))
        // A largest prompt alone stands for the window.
        .or_else(|| {
            least(told.input_length, listed.input).map(|input| (input, said(told, listed)))
        });
    let (tokens, source) = match (claimed, learnt.window) {
        (Some((claimed, _)), Some(learnt)) if learnt < claimed => (learnt, Source::Learnt),
        (Some(claimed), _) => claimed,
        (None, Some(learnt)) => (learnt, Source::Learnt),
        (None, None) => (ASSUMED_WINDOW, Source::Assumed),
    };
    let catalogued = || catalogue.and_then(|found| found.entry.input);
    let input = least(told.input_length, listed.input).or_else(catalogued);
    Window {
        tokens,
        input: least(input, learnt.input),
        source,
    }
}

/// Who says the lesser of the two largest prompts.
fn said(told: &ModelConfig, listed: Facts) -> Source {
    match (told.input_length, listed.input) {
        (Some(told), Some(listed)) if listed < told => Source::Provider,
        (Some(_), _) => Source::Config,
        (None, _) => Source::Provider,
    }
}

/// The lesser of two bounds of which each may be missing.
pub(super) fn least(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::{ASSUMED_WINDOW, Source, Window, window};
    use crate::{
        config::ModelConfig,
        provider::{
            catalogue::{Entry, Found},
            learnt::Known,
            listed::Facts,
        },
    };

    /// Window and largest prompt of each source.
    #[derive(Clone, Copy, Default)]
    struct Says {
        learnt: (u32, u32),
        listed: (u32, u32),
        told: (u32, u32),
        catalogue: (u32, u32),
    }

    fn check(says: Says, tokens: u32, input: u32, source: Source) {
        let some = |tokens: u32| (tokens > 0).then_some(tokens);
        let known = Known {
            window: some(says.learnt.0),
            input: some(says.learnt.1),
        };
        let facts = Facts {
            context: some(says.listed.0),
            input: some(says.listed.1),
        };
        let told = ModelConfig {
            context_length: some(says.told.0),
            input_length: some(says.told.1),
            ..ModelConfig::default()
        };
        let found = some(says.catalogue.0).map(|context| Found {
            entry: Entry {
                context,
                input: some(says.catalogue.1),
            },
            source: match source {
                Source::CatalogueByName => source,
                _ => Source::Catalogue,
            },
        });
        let expected = Window {
            tokens,
            input: some(input),
            source,
        };
        assert_eq!(window(known, facts, &told, found), expected);
    }

    #[test]
    fn the_best_source_has_the_last_word() {
        use Source::{Assumed, Catalogue, CatalogueByName, Config, Learnt, Provider};
        let mut says = Says::default();
        check(says, ASSUMED_WINDOW, 0, Assumed);
        says.catalogue = (128_000, 100_000);
        check(says, 128_000, 100_000, Catalogue);
        check(says, 128_000, 100_000, CatalogueByName);
        says.told = (200_000, 0);
        check(says, 200_000, 100_000, Config);
        says.listed = (64_000, 0);
        check(says, 64_000, 100_000, Provider);
        says.told = (32_000, 30_000);
        check(says, 32_000, 30_000, Config);
        says.learnt = (16_000, 15_000);
        check(says, 16_000, 15_000, Learnt);
        says.learnt = (48_000, 0);
        check(says, 32_000, 30_000, Config);
    }

    #[test]
    fn a_learnt_prompt_size_leaves_the_source_alone() {
        let mut says = Says {
            learnt: (0, 50_000),
            ..Says::default()
        };
        check(says, ASSUMED_WINDOW, 50_000, Source::Assumed);
        says.catalogue = (128_000, 0);
        check(says, 128_000, 50_000, Source::Catalogue);
        says.told = (0, 40_000);
        check(says, 128_000, 40_000, Source::Catalogue);
    }

    #[test]
    fn an_error_names_the_window_of_a_model_that_nobody_knows() {
        let says = Says {
            learnt: (200_000, 0),
            ..Says::default()
        };
        check(says, 200_000, 0, Source::Learnt);
    }

    #[test]
    fn a_largest_prompt_alone_stands_for_the_window() {
        let mut says = Says {
            told: (0, 9_000),
            ..Says::default()
        };
        check(says, 9_000, 9_000, Source::Config);
        says.listed = (0, 8_000);
        check(says, 8_000, 8_000, Source::Provider);
        says.catalogue = (10_000, 0);
        check(says, 10_000, 8_000, Source::Catalogue);
    }
}
