//! Exports spans to a collector, by OTLP over HTTP.
//!
//! The library's thread hands over a batch and waits. A client like those of the providers sends it on the proxy's
//! runtime: no redirects, the same proxies of the environment, bounded in time and size. The library's `OTEL_…` variables
//! set no header and no address here. The log reports an unreachable collector once, and once its return.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Limited};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{
    Protocol, RetryPolicy, SpanExporter as Otlp, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter},
};
use prometheus::IntCounterVec;
use reqwest::Url;
use tokio::runtime::Handle;

use crate::{
    config::{Outgoing, TracesConfig},
    error::format_error_chain,
    provider::begin_client_for,
};

/// Most spans that wait; more are dropped.
const MAX_QUEUED: usize = 8_192;
const MAX_BATCH: usize = 512;
const BATCH_EVERY: Duration = Duration::from_secs(1);
/// For one try, and for all tries of one batch.
const EXPORT_WITHIN: Duration = Duration::from_secs(4);
/// Most bytes of a collector's answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;

pub(super) fn build_span_processor(
    config: &TracesConfig,
    outgoing: &Outgoing,
    counts: &IntCounterVec,
) -> io::Result<BatchSpanProcessor> {
    let url = Url::parse(config.endpoint.as_deref().unwrap_or_default())
        .map_err(|_| io::Error::other("traces.endpoint is no URL"))?;
    let exporter = Otlp::builder()
        .with_http()
        .with_http_client(CollectorClient::new(url.clone(), config, outgoing)?)
        .with_endpoint(url.as_str())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(EXPORT_WITHIN)
        .with_retry_policy(RetryPolicy::recommended().with_max_retries(1))
        .build()
        .map_err(io::Error::other)?;
    let counts = counts.clone();
    let exporter = CountingExporter { exporter, counts };
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(MAX_QUEUED)
        .with_max_export_batch_size(MAX_BATCH)
        .with_scheduled_delay(BATCH_EVERY)
        .build();
    let processor = BatchSpanProcessor::builder(exporter);
    Ok(processor.with_batch_config(batches).build())
}

#[derive(Debug)]
struct CollectorClient {
    client: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    runtime: Handle,
    /// The last export failed, and the log reports it.
    failing: AtomicBool,
}

impl CollectorClient {
    fn new(url: Url, config: &TracesConfig, outgoing: &Outgoing) -> io::Result<Self> {
        let client = begin_client_for(outgoing, config.find_route(outgoing).as_ref())
            .timeout(EXPORT_WITHIN)
            .build()
            .map_err(|error| io::Error::other(error.without_url()))?;
        Ok(Self {
            client,
            url,
            headers: config.headers.clone(),
            runtime: Handle::try_current().map_err(io::Error::other)?,
            failing: AtomicBool::new(false),
        })
    }

    fn log_export(&self, sent: &Result<Response<Bytes>, HttpError>) {
        let error = match sent {
            Ok(answer) if answer.status().is_success() => {
                if self.failing.swap(false, Relaxed) {
                    tracing::info!("spans reach their collector again");
                }
                return;
            }
            Ok(answer) => format!("it answered {}", answer.status()),
            Err(error) => format_error_chain(&**error).to_string(),
        };
        if !self.failing.swap(true, Relaxed) {
            tracing::warn!(error, "spans do not reach their collector and are dropped");
        }
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut outgoing = reqwest::Request::new(http::Method::POST, self.url.clone());
        outgoing.headers_mut().clone_from(&self.headers);
        if let Some(kind) = request.headers().get(CONTENT_TYPE) {
            outgoing.headers_mut().insert(CONTENT_TYPE, kind.clone());
        }
        *outgoing.body_mut() = Some(request.into_body().into());
        let client = self.client.clone();
        // The thread that waits here has no runtime.
        let sent = self.runtime.spawn(async move {
            let answer = client.execute(outgoing).await;
            let answer = answer.map_err(reqwest::Error::without_url)?;
            let (head, body) = Response::<reqwest::Body>::from(answer).into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?;
            Ok(Response::from_parts(head, body.to_bytes()))
        });
        let Ok(sent) = sent.await else {
            return Err("the proxy has ended".into());
        };
        self.log_export(&sent);
        sent
    }
}

/// Counts exported and failed spans.
#[derive(Debug)]
struct CountingExporter {
    exporter: Otlp,
    counts: IntCounterVec,
}

impl SpanExporter for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let exported = self.exporter.export(batch).await;
        let outcome = exported.as_ref().map_or("failed", |()| "exported");
        self.counts.with_label_values(&[outcome]).inc_by(spans);
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
