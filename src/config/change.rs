//! What is different between the settings in force and new ones.
//!
//! Named by section and key, never with a value: that may be a key, or its digest.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Config,
    problem::{Problem, Problems, format_key_path},
    setting::keep_until_restart,
};

/// Sections that are named; what is more is counted.
const MAX_NAMED: usize = 20;

/// New settings beside those in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Sections that are different now, and entries of those that have some.
    pub applied: Vec<String>,
    /// Keys and sections whose new values wait for a restart.
    pub needs_restart: Vec<&'static str>,
}

impl Change {
    /// Compares, and puts back in `next` what cannot change while the proxy runs.
    pub fn diff_and_restore(running: &Config, next: &mut Config) -> Self {
        let (old, new) = (&running.server, &next.server);
        let waiting = list_differing([
            ("server.listen", new.listen != old.listen),
            ("server.data_dir", new.data_dir != old.data_dir),
            ("server.secret_env", new.secret != old.secret),
            ("store", next.store != running.store),
            ("traces", next.traces != running.traces),
        ]);
        next.server.listen = old.listen;
        next.server.data_dir.clone_from(&old.data_dir);
        next.server.secret.clone_from(&old.secret);
        next.store.clone_from(&running.store);
        next.traces.clone_from(&running.traces);
        next.settings = keep_until_restart(&running.settings, &next.settings, &waiting).into();
        Self {
            applied: changed_sections(running, next),
            needs_restart: waiting,
        }
    }

    /// The sections that changed, in one line.
    pub fn summarise_applied(&self) -> String {
        let more = self.applied.len().saturating_sub(MAX_NAMED);
        let named = &self.applied[..self.applied.len() - more];
        match more {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }
}

impl Config {
    /// SECURITY: without client keys anyone who reaches the port spends the user's money, and settings
    /// that are cut short, by a disk that is full or a writer that is slow, look like settings without
    /// clients. So the last client goes with a restart only.
    pub(crate) fn check_clients_kept(&self, running: &Self) -> Result<(), Problems> {
        if running.clients.is_empty() || !self.clients.is_empty() {
            return Ok(());
        }
        let message = "has no client any more, and the proxy would be open to whoever reaches it; \
                       keep a client, or restart it without";
        Err(Problems(vec![Problem::for_key(&["clients"], message)]))
    }
}

/// Sections, and entries of those that have some.
fn changed_sections(old: &Config, new: &Config) -> Vec<String> {
    let default_provider = old.default_provider != new.default_provider;
    let sections = list_differing([
        ("default_provider", default_provider),
        ("server", old.server != new.server),
        ("admin", old.admin != new.admin),
        ("retry", old.retry != new.retry),
        ("catalogue", old.catalogue != new.catalogue),
        ("guard", old.guard != new.guard),
        ("recovery", old.recovery != new.recovery),
        ("compaction", old.compaction != new.compaction),
    ]);
    let entries = [
        changed_entries("clients", &old.clients, &new.clients),
        changed_entries("providers", &old.providers, &new.providers),
        changed_entries("aliases", &old.aliases, &new.aliases),
        changed_entries("models", &old.models, &new.models),
    ];
    let sections = sections.into_iter().map(str::to_owned);
    sections.chain(entries.into_iter().flatten()).collect()
}

/// The keys of what differs.
fn list_differing<const N: usize>(keys: [(&'static str, bool); N]) -> Vec<&'static str> {
    let differing = keys.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(key, _)| key).collect()
}

/// Entries that came, went, or are different.
fn changed_entries<T: PartialEq>(
    section: &str,
    old: &BTreeMap<String, T>,
    new: &BTreeMap<String, T>,
) -> Vec<String> {
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let changed = names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name));
    changed
        .map(|name| format_key_path(&[section, name]))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Change;
    use crate::config::{ClientConfig, Config, ModelConfig, secret::SecretKey};

    fn changed(change: impl FnOnce(&mut Config)) -> (Change, Config) {
        let running = Config::default();
        let mut next = running.clone();
        change(&mut next);
        (Change::diff_and_restore(&running, &mut next), next)
    }

    #[test]
    fn what_is_the_same_is_no_change() {
        assert_eq!(changed(|_| {}).0, Change::default());
    }

    #[test]
    fn what_cannot_change_stays_and_is_named() {
        let (change, settled) = changed(|next| {
            next.server.listen = "127.0.0.1:1".parse().unwrap();
            next.server.data_dir = "elsewhere".into();
            next.server.secret = Some(SecretKey::new([7; 32]));
            next.store.max_sessions += 1;
            next.store.max_age += Duration::from_secs(1);
            next.store.timeout += Duration::from_secs(1);
        });
        let waiting = [
            "server.listen",
            "server.data_dir",
            "server.secret_env",
            "store",
        ];
        assert_eq!(change.needs_restart, waiting);
        assert!(change.applied.is_empty());
        assert_eq!(settled, Config::default());
    }

    #[test]
    fn all_else_is_taken_and_named_without_a_value() {
        let (change, settled) = changed(|next| {
            next.server.listen = "127.0.0.1:1".parse().unwrap();
            next.server.max_connections = 7;
            next.guard.enabled = false;
            next.models.insert("a/b".into(), ModelConfig::default());
            let client = ClientConfig {
                key_sha256: [7; 32],
                models: Vec::new(),
                paths: Vec::new(),
                max_in_flight: None,
                recovery: true,
            };
            next.clients.insert("alice".into(), client);
            next.providers.clear();
        });
        assert_eq!(
            change.summarise_applied(),
            "server, guard, clients.alice, providers.simulated, models.\"a/b\""
        );
        assert_eq!(change.needs_restart, ["server.listen"]);
        assert_eq!(settled.server.max_connections, 7);
        assert_eq!(settled.server.listen, Config::default().server.listen);
    }

    #[test]
    fn a_long_list_is_cut() {
        let (change, _) = changed(|next| {
            for n in 0..30 {
                next.aliases.insert(format!("a{n}"), "m".into());
            }
        });
        assert!(
            change.summarise_applied().ends_with(" and 10 more"),
            "{change:?}"
        );
    }
}
