//! Where to listen, and the limits of a connection.

use std::{net::SocketAddr, path::PathBuf};

use super::Checker;
use crate::{
    config::{Config, ServerConfig, file},
    provider::{catalogue, names::Names},
};

/// Bytes of a body for each token of the largest window: dense JSON, escapes and what the guard leaves out.
const BYTES_A_TOKEN: u64 = 64;
/// The least that a body may have where the settings do not say.
const LEAST_BODY_BYTES: u64 = 32 << 20;
/// The most that a setting allows.
const MOST_BODY_BYTES: u64 = 1 << 30;
/// Bodies of the largest size that fit into memory together, where the settings do not say how large one is.
const BODIES_IN_FLIGHT: u64 = 4;

/// What a body may have where the settings do not say: as much as the largest window needs that they name or
/// the catalogue has for a model that they name, as long as several such bodies fit into memory.
pub(super) fn body_for_windows(config: &Config) -> usize {
    let wanted = u64::from(largest_window(config)).saturating_mul(BYTES_A_TOKEN);
    let room = config.server.max_bytes_in_flight as u64 / BODIES_IN_FLIGHT;
    let most = room.clamp(LEAST_BODY_BYTES, MOST_BODY_BYTES);
    let bytes = wanted.clamp(LEAST_BODY_BYTES, most);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// In tokens; 0 where no window is known.
fn largest_window(config: &Config) -> u32 {
    let names = Names::new(config);
    let places = names.spelt_out().into_iter().flat_map(|(name, provider)| {
        let found = names.places(&names.plain(name, None), provider);
        found.unwrap_or_default()
    });
    let known = places.filter_map(|one| {
        let place = &one.place;
        let provider = config.providers.get(&place.provider)?;
        let catalogued = || {
            let provider = catalogue::provider_of(&place.provider, provider.base_url.as_deref())?;
            Some(catalogue::lookup(provider, &place.model)?.context)
        };
        one.settings.context_length.or_else(catalogued)
    });
    // Patterns spell out no name, and may have a window all the same.
    let written = config.models.values();
    let written = written.filter_map(|model| model.context_length);
    known.chain(written).max().unwrap_or(0)
}

impl Checker<'_> {
    pub(super) fn server(&mut self, file: &file::File) -> ServerConfig {
        let written = &file.server;
        // Where it is unset, `body_for_windows` says more once the models are known.
        let max_body_bytes = self.size(
            &["server", "max_body_bytes"],
            written.max_body_bytes.unwrap_or(LEAST_BODY_BYTES),
            1024..=MOST_BODY_BYTES,
            "it is the size of one request body in bytes, after decoding",
        );
        let body = (max_body_bytes as u64).min(MOST_BODY_BYTES);
        ServerConfig {
            listen: self.listen(file),
            max_body_bytes,
            max_bytes_in_flight: self.size(
                &["server", "max_bytes_in_flight"],
                written.max_bytes_in_flight,
                body..=1 << 40,
                "it must hold one body of server.max_body_bytes, or no large request gets in",
            ),
            max_connections: self.size(
                &["server", "max_connections"],
                written.max_connections,
                1..=1_000_000,
                "it is the number of connections open at one time",
            ),
            max_header_bytes: self.size(
                &["server", "max_header_bytes"],
                written.max_header_bytes,
                8192..=1 << 20,
                "it is the size of all headers of one request in bytes",
            ),
            header_timeout: self.wait(
                &["server", "header_timeout_ms"],
                written.header_timeout_ms,
                1,
            ),
            body_timeout: self.wait(&["server", "body_timeout_ms"], written.body_timeout_ms, 1),
            drain_timeout: self.wait(&["server", "drain_timeout_ms"], written.drain_timeout_ms, 0),
            data_dir: self.data_dir(&written.data_dir),
            secret: self.named_key(["server", "secret_env"], written.secret_env.as_deref()),
        }
    }

    fn data_dir(&mut self, written: &str) -> PathBuf {
        if written.is_empty() {
            self.refuse(
                &["server", "data_dir"],
                Some("\"\"".to_owned()),
                "must name a directory; write \".\" for the working directory",
            );
        }
        written.into()
    }

    /// SECURITY: without client keys anyone who reaches the port spends the user's money, so
    /// only this machine may reach it.
    fn listen(&mut self, file: &file::File) -> SocketAddr {
        let path = ["server", "listen"];
        let shown = Some(format!("{:?}", file.server.listen));
        let Ok(address) = file.server.listen.parse::<SocketAddr>() else {
            self.refuse(
                &path,
                shown,
                "must be an IP address and a port, such as 127.0.0.1:1876 or [::1]:1876",
            );
            return SocketAddr::from(([127, 0, 0, 1], 0));
        };
        if !address.ip().to_canonical().is_loopback() && file.clients.is_empty() {
            self.refuse(
                &path,
                shown,
                "can be reached from other machines, and there are no client keys; add a \
                 [clients.NAME] section with key_sha256, or listen on 127.0.0.1",
            );
        }
        address
    }
}
