//! A newer catalogue, fetched in the background and kept in memory.
//!
//! Off unless an address is configured. Until a list is fetched, the built-in catalogue is used.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use reqwest::{StatusCode, Url, redirect};
use thiserror::Error;
use tokio::time::sleep;

use super::table::{WindowTable, parse_table};
use crate::{config::CatalogueConfig, error::format_error_chain, provider::begin_http_client};

const MAX_BYTES: usize = 32 << 20;
const MAX_REDIRECTS: usize = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIME: Duration = Duration::from_secs(120);

/// The wait after a failure.
const PAUSE: Duration = Duration::from_secs(10 * 60);

#[derive(Debug, Error)]
pub enum CatalogueFetchError {
    #[error("the list of models could not be fetched")]
    Unreachable(#[source] reqwest::Error),
    #[error("the list of models came with status {0}")]
    Status(StatusCode),
    #[error("the list of models is larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("the answer is no list of models in the form of models.dev")]
    NotAList,
}

#[derive(Debug)]
pub(crate) struct FetchedCatalogue {
    url: Url,
    max_age: Duration,
    /// Includes the built-in rows.
    table: Mutex<Option<Arc<WindowTable>>>,
}

impl FetchedCatalogue {
    /// `None`: no address is configured.
    pub(crate) fn new(config: &CatalogueConfig) -> Option<Arc<Self>> {
        Some(Arc::new(Self {
            url: Url::parse(config.url.as_deref()?).ok()?,
            max_age: config.max_age,
            table: Mutex::default(),
        }))
    }

    /// Whether these settings change nothing of the fetch.
    pub(crate) fn matches_settings(&self, config: &CatalogueConfig) -> bool {
        let url = config.url.as_deref().map(Url::parse);
        self.max_age == config.max_age && url == Some(Ok(self.url.clone()))
    }

    /// The fetched rows with the built-in ones.
    pub(crate) fn table(&self) -> Option<Arc<WindowTable>> {
        self.table.lock().clone()
    }

    /// Fetches now and whenever the list is stale, and never ends. Of failures in a row the first is a warning.
    pub(crate) async fn refresh_forever(self: Arc<Self>) {
        let mut failures = 0u64;
        loop {
            match self.refresh_now().await {
                Ok(models) => {
                    failures = 0;
                    tracing::info!(models, "catalogue fetched");
                    sleep(self.max_age).await;
                    continue;
                }
                Err(error) => {
                    let error = format_error_chain(&error);
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(error, "fetching the catalogue failed; it is retried");
                    } else {
                        tracing::debug!(error, failures, "fetching the catalogue failed");
                    }
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Fetches the list now, and uses it from then on: its number of models.
    pub(crate) async fn refresh_now(&self) -> Result<usize, CatalogueFetchError> {
        let list = download_list(self.url.clone()).await?;
        let parsed = tokio::task::spawn_blocking(move || parse_table(&list)).await;
        let table = parsed.ok().flatten().ok_or(CatalogueFetchError::NotAList)?;
        let models = table.len();
        *self.table.lock() = Some(Arc::new(table));
        Ok(models)
    }
}

async fn download_list(url: Url) -> Result<Vec<u8>, CatalogueFetchError> {
    let unreachable = |error: reqwest::Error| CatalogueFetchError::Unreachable(error.without_url());
    let client = begin_http_client()
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(MAX_TIME)
        .redirect(redirect::Policy::custom(follow_redirect))
        .build()
        .map_err(unreachable)?;
    let mut answer = client.get(url).send().await.map_err(unreachable)?;
    if answer.status() != StatusCode::OK {
        return Err(CatalogueFetchError::Status(answer.status()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
        if bytes.len() + chunk.len() > MAX_BYTES {
            return Err(CatalogueFetchError::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// SECURITY: a redirect must not lead to anything but HTTPS.
fn follow_redirect(attempt: redirect::Attempt<'_>) -> redirect::Action {
    if attempt.url().scheme() == "https" && attempt.previous().len() <= MAX_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

#[cfg(test)]
mod tests;
