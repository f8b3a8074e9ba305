//! One upstream: what is sent to it, and what can keep an answer from beginning.
//!
//! A provider is reached over the network or built in; callers see no difference.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Limited, combinators::BoxBody};
use thiserror::Error;

use super::{
    SIMULATED,
    breaker::Breaker,
    catalogue::{self, Entry},
    client::Client,
    simulated,
    upgrade::Upgrades,
};
use crate::{
    config::ProviderConfig,
    wire::{Body, edit::Rope},
};

/// Bytes of a streamed request that the simulated provider reads.
const MAX_SIMULATED_BODY: usize = 1 << 20;

/// One upstream.
#[derive(Debug)]
pub struct Provider {
    pub name: Arc<str>,
    pub config: ProviderConfig,
    pub breaker: Breaker,
    /// For requests that leave HTTP.
    pub(super) upgrades: Upgrades,
    /// What the catalogue calls it.
    catalogued: Option<&'static str>,
    transport: Transport,
}

#[derive(Debug)]
enum Transport {
    Remote(Box<Client>),
    Simulated,
}

/// A request for a provider.
pub struct Outgoing {
    pub method: Method,
    /// What follows the base URL, with the query.
    pub path: String,
    /// As made by [`super::headers::to_provider`].
    pub headers: HeaderMap,
    pub body: Payload,
}

pub enum Payload {
    Empty,
    /// Sent with its exact length.
    Whole(Rope),
    /// Sent as it comes; cannot be sent again.
    Stream(Upload),
}

/// Why no answer began.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unsent {
    #[error("{provider} could not be reached")]
    Unreachable { provider: String },
    #[error("{provider} did not answer in time")]
    Timeout { provider: String, limit: Duration },
    #[error("{provider} does not speak HTTP")]
    Garbage { provider: String },
    #[error("the request's body broke off")]
    BodyBroken,
    #[error("the request's body came too slowly")]
    BodySlow { limit: Duration },
}

/// Why a streamed request body ended early.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UploadBroken {
    #[error("the request's body broke off")]
    Broken,
    #[error("the request's body came too slowly")]
    Slow { limit: Duration },
}

/// A request body that comes in pieces.
pub type Upload = BoxBody<Bytes, UploadBroken>;

impl Provider {
    /// # Errors
    /// The TLS roots of this machine cannot be read.
    pub(super) fn new(name: &str, config: &ProviderConfig) -> io::Result<Self> {
        let transport = match &config.base_url {
            Some(base_url) => Transport::Remote(Box::new(Client::new(base_url, config)?)),
            None => Transport::Simulated,
        };
        Ok(Self {
            name: name.into(),
            catalogued: catalogue::provider_of(name, config.base_url.as_deref()),
            config: config.clone(),
            breaker: Breaker::new(config.breaker_failures, config.breaker_open),
            upgrades: Upgrades::default(),
            transport,
        })
    }

    pub(super) fn is_remote(&self) -> bool {
        matches!(self.transport, Transport::Remote(_))
    }

    /// Names and windows of the models of the built-in provider.
    pub(super) fn own_models(&self) -> &'static [(&'static str, u32)] {
        match self.transport {
            Transport::Simulated => simulated::models(),
            Transport::Remote(_) => &[],
        }
    }

    /// What is known of a model without being told.
    pub(super) fn known(&self, model: &str) -> Option<Entry> {
        let own = self.own_models().iter().find(|(name, _)| *name == model);
        let own = own.map(|(_, window)| Entry {
            context: *window,
            input: None,
            output: None,
        });
        own.or_else(|| catalogue::lookup(self.catalogued?, model))
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// No answer began.
    pub async fn send(&self, outgoing: Outgoing) -> Result<Response<Body>, Unsent> {
        match &self.transport {
            Transport::Remote(client) => client.send(&self.name, outgoing).await,
            Transport::Simulated => simulate(outgoing).await,
        }
    }
}

async fn simulate(outgoing: Outgoing) -> Result<Response<Body>, Unsent> {
    let body = match outgoing.body {
        Payload::Empty => Bytes::new(),
        Payload::Whole(rope) => rope.to_bytes(),
        Payload::Stream(upload) => Limited::new(upload, MAX_SIMULATED_BODY)
            .collect()
            .await
            .map_err(|_| Unsent::BodyBroken)?
            .to_bytes(),
    };
    let mut request = Request::new(body);
    *request.method_mut() = outgoing.method;
    *request.headers_mut() = outgoing.headers;
    *request.uri_mut() =
        format!("/v1{}", outgoing.path)
            .parse()
            .map_err(|_| Unsent::Unreachable {
                provider: SIMULATED.to_owned(),
            })?;
    Ok(simulated::answer(request).await)
}
