//! Reads the proxy's API: the list first, and then what changes, for ever.
//!
//! Follows no redirects and uses no proxy of the environment, so that the key goes where it is meant
//! to go and nowhere else.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::{Client, Response, StatusCode, Url, header::AUTHORIZATION, redirect};
use serde::Deserialize;
use tokio::sync::mpsc::Sender;

use super::fleet::Session;
use crate::{config::secret::Secret, wire::event::Splitter};

/// Sessions of one page; the API gives no more.
const TAKE: usize = 200;
/// Bytes of one event; a session is well under a kilobyte.
const MAX_EVENT: usize = 1 << 20;
/// Bytes of one page of the list.
const MAX_PAGE: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(10);
/// The API says something at least every 15 seconds.
const SILENCE: Duration = Duration::from_secs(45);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What came of reading.
#[derive(Debug)]
pub(super) enum News {
    /// All there are, in the place of what was known.
    All(Vec<Session>),
    Changed(Box<Session>),
    /// From here on nothing is missed.
    Live,
    /// It broke off, and is tried again.
    Lost(String),
}

/// Why nothing can be read.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum FeedError {
    #[error("{0}: this is no address; it looks like http://127.0.0.1:1876")]
    Address(String),
    #[error("the TLS roots of this machine cannot be read: {0}")]
    Roots(reqwest::Error),
    #[error("{url} cannot be reached: {reason}")]
    Unreachable { url: Url, reason: String },
    #[error("{0} asks for a key; name the environment variable that holds one with --key-env")]
    KeyMissing(Url),
    #[error("{0} refuses the key that the environment variable of --key-env holds")]
    KeyWrong(Url),
    #[error("{url} answers {status}; is this a Plimsoll proxy of the same release?")]
    Refused { url: Url, status: StatusCode },
    #[error("{url} does not answer as this release does: {reason}")]
    Unreadable { url: Url, reason: String },
}

/// Where sessions are read.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    client: Client,
    base: Url,
    key: Option<Secret>,
}

#[derive(Deserialize)]
struct Page {
    sessions: Vec<Session>,
    next: Option<usize>,
}

impl Feed {
    /// # Errors
    /// The address is none, or the TLS roots of this machine cannot be read.
    pub(super) fn new(address: &str, key: Option<Secret>) -> Result<Self, FeedError> {
        let base = Url::parse(&format!("{}/plimsoll/api/", address.trim_end_matches('/')));
        let base = base
            .ok()
            .filter(|base| matches!(base.scheme(), "http" | "https") && base.has_host())
            .ok_or_else(|| FeedError::Address(address.to_owned()))?;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(PATIENCE)
            .read_timeout(SILENCE)
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .build()
            .map_err(FeedError::Roots)?;
        Ok(Self { client, base, key })
    }

    /// The address, without what stands in it for credentials.
    pub(super) fn shown(&self) -> String {
        self.base
            .join("/")
            .map_or_else(|_| String::new(), |url| url.origin().ascii_serialization())
    }

    /// All sessions that there are, newest first.
    ///
    /// # Errors
    /// The proxy is not there, wants another key, or is none.
    pub(super) async fn all(&self) -> Result<Vec<Session>, FeedError> {
        let mut all = Vec::new();
        let mut skip = Some(0);
        while let Some(at) = skip {
            let answer = self.get(&format!("sessions?skip={at}&take={TAKE}")).await?;
            let (url, body) = read(answer).await?;
            let page: Page =
                serde_json::from_slice(&body).map_err(|error| FeedError::Unreadable {
                    url,
                    reason: error.to_string(),
                })?;
            all.extend(page.sessions);
            // One that does not get on would never end.
            skip = page.next.filter(|next| *next > at);
        }
        Ok(all)
    }

    /// Tells what changes until nobody hears it any more; begins anew where it breaks off.
    pub(super) async fn follow(self, news: Sender<News>) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.once(&news, &mut pause).await {
                Ok(()) if news.is_closed() => return,
                Ok(()) => {}
                Err(error) => {
                    if news.send(News::Lost(error.to_string())).await.is_err() {
                        return;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Listens first and reads the list then, so that nothing falls between.
    async fn once(&self, news: &Sender<News>, pause: &mut Duration) -> Result<(), FeedError> {
        let answer = self.get("events").await?;
        let url = answer.url().clone();
        let lost = |reason: String| FeedError::Unreachable {
            url: url.clone(),
            reason,
        };
        if news.send(News::All(self.all().await?)).await.is_err()
            || news.send(News::Live).await.is_err()
        {
            return Ok(());
        }
        *pause = FIRST_PAUSE;
        let mut chunks = answer.bytes_stream();
        let mut splitter = Splitter::new(MAX_EVENT);
        while let Some(chunk) = chunks.next().await {
            splitter.push(chunk.map_err(|error| lost(told(&error)))?);
            while let Some(event) = splitter.next_event() {
                let Some(message) = event.message else {
                    continue;
                };
                let told = match &message.name[..] {
                    // A kind of session that this release does not know is passed over.
                    b"session" => serde_json::from_slice(&message.data)
                        .ok()
                        .map(News::Changed),
                    b"resync" => Some(News::All(self.all().await?)),
                    _ => None,
                };
                if let Some(told) = told
                    && news.send(told).await.is_err()
                {
                    return Ok(());
                }
            }
        }
        Err(lost("it ended".to_owned()))
    }

    async fn get(&self, path: &str) -> Result<Response, FeedError> {
        let url = self.base.join(path).unwrap_or_else(|_| self.base.clone());
        let mut request = self.client.get(url.clone());
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, format!("Bearer {}", key.reveal()));
        }
        let answer = tokio::time::timeout(PATIENCE, request.send()).await;
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let reason = told(&error);
                return Err(FeedError::Unreachable { url, reason });
            }
            Err(_) => {
                let reason = "no answer in time".to_owned();
                return Err(FeedError::Unreachable { url, reason });
            }
        };
        match answer.status() {
            StatusCode::OK => Ok(answer),
            StatusCode::UNAUTHORIZED if self.key.is_some() => {
                Err(FeedError::KeyWrong(self.base.clone()))
            }
            StatusCode::UNAUTHORIZED => Err(FeedError::KeyMissing(self.base.clone())),
            status => Err(FeedError::Refused { url, status }),
        }
    }
}

async fn read(answer: Response) -> Result<(Url, Bytes), FeedError> {
    let url = answer.url().clone();
    let mut body = Vec::new();
    let mut chunks = answer.bytes_stream();
    let unreadable = |reason: String| FeedError::Unreadable {
        url: url.clone(),
        reason,
    };
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk.map_err(|error| unreadable(told(&error)))?);
        if body.len() > MAX_PAGE {
            return Err(unreadable("it is too long".to_owned()));
        }
    }
    Ok((url, body.into()))
}

/// The innermost reason, without the address that stands beside it anyway.
fn told(error: &reqwest::Error) -> String {
    let mut reason: &dyn std::error::Error = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    reason.to_string()
}
