//! How large a request body may be where the settings do not say.

use super::{
    catalogue::{self, table::built_in_table},
    names::ModelNames,
};
use crate::config::Config;

/// Sets `server.max_body_bytes`, where it is not set, to what the largest window needs that the settings name
/// or the catalogue has for a model that they name.
pub fn fit_body_to_windows(config: &mut Config) {
    if !config.is_set("server.max_body_bytes") {
        let window = largest_window(config);
        config.server.fit_body_to_window(window);
    }
}

/// In tokens; 0 where no window is known.
fn largest_window(config: &Config) -> u32 {
    let names = ModelNames::new(config);
    let places = names
        .list_configured_names()
        .into_iter()
        .flat_map(|(name, provider)| {
            let found = names.resolve_deployments(&names.resolve_aliases(name, None), provider);
            found.unwrap_or_default()
        });
    let known = places.filter_map(|one| {
        let place = &one.served_model;
        let provider = config.providers.get(&place.provider)?;
        let catalogued = || {
            let provider =
                catalogue::find_provider_name(&place.provider, provider.base_url.as_deref());
            Some(catalogue::look_up_window(built_in_table(), &provider, &place.model)?.tokens)
        };
        one.settings.context_length.or_else(catalogued)
    });
    // Patterns spell out no name, and may have a window all the same.
    let written = config.models.values();
    let written = written.filter_map(|model| model.context_length);
    known.chain(written).max().unwrap_or(0)
}
