//! Ollama's own API (`/api/`), for clients that speak nothing else: forwarded to a provider that has it, and not guarded. What
//! changes the engine (pull, push, create, copy, delete) is not forwarded.

use std::sync::Arc;

use super::ForwardRequest;
use crate::{
    error::Failure,
    provider::{Provider, Registry},
};

const TAGS: &str = "/../api/tags";
/// What of it is forwarded to ask for an answer, from the base URL.
const CONVERSATIONS: [&str; 2] = ["/../api/chat", "/../api/generate"];

impl ForwardRequest<'_> {
    /// Whether the path is one of Ollama's own API: it leaves `/v1`, as no path of a client's may.
    fn is_for_ollama(&self) -> bool {
        self.path.starts_with("/../api/")
    }

    /// The provider of a request of Ollama's own API, where several have it: that of the model, else the first by name.
    /// `chosen`: the provider that the request names. `None`: the request is of another API.
    ///
    /// # Errors
    /// No provider has that API, or the client may not see all of its models.
    pub(super) fn choose_ollama(
        &self,
        named: &str,
        chosen: Option<&str>,
    ) -> Result<Option<Arc<Provider>>, Failure> {
        if !self.is_for_ollama() {
            return Ok(None);
        }
        // SECURITY: the list has all models.
        if self.path == TAGS && !self.client.is_unlimited() {
            return Err(Failure::PathNotAllowed);
        }
        let registry = &self.app.registry;
        let found = find_provider(registry, named, chosen).ok_or(Failure::OllamaPath)?;
        let (provider, path) = (&*found.name, self.path.trim_start_matches("/.."));
        if registry.is_first_report(format!("{provider} {path}")) {
            if CONVERSATIONS.contains(&self.path) {
                tracing::warn!(
                    provider,
                    path,
                    "conversations of {path} go to {provider} without a guard; to guard them, choose an OpenAI-compatible \
                     provider in the client, with the address of the proxy and /v1 as base URL"
                );
            } else {
                tracing::info!(provider, path, "{path} is answered by {provider}");
            }
        }
        Ok(Some(found))
    }
}

fn find_provider(registry: &Registry, named: &str, chosen: Option<&str>) -> Option<Arc<Provider>> {
    let all: Vec<&Arc<Provider>> = registry
        .shared_providers()
        .filter(|it| it.config.profile.ollama_api)
        .filter(|it| chosen.is_none_or(|chosen| *chosen == *it.name))
        .collect();
    let is_one = |provider: &&Arc<Provider>| all.iter().any(|it| it.name == provider.name);
    let candidates = registry.look_up_candidates(named, None).ok();
    let targets = candidates.iter().flat_map(|it| it.deployments());
    let mut of_name = targets.map(|(target, _)| &target.provider).filter(is_one);
    let is_listed = |it: &&&Arc<Provider>| registry.is_spelt_out(it, named);
    let listed = || all.iter().find(is_listed).copied();
    let found = match named {
        "" => None,
        _ => of_name.next().or_else(listed),
    };
    found.or(all.first().copied()).cloned()
}
