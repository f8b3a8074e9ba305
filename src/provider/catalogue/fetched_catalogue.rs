//! A newer catalogue, fetched in the background and kept in the data directory.
//!
//! Off unless an address is configured. Nobody waits for it: until it is there, and where it fails,
//! the catalogue of the binary holds. A damaged or foreign file is passed over and replaced.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use reqwest::{StatusCode, Url, redirect};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::time::sleep;

use super::table::{WindowTable, parse_table};
use crate::{config::CatalogueConfig, error::format_error_chain, provider::lock};

/// The copy on disk.
const FILE: &str = "catalogue.json";
/// What a copy of ours says it is; another number is another form.
const FORMAT: &str = "plimsoll-catalogue-2";

const MAX_BYTES: usize = 32 << 20;
/// The list, and what the copy says of it.
const MAX_FILE_BYTES: u64 = MAX_BYTES as u64 + 1_024;
const MAX_REDIRECTS: usize = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIME: Duration = Duration::from_secs(120);

/// The wait after a failure.
const PAUSE: Duration = Duration::from_secs(10 * 60);

/// Why no list came.
#[derive(Debug, Error)]
pub enum CatalogueFetchError {
    #[error("the list of models could not be fetched")]
    Unreachable(#[source] reqwest::Error),
    #[error("the list of models came with status {0}")]
    Status(StatusCode),
    #[error("the list of models is larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("what came is no list of models in the form of models.dev")]
    NotAList,
    #[error("the list of models could not be kept on disk")]
    NotSaved(#[source] io::Error),
}

/// What was fetched, and from where.
#[derive(Debug)]
pub(crate) struct FetchedCatalogue {
    url: Url,
    file: PathBuf,
    max_age: Duration,
    current: Mutex<FetchedTable>,
}

#[derive(Debug, Default)]
struct FetchedTable {
    /// With the rows of the binary.
    table: Option<Arc<WindowTable>>,
    /// Seconds since 1970.
    fetched_at: u64,
}

/// The file. The address stands in it as a digest, since it may hold a key.
#[derive(Debug, Deserialize, Serialize)]
struct CatalogueFile {
    format: String,
    source_sha256: String,
    fetched_at: u64,
    /// As it was fetched.
    list: Box<RawValue>,
}

impl FetchedCatalogue {
    /// With what an earlier process has fetched. `None`: no address is configured.
    pub(crate) fn open(config: &CatalogueConfig, data_dir: &Path) -> Option<Arc<Self>> {
        let mut fetched = Self {
            url: Url::parse(config.url.as_deref()?).ok()?,
            file: data_dir.join(FILE),
            max_age: config.max_age,
            current: Mutex::default(),
        };
        match fetched.read_copy() {
            Ok(held) => fetched.current = Mutex::new(held),
            Err(problem) => {
                let file = fetched.file.display();
                tracing::warn!(%file, problem, "the fetched catalogue is passed over");
            }
        }
        Some(Arc::new(fetched))
    }

    /// Whether it is fetched as these settings want it.
    pub(crate) fn matches_settings(&self, config: &CatalogueConfig) -> bool {
        let url = config.url.as_deref().map(Url::parse);
        self.max_age == config.max_age && url == Some(Ok(self.url.clone()))
    }

    /// What was fetched, the rows of the binary included.
    pub(crate) fn table(&self) -> Option<Arc<WindowTable>> {
        lock(&self.current).table.clone()
    }

    /// Fetches whenever the copy is too old, and never ends. One warning is given until it works again.
    pub(crate) async fn refresh_forever(self: Arc<Self>) {
        let mut failures = 0u64;
        loop {
            let fresh = self.time_until_stale(SystemTime::now());
            // A list that came and could not be written is held all the same.
            let wait = match failures {
                0 => fresh,
                _ => fresh.max(PAUSE),
            };
            sleep(wait).await;
            match self.refresh_now().await {
                Ok(models) => {
                    failures = 0;
                    tracing::info!(models, "the catalogue was fetched");
                }
                Err(error) => {
                    failures += 1;
                    let error = format_error_chain(&error);
                    if failures == 1 {
                        tracing::warn!(error, "the catalogue is not refreshed; it is tried again");
                    } else {
                        tracing::debug!(error, failures, "the catalogue is not refreshed");
                    }
                }
            }
        }
    }

    /// Fetches now, and keeps what came: how many models there are.
    pub(crate) async fn refresh_now(self: &Arc<Self>) -> Result<usize, CatalogueFetchError> {
        let list = download_list(self.url.clone()).await?;
        let this = Arc::clone(self);
        let kept = tokio::task::spawn_blocking(move || this.adopt_list(&list, SystemTime::now()));
        kept.await.unwrap_or(Err(CatalogueFetchError::NotAList))
    }

    /// Holds a list and writes it to the disk: how many models there are.
    fn adopt_list(&self, list: &[u8], now: SystemTime) -> Result<usize, CatalogueFetchError> {
        let list: Box<RawValue> =
            serde_json::from_slice(list).map_err(|_| CatalogueFetchError::NotAList)?;
        let table = parse_table(list.get().as_bytes()).ok_or(CatalogueFetchError::NotAList)?;
        let models = table.len();
        let copy = CatalogueFile {
            format: FORMAT.to_owned(),
            source_sha256: self.digest_url(),
            fetched_at: to_unix_seconds(now),
            list,
        };
        *lock(&self.current) = FetchedTable {
            table: Some(Arc::new(table)),
            fetched_at: copy.fetched_at,
        };
        self.save_copy(&copy)
            .map_err(CatalogueFetchError::NotSaved)?;
        Ok(models)
    }

    /// How long the copy is fresh. One from the future is not: a clock was wrong.
    fn time_until_stale(&self, now: SystemTime) -> Duration {
        let age = to_unix_seconds(now).checked_sub(lock(&self.current).fetched_at);
        let age = age.map_or(Duration::MAX, Duration::from_secs);
        self.max_age.saturating_sub(age)
    }

    fn digest_url(&self) -> String {
        hex::encode(Sha256::digest(self.url.as_str()))
    }

    /// The copy on disk; nothing where there is none.
    ///
    /// # Errors
    /// What is wrong with the copy.
    fn read_copy(&self) -> Result<FetchedTable, &'static str> {
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

    /// Whoever reads it finds the old copy or the new one, and never half of one.
    fn save_copy(&self, copy: &CatalogueFile) -> io::Result<()> {
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
            // Best effort: what failed is told by the error before.
            let _ = fs::remove_file(&part);
        })
    }
}

async fn download_list(url: Url) -> Result<Vec<u8>, CatalogueFetchError> {
    let unreachable = |error: reqwest::Error| CatalogueFetchError::Unreachable(error.without_url());
    // Installed by whoever comes first; a second one is refused, which is as well.
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
    while let Some(piece) = answer.chunk().await.map_err(unreachable)? {
        if bytes.len() + piece.len() > MAX_BYTES {
            return Err(CatalogueFetchError::TooLarge);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// SECURITY: a redirect must not lead out of encryption, nor to anything but the web.
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
