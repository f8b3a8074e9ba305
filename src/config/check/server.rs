//! Where to listen, and the limits of a connection.

use std::{net::SocketAddr, path::PathBuf};

use super::Checker;
use crate::config::{ServerConfig, file};

impl Checker<'_> {
    pub(super) fn server(&mut self, file: &file::File) -> ServerConfig {
        let written = &file.server;
        let max_body_bytes = self.size(
            &["server", "max_body_bytes"],
            written.max_body_bytes,
            1024..=1 << 30,
            "it is the size of one request body in bytes, after decoding",
        );
        let body = written.max_body_bytes.min(1 << 30);
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
