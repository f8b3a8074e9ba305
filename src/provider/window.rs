//! How much a model holds, and who says so.
//!
//! Best first: what an error taught, the provider's own list, the settings, the catalogue, and the
//! catalogue by name. Settings win where they say less than the provider does. What nobody knows is assumed, and said to be.

use crate::config::ModelConfig;

/// The window of a model that nobody knows: it drives cutting only.
pub const ASSUMED_WINDOW: u32 = 96_000;

/// What a model can hold, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub tokens: u32,
    /// The most that a prompt may have, where that is less.
    pub input: Option<u32>,
    pub source: WindowSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowSource {
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

/// What an error or a provider's list says of a model, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Prompt and answer together.
    pub window: Option<u32>,
    /// The largest prompt.
    pub input: Option<u32>,
}

impl Window {
    /// The window in tokens where a source names it; `None`: it is only assumed, which is good enough
    /// to cut by and says nothing about health.
    pub fn known_tokens(&self) -> Option<u32> {
        (self.source != WindowSource::Assumed).then_some(self.tokens)
    }
}

impl WindowSource {
    /// As commands and reports name it.
    pub const fn display_name(self) -> &'static str {
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
    pub const fn api_name(self) -> &'static str {
        match self {
            Self::Learnt => "learnt",
            Self::Provider => "provider",
            Self::Config => "configured",
            Self::Catalogue | Self::CatalogueByName | Self::Assumed => self.display_name(),
        }
    }
}

/// What all sources together come to. A largest prompt that an error taught does not change the
/// source, which is the window's.
pub(super) fn combine_sources(
    learnt: Bounds,
    listed: Bounds,
    told: &ModelConfig,
    catalogued: Option<Window>,
) -> Window {
    let input = least_named([
        told.input_length
            .map(|tokens| (tokens, WindowSource::Config)),
        listed.input.map(|tokens| (tokens, WindowSource::Provider)),
    ]);
    let context = least_named([
        told.context_length
            .map(|tokens| (tokens, WindowSource::Config)),
        listed.window.map(|tokens| (tokens, WindowSource::Provider)),
    ]);
    let claimed = context
        .or_else(|| catalogued.map(|known| (known.tokens, known.source)))
        // A largest prompt alone stands for the window.
        .or(input);
    let taught = learnt.window.map(|tokens| (tokens, WindowSource::Learnt));
    let named = least_named([claimed, taught]);
    let (tokens, source) = named.unwrap_or((ASSUMED_WINDOW, WindowSource::Assumed));
    let input = match input {
        Some((input, _)) => Some(input),
        None => catalogued.and_then(|known| known.input),
    };
    Window {
        tokens,
        input: lesser_bound(input, learnt.input),
        source,
    }
}

/// The least number of tokens, and who says it; the first one of two that say the same.
fn least_named(said: [Option<(u32, WindowSource)>; 2]) -> Option<(u32, WindowSource)> {
    let said = said.into_iter().flatten();
    said.min_by_key(|(tokens, _)| *tokens)
}

/// The lesser of two bounds of which each may be missing.
pub(super) fn lesser_bound(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests {
    use super::{ASSUMED_WINDOW, Bounds, Window, WindowSource, combine_sources};
    use crate::config::ModelConfig;

    /// Window and largest prompt of each source.
    #[derive(Clone, Copy, Default)]
    struct Says {
        learnt: (u32, u32),
        listed: (u32, u32),
        told: (u32, u32),
        catalogue: (u32, u32),
    }

    fn check(says: Says, tokens: u32, input: u32, source: WindowSource) {
        let some = |tokens: u32| (tokens > 0).then_some(tokens);
        let known = Bounds {
            window: some(says.learnt.0),
            input: some(says.learnt.1),
        };
        let facts = Bounds {
            window: some(says.listed.0),
            input: some(says.listed.1),
        };
        let told = ModelConfig {
            context_length: some(says.told.0),
            input_length: some(says.told.1),
            ..ModelConfig::default()
        };
        let found = some(says.catalogue.0).map(|tokens| Window {
            tokens,
            input: some(says.catalogue.1),
            source: match source {
                WindowSource::CatalogueByName => source,
                _ => WindowSource::Catalogue,
            },
        });
        let expected = Window {
            tokens,
            input: some(input),
            source,
        };
        assert_eq!(combine_sources(known, facts, &told, found), expected);
    }

    #[test]
    fn the_best_source_has_the_last_word() {
        use WindowSource::{Assumed, Catalogue, CatalogueByName, Config, Learnt, Provider};
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
        check(says, ASSUMED_WINDOW, 50_000, WindowSource::Assumed);
        says.catalogue = (128_000, 0);
        check(says, 128_000, 50_000, WindowSource::Catalogue);
        says.told = (0, 40_000);
        check(says, 128_000, 40_000, WindowSource::Catalogue);
    }

    #[test]
    fn an_error_names_the_window_of_a_model_that_nobody_knows() {
        let says = Says {
            learnt: (200_000, 0),
            ..Says::default()
        };
        check(says, 200_000, 0, WindowSource::Learnt);
    }

    #[test]
    fn a_largest_prompt_alone_stands_for_the_window() {
        let mut says = Says {
            told: (0, 9_000),
            ..Says::default()
        };
        check(says, 9_000, 9_000, WindowSource::Config);
        says.listed = (0, 8_000);
        check(says, 8_000, 8_000, WindowSource::Provider);
        says.catalogue = (10_000, 0);
        check(says, 10_000, 8_000, WindowSource::Catalogue);
    }
}
