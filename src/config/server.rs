//! Settings of the server: its address, the limits of connections and bodies, the data directory.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    loading::{
        places::{can_write, list_data_folders},
        section::{Section, Visibility, settings},
    },
    outgoing::Outgoing,
    secret::SecretKey,
};

/// The smallest limit that is derived from windows.
const MIN_BODY_BYTES: usize = 32 << 20;
const MAX_BODY_BYTES: usize = 1 << 30;
/// Bytes of a body per token of the largest window: room for escapes, and for what the guard removes.
const BYTES_PER_TOKEN: usize = 64;
/// Bodies of the derived limit that fit into `max_bytes_in_flight` together.
const BODIES_IN_FLIGHT: usize = 4;

settings! {
    pub struct ServerConfig read from s {
        pub listen: SocketAddr = read_listen(s);
        /// Origins of pages that may read answers, as browsers send them; also `SCHEME://*` and `*`.
        pub allowed_origins: Vec<String> = read_origins(s);
        /// Names in `Host` that are this machine's, beside loopback's. They never allow to listen elsewhere.
        pub allowed_hosts: Vec<String> = read_hosts(s);
        /// Of one request body after decoding; unset: derived by `fit_body_to_window`.
        pub max_body_bytes: usize = s
            .read_optional_number("max_body_bytes", 1024..=MAX_BODY_BYTES,
                "it is the size of one request body in bytes, after decoding")
            .unwrap_or(MIN_BODY_BYTES);
        /// Of all request and buffered response bodies together.
        pub max_bytes_in_flight: usize = s.bound_by_others().read_number("max_bytes_in_flight", 512 << 20,
            max_body_bytes.min(MAX_BODY_BYTES)..=1 << 40,
            "it must hold one body of server.max_body_bytes, or no large request gets in");
        pub max_connections: usize = s.read_number("max_connections", 4096, 1..=1_000_000,
            "it is the number of connections open at one time");
        /// Of all headers of one request.
        pub max_header_bytes: usize = s.read_number("max_header_bytes", 64 << 10, 8192..=1 << 20,
            "it is the size of all headers of one request in bytes");
        /// From the start of a connection to the end of its first request's headers.
        pub header_timeout: Duration = s.read_millis("header_timeout_ms", 15_000, 1);
        /// Between two reads of a request body.
        pub body_timeout: Duration = s.read_millis("body_timeout_ms", 30_000, 1);
        /// How long the listener stays open after the signal to stop, for balancers to find that the proxy is not ready.
        pub drain_delay: Duration = s.read_millis("drain_delay_ms", 0, 0);
        /// How long a drain waits for running answers.
        pub drain_timeout: Duration = s.read_millis("drain_timeout_ms", 30_000, 0);
        /// Whether, where nothing else says who is asked, the names of Anthropic's and OpenAI's models are passed on.
        pub known_providers: bool = s.read_plain("known_providers", true);
        pub data_dir: DataDir = DataDir::read(s);
        /// The certificates of `ca_file`, and the proxies of the environment.
        pub outgoing: Outgoing = Outgoing::read(s);
        /// The installation's secret; unset: the one in `data_dir`.
        pub secret: Option<SecretKey> = s.explain_unset("data_dir/secret, made on the first start")
            .read_named_key("secret_env");
    }
}

impl ServerConfig {
    /// Whether only this machine can connect.
    pub fn listens_on_loopback(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }

    /// Derives a `max_body_bytes` that is not set from the largest window, in tokens, such that several bodies of
    /// that size fit into `max_bytes_in_flight`.
    pub(crate) fn fit_body_to_window(&mut self, window: u32) {
        let wanted = (window as usize).saturating_mul(BYTES_PER_TOKEN);
        let room = self.max_bytes_in_flight / BODIES_IN_FLIGHT;
        let upper = room.clamp(MIN_BODY_BYTES, MAX_BODY_BYTES);
        self.max_body_bytes = wanted.clamp(MIN_BODY_BYTES, upper);
    }
}

/// Where the files of the proxy lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataDir {
    path: Option<PathBuf>,
    /// Those that were considered, the strongest first.
    places: Vec<PathBuf>,
}

impl<P: Into<PathBuf>> From<P> for DataDir {
    fn from(path: P) -> Self {
        let path = path.into();
        Self {
            places: vec![path.clone()],
            path: Some(path),
        }
    }
}

impl DataDir {
    /// The setting, or else the first of the usual folders that can be written.
    fn read(s: &mut Section) -> Self {
        s.explain_unset("a folder of the user's or the service's state");
        match s.read_option::<String>("data_dir", Visibility::Plain) {
            Some(written) => {
                if written.is_empty() {
                    let message = "must name a directory; write \".\" for the working directory";
                    s.refuse_text("data_dir", &written, message);
                }
                Self::from(written)
            }
            None => {
                let places = list_data_folders(s.environment);
                Self {
                    path: places.iter().find(|place| can_write(place)).cloned(),
                    places,
                }
            }
        }
    }

    /// `None`: no folder can be written, and what the proxy would keep lives as long as the process.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether both come from the same settings. Which of the usual folders can be written may change meanwhile.
    pub(crate) fn has_same_places(&self, other: &Self) -> bool {
        self.places == other.places
    }

    /// Why nothing is kept, where there is no [`Self::path`].
    pub(crate) fn explain_memory(&self) -> String {
        let tried = self.places.iter().map(|place| place.display().to_string());
        let why = match tried.collect::<Vec<_>>().join(", ") {
            tried if tried.is_empty() => {
                "no variable names a folder (HOME, STATE_DIRECTORY)".to_owned()
            }
            tried => format!("no file can be made in {tried}"),
        };
        format!(
            "{why}: the secret, and without store.url the sessions, are kept in memory and end with the process; set \
             it to a folder that can be written"
        )
    }
}

/// SECURITY: without client keys a page needs nothing but its origin, so each is written whole.
fn read_origins(s: &mut Section) -> Vec<String> {
    let origins: Vec<String> = s.read_plain("allowed_origins", Vec::new());
    let have_keys = !s.list_keys("clients").is_empty();
    for origin in &origins {
        if let Some(message) = find_origin_fault(origin, have_keys) {
            s.refuse_text("allowed_origins", origin, message);
        }
    }
    origins
}

fn find_origin_fault(origin: &str, have_keys: bool) -> Option<&'static str> {
    let (scheme, host) = origin.split_once("://").unwrap_or((origin, ""));
    let is_word = |text: &str, more: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
        !text.is_empty() && text.chars().all(is_plain)
    };
    let is_web = ["http", "https"].contains(&scheme);
    match origin {
        "null" => Some("is the origin of any sandboxed page and file, and cannot be allowed"),
        "*" if have_keys => None,
        _ if host == "*" && is_web => Some("would allow any site; write each origin"),
        _ if host == "*" && have_keys && is_word(scheme, "+-.") => None,
        _ if host == "*" || origin == "*" => {
            Some("needs client keys ([clients.NAME]): without them, write each origin whole")
        }
        _ if matches!(
            (scheme, host.rsplit(':').next()),
            ("https", Some("443")) | ("http", Some("80"))
        ) =>
        {
            Some("has the port that browsers leave out; leave it out")
        }
        _ if is_word(scheme, "+-.") && is_word(host, "-._:[]") => None,
        _ => Some(
            "must be an origin without a path, such as https://app.example.com or app://obsidian.md",
        ),
    }
}

fn read_hosts(s: &mut Section) -> Vec<String> {
    let hosts: Vec<String> = s.read_plain("allowed_hosts", Vec::new());
    let is_name = |host: &String| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        !host.is_empty() && host.chars().all(is_plain)
    };
    if let Some(host) = hosts.iter().find(|host| !is_name(host)) {
        let message = "must be a name without a port, such as host.docker.internal";
        s.refuse_text("allowed_hosts", host, message);
    }
    hosts
}

/// SECURITY: without client keys anyone who reaches the port spends the user's money. So the proxy then listens
/// on loopback only.
fn read_listen(s: &mut Section) -> SocketAddr {
    let written = s.read_plain("listen", "127.0.0.1:1876".to_owned());
    let Ok(address) = written.parse::<SocketAddr>() else {
        let port = written.rsplit_once(':').map_or("", |(_, port)| port);
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let message = if is_number && port.parse::<u16>().is_err() {
            "has a port that does not exist; ports are from 0 to 65535"
        } else {
            "must be an IP address and a port, such as 127.0.0.1:1876 or [::1]:1876"
        };
        s.refuse_text("listen", &written, message);
        return SocketAddr::from(([127, 0, 0, 1], 0));
    };
    if !address.ip().to_canonical().is_loopback() && s.list_keys("clients").is_empty() {
        let message = "can be reached from other machines, and there are no client keys; add a \
                       [clients.NAME] section with key_sha256, or listen on 127.0.0.1";
        s.refuse_text("listen", &written, message);
    }
    address
}
