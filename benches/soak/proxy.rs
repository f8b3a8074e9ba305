//! The proxies as processes: settings, reloads, logs and resources.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::task::JoinSet;

use super::{
    conversation::MODELS,
    pause,
    provider::{PROFILES, SoakProviders},
    redis::SoakRedis,
    run_state::RunState,
};
use crate::support::{Process, TestClient};

const SECRET: &str = "5eaf000000000000000000000000000000000000000000000000000000005eaf";

/// Errors in the log that the run causes.
const EXPECTED: [&str; 1] = ["the new settings cannot be used"];

pub(crate) struct ProxyProcess {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    id: u32,
    settings: PathBuf,
    /// The settings without what a reload changes.
    fixed_settings: String,
    /// Reloads found in the log.
    reloaded: Arc<AtomicU64>,
    _log: Mutex<JoinSet<()>>,
}

/// The resources of an idle proxy.
#[derive(Clone, Debug)]
pub(crate) struct IdleResources {
    pub(crate) name: &'static str,
    pub(crate) rss_kb: u64,
    pub(crate) files: usize,
    pub(crate) threads: u64,
}

/// One proxy on its file, two on Redis.
pub(crate) async fn start_all(
    folder: &Path,
    far: &SoakProviders,
    store: &SoakRedis,
    world: &Arc<RunState>,
) -> io::Result<Vec<Arc<ProxyProcess>>> {
    let url = store.url();
    let mut all = Vec::new();
    for (name, store) in [("file", "file"), ("red-a", url.as_str()), ("red-b", &url)] {
        let folder = folder.join(name);
        fs::create_dir(&folder)?;
        all.push(Arc::new(
            ProxyProcess::start_process(name, &folder, far, store, world).await?,
        ));
    }
    Ok(all)
}

impl ProxyProcess {
    async fn start_process(
        name: &'static str,
        folder: &Path,
        far: &SoakProviders,
        store: &str,
        world: &Arc<RunState>,
    ) -> io::Result<Self> {
        let settings = folder.join("config.toml");
        let fixed = write_fixed_settings(folder, far, store);
        fs::write(&settings, write_settings(&fixed, 0))?;
        let mut process = Process::run(|command| {
            let command = command.env("PLIMSOLL_SOAK_SECRET", SECRET);
            command.arg("--config").arg(&settings)
        })
        .await;
        let (address, id) = (process.address, process.id());
        let reloaded = Arc::new(AtomicU64::new(0));
        let (world, reloads) = (Arc::clone(world), Arc::clone(&reloaded));
        let mut log = JoinSet::new();
        log.spawn(async move {
            while let Some(mut line) = process.line().await {
                if !line.starts_with('{') {
                    line += &read_rest_of_panic(&mut process).await;
                }
                check_log_line(&world, &reloads, name, &line);
            }
            world.report_failure(format!("{name} ended by itself"));
        });
        Ok(Self {
            name,
            address,
            id,
            settings,
            fixed_settings: fixed,
            reloaded,
            _log: Mutex::new(log),
        })
    }

    pub(crate) async fn get(&self, path: &str) -> io::Result<String> {
        let answer = TestClient::new(self.address, false).get(path).await;
        match answer.status.as_u16() {
            200 => Ok(answer.text().to_owned()),
            status => Err(io::Error::other(format!("{path}: {status}"))),
        }
    }

    /// The metrics of that name with all their labels.
    pub(crate) async fn read_gauges(&self, names: &[&str]) -> Vec<(String, f64)> {
        let text = self.get("/metrics").await.unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
        let found = lines.filter(|(name, _)| {
            let plain = name.split('{').next().unwrap_or("");
            names.contains(&plain)
        });
        found
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect()
    }

    pub(crate) fn measure_resources(&self) -> IdleResources {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id)).unwrap_or_default();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.unwrap_or(0)
        };
        let files = fs::read_dir(format!("/proc/{}/fd", self.id));
        IdleResources {
            name: self.name,
            rss_kb: of("VmRSS:"),
            files: files.map_or(0, Iterator::count),
            threads: of("Threads:"),
        }
    }

    /// Writes valid settings and waits until they apply.
    pub(crate) async fn restore_settings(&self) {
        self.reload_settings(&write_settings(&self.fixed_settings, 0))
            .await;
    }

    /// Writes the settings, sends SIGHUP, and returns once the log reports the reload.
    async fn reload_settings(&self, settings: &str) {
        const WITHIN: usize = 200;
        let before = self.reloaded.load(Relaxed);
        if fs::write(&self.settings, settings).is_err() {
            return;
        }
        let id = self.id.to_string();
        let _ = tokio::task::block_in_place(|| Command::new("kill").args(["-HUP", &id]).status());
        for _ in 0..WITHIN {
            if self.reloaded.load(Relaxed) > before {
                return;
            }
            pause(50).await;
        }
    }
}

/// Lines of a panic, which are not log lines.
async fn read_rest_of_panic(process: &mut Process) -> String {
    const LINES: usize = 20;
    const WAIT: Duration = Duration::from_millis(500);
    let mut rest = String::new();
    for _ in 0..LINES {
        let Ok(Some(line)) = tokio::time::timeout(WAIT, process.line()).await else {
            break;
        };
        if !line.starts_with('{') {
            rest = rest + "\n" + &line;
        }
    }
    rest
}

/// Reads a log line: a panic or an unexpected error ends the run.
fn check_log_line(world: &RunState, reloads: &AtomicU64, name: &str, line: &str) {
    if !line.starts_with('{') || line.contains("panicked") {
        world.report_failure(format!("{name} wrote {line}"));
        return;
    }
    let told = ["settings are in force", "settings read again", EXPECTED[0]];
    if told.iter().any(|it| line.contains(it)) {
        reloads.fetch_add(1, Relaxed);
        world.count_event("reloads");
    }
    let error = line.contains("\"level\":\"ERROR\"");
    if error && !EXPECTED.iter().any(|it| line.contains(it)) {
        world.report_failure(format!("{name} logged {line}"));
    }
    if line.contains("\"level\":\"WARN\"") {
        let told: Value = serde_json::from_str(line).unwrap_or_default();
        let message = told["fields"]["message"]
            .as_str()
            .or(told["message"].as_str());
        // Counted by kind, without figures and names.
        let words = message.unwrap_or(line).split(['"', ':']).map(str::trim);
        let words = words.max_by_key(|words| words.len()).unwrap_or("");
        let kind: String = words.chars().filter(|it| !it.is_ascii_digit()).collect();
        world.count_event(&format!("warned: {kind}"));
    }
}

/// Small changes to all settings, valid and broken in turn.
pub(crate) async fn reload_repeatedly(nears: &[Arc<ProxyProcess>], world: &RunState) {
    const BROKEN: [&str; 4] = [
        "]][",
        "unknown = 1\n",
        "[server]\nmax_body_bytes = \"x\"\n",
        "",
    ];
    let mut random = world.random_with_salt(99);
    for change in 1.. {
        for near in nears {
            let settings = if random.chance(35) {
                BROKEN[random.below(BROKEN.len())].to_owned()
            } else {
                write_settings(&near.fixed_settings, change)
            };
            near.reload_settings(&settings).await;
            pause(random.between(200, 1_500) as u64).await;
        }
    }
}

fn write_fixed_settings(folder: &Path, far: &SoakProviders, store: &str) -> String {
    let mut text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndata_dir = {:?}\nsecret_env = \"PLIMSOLL_SOAK_SECRET\"\n\
         [store]\nurl = \"{store}\"\ntimeout_ms = 3000\n",
        folder.join("data")
    );
    for model in MODELS {
        for (one, other) in [("one", "two"), ("two", "one")] {
            text += &format!(
                "[models.\"{one}/{0}\"]\ncontext_length = {1}\nfallback = [\"{other}/{0}\"]\n",
                model.name, model.told
            );
        }
    }
    for ((name, address), profile) in ["one", "two"].iter().zip(far.addresses()).zip(PROFILES) {
        text += &format!(
            "[providers.{name}]\nbase_url = \"http://{address}/v1\"\nauth = \"none\"\n\
             ask_models = false\nprofile = \"{profile}\"\nfirst_byte_timeout_ms = 3000\n\
             idle_timeout_ms = 3000\nbreaker_open_ms = 2000\n"
        );
    }
    text
}

/// The settings with this change number; 0 is the start.
fn write_settings(fixed: &str, change: u64) -> String {
    format!(
        "default_provider = \"one\"\n{fixed}headers = {{ x-soak-change = \"{}\" }}\n\
         [recovery]\ncaution_cadence = {}\n[retry]\nmax_retries = {}\nbase_delay_ms = 50\n\
         [compaction]\nthreshold = 0.{}\ntimeout_ms = 10000\nwait_ms = {}\n",
        change % 3,
        10 - change % 4,
        change % 2,
        6 + change % 2,
        change % 2 * 1_000
    )
}
