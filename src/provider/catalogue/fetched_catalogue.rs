//! A newer catalogue, fetched in the background and kept in the data directory.
//!
//! Off unless an address is configured. Without a fetched list, and after failures, the built-in
//! catalogue is used. A damaged file, or one of another address, is ignored and replaced.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;

use reqwest::{StatusCode, Url, redirect};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::time::sleep;

use super::table::{WindowTable, parse_table};
use crate::{config::CatalogueConfig, error::format_error_chain};

const FILE: &str = "catalogue.json";
/// Marks the file; its number changes with its form.
const FORMAT: &str = "plimsoll-catalogue-2";

const MAX_BYTES: usize = 32 << 20;
/// The list, and the other fields of the file.
const MAX_FILE_BYTES: u64 = MAX_BYTES as u64 + 1_024;
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
    #[error("the list of models could not be written to the disk")]
    NotSaved(#[source] io::Error),
}

#[derive(Debug)]
pub(crate) struct FetchedCatalogue {
    url: Url,
    file: PathBuf,
    max_age: Duration,
    current: Mutex<FetchedTable>,
}

#[derive(Debug, Default)]
struct FetchedTable {
    /// Includes the built-in rows.
    table: Option<Arc<WindowTable>>,
    /// Seconds since 1970.
    fetched_at: u64,
}

/// The address is stored as a digest, since it may hold a key.
#[derive(Debug, Deserialize, Serialize)]
struct CatalogueFile {
    format: String,
    source_sha256: String,
    fetched_at: u64,
    /// The bytes of the answer.
    list: Box<RawValue>,
}

impl FetchedCatalogue {
    /// Reads the file of an earlier process. `None`: no address is configured.
    pub(crate) fn open(config: &CatalogueConfig, data_dir: &Path) -> Option<Arc<Self>> {
        let mut fetched = Self {
            url: Url::parse(config.url.as_deref()?).ok()?,
            file: data_dir.join(FILE),
            max_age: config.max_age,
            current: Mutex::default(),
        };
        match fetched.read_file() {
            Ok(table) => fetched.current = Mutex::new(table),
            Err(problem) => {
                let file = fetched.file.display();
                tracing::warn!(%file, problem, "the fetched catalogue is ignored");
            }
        }
        Some(Arc::new(fetched))
    }

    /// Whether these settings change nothing of the fetch.
    pub(crate) fn matches_settings(&self, config: &CatalogueConfig) -> bool {
        let url = config.url.as_deref().map(Url::parse);
        self.max_age == config.max_age && url == Some(Ok(self.url.clone()))
    }

    /// The fetched rows with the built-in ones.
    pub(crate) fn table(&self) -> Option<Arc<WindowTable>> {
        self.current.lock().table.clone()
    }

    /// Fetches whenever the list is stale, and never ends. Of failures in a row the first is a warning.
    pub(crate) async fn refresh_forever(self: Arc<Self>) {
        let mut failures = 0u64;
        loop {
            // A list that could not be written to the disk is fresh, but its failure counts.
            let pause = if failures == 0 { Duration::ZERO } else { PAUSE };
            sleep(self.time_until_stale(SystemTime::now()).max(pause)).await;
            let error = match self.refresh_now().await {
                Ok(models) => {
                    failures = 0;
                    tracing::info!(models, "catalogue fetched");
                    continue;
                }
                Err(error) => format_error_chain(&error),
            };
            failures += 1;
            if failures == 1 {
                tracing::warn!(error, "fetching the catalogue failed; it is retried");
            } else {
                tracing::debug!(error, failures, "fetching the catalogue failed");
            }
        }
    }

    /// Fetches and stores the list now: its number of models.
    pub(crate) async fn refresh_now(self: &Arc<Self>) -> Result<usize, CatalogueFetchError> {
        let list = download_list(self.url.clone()).await?;
        let this = Arc::clone(self);
        let models = tokio::task::spawn_blocking(move || this.store_list(&list, SystemTime::now()));
        models.await.unwrap_or(Err(CatalogueFetchError::NotAList))
    }

    /// Uses a list from now on, and writes it to the disk.
    fn store_list(&self, list: &[u8], now: SystemTime) -> Result<usize, CatalogueFetchError> {
        let list: Box<RawValue> =
            serde_json::from_slice(list).map_err(|_| CatalogueFetchError::NotAList)?;
        let table = parse_table(list.get().as_bytes()).ok_or(CatalogueFetchError::NotAList)?;
        let (models, fetched_at) = (table.len(), to_unix_seconds(now));
        let table = Some(Arc::new(table));
        *self.current.lock() = FetchedTable { table, fetched_at };
        let saved = self.write_file(&CatalogueFile {
            format: FORMAT.to_owned(),
            source_sha256: self.digest_url(),
            fetched_at,
            list,
        });
        saved.map_err(CatalogueFetchError::NotSaved)?;
        Ok(models)
    }

    /// A list from the future is stale: a clock was wrong.
    fn time_until_stale(&self, now: SystemTime) -> Duration {
        let age = to_unix_seconds(now).checked_sub(self.current.lock().fetched_at);
        let age = age.map_or(Duration::MAX, Duration::from_secs);
        self.max_age.saturating_sub(age)
    }

    fn digest_url(&self) -> String {
        hex::encode(Sha256::digest(self.url.as_str()))
    }

    /// An empty table where there is no file.
    ///
    /// # Errors
    /// Why the file is ignored.
    fn read_file(&self) -> Result<FetchedTable, &'static str> {
        const DAMAGED: &str = "it is damaged";
        let unreadable = |_| "it cannot be read";
        let size = match fs::metadata(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(FetchedTable::default());
            }
            found => found.map_err(unreadable)?.len(),
        };
        if size > MAX_FILE_BYTES {
            return Err("it is too large");
        }
        let bytes = fs::read(&self.file).map_err(unreadable)?;
        let copy: CatalogueFile = serde_json::from_slice(&bytes).map_err(|_| DAMAGED)?;
        if copy.format != FORMAT || copy.source_sha256 != self.digest_url() {
            return Err("it was fetched from another address");
        }
        let table = parse_table(copy.list.get().as_bytes()).ok_or(DAMAGED)?;
        Ok(FetchedTable {
            table: Some(Arc::new(table)),
            fetched_at: copy.fetched_at,
        })
    }

    /// Replaces the file at once, so that a reader never finds a part of it.
    fn write_file(&self, copy: &CatalogueFile) -> io::Result<()> {
        let bytes = serde_json::to_vec(copy)?;
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder)?;
        }
        let name = format!(".{FILE}.{}", std::process::id());
        let part = self.file.with_file_name(name);
        let write = || {
            let mut file = fs::File::create(&part)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&part, &self.file)
        };
        write().inspect_err(|_| {
            // Best effort: the first error is the one to report.
            let _ = fs::remove_file(&part);
        })
    }
}

async fn download_list(url: Url) -> Result<Vec<u8>, CatalogueFetchError> {
    let unreachable = |error: reqwest::Error| CatalogueFetchError::Unreachable(error.without_url());
    // A second call is refused and changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(MAX_TIME)
        .redirect(redirect::Policy::custom(follow_redirect))
        .referer(false)
        .no_proxy()
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

fn to_unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
