//! A newer catalogue, fetched in the background and kept in the data directory.
//!
//! Nothing waits for it: until a list is fetched, and where none can be, the one that was kept is used, else the
//! built-in catalogue. All that is sent is a GET. Nothing is fetched where `catalogue.url` is empty, or where all
//! providers are built in.

mod stored_list;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;

use reqwest::{Proxy, StatusCode, Url, redirect};
use thiserror::Error;
use tokio::time::sleep;

use self::stored_list::StoredList;
use super::table::{WindowTable, built_in_since, parse_table};
use crate::{
    config::{CatalogueConfig, Outgoing, ProxySetting, ServerConfig},
    error::format_error_chain,
    provider::begin_client_for,
};

const MAX_BYTES: usize = 32 << 20;
const MAX_REDIRECTS: usize = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIME: Duration = Duration::from_secs(120);

/// The wait after a failure; doubled for each further one, up to the age at which a list is fetched again.
const PAUSE: Duration = Duration::from_secs(10 * 60);
/// A list that is older is said to be old.
const OLD: Duration = Duration::from_secs(7 * DAY_S);
const DAY_S: u64 = 86_400;

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
    outgoing: Outgoing,
    max_age: Duration,
    /// `None`: no folder can be written.
    stored: Option<StoredList>,
    current: Mutex<Option<FetchedTable>>,
}

#[derive(Clone, Debug)]
struct FetchedTable {
    /// Includes the built-in rows.
    table: Arc<WindowTable>,
    fetched: SystemTime,
}

impl FetchedCatalogue {
    /// Reads what an earlier process has kept. `None`: no address is configured.
    pub(crate) fn open(config: &CatalogueConfig, server: &ServerConfig) -> Option<Arc<Self>> {
        let url = Url::parse(config.url.as_deref()?).ok()?;
        let stored = server
            .data_dir
            .path()
            .map(|folder| StoredList::new(folder, &url));
        let current = stored
            .as_ref()
            .and_then(|stored| read_kept(stored, built_in_since()));
        Some(Arc::new(Self {
            url,
            outgoing: server.outgoing.clone(),
            max_age: config.max_age,
            stored,
            current: Mutex::new(current),
        }))
    }

    /// Whether these settings change nothing of the fetch.
    pub(crate) fn matches_settings(&self, config: &CatalogueConfig, outgoing: &Outgoing) -> bool {
        let url = config.url.as_deref().map(Url::parse);
        self.max_age == config.max_age
            && self.outgoing == *outgoing
            && url == Some(Ok(self.url.clone()))
    }

    /// The fetched rows with the built-in ones.
    pub(crate) fn table(&self) -> Option<Arc<WindowTable>> {
        let current = self.current.lock();
        current.as_ref().map(|current| Arc::clone(&current.table))
    }

    /// How old the list is, for a person; `None` where there is none.
    pub(crate) fn describe_age(&self, now: SystemTime) -> Option<String> {
        let age = self.age_at(now)?;
        let hours = age.as_secs() / 3_600;
        let (number, unit) = if hours < 48 {
            (hours, "hour")
        } else {
            (hours / 24, "day")
        };
        let plural = if number == 1 { "" } else { "s" };
        let old = if age > OLD { ", which is old" } else { "" };
        Some(format!("fetched {number} {unit}{plural} ago{old}"))
    }

    /// Fetches whenever the list is due, and never ends. Of failures in a row one is logged, and one more where the list
    /// in use is old.
    pub(crate) async fn refresh_forever(self: Arc<Self>) {
        let (mut failures, mut is_told_old) = (0, false);
        loop {
            sleep(self.time_until_due(failures, SystemTime::now())).await;
            let error = match self.refresh_now().await {
                Ok(models) => {
                    (failures, is_told_old) = (0, false);
                    tracing::info!(models, "catalogue fetched");
                    continue;
                }
                Err(error) => format_error_chain(&error),
            };
            failures += 1;
            let age = self.age_at(SystemTime::now());
            let days = age
                .filter(|age| *age > OLD)
                .map(|age| age.as_secs() / DAY_S);
            if let Some(days) = days.filter(|_| !is_told_old) {
                is_told_old = true;
                tracing::warn!(
                    error,
                    days,
                    "the fetched catalogue is old, and fetching it fails"
                );
            } else if failures == 1 {
                tracing::info!(error, "fetching the catalogue failed; it is retried");
            } else {
                tracing::debug!(error, failures, "fetching the catalogue failed");
            }
        }
    }

    /// Fetches the list now, uses it from then on, and keeps it: its number of models.
    pub(crate) async fn refresh_now(self: &Arc<Self>) -> Result<usize, CatalogueFetchError> {
        let list = download_list(self.url.clone(), &self.outgoing).await?;
        let this = Arc::clone(self);
        let taken = tokio::task::spawn_blocking(move || this.take_list(&list, SystemTime::now()));
        taken
            .await
            .ok()
            .flatten()
            .ok_or(CatalogueFetchError::NotAList)
    }

    /// Uses a list from now on, and keeps it: its number of models. `None`: it is no list.
    fn take_list(&self, list: &[u8], fetched: SystemTime) -> Option<usize> {
        let table = Arc::new(parse_table(list)?);
        let models = table.rows;
        *self.current.lock() = Some(FetchedTable { table, fetched });
        let kept = self.stored.as_ref().map(|it| it.write(list, fetched));
        if let Some(Err(error)) = kept {
            tracing::debug!(%error, "the fetched catalogue cannot be written to the data directory");
        }
        Some(models)
    }

    /// A list from the future has any age: a clock was wrong.
    pub(crate) fn age_at(&self, now: SystemTime) -> Option<Duration> {
        let current = self.current.lock();
        let fetched = current.as_ref()?.fetched;
        Some(now.duration_since(fetched).unwrap_or(Duration::MAX))
    }

    /// After so many failures in a row.
    fn time_until_due(&self, failures: u32, now: SystemTime) -> Duration {
        match failures.checked_sub(1) {
            None => self
                .max_age
                .saturating_sub(self.age_at(now).unwrap_or(Duration::MAX)),
            Some(doublings) => PAUSE
                .saturating_mul(2u32.saturating_pow(doublings))
                .min(self.max_age.max(PAUSE)),
        }
    }
}

/// What was kept, unless the binary is newer.
fn read_kept(stored: &StoredList, built_in_since: SystemTime) -> Option<FetchedTable> {
    let (list, fetched) = stored.read(MAX_BYTES)?;
    let table = (fetched >= built_in_since).then(|| parse_table(&list))??;
    Some(FetchedTable {
        table: Arc::new(table),
        fetched,
    })
}

async fn download_list(url: Url, outgoing: &Outgoing) -> Result<Vec<u8>, CatalogueFetchError> {
    let unreachable = |error: reqwest::Error| CatalogueFetchError::Unreachable(error.without_url());
    // A redirect may lead elsewhere, so each address is asked for its route.
    let has_credentials = url.query().is_some() || !url.username().is_empty();
    let routes = outgoing.clone();
    let proxy = Proxy::custom(move |url| {
        let route = routes.find_route(url, has_credentials, &ProxySetting::Environment);
        route.proxy.map(|proxy| proxy.reveal().to_owned())
    });
    let client = begin_client_for(outgoing, None)
        .proxy(proxy)
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
