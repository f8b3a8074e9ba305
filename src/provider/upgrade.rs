//! Connections to a provider that leave HTTP, as websockets do.
//!
//! Each has a connection of its own, in HTTP/1.1, which alone can be left; nothing is pooled and
//! nothing tried again.

use std::sync::OnceLock;

use http::{Response, StatusCode, response::Parts};
use reqwest::Upgraded;

use super::{
    Outgoing, Provider, Unsent,
    client::{find_url, is_no_http, plain_builder, read_answer},
};
use crate::{
    config::ProviderConfig,
    error::{Wait, chain},
    wire::Body,
};

/// The client for such connections, made when the first is asked for: most providers need none.
#[derive(Debug, Default)]
pub(super) struct Upgrades {
    client: OnceLock<reqwest::Client>,
}

/// What a provider said to a request that would leave HTTP.
pub enum Opened {
    /// It stays HTTP: an answer like any other.
    Refused(Response<Body>),
    Left {
        head: Box<Parts>,
        connection: Upgraded,
    },
}

impl Upgrades {
    fn client(&self, config: &ProviderConfig) -> reqwest::Result<reqwest::Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = plain_builder(config)
            .http1_only()
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(self.client.get_or_init(|| client).clone())
    }
}

impl Provider {
    /// Sends a request that asks to leave HTTP, `Connection` and `Upgrade` among its headers.
    /// Its body is not sent.
    ///
    /// # Errors
    /// No answer began.
    pub async fn open(&self, outgoing: Outgoing) -> Result<Opened, Unsent> {
        let provider = || self.name.to_string();
        let unreachable = || Unsent::Unreachable {
            provider: provider(),
        };
        let base_url = self.config.base_url.as_deref().ok_or_else(unreachable)?;
        let query = self.config.query.as_ref();
        let url = find_url(&self.name, base_url, query, &outgoing)?;
        let client = self.upgrades.client(&self.config).map_err(|error| {
            let error = error.without_url();
            tracing::warn!(provider = %self.name, error = %chain(&error), "no client can be made");
            unreachable()
        })?;
        let mut request = reqwest::Request::new(outgoing.method, url);
        *request.headers_mut() = outgoing.headers;
        let limit = self.config.first_byte_timeout;
        let Ok(answer) = tokio::time::timeout(limit, client.execute(request)).await else {
            tracing::warn!(provider = %self.name, "a provider did not answer in time");
            return Err(Unsent::Timeout {
                provider: provider(),
                wait: Wait::FirstByte,
                limit,
            });
        };
        let answer = answer.map_err(|error| self.explain(error.without_url()))?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let idle = self.config.idle_timeout;
            return Ok(Opened::Refused(read_answer(answer, query, idle)));
        }
        let mut head = Response::new(()).into_parts().0;
        head.status = answer.status();
        head.headers.clone_from(answer.headers());
        let connection = answer.upgrade().await;
        Ok(Opened::Left {
            head: Box::new(head),
            connection: connection.map_err(|error| self.explain(error.without_url()))?,
        })
    }

    fn explain(&self, error: reqwest::Error) -> Unsent {
        let provider = self.name.to_string();
        tracing::warn!(provider, error = %chain(&error), "a provider gave no answer");
        match is_no_http(&error) {
            true => Unsent::Garbage { provider },
            false => Unsent::Unreachable { provider },
        }
    }
}
