//! Settings as written -> settings as used.
//!
//! Reports every problem at once, each with its key, value and remedy. After this no stage checks
//! a setting again: sizes, times, digests and profiles have their types.

mod compaction;
mod gateway;
mod guard;
mod models;
mod provider;
mod recovery;
mod server;
mod store;
mod traces;

use std::{collections::BTreeMap, fmt::Display, ops::RangeInclusive, time::Duration};

use super::{
    AdminConfig, ClientConfig, Config, file,
    layer::Layers,
    load::Environment,
    problem::{Problem, Problems, dotted},
    settings::settings,
};

/// A day: longer waits are a unit mistaken.
const MAX_WAIT_MS: u64 = 86_400_000;

/// Makes a [`Config`] of a file; `found` are the problems that reading it has shown already.
pub(super) fn check(
    file: &file::File,
    layers: &Layers,
    environment: &Environment,
    found: Vec<Problem>,
) -> Result<Config, Problems> {
    let mut checker = Checker {
        layers,
        environment,
        problems: found,
    };
    let mut config = Config {
        server: checker.server(file),
        admin: checker.admin(file),
        clients: checker.clients(&file.clients),
        providers: checker.providers(file),
        default_provider: checker.default_provider(file),
        aliases: checker.aliases(&file.aliases),
        models: checker.models(file),
        retry: checker.retry(&file.retry),
        catalogue: checker.catalogue(&file.catalogue),
        guard: checker.guard(&file.guard),
        recovery: checker.recovery(&file.recovery),
        compaction: checker.compaction(&file.compaction),
        store: checker.store(&file.store),
        traces: checker.traces(&file.traces),
        settings: settings(file, layers).into(),
    };
    if file.server.max_body_bytes.is_none() {
        config.server.max_body_bytes = server::body_for_windows(&config);
    }
    checker.references(&config);
    match checker.problems {
        problems if problems.is_empty() => Ok(config),
        problems => Err(Problems(problems)),
    }
}

/// Collects problems while the parts are made. A part in error gets a stand-in, which nobody
/// sees, since one problem is enough to return no configuration at all.
struct Checker<'a> {
    layers: &'a Layers,
    environment: &'a Environment,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    /// Notes a problem, unless that key has been found wrong before.
    fn refuse(&mut self, path: &[&str], value: Option<String>, message: impl Into<String>) {
        let key = dotted(path);
        if self.problems.iter().any(|known| known.key == key) {
            return;
        }
        self.problems.push(Problem {
            origin: self.layers.origin(path),
            key,
            value,
            message: message.into(),
        });
    }

    /// A number within its range; `why` says what it is and in which unit.
    fn within<T: PartialOrd + Display + Copy>(
        &mut self,
        path: &[&str],
        value: T,
        range: RangeInclusive<T>,
        why: &str,
    ) -> T {
        if !range.contains(&value) {
            let (least, most) = (range.start(), range.end());
            let bound = if value < *least {
                format!("must be at least {least}")
            } else {
                format!("must be at most {most}")
            };
            self.refuse(path, Some(value.to_string()), format!("{bound}; {why}"));
        }
        value
    }

    fn wait(&mut self, path: &[&str], value: u64, least: u64) -> Duration {
        let why = "the unit is milliseconds";
        Duration::from_millis(self.within(path, value, least..=MAX_WAIT_MS, why))
    }

    fn size(&mut self, path: &[&str], value: u64, range: RangeInclusive<u64>, why: &str) -> usize {
        usize::try_from(self.within(path, value, range, why)).unwrap_or(usize::MAX)
    }

    /// A SHA-256 in hexadecimal. The value is never shown: it may be the key itself, put in the
    /// wrong place.
    fn digest(&mut self, path: &[&str], value: Option<&str>) -> Option<[u8; 32]> {
        let mut digest = [0; 32];
        if hex::decode_to_slice(value?.trim(), &mut digest).is_err() {
            self.refuse(
                path,
                None,
                "must be 64 hexadecimal digits (the value is not shown, it may be a key); \
                 make them with: printf %s \"$KEY\" | sha256sum",
            );
        }
        if digest == <[u8; 32]>::from(<sha2::Sha256 as sha2::Digest>::digest(b"")) {
            self.refuse(
                path,
                None,
                "is the digest of nothing at all; the key was empty when it was made",
            );
        }
        Some(digest)
    }

    /// SECURITY: `local` shows sessions to whoever comes without a key, which is nobody but users of this
    /// machine only as long as nothing else may be listened on: without client keys.
    fn admin(&mut self, file: &file::File) -> AdminConfig {
        if file.admin.local && !file.clients.is_empty() {
            self.refuse(
                &["admin", "local"],
                Some("true".to_owned()),
                "is for a proxy without client keys, and there are some under [clients]; set \
                 admin.key_sha256 instead, whose key sees all sessions",
            );
        }
        AdminConfig {
            key_sha256: self.digest(&["admin", "key_sha256"], file.admin.key_sha256.as_deref()),
            show_content: file.admin.show_content,
            local: file.admin.local,
        }
    }

    fn clients(
        &mut self,
        written: &BTreeMap<String, file::Client>,
    ) -> BTreeMap<String, ClientConfig> {
        let mut clients: BTreeMap<String, ClientConfig> = BTreeMap::new();
        for (name, client) in written {
            let path = ["clients", name, "key_sha256"];
            if client.key_sha256.is_none() {
                self.refuse(
                    &path,
                    None,
                    "is missing; make it with: printf %s \"$KEY\" | sha256sum",
                );
            }
            self.patterns(&["clients", name, "models"], &client.models);
            let Some(key_sha256) = self.digest(&path, client.key_sha256.as_deref()) else {
                continue;
            };
            let twin = clients.iter().find(|(_, c)| c.key_sha256 == key_sha256);
            if let Some((twin, _)) = twin {
                let message = format!("is also the key of clients.{twin}; give each its own");
                self.refuse(&path, None, message);
            }
            let checked = ClientConfig {
                key_sha256,
                models: client.models.clone(),
                paths: self.paths(name, &client.paths),
                max_in_flight: self.in_flight(name, client.max_in_flight),
                recovery: client.recovery,
            };
            clients.insert(name.clone(), checked);
        }
        clients
    }

    /// Names, or beginnings of names with a `*` at their end.
    fn patterns(&mut self, path: &[&str], written: &[String]) {
        for pattern in written {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            if pattern.is_empty() || name.contains('*') {
                self.refuse(
                    path,
                    Some(format!("{pattern:?}")),
                    "must be a model's name, or its beginning with one * at the end",
                );
            }
        }
    }
}
