//! Portkey's gateway: one Node process; each request names the provider in headers.
//!
//! With newer versions of `hono` and `@hono/node-server` than in package.json, it answers every
//! stream with a 500 (Portkey-AI/gateway, issue 1389).

use std::{fs, io, process::Command};

use super::{PeerFolder, Setup, Speed, installed, program};

pub(super) fn setup(place: &PeerFolder) -> io::Result<Setup> {
    let package = "portkey/node_modules/@portkey-ai/gateway";
    let server = installed(&format!("{package}/build/start-server.js"))?;
    let about = fs::read_to_string(installed(&format!("{package}/package.json"))?)?;
    let about: serde_json::Value = serde_json::from_str(&about)?;
    let mut command = Command::new(program("node")?);
    command
        .arg(server)
        .arg(format!("--port={}", place.address.port()))
        .arg("--headless")
        .env("NODE_ENV", "production");
    Ok(Setup {
        version: about["version"]
            .as_str()
            .unwrap_or("unknown version")
            .to_owned(),
        command,
        speed: Speed::Middle,
        headers: vec![
            ("x-portkey-provider", "openai".to_owned()),
            (
                "x-portkey-custom-host",
                format!("http://{}/v1", place.provider),
            ),
            ("authorization", "Bearer none".to_owned()),
        ],
        expected: None,
    })
}
