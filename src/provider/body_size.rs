//! The largest request body, where the settings do not name it.

use super::{
    catalogue::{self, table::built_in_table},
    names::ModelNames,
};
use crate::config::Config;

/// Sets `server.max_body_bytes`, where it is not set, by the largest window of all configured models.
pub fn fit_body_to_windows(config: &mut Config) {
    if !config.is_set("server.max_body_bytes") {
        let window = largest_window(config);
        config.server.fit_body_to_window(window);
    }
}

/// In tokens, by the settings and the catalogue; 0 where no window is known.
fn largest_window(config: &Config) -> u32 {
    let names = ModelNames::new(config);
    let configured = names.list_configured_names().into_iter();
    let deployments = configured.flat_map(|(name, provider)| {
        let name = names.resolve_aliases(name, None);
        let found = names.resolve_deployments(&name, provider);
        found.unwrap_or_default()
    });
    let known = deployments.filter_map(|deployment| {
        let served = &deployment.served_model;
        let base_url = config.providers.get(&served.provider)?.base_url.as_deref();
        deployment.settings.context_length.or_else(|| {
            let provider = catalogue::find_provider_name(&served.provider, base_url);
            Some(catalogue::look_up_window(built_in_table(), &provider, &served.model)?.tokens)
        })
    });
    // Patterns spell out no name, but may have a window.
    let models = config.models.values();
    let of_patterns = models.filter_map(|model| model.context_length);
    known.chain(of_patterns).max().unwrap_or(0)
}
