//! The difference between the settings in force and new ones.
//!
//! SECURITY: a change names sections and keys, never a value: it may be a client's key or its digest.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{
    Config,
    loading::{
        problem::{Problem, Problems, format_key_path},
        setting::keep_until_restart,
    },
};

/// Changed sections that a log line names; it counts the rest.
const MAX_NAMED: usize = 20;

/// What a reload changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Changed sections; for clients, providers, aliases and models the changed entries.
    pub applied: Vec<String>,
    /// Changed keys and sections that keep their old values until a restart.
    pub needs_restart: Vec<&'static str>,
}

impl Change {
    /// Compares both, and restores in `next` the settings that cannot change while the proxy runs.
    pub fn diff_and_restore(running: &Config, next: &mut Config) -> Self {
        let (old, new) = (&running.server, &next.server);
        let waiting = list_differing([
            ("server.listen", new.listen != old.listen),
            (
                "server.data_dir",
                !new.data_dir.has_same_places(&old.data_dir),
            ),
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
        let applied = changed_sections(running, next);
        Self {
            applied,
            needs_restart: waiting,
        }
    }

    /// The changed sections on one line, of bounded length.
    pub fn summarise_applied(&self) -> String {
        let (named, rest) = self.applied.split_at(self.applied.len().min(MAX_NAMED));
        match rest.len() {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }
}

impl Config {
    /// Refuses a reload that removes the last client.
    ///
    /// SECURITY: without client keys anyone who reaches the port spends the user's money. A file that a full disk
    /// or a slow writer cut short looks like settings without clients. So this change needs a restart.
    pub(crate) fn check_clients_kept(&self, running: &Self) -> Result<(), Problems> {
        if running.clients.is_empty() || !self.clients.is_empty() {
            return Ok(());
        }
        let message = "has no client any more, and anyone could use the proxy without a key; keep a \
                       client, or restart the proxy to run it without keys";
        Err(Problems(vec![Problem::for_key(&["clients"], message)]))
    }
}

/// The names for [`Change::applied`].
fn changed_sections(old: &Config, new: &Config) -> Vec<String> {
    let sections = list_differing([
        (
            "default_provider",
            old.default_provider != new.default_provider,
        ),
        ("server", old.server != new.server),
        ("admin", old.admin != new.admin),
        ("responses", old.responses != new.responses),
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

fn list_differing<const N: usize>(keys: [(&'static str, bool); N]) -> Vec<&'static str> {
    let differing = keys.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(key, _)| key).collect()
}

/// Entries that were added, removed or changed.
fn changed_entries<T: PartialEq>(
    section: &str,
    old: &BTreeMap<String, T>,
    new: &BTreeMap<String, T>,
) -> Vec<String> {
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let is_changed = |name: &&String| old.get(*name) != new.get(*name);
    let changed = names.into_iter().filter(is_changed);
    let paths = changed.map(|name| format_key_path(&[section, name]));
    paths.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::config::{
        ClientConfig, Config, ModelConfig, loading::change::Change, secret::SecretKey,
    };

    fn changed(change: impl FnOnce(&mut Config)) -> (Change, Config) {
        let running = Config::default();
        let mut next = running.clone();
        change(&mut next);
        (Change::diff_and_restore(&running, &mut next), next)
    }

    #[test]
    fn equal_settings_are_no_change() {
        assert_eq!(changed(|_| {}).0, Change::default());
    }

    #[test]
    fn settings_that_need_a_restart_are_restored_and_named() {
        let (change, restored) = changed(|next| {
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
        assert_eq!(restored, Config::default());
    }

    #[test]
    fn other_settings_are_applied_and_named_without_values() {
        let (change, restored) = changed(|next| {
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
                metrics: false,
            };
            next.clients.insert("alice".into(), client);
            next.providers.clear();
        });
        assert_eq!(
            change.summarise_applied(),
            "server, guard, clients.alice, providers.simulated, models.\"a/b\""
        );
        assert_eq!(change.needs_restart, ["server.listen"]);
        assert_eq!(restored.server.max_connections, 7);
        assert_eq!(restored.server.listen, Config::default().server.listen);
    }

    #[test]
    fn a_long_list_of_changes_is_cut() {
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
