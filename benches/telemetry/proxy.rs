//! The proxy as a process, and its observers.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tempfile::TempDir;
use tokio::task::JoinSet;

type HttpClient = Client<HttpConnector, Full<Bytes>>;

pub(crate) struct MeasuredProxy {
    pub(crate) address: SocketAddr,
    pub(crate) hears_events: bool,
    child: Child,
    log: PathBuf,
    client: HttpClient,
    _watchers: JoinSet<()>,
    _folder: TempDir,
}

impl MeasuredProxy {
    /// `watched`: with all telemetry.
    pub(crate) async fn start_proxy(far: SocketAddr, watched: bool) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let place = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let traces = if watched {
            format!("[traces]\nendpoint = \"http://{far}/v1/traces\"\n")
        } else {
            String::new()
        };
        let config = format!(
            "[server]\nlisten = \"{place}\"\ndata_dir = {:?}\n\
             [providers.up]\nbase_url = \"http://{far}/v1\"\nauth = \"none\"\nask_models = false\n\
             [models.\"up/m\"]\ncontext_length = 200000\n{traces}",
            folder.path().join("data")
        );
        let file = folder.path().join("config.toml");
        std::fs::write(&file, config)?;
        let log = folder.path().join("log");
        let out = if watched {
            Stdio::from(File::create(&log)?)
        } else {
            Stdio::null()
        };
        let child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .arg("--config")
            .arg(&file)
            .env("PLIMSOLL_LOG", if watched { "info" } else { "off" })
            .env("PLIMSOLL_CATALOGUE__URL", "")
            .env_remove("RUST_LOG")
            .stderr(out)
            .spawn()?;
        pin_to_core(child.id(), "0");
        let mut near = Self {
            address: place,
            hears_events: false,
            child,
            log,
            client: Client::builder(TokioExecutor::new()).build_http(),
            _watchers: JoinSet::new(),
            _folder: folder,
        };
        while near.get("/readyz").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if watched {
            near.watch_proxy().await?;
        }
        Ok(near)
    }

    async fn watch_proxy(&mut self) -> io::Result<()> {
        let uri = |path: &str| format!("http://{}{path}", self.address).parse();
        let metrics: http::Uri = uri("/metrics").map_err(io::Error::other)?;
        let events: http::Uri = uri("/plimsoll/api/events").map_err(io::Error::other)?;
        let client = self.client.clone();
        self._watchers.spawn(async move {
            let mut every = tokio::time::interval(Duration::from_secs(1));
            loop {
                every.tick().await;
                if let Ok(answer) = client.get(metrics.clone()).await {
                    let _ = answer.into_body().collect().await;
                }
            }
        });
        let answer = self.client.get(events).await.map_err(io::Error::other)?;
        self.hears_events = answer.status().is_success();
        self._watchers.spawn(async move {
            let mut body = answer.into_body();
            while let Some(Ok(_)) = body.frame().await {}
        });
        Ok(())
    }

    async fn get(&self, path: &str) -> io::Result<String> {
        let uri = format!("http://{}{path}", self.address);
        let uri = uri.parse().map_err(io::Error::other)?;
        let answer = self.client.get(uri).await.map_err(io::Error::other)?;
        let body = answer
            .into_body()
            .collect()
            .await
            .map_err(io::Error::other)?;
        Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
    }

    /// Processor time so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> io::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name in brackets may contain spaces; the fields after it do not.
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .split_whitespace()
            .collect();
        let ticks = |at: usize| fields.get(at).and_then(|it| it.parse::<f64>().ok());
        let ticks = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
        ticks
            .map(|ticks| ticks / 100.0)
            .ok_or_else(|| io::Error::other("no times in /proc"))
    }

    /// The exported spans, from its metrics.
    pub(crate) async fn spans_taken(&self) -> io::Result<String> {
        let metrics = self.get("/metrics").await?;
        let all = ["made", "exported", "failed"].map(|outcome| {
            let name = format!("plimsoll_spans_total{{outcome=\"{outcome}\"}} ");
            let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
            format!("{} {outcome}", line.unwrap_or("none"))
        });
        Ok(all.join(", "))
    }

    pub(crate) fn count_log_lines(&self) -> io::Result<usize> {
        Ok(BufReader::new(File::open(&self.log)?).lines().count())
    }
}

impl Drop for MeasuredProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Pins a process to one core, where that is possible.
pub(crate) fn pin_to_core(process: u32, core: &str) {
    let asked = Command::new("taskset")
        .args(["-apc", core, &process.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    drop(asked);
}
