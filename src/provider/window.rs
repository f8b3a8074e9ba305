//! The window of a model, and its source.
//!
//! The sources, best first: an error, the provider's list, the settings, the catalogue, the catalogue by name, by prefix,
//! the newest known model of the family. Settings win where they are below the provider's list. A window without a source
//! is assumed, and marked so. Those by prefix and by family are guesses, as the assumed one is: see [`Window::is_guessed`].

use crate::config::ModelConfig;

/// Tokens of an unknown window: the guard cuts by it only where no refusal would come, health is not judged by it.
pub const ASSUMED_WINDOW: u32 = 96_000;

/// The size of a model's window, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub tokens: u32,
    /// The largest prompt, where that is less.
    pub input: Option<u32>,
    /// The same, where a refusal named it: in force before what is set, listed or catalogued.
    pub taught: Option<u32>,
    pub source: WindowSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowSource {
    /// An error of the provider.
    Learnt,
    /// The provider's list of models.
    Provider,
    Config,
    /// The catalogue, for that provider.
    Catalogue,
    /// The catalogue, for other providers, which all agree on that model's window.
    CatalogueByName,
    /// The catalogue, for the longest known name that the model's begins with.
    CatalogueByPrefix,
    /// The catalogue, for the newest older model of the family.
    Family,
    Assumed,
}

/// The limits in an error or a provider's list, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Prompt and answer together.
    pub window: Option<u32>,
    /// The largest prompt.
    pub input: Option<u32>,
    /// The same, where an error named it: what is inferred from refusals without numbers is no measure of health.
    pub named_input: Option<u32>,
}

impl Bounds {
    /// The lesser of each.
    pub(super) fn lesser(self, other: Self) -> Self {
        Self {
            window: lesser_bound(self.window, other.window),
            input: lesser_bound(self.input, other.input),
            named_input: lesser_bound(self.named_input, other.named_input),
        }
    }

    /// Only those that leave room for so many tokens.
    pub(super) fn without_those_below(self, tokens: u32) -> Self {
        let filter = |bound: Option<u32>| bound.filter(|bound| *bound >= tokens);
        Self {
            window: filter(self.window),
            input: filter(self.input),
            named_input: filter(self.named_input),
        }
    }
}

impl Window {
    /// The window of a model of which nobody knows.
    pub(super) const ASSUMED: Self = Self {
        tokens: ASSUMED_WINDOW,
        input: None,
        taught: None,
        source: WindowSource::Assumed,
    };

    /// The limit in tokens, as it is shown and as levels go by it: the window, or less where a refusal taught a lower limit
    /// of prompts. `None`: the window is assumed.
    pub fn known_tokens(&self) -> Option<u32> {
        let taught = self.taught.unwrap_or(u32::MAX);
        Some(self.whole_tokens()?.min(taught))
    }

    /// The source of that limit.
    pub fn known_source(&self) -> WindowSource {
        if self.known_tokens() < self.whole_tokens() {
            WindowSource::Learnt
        } else {
            self.source
        }
    }

    /// The whole window in tokens; `None`: it is assumed.
    pub fn whole_tokens(&self) -> Option<u32> {
        (self.source != WindowSource::Assumed).then_some(self.tokens)
    }

    /// The window in tokens, where a source names this very model.
    pub fn claimed_tokens(&self) -> Option<u32> {
        (!self.is_guessed()).then_some(self.tokens)
    }

    /// This guess, corrected by the longest prompt that was answered or that an error allows, in tokens. A prompt above the
    /// guess shows that the window is larger, but not how large: it is assumed then. A limit of a similar model's prompts
    /// is left out.
    pub(super) fn correct_guess(self, longest: Option<u32>) -> Self {
        let guess = Self {
            input: None,
            taught: None,
            ..self
        };
        match longest.filter(|longest| *longest > self.tokens) {
            Some(longest) => Self {
                tokens: longest.max(ASSUMED_WINDOW),
                source: WindowSource::Assumed,
                ..guess
            },
            None => guess,
        }
    }

    /// Whether no source names this model: the window is that of a similar name, or is assumed.
    pub const fn is_guessed(&self) -> bool {
        matches!(
            self.source,
            WindowSource::CatalogueByPrefix | WindowSource::Family | WindowSource::Assumed
        )
    }
}

impl WindowSource {
    /// The name in commands and reports.
    pub const fn display_name(self) -> &'static str {
        match self {
            Self::Learnt => "an error",
            Self::Provider => "the provider",
            Self::Config => "settings",
            Self::Catalogue => "catalogue",
            Self::CatalogueByName => "catalogue by name",
            Self::CatalogueByPrefix => "catalogue by prefix",
            Self::Family => "family",
            Self::Assumed => "assumed",
        }
    }

    /// The name in commands of what the API names so.
    pub fn display_api_name(api_name: &str) -> &str {
        let renamed = [Self::Learnt, Self::Provider, Self::Config].into_iter();
        let mut same = renamed.filter(|source| source.api_name() == api_name);
        match same.next() {
            Some(source) => source.display_name(),
            None => api_name,
        }
    }

    /// The name in the API and the list of models.
    pub const fn api_name(self) -> &'static str {
        match self {
            Self::Learnt => "learnt",
            Self::Provider => "provider",
            Self::Config => "configured",
            Self::Catalogue
            | Self::CatalogueByName
            | Self::CatalogueByPrefix
            | Self::Family
            | Self::Assumed => self.display_name(),
        }
    }
}

/// The window by all sources. `source` is that of the window, also where an error taught the largest
/// prompt.
pub(super) fn combine_sources(
    learnt: Bounds,
    listed: Bounds,
    settings: &ModelConfig,
    catalogued: Option<Window>,
) -> Window {
    use WindowSource::{Assumed, Config, Learnt, Provider};
    let from = |source| move |tokens| (tokens, source);
    let set_input = settings.input_length.map(from(Config));
    let input = smaller_bound(set_input, listed.input.map(from(Provider)));
    let set_window = settings.context_length.map(from(Config));
    let claimed = smaller_bound(set_window, listed.window.map(from(Provider)))
        .or_else(|| catalogued.map(|window| (window.tokens, window.source)));
    let named = smaller_bound(claimed, learnt.window.map(from(Learnt)))
        // A largest prompt alone stands for the window.
        .or(input);
    let (tokens, source) = named.unwrap_or((ASSUMED_WINDOW, Assumed));
    let input = input.map(|(tokens, _)| tokens);
    let input = input.or_else(|| catalogued?.input);
    Window {
        tokens,
        input: lesser_bound(input, learnt.input),
        taught: learnt.named_input,
        source,
    }
}

/// The smaller number of tokens with its source; the first one of two equal ones.
fn smaller_bound(
    first: Option<(u32, WindowSource)>,
    second: Option<(u32, WindowSource)>,
) -> Option<(u32, WindowSource)> {
    first
        .into_iter()
        .chain(second)
        .min_by_key(|(tokens, _)| *tokens)
}

pub(super) fn lesser_bound(first: Option<u32>, second: Option<u32>) -> Option<u32> {
    first.into_iter().chain(second).min()
}

#[cfg(test)]
mod tests {
    use super::{ASSUMED_WINDOW, Bounds, Window, WindowSource, combine_sources};
    use crate::config::ModelConfig;

    /// Window and largest prompt of each source; 0: not named.
    #[derive(Clone, Copy, Default)]
    struct Sources {
        learnt: (u32, u32),
        listed: (u32, u32),
        settings: (u32, u32),
        catalogue: (u32, u32),
    }

    fn check(sources: Sources, tokens: u32, input: u32, source: WindowSource) {
        let some = |tokens: u32| (tokens > 0).then_some(tokens);
        let bounds = |(window, input)| Bounds {
            window: some(window),
            input: some(input),
            named_input: some(input),
        };
        let settings = ModelConfig {
            context_length: some(sources.settings.0),
            input_length: some(sources.settings.1),
            ..ModelConfig::default()
        };
        let catalogued = some(sources.catalogue.0).map(|tokens| Window {
            tokens,
            input: some(sources.catalogue.1),
            taught: None,
            source: match source {
                WindowSource::CatalogueByName => source,
                _ => WindowSource::Catalogue,
            },
        });
        let (learnt, listed) = (bounds(sources.learnt), bounds(sources.listed));
        let expected = Window {
            tokens,
            input: some(input),
            taught: some(sources.learnt.1),
            source,
        };
        let found = combine_sources(learnt, listed, &settings, catalogued);
        assert_eq!(found, expected);
    }

    #[test]
    fn the_best_source_decides() {
        use WindowSource::{Assumed, Catalogue, CatalogueByName, Config, Learnt, Provider};
        let mut sources = Sources::default();
        check(sources, ASSUMED_WINDOW, 0, Assumed);
        sources.catalogue = (128_000, 100_000);
        check(sources, 128_000, 100_000, Catalogue);
        check(sources, 128_000, 100_000, CatalogueByName);
        sources.settings = (200_000, 0);
        check(sources, 200_000, 100_000, Config);
        sources.listed = (64_000, 0);
        check(sources, 64_000, 100_000, Provider);
        sources.settings = (32_000, 30_000);
        check(sources, 32_000, 30_000, Config);
        sources.learnt = (16_000, 15_000);
        check(sources, 16_000, 15_000, Learnt);
        sources.learnt = (48_000, 0);
        check(sources, 32_000, 30_000, Config);
    }

    #[test]
    fn a_learnt_prompt_size_leaves_the_source_alone() {
        let mut sources = Sources {
            learnt: (0, 50_000),
            ..Sources::default()
        };
        check(sources, ASSUMED_WINDOW, 50_000, WindowSource::Assumed);
        sources.catalogue = (128_000, 0);
        check(sources, 128_000, 50_000, WindowSource::Catalogue);
        sources.settings = (0, 40_000);
        check(sources, 128_000, 40_000, WindowSource::Catalogue);
    }

    #[test]
    fn an_error_names_the_window_of_an_unknown_model() {
        let sources = Sources {
            learnt: (200_000, 0),
            ..Sources::default()
        };
        check(sources, 200_000, 0, WindowSource::Learnt);
    }

    #[test]
    fn a_largest_prompt_alone_stands_for_the_window() {
        let mut sources = Sources {
            settings: (0, 9_000),
            ..Sources::default()
        };
        check(sources, 9_000, 9_000, WindowSource::Config);
        sources.listed = (0, 8_000);
        check(sources, 8_000, 8_000, WindowSource::Provider);
        sources.catalogue = (10_000, 0);
        check(sources, 10_000, 8_000, WindowSource::Catalogue);
    }
}
