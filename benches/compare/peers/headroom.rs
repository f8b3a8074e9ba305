//! headroom's proxy without compression, which would look like speed. Its answer cache and its rate
//! limits, which this load would reach, are off.

use std::{io, process::Command};

use super::{PeerFolder, Setup, Speed, installed, python_version};

pub(super) fn setup(place: &PeerFolder) -> io::Result<Setup> {
    let headroom = installed("headroom/bin/headroom")?;
    let mut command = Command::new(headroom);
    command
        .args(["proxy", "--host", "127.0.0.1", "--port"])
        .arg(place.address.port().to_string())
        .args(["--no-optimize", "--no-cache", "--no-rate-limit"])
        .args(["--workers", "1", "--limit-concurrency", "4096"])
        .args(["--max-connections", "2048", "--max-keepalive", "256"])
        .env(
            "OPENAI_TARGET_API_URL",
            format!("http://{}/v1", place.provider),
        )
        .env("HEADROOM_TELEMETRY", "off")
        .env("HOME", &place.folder);
    Ok(Setup {
        version: python_version("headroom", "headroom_ai"),
        command,
        speed: Speed::Slow,
        headers: Vec::new(),
        expected: None,
    })
}
