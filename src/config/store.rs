//! Where sessions are kept, and how many.

use std::{path::PathBuf, time::Duration};

use reqwest::Url;

use super::{
    secret::{Secret, SecretKey},
    section::{Section, settings},
    setting::Visibility,
};

const MAX_PREFIX_BYTES: usize = 64;

settings! {
    #[derive(Eq)]
    pub struct StoreConfig read from s {
        pub place: StorePlace = StorePlace::read_place(s);
        /// Sessions remembered; a server bounds what it holds itself.
        pub max_sessions: usize = s.read_number("max_sessions", place.default_limits().0, 1..=100_000_000,
            "it is the number of sessions that are remembered");
        /// Of memory or disk, by the place; a server bounds what it holds itself.
        pub max_bytes: usize = s.read_number("max_bytes", place.default_limits().1, 1 << 20..=1 << 40,
            "it is what all sessions may take, of memory or disk, in bytes");
        /// Since a session was last used.
        pub max_age: Duration = Duration::from_secs(s.read_number("max_age_s", 604_800, 60..=315_360_000,
            "it is how long an idle session is remembered, in seconds"));
        /// How long a request waits for an answer before it goes on without a state.
        pub timeout: Duration = Duration::from_millis(s.read_number("timeout_ms", 250, 10..=60_000,
            "it is how long a request waits for the store, in milliseconds"));
        /// Encrypts what is stored of a session.
        pub encrypt_key: Option<SecretKey> = s.read_named_key("encrypt_key_env");
    }
}

/// Where sessions are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// Gone when the process ends.
    Memory,
    /// In the data directory.
    File,
    /// By a server that replicas share: Redis, Valkey, or what speaks like them.
    Redis(Box<RedisConfig>),
}

/// How a server of sessions is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisConfig {
    /// `redis://` or `rediss://` with host, port, database and user; of a cluster, one for each node
    /// that may be asked for the others. Never empty. A password may stand in them.
    pub nodes: Vec<Secret>,
    pub cluster: bool,
    /// In the place of one in the address.
    pub password: Option<Secret>,
    /// Before every key.
    pub prefix: String,
    /// Certificates to trust instead of those of the system.
    pub ca_file: Option<PathBuf>,
}

impl RedisConfig {
    /// Whether it is spoken to with TLS.
    pub fn is_tls(&self) -> bool {
        let first = self.nodes.first();
        first.is_some_and(|node| node.reveal().starts_with("rediss:"))
    }

    /// Hosts and ports of all nodes, without users and passwords.
    pub fn list_hosts(&self) -> Vec<String> {
        let shown = |node: &Secret| {
            let url = Url::parse(node.reveal()).ok()?;
            let port = url.port().unwrap_or(6379);
            Some(format!("{}:{port}", url.host_str()?))
        };
        self.nodes.iter().filter_map(shown).collect()
    }
}

impl StoreConfig {
    /// How long one call of a server may take: less than requests wait, so that the store knows first.
    pub fn call_timeout(&self) -> Duration {
        self.timeout * 4 / 5
    }

    /// How long the end of an answer waits for its state to be stored.
    pub fn save_timeout(&self) -> Duration {
        self.timeout / 5
    }
}

impl StorePlace {
    /// Sessions and bytes, where nothing is said of them.
    const fn default_limits(&self) -> (usize, usize) {
        match self {
            Self::Memory => (10_000, 64 << 20),
            Self::File | Self::Redis(_) => (1_000_000, 4 << 30),
        }
    }

    fn read_place(s: &mut Section) -> Self {
        let url = s.read_address("url", "file");
        let prefix = s.read_plain("prefix", "plimsoll:".to_owned());
        let password_env: Option<String> = s.read_option("password_env", Visibility::Variable);
        let ca_file: Option<String> = s.read_option("ca_file", Visibility::Plain);
        match url.as_str() {
            "memory" => return Self::Memory,
            "file" => return Self::File,
            _ => {}
        }
        let Some((nodes, cluster)) = parse_nodes(&url) else {
            // Not shown: there may be a password in it.
            s.refuse_value(
                "url",
                None,
                "must be \"file\", \"memory\", or the address of a server (the value is not shown, it \
                 may hold a password): redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE], rediss:// for \
                 TLS, redis-cluster://HOST:PORT?node=HOST:PORT or rediss-cluster:// for a cluster, \
                 and valkey in the place of redis",
            );
            return Self::File;
        };
        if prefix.len() > MAX_PREFIX_BYTES || prefix.contains(['{', '}']) {
            let message = format!("must be at most {MAX_PREFIX_BYTES} bytes, without braces");
            s.refuse_text("prefix", &prefix, message);
        }
        let password = password_env.and_then(|name| s.resolve_secret("password_env", &name));
        Self::Redis(Box::new(RedisConfig {
            nodes,
            cluster,
            password,
            prefix,
            ca_file: ca_file.map(Into::into),
        }))
    }
}

/// The servers of an address, and whether they are a cluster. `None`: it is no such address.
fn parse_nodes(written: &str) -> Option<(Vec<Secret>, bool)> {
    let url = Url::parse(written).ok()?;
    let (scheme, cluster) = match url.scheme() {
        "redis" | "valkey" => ("redis", false),
        "rediss" | "valkeys" => ("rediss", false),
        "redis-cluster" | "valkey-cluster" => ("redis", true),
        "rediss-cluster" | "valkeys-cluster" => ("rediss", true),
        _ => return None,
    };
    url.host_str().filter(|host| !host.is_empty())?;
    let database = url.path().trim_start_matches('/');
    if !database.is_empty() && (cluster || database.parse::<u32>().is_err()) {
        return None;
    }
    let rest = written.split_once("://")?.1;
    let rest = rest.split(['?', '#']).next()?;
    let mut nodes = vec![Secret::new(format!("{scheme}://{rest}"))];
    for (name, node) in url.query_pairs() {
        if !cluster || name != "node" {
            return None;
        }
        let user = rest.rsplit_once('@').map(|(user, _)| format!("{user}@"));
        let node = format!("{scheme}://{}{node}", user.unwrap_or_default());
        Url::parse(&node).ok()?.host_str()?;
        nodes.push(Secret::new(node));
    }
    Some((nodes, cluster))
}

#[cfg(test)]
mod tests {
    use super::parse_nodes;

    fn shown(written: &str) -> Option<(Vec<String>, bool)> {
        let (nodes, cluster) = parse_nodes(written)?;
        let nodes = nodes.iter().map(|node| node.reveal().to_owned());
        Some((nodes.collect(), cluster))
    }

    #[test]
    fn addresses_become_nodes() {
        let one = |node: &str| Some((vec![node.to_owned()], false));
        assert_eq!(shown("redis://a"), one("redis://a"));
        assert_eq!(shown("valkey://a:1/2"), one("redis://a:1/2"));
        assert_eq!(shown("valkeys://u:p%40@a/0"), one("rediss://u:p%40@a/0"));
        assert_eq!(shown("redis://[::1]:7"), one("redis://[::1]:7"));
        let several = ["rediss://:p@a:1", "rediss://:p@b:2", "rediss://:p@[::1]:3"];
        assert_eq!(
            shown("rediss-cluster://:p@a:1?node=b:2&node=[::1]:3"),
            Some((several.map(str::to_owned).to_vec(), true))
        );
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for wrong in [
            "",
            "sqlite",
            "http://a",
            "redis://",
            "redis:a",
            "redis://a/x",
            "redis://a?node=b",
            "redis-cluster://a/1",
            "redis-cluster://a?other=b",
            "redis-cluster://a?node=",
        ] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
    }
}
