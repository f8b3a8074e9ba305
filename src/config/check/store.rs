//! Where sessions are kept, and how many.

use std::time::Duration;

use reqwest::Url;

use super::Checker;
use crate::config::{
    RedisConfig, StoreConfig, StorePlace, file,
    secret::{Secret, SecretKey},
};

/// Sessions and bytes, where nothing is said of them.
const IN_MEMORY: (u64, u64) = (10_000, 64 << 20);
const ON_DISK: (u64, u64) = (1_000_000, 4 << 30);

const MAX_PREFIX_BYTES: usize = 64;

impl Checker<'_> {
    pub(super) fn store(&mut self, written: &file::Store) -> StoreConfig {
        let place = self.place(written);
        let (sessions, bytes) = match place {
            StorePlace::Memory => IN_MEMORY,
            StorePlace::File | StorePlace::Redis(_) => ON_DISK,
        };
        StoreConfig {
            place,
            max_sessions: self.size(
                &["store", "max_sessions"],
                written.max_sessions.unwrap_or(sessions),
                1..=100_000_000,
                "it is the number of sessions that are remembered",
            ),
            max_bytes: self.size(
                &["store", "max_bytes"],
                written.max_bytes.unwrap_or(bytes),
                1 << 20..=1 << 40,
                "it is what all sessions may take, of memory or disk, in bytes",
            ),
            max_age: Duration::from_secs(self.within(
                &["store", "max_age_s"],
                written.max_age_s,
                60..=315_360_000,
                "it is how long an idle session is remembered, in seconds",
            )),
            timeout: Duration::from_millis(self.within(
                &["store", "timeout_ms"],
                written.timeout_ms,
                10..=60_000,
                "it is how long a request waits for the store, in milliseconds",
            )),
            encrypt_key: self.named_key(
                ["store", "encrypt_key_env"],
                written.encrypt_key_env.as_deref(),
            ),
        }
    }

    fn place(&mut self, written: &file::Store) -> StorePlace {
        match written.url.as_str() {
            "memory" => return StorePlace::Memory,
            "file" => return StorePlace::File,
            _ => {}
        }
        let nodes = nodes(&written.url);
        let Some((nodes, cluster)) = nodes else {
            // Not shown: there may be a password in it.
            self.refuse(
                &["store", "url"],
                None,
                "must be \"file\", \"memory\", or the address of a server (the value is not shown, it \
                 may hold a password): redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE], rediss:// for \
                 TLS, redis-cluster://HOST:PORT?node=HOST:PORT or rediss-cluster:// for a cluster, \
                 and valkey in the place of redis",
            );
            return StorePlace::File;
        };
        if written.prefix.len() > MAX_PREFIX_BYTES || written.prefix.contains(['{', '}']) {
            self.refuse(
                &["store", "prefix"],
                Some(format!("{:?}", written.prefix)),
                format!("must be at most {MAX_PREFIX_BYTES} bytes, without braces"),
            );
        }
        StorePlace::Redis(Box::new(RedisConfig {
            nodes,
            cluster,
            password: self.named_secret(["store", "password_env"], written.password_env.as_deref()),
            prefix: written.prefix.clone(),
            ca_file: written.ca_file.as_ref().map(Into::into),
        }))
    }

    /// What an environment variable named by a setting holds.
    pub(super) fn named_secret(
        &mut self,
        key: [&str; 2],
        variable: Option<&str>,
    ) -> Option<Secret> {
        let variable = variable?;
        let value = self.environment.value(variable);
        if value.is_none_or(str::is_empty) {
            // SECURITY: who mistakes this for the place of the secret itself must not find it in a log.
            let named = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            let shown =
                variable.chars().all(named) && !variable.starts_with(|c: char| c.is_ascii_digit());
            self.refuse(
                &key,
                shown.then(|| format!("{variable:?}")),
                match shown {
                    true => "names an environment variable that is not set",
                    false => {
                        "names an environment variable that is not set (the value is not shown, \
                              it may be a secret)"
                    }
                },
            );
        }
        value.map(Secret::new)
    }

    /// The 256 bits in an environment variable named by a setting.
    pub(super) fn named_key(
        &mut self,
        key: [&str; 2],
        variable: Option<&str>,
    ) -> Option<SecretKey> {
        let text = self.named_secret(key, variable)?;
        let mut bits = [0; 32];
        if hex::decode_to_slice(text.reveal().trim(), &mut bits).is_err() {
            self.refuse(
                &key,
                variable.map(|variable| format!("{variable:?}")),
                "must name a variable of 64 hexadecimal digits; make them with: openssl rand -hex 32",
            );
        }
        Some(SecretKey::new(bits))
    }
}

/// The servers of an address, and whether they are a cluster. `None`: it is no such address.
fn nodes(written: &str) -> Option<(Vec<Secret>, bool)> {
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
    use super::nodes;

    fn shown(written: &str) -> Option<(Vec<String>, bool)> {
        let (nodes, cluster) = nodes(written)?;
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
