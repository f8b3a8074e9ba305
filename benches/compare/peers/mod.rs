//! The peers: how each is found, configured for streams as its users would, and started.
//!
//! Each listens on its own port, on one core, without logs. A peer that is missing or does not
//! start is listed with the reason, and does not stop the others.

mod haproxy;
mod headroom;
mod litellm;
mod nginx;
mod plimsoll;
mod portkey;

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use ::plimsoll::conversation::Format;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{
    bodies::{BodySize, Mode, SIZES, bodies},
    client::{LoadClient, PeerAddress, io_failure},
    figures::DIRECT,
    process::PeerProcess,
};

/// The order of magnitude of a peer's throughput, which decides on connections and rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speed {
    Fast,
    Middle,
    Slow,
}

/// The command of a peer.
pub(crate) struct Setup {
    version: String,
    command: Command,
    speed: Speed,
    headers: Vec<(&'static str, String)>,
    /// The expected `x-plimsoll-actions`, for Plimsoll only.
    expected: Option<Actions>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actions {
    Only(&'static str),
    /// Any value.
    Something,
}

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) door: PeerAddress,
    pub(crate) speed: Speed,
    expected: Option<Actions>,
    process: Option<PeerProcess>,
    /// Memory before the first request.
    pub(crate) fresh: f64,
}

/// Time for memory to settle after the start.
const SETTLES: Duration = Duration::from_millis(500);

/// All peers in the order of the tables.
pub(crate) const NAMES: [&str; 9] = [
    DIRECT,
    "nginx",
    "haproxy",
    "plimsoll-off",
    "plimsoll",
    "plimsoll-trim",
    "portkey",
    "headroom",
    "litellm",
];

/// Installs missing peers. What cannot be installed is reported at its start.
pub(crate) fn install(names: &[&'static str]) -> io::Result<()> {
    let others = names
        .iter()
        .filter(|name| !name.starts_with("plimsoll") && **name != DIRECT);
    let script = source().join("install");
    Command::new(script)
        .args(others)
        .env("CARGO_TARGET_DIR", target())
        .stdout(Stdio::null())
        .status()
        .map(drop)
}

/// Starts a peer before the provider.
///
/// # Errors
/// If it is missing, or does not listen within two minutes.
pub(crate) async fn start(name: &'static str, provider: SocketAddr) -> io::Result<Peer> {
    if name == DIRECT {
        let door = PeerAddress {
            address: provider,
            headers: HeaderMap::new(),
        };
        return Ok(Peer {
            name,
            version: String::new(),
            door,
            speed: Speed::Fast,
            expected: None,
            process: None,
            fresh: f64::NAN,
        });
    }
    let folder = tempfile::tempdir()?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let place = PeerFolder {
        address,
        provider,
        folder: folder.path().to_owned(),
    };
    let setup = match name {
        "nginx" => nginx::setup(&place),
        "haproxy" => haproxy::setup(&place),
        "portkey" => portkey::setup(&place),
        "headroom" => headroom::setup(&place),
        "litellm" => litellm::setup(&place),
        ours => plimsoll::setup(ours, &place),
    }?;
    let mut headers = HeaderMap::new();
    for (name, value) in &setup.headers {
        let value = HeaderValue::from_str(value).map_err(io::Error::other)?;
        headers.insert(HeaderName::from_static(name), value);
    }
    let mut peer = Peer {
        name,
        version: setup.version,
        door: PeerAddress { address, headers },
        speed: setup.speed,
        expected: setup.expected,
        process: Some(PeerProcess::start(&setup.command, folder)?),
        fresh: f64::NAN,
    };
    peer.wait_until_ready().await?;
    Ok(peer)
}

impl Peer {
    /// Returns once a request passes through. Memory is measured before the first.
    async fn wait_until_ready(&mut self) -> io::Result<()> {
        let mode = Mode::Whole;
        let door = self.door.clone();
        let mut last = io_failure("not asked");
        for body in bodies(SIZES[0], mode, false).iter().cycle().take(240) {
            if tokio::net::TcpStream::connect(door.address).await.is_ok() {
                if self.fresh.is_nan() {
                    tokio::time::sleep(SETTLES).await;
                    self.fresh = self.memory();
                }
                let mut client = LoadClient::new(door.clone(), Format::Chat);
                match client.ask(body.clone(), mode).await {
                    Ok(_) => return self.process().map_or(Ok(()), PeerProcess::check_core),
                    Err(why) => last = why,
                }
            }
            if let Some(words) = self.process.as_mut().and_then(PeerProcess::last_words) {
                return Err(io_failure(&words));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Err(io_failure(&format!("not ready after two minutes: {last}")))
    }

    const fn process(&self) -> Option<&PeerProcess> {
        self.process.as_ref()
    }

    pub(crate) fn cpu(&self) -> f64 {
        self.process().map_or(f64::NAN, PeerProcess::cpu)
    }

    pub(crate) fn memory(&self) -> f64 {
        self.process().map_or(f64::NAN, PeerProcess::memory)
    }

    pub(crate) fn pause_process(&self, rests: bool) {
        if let Some(process) = self.process() {
            process.pause_process(rests);
        }
    }

    pub(crate) fn check_core(&self) -> io::Result<()> {
        self.process().map_or(Ok(()), PeerProcess::check_core)
    }

    /// Whether what this peer stands for can be done to such a body.
    pub(crate) fn can_take(&self, size: BodySize) -> bool {
        self.expected != Some(Actions::Something) || size.narrow > 0
    }

    /// # Errors
    /// If Plimsoll did not do what this peer stands for.
    pub(crate) fn check_actions(&self, headers: &HeaderMap) -> io::Result<()> {
        let Some(expected) = self.expected else {
            return Ok(());
        };
        let said = headers.get("x-plimsoll-actions");
        let said = said.and_then(|it| it.to_str().ok()).unwrap_or("missing");
        match expected {
            Actions::Only(word) if said != word => Err(io_failure(&format!("it did: {said}"))),
            Actions::Something if said == "none" => Err(io_failure("nothing to trim")),
            _ => Ok(()),
        }
    }
}

/// Inputs of a peer's settings.
struct PeerFolder {
    address: SocketAddr,
    provider: SocketAddr,
    /// A temporary folder.
    folder: PathBuf,
}

impl PeerFolder {
    fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let file = self.folder.join(name);
        fs::write(&file, text)?;
        Ok(file)
    }
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/compare/peers")
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target"),
        PathBuf::from,
    )
}

/// An installed file under `target/peers`.
fn installed(path: &str) -> io::Result<PathBuf> {
    let file = target().join("peers").join(path);
    if file.exists() {
        Ok(file)
    } else {
        Err(io_failure("not installed"))
    }
}

/// A program of a Debian package.
fn program(name: &str) -> io::Result<PathBuf> {
    let places = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    let found = places
        .iter()
        .map(|it| Path::new(it).join(name))
        .find(|it| it.exists());
    found.ok_or_else(|| io_failure("not installed"))
}

/// The first dotted number in a program's version output.
fn version(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let number = |word: &str| {
        let word = word.rsplit('/').next().unwrap_or(word);
        let starts = word.starts_with(|it: char| it.is_ascii_digit());
        (starts && word.contains('.')).then(|| word.trim_end_matches(',').to_owned())
    };
    let found = text.split_whitespace().find_map(number);
    Ok(found.unwrap_or_else(|| "unknown version".to_owned()))
}

/// The version of a package in a virtual environment, without starting Python.
fn python_version(peer: &str, package: &str) -> String {
    let packages = target().join("peers").join(peer).join("lib");
    let pythons = fs::read_dir(packages).into_iter().flatten().flatten();
    let mut names = pythons
        .filter_map(|python| fs::read_dir(python.path().join("site-packages")).ok())
        .flat_map(|files| files.flatten())
        .map(|file| file.file_name().to_string_lossy().into_owned());
    let found = names.find_map(|name| {
        let version = name.strip_prefix(package)?.strip_prefix('-')?;
        Some(version.strip_suffix(".dist-info")?.to_owned())
    });
    found.unwrap_or_else(|| "unknown version".to_owned())
}
