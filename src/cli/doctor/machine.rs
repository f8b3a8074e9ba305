//! This machine: the address, the settings file, the data directory, the environment.

use std::{
    fs,
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
    path::Path,
    time::Duration,
};

use reqwest::Url;
use serde_json::Value;

use super::Finding;
use crate::{
    cli::{find_reachable, proxy_file::RunningProxy},
    config::{Config, Environment, LoadedConfig, StorePlace},
    provider::begin_http_client,
    store::file::is_in_use,
};

const ASK_WITHIN: Duration = Duration::from_secs(2);

/// Less free space than this ends the writing of sessions soon.
#[cfg(unix)]
const LEAST_FREE_BYTES: u64 = 256 << 20;

/// What an address of this machine is used by.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Listener {
    Nobody,
    Plimsoll,
    Another,
    /// Nobody can listen there, and why.
    Unusable(String),
}

pub(super) async fn find_listener(address: SocketAddr) -> Listener {
    match TcpListener::bind(address) {
        Ok(_) => Listener::Nobody,
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            if is_plimsoll(address).await {
                Listener::Plimsoll
            } else {
                Listener::Another
            }
        }
        Err(error) => Listener::Unusable(error.to_string()),
    }
}

/// Whether `/readyz` answers as that of this proxy.
async fn is_plimsoll(address: SocketAddr) -> bool {
    let url = format!("http://{}/readyz", find_reachable(address));
    let Ok(client) = begin_http_client().timeout(ASK_WITHIN).build() else {
        return false;
    };
    let body = async { client.get(url).send().await?.bytes().await }.await;
    let body = body
        .ok()
        .and_then(|it| serde_json::from_slice::<Value>(&it).ok());
    body.is_some_and(|it| {
        it["providers"].is_object() && (it["status"] == "ready" || it["status"] == "draining")
    })
}

pub(super) fn check_listener(config: &Config, listener: &Listener) -> Finding {
    let (subject, address) = ("server.listen", config.server.listen);
    let (cause, remedy) = match listener {
        Listener::Nobody => {
            return Finding::ok(subject, format!("{address} is free: no proxy runs there"));
        }
        Listener::Plimsoll => return Finding::ok(subject, format!("a proxy runs at {address}")),
        Listener::Another => {
            let remedy = "stop it (ss -ltnp names it), or choose another address with --listen";
            (format!("{address} is in use by another program"), remedy)
        }
        Listener::Unusable(why) => {
            let remedy = "choose an address of this machine and a port from 1024 on";
            (format!("nobody can listen at {address}: {why}"), remedy)
        }
    };
    Finding::fault(subject, cause, remedy)
}

/// A key in the file that other users may read.
pub(super) fn check_settings_file(loaded: &LoadedConfig) -> Option<Finding> {
    let path = loaded.file.as_deref()?;
    let shown = path.display().to_string();
    let mut settings = loaded.config.settings.iter();
    // The digest of a key is no key, and a password in an address is shown as ***.
    let setting = settings.find(|it| {
        it.origin.as_ref() == Some(&shown)
            && (it.hidden && !it.key.ends_with("key_sha256")
                || it.value.to_string().contains("***"))
    })?;
    let mode = find_mode(path).filter(|mode| mode & 0o044 != 0)?;
    let cause = format!(
        "other users can read it (mode {mode:o}), and {} may hold a key",
        setting.key
    );
    Some(Finding::warning(
        &shown,
        cause,
        format!("chmod 600 {shown}"),
    ))
}

/// The permissions; `None` where the file is absent, or the system has none of this kind.
fn find_mode(path: &Path) -> Option<u32> {
    #[cfg(unix)]
    return Some(
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).ok()?.permissions()) & 0o777,
    );
    #[cfg(not(unix))]
    return None;
}

/// Nothing where there is none: the warnings of the settings say so.
/// `other`: the proxy that has written its name there.
pub(super) fn check_data_dir(
    config: &Config,
    listener: &Listener,
    other: Option<&RunningProxy>,
) -> Vec<Finding> {
    let Some(path) = config.server.data_dir.path() else {
        return Vec::new();
    };
    let (subject, shown, mut found) = ("server.data_dir", path.display(), Vec::new());
    // A relative path has the working directory above it.
    let whole = Path::new(".").join(path);
    let there = whole.ancestors().find(|it| it.exists());
    if let Some(Err(error)) = there.map(tempfile::tempfile_in) {
        let cause = format!("no file can be made in {shown}: {error}");
        let remedy = "give the proxy's user the directory (chown, chmod 700), or set server.data_dir to another";
        found.push(Finding::fault(subject, cause, remedy));
    }
    for (file, bits, what) in [
        (
            path.to_owned(),
            0o022,
            "write into it, and so replace the secret and the sessions",
        ),
        (
            path.join("secret"),
            0o044,
            "read it, and so tell whose session is whose",
        ),
    ] {
        if let Some(mode) = find_mode(&file).filter(|mode| mode & bits != 0) {
            let cause = format!("{}: other users can {what} (mode {mode:o})", file.display());
            let remedy = format!("chmod go-rwx {}", file.display());
            found.push(Finding::fault(subject, cause, remedy));
        }
    }
    #[cfg(unix)]
    found.extend(check_owner_and_space(path));
    if config.store.place == StorePlace::File && is_in_use(path) && *listener != Listener::Plimsoll
    {
        let name = other.map(|other| format!(": {}", other.describe()));
        let name = name.unwrap_or_default();
        let cause = format!("another process uses the sessions in {shown}{name}");
        let remedy = "stop the other proxy, give each a server.data_dir of its own, or keep the sessions of both on a server \
                      (store.url)";
        // Clients are served by `plimsoll run`, which ends its proxy.
        let is_of_run = other.is_some_and(|other| other.socket.is_some());
        found.push(if is_of_run {
            Finding::warning(subject, cause, remedy)
        } else {
            Finding::fault(subject, cause, remedy)
        });
    }
    if found.is_empty() {
        found.push(Finding::ok(subject, format!("{shown} can be used")));
    }
    found
}

#[cfg(unix)]
fn check_owner_and_space(path: &Path) -> Vec<Finding> {
    let (subject, shown, mut found) = ("server.data_dir", path.display(), Vec::new());
    let user = rustix::process::geteuid().as_raw();
    let owner = fs::metadata(path).map_or(user, |it| std::os::unix::fs::MetadataExt::uid(&it));
    // The administrator may ask for a service of another user.
    if user != 0 && owner != user {
        let cause = format!("{shown} belongs to user {owner}, and this is user {user}");
        let remedy =
            format!("run the proxy and this command as that user, or chown {user} {shown}");
        found.push(Finding::fault(subject, cause, remedy));
    }
    let space = rustix::fs::statvfs(path);
    let free = space.map_or(u64::MAX, |it| it.f_bavail.saturating_mul(it.f_frsize));
    if free < LEAST_FREE_BYTES {
        let cause = format!("{} MiB are free under {shown}", free >> 20);
        found.push(Finding::fault(
            subject,
            cause,
            "make room, or lower store.max_bytes and store.max_age_s",
        ));
    }
    found
}

/// Variables with keys that are not set, or that hold more than a key.
pub(super) fn check_key_variables(config: &Config, environment: &Environment) -> Vec<Finding> {
    let named = config.settings.iter().filter(|it| it.key.ends_with("_env"));
    let found = named.filter_map(|setting| {
        let name = setting.value.as_str()?;
        let value = environment.get_variable(name);
        let (key, is_of_provider) = (value.unwrap_or_default().trim(), setting.key.ends_with("api_key_env"));
        let (cause, remedy) = match value {
            None => ("is not set", "set it in the environment of the proxy (that of a service is its own), or name another"),
            Some(_) if key.is_empty() => ("is set, but empty", "set it to the key, or name another"),
            Some(_) if is_of_provider && key.contains(|c: char| c.is_whitespace() || "\"'".contains(c)) => {
                ("has white space or quotes in it, as no key has", "set it again, to the key alone: without Bearer and quotes")
            }
            Some(value) if key != value => {
                ("has white space around its value, which other programs send", "set it again without spaces and ends of lines")
            }
            Some(_) => return None,
        };
        Some(Finding::fault(&setting.key, format!("the variable {name} {cause}"), remedy))
    });
    found.collect()
}

/// A proxy of the environment to which clients of this environment send what is for this proxy.
pub(super) fn check_environment_proxy(config: &Config) -> Option<Finding> {
    let own = find_reachable(config.server.listen);
    let address = Url::parse(&format!("http://{own}")).ok()?;
    let variable = config.server.outgoing.find_catching_variable(&address)?;
    let cause = format!(
        "NO_PROXY does not name {}: clients that are started here ask that proxy for this one",
        own.ip()
    );
    let remedy = format!(
        "export NO_PROXY=localhost,{}, with what it names already",
        own.ip()
    );
    Some(Finding::warning(variable, cause, remedy))
}
