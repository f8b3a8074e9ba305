//! Settings of the store: where sessions are kept, how many and how long.

use std::{path::PathBuf, time::Duration};

use reqwest::Url;

use super::{
    loading::section::{Section, Visibility, settings},
    secret::{Secret, SecretKey},
};

const MAX_PREFIX_BYTES: usize = 64;

settings! {
    #[derive(Eq)]
    pub struct StoreConfig read from s {
        pub place: StorePlace = StorePlace::read_place(s);
        /// Sessions that are remembered; not applied to a server, which has its own limits.
        pub max_sessions: usize = s.read_number("max_sessions", place.default_limits().0, 1..=100_000_000,
            "it is the number of sessions that are remembered");
        /// Bytes of memory or disk; not applied to a server.
        pub max_bytes: usize = s.read_number("max_bytes", place.default_limits().1, 1 << 20..=1 << 40,
            "it is what all sessions may take, of memory or disk, in bytes");
        /// Since the last use of a session.
        pub max_age: Duration = Duration::from_secs(s.read_number("max_age_s", 604_800, 60..=315_360_000,
            "it is how long an idle session is remembered, in seconds"));
        /// How long a request waits for its session's state before it continues without.
        pub timeout: Duration = Duration::from_millis(s.read_number("timeout_ms", 250, 10..=60_000,
            "it is how long a request waits for the store, in milliseconds"));
        /// Encrypts the stored states.
        pub encrypt_key: Option<SecretKey> = s.read_named_key("encrypt_key_env");
    }
}

/// Where sessions are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// Lost when the process ends.
    Memory,
    /// In the data directory.
    File,
    /// On a server with the protocol of Redis, such as Valkey, which replicas share.
    Redis(Box<RedisConfig>),
}

/// How the server of the store is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisConfig {
    /// `redis://` or `rediss://` with host, port, database and user; for a cluster, one for each node that is asked
    /// for the others. Never empty. Each may contain a password.
    pub nodes: Vec<Secret>,
    pub cluster: bool,
    /// Replaces the one in the address.
    pub password: Option<Secret>,
    /// The beginning of every key.
    pub prefix: String,
    /// Certificates to trust in place of the system's.
    pub ca_file: Option<PathBuf>,
}

impl RedisConfig {
    pub fn is_tls(&self) -> bool {
        let first = self.nodes.first();
        first.is_some_and(|node| node.reveal().starts_with("rediss:"))
    }

    /// Hosts and ports of all nodes, without users and passwords.
    pub fn list_hosts(&self) -> Vec<String> {
        let host_and_port = |node: &Secret| {
            let url = Url::parse(node.reveal()).ok()?;
            Some(format!(
                "{}:{}",
                url.host_str()?,
                url.port().unwrap_or(6379)
            ))
        };
        self.nodes.iter().filter_map(host_and_port).collect()
    }
}

impl StoreConfig {
    /// The timeout of one call to a server. It ends before a request stops waiting, so that the store learns of it.
    pub fn call_timeout(&self) -> Duration {
        self.timeout * 4 / 5
    }

    /// The same in memory, within the limits for that.
    pub fn limited_to_memory(&self) -> Self {
        let (sessions, bytes) = StorePlace::Memory.default_limits();
        Self {
            place: StorePlace::Memory,
            max_sessions: self.max_sessions.min(sessions),
            max_bytes: self.max_bytes.min(bytes),
            ..self.clone()
        }
    }

    /// How long the end of an answer waits until its state is stored.
    pub fn save_timeout(&self) -> Duration {
        self.timeout / 5
    }
}

impl StorePlace {
    /// The defaults of `max_sessions` and `max_bytes`.
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
        s.explain_unset("those of the system");
        let ca_file: Option<String> = s.read_option("ca_file", Visibility::Plain);
        match url.as_str() {
            "memory" => return Self::Memory,
            "file" => return Self::File,
            _ => {}
        }
        let Some((nodes, cluster)) = parse_nodes(&url) else {
            // SECURITY: it may contain a password, so it is not shown.
            let message = "must be \"file\", \"memory\", or the address of a server (the value is not \
                 shown, it may hold a password): redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE], \
                 rediss:// for TLS, redis-cluster://HOST:PORT?node=HOST:PORT or rediss-cluster:// for a \
                 cluster, and valkey in the place of redis";
            s.refuse_value("url", None, message);
            return Self::File;
        };
        if !cfg!(feature = "redis") {
            let message = "names a server (the value is not shown, it may hold a password), but this \
                 build supports no server: build it with the feature `redis`";
            s.refuse_value("url", None, message);
        }
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

/// The nodes of an address, and whether they are a cluster; `None` where it is no address of a server.
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
    fn an_address_gives_the_nodes_of_a_server() {
        let single = |node: &str| Some((vec![node.to_owned()], false));
        assert_eq!(shown("redis://a"), single("redis://a"));
        assert_eq!(shown("valkey://a:1/2"), single("redis://a:1/2"));
        assert_eq!(shown("valkeys://u:p%40@a/0"), single("rediss://u:p%40@a/0"));
        assert_eq!(shown("redis://[::1]:7"), single("redis://[::1]:7"));
        let several = ["rediss://:p@a:1", "rediss://:p@b:2", "rediss://:p@[::1]:3"];
        assert_eq!(
            shown("rediss-cluster://:p@a:1?node=b:2&node=[::1]:3"),
            Some((several.map(str::to_owned).to_vec(), true))
        );
    }

    #[test]
    fn an_invalid_address_is_refused() {
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
