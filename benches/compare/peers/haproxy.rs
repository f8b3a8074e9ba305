//! HAProxy as a plain reverse proxy: one thread, shared keep-alive connections to the provider, no
//! log, no delay to fill packets.

use std::{io, process::Command};

use super::{PeerFolder, Setup, Speed, program, version};

pub(super) fn setup(place: &PeerFolder) -> io::Result<Setup> {
    let haproxy = program("haproxy")?;
    let PeerFolder {
        address, provider, ..
    } = place;
    let settings = format!(
        "global
  nbthread 1
  maxconn 8192
defaults
  mode http
  option http-no-delay
  option http-keep-alive
  http-reuse always
  timeout connect 10s
  timeout client 600s
  timeout server 600s
frontend clients
  bind {address} backlog 4096
  default_backend provider
backend provider
  server provider {provider} pool-max-conn 256
"
    );
    let file = place.write("haproxy.cfg", &settings)?;
    let mut command = Command::new(&haproxy);
    command.arg("-db").arg("-f").arg(file);
    Ok(Setup {
        version: version(Command::new(&haproxy).arg("-v"))?,
        command,
        speed: Speed::Fast,
        headers: Vec::new(),
        expected: None,
    })
}
