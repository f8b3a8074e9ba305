//! Asks a running proxy, for the commands that print what it says.
//!
//! SECURITY: any program of this machine may listen where the proxy usually does. So a key goes to two kinds of listeners only: to the
//! address that the user has named (`--url`), and to a proxy that proves that it knows the secret of `proxy.json` in the
//! data directory, a file for its owner alone (`src/http/lease.rs`). All others are asked without a key.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use reqwest::{StatusCode, Url};
use serde::{Deserialize, de::DeserializeOwned};

use super::{find_proxy, proxy_file::RunningProxy, run::lease::is_running};
use crate::{
    config::{Config, Environment, Flags, Problems, load_config, secret::Secret},
    error::format_error_chain,
    provider::begin_http_client,
};

/// Where the user has a key for the proxy.
pub(super) const KEY_VARIABLE: &str = "PLIMSOLL_KEY";

/// For one answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A session or a model takes well under a kilobyte.
const MAX_ANSWER_BYTES: usize = 8 << 20;

#[derive(clap::Args, Clone, Debug)]
pub(super) struct ProxyArgs {
    /// Where the proxy is; this address gets the key [default: the address that the settings have it listen on, which gets the
    /// key if it proves to be the proxy of the data directory]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) url: Option<String>,
    /// The environment variable that holds a client's key or the administrator's
    #[arg(long, value_name = "NAME", default_value = KEY_VARIABLE)]
    key_env: String,
}

/// A proxy that may run.
pub(super) struct AskedProxy {
    /// `http://HOST:PORT`, and a path where the user has named one; without `/v1`.
    pub(super) base: String,
    /// The user has named it, or it has proved itself already.
    is_known: bool,
    key: Option<Secret>,
    key_env: String,
    /// The proxy of the data directory, if it says to listen at that address.
    own: Option<RunningProxy>,
}

/// A model as a proxy lists it. What it only assumes is `None`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ListedModel {
    pub(super) id: String,
    /// Tokens, as all numbers here.
    pub(super) context_length: Option<u32>,
    pub(super) window_from: Option<String>,
    pub(super) max_input_tokens: Option<u32>,
    pub(super) optimal_max_tokens: Option<u32>,
    pub(super) critical_max_tokens: Option<u32>,
}

/// Why a proxy says nothing, and what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error(
        "{base} cannot be reached: {reason}; `plimsoll serve` starts a proxy, --url names another address"
    )]
    Nobody { base: String, reason: String },
    #[error("{0}")]
    Refused(String),
}

impl NoAnswer {
    /// For a command that can do without the answer.
    pub(super) fn shorten(&self) -> String {
        match self {
            Self::Nobody { base, .. } => format!("no proxy runs at {base}"),
            Self::Refused(why) => why.clone(),
        }
    }
}

impl ProxyArgs {
    /// # Errors
    /// The settings cannot be used.
    pub(super) fn find(
        &self,
        flags: &Flags,
        environment: &Environment,
    ) -> Result<AskedProxy, Problems> {
        let base = find_proxy(self.url.as_deref(), flags, environment)?;
        let own = match self.url {
            Some(_) => None,
            None => read_own(&load_config(flags, environment)?.config, &base),
        };
        Ok(AskedProxy {
            base: base
                .trim_end_matches('/')
                .trim_end_matches("/v1")
                .to_owned(),
            is_known: self.url.is_some(),
            key: environment.get_variable(&self.key_env).map(Secret::new),
            key_env: self.key_env.clone(),
            own,
        })
    }
}

fn read_own(config: &Config, base: &str) -> Option<RunningProxy> {
    let own = RunningProxy::read(config.server.data_dir.path()?)?;
    (base == format!("http://{}", own.address)).then_some(own)
}

impl AskedProxy {
    /// A proxy that has proved to be that of the data directory.
    pub(super) fn proven(base: &str, environment: &Environment) -> Self {
        Self {
            base: base.to_owned(),
            is_known: true,
            key: environment.get_variable(KEY_VARIABLE).map(Secret::new),
            key_env: KEY_VARIABLE.to_owned(),
            own: None,
        }
    }

    /// The models for a client of OpenAI's API.
    ///
    /// # Errors
    /// Why there is no list, and what to do.
    pub(super) async fn list_models(&self) -> Result<Vec<ListedModel>, NoAnswer> {
        #[derive(Deserialize)]
        struct List {
            data: Vec<ListedModel>,
        }
        let list: List = self.ask("/v1/models").await?;
        Ok(list.data)
    }

    /// # Errors
    /// Why nothing is known of a model of that name.
    pub(super) async fn describe_model(&self, id: &str) -> Result<ListedModel, NoAnswer> {
        self.ask(&format!("/v1/models/{id}")).await
    }

    /// The JSON at a path, with its query.
    ///
    /// # Errors
    /// Why there is no answer, and what to do.
    pub(super) async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, NoAnswer> {
        let base = &self.base;
        let url = Url::parse(&format!("{base}{path}")).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| {
            let example = "it looks like http://127.0.0.1:1876";
            NoAnswer::Refused(format!("{base}: not an address; {example}"))
        })?;
        let nobody = |error: reqwest::Error| NoAnswer::Nobody {
            base: base.clone(),
            reason: format_error_chain(&error.without_url()).to_string(),
        };
        let client = begin_http_client().timeout(TIMEOUT).build();
        let mut request = client.map_err(nobody)?.get(url);
        let key = self.choose_key().await;
        if let Some(key) = key {
            request = request.bearer_auth(key.reveal());
        }
        let answer = request.send().await.map_err(nobody)?;
        self.check_status(answer.status(), key.is_some())?;
        let other = |reason: String| NoAnswer::Refused(self.explain_unexpected_answer(&reason));
        let body = Limited::new(reqwest::Body::from(answer), MAX_ANSWER_BYTES).collect();
        let body = body.await.map_err(|error| other(error.to_string()))?;
        serde_json::from_slice(&body.to_bytes()).map_err(|error| other(error.to_string()))
    }

    fn explain_unexpected_answer(&self, reason: &str) -> String {
        let base = &self.base;
        format!(
            "{base} does not answer as a Plimsoll proxy of this release does: {reason}; --url names another address"
        )
    }

    fn check_status(&self, status: StatusCode, has_key: bool) -> Result<(), NoAnswer> {
        let (base, key_env) = (&self.base, &self.key_env);
        Err(NoAnswer::Refused(match status {
            StatusCode::OK => return Ok(()),
            StatusCode::UNAUTHORIZED if has_key => {
                format!(
                    "{base} refuses the key in the environment variable {key_env}; set another key"
                )
            }
            StatusCode::UNAUTHORIZED if self.key.is_some() => format!(
                "{base} asks for a key. It does not prove that it is the proxy of the data directory, so the key in {key_env} is not sent; if it is your proxy, name it with --url {base}"
            ),
            StatusCode::UNAUTHORIZED => format!(
                "{base} asks for a key: set the environment variable {key_env} to a client's key or the administrator's, or name another variable with --key-env"
            ),
            status => self.explain_unexpected_answer(&format!("the status is {status}")),
        }))
    }

    /// The key, if this address may have it.
    async fn choose_key(&self) -> Option<&Secret> {
        let key = self.key.as_ref()?;
        let may_have = self.is_known
            || match &self.own {
                Some(own) => is_running(own).await,
                None => false,
            };
        may_have.then_some(key)
    }
}
