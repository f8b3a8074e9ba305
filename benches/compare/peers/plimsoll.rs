//! Plimsoll in the profile `dist`, in three forms: guard off; guard on with windows that hold
//! everything; guard on with windows of a quarter of the bodies. All other settings are defaults
//! (file store, health, recovery), but tool results have no length limit, since a body of 4 MB has
//! one that would be truncated. The log is off, like the access logs of the others.

use std::{fmt::Write as _, io, process::Command};

use super::{Actions, PeerFolder, Setup, Speed};
use crate::{
    bodies::{MODES, SIZES, model},
    client::io_failure,
};

/// A window that no body here fills.
const ROOMY: usize = 4_000_000;

pub(super) fn setup(name: &str, place: &PeerFolder) -> io::Result<Setup> {
    let (guarded, trimmed, expected) = match name {
        "plimsoll-off" => (false, false, Actions::Only("guard-off")),
        "plimsoll" => (true, false, Actions::Only("none")),
        "plimsoll-trim" => (true, true, Actions::Something),
        _ => return Err(io_failure("no such peer")),
    };
    let mut settings = format!(
        "default_provider = \"up\"\n[server]\nlisten = \"{}\"\ndata_dir = {:?}\n[guard]\nenabled = {guarded}\n\
         max_tool_result_chars = 10000000\n\
         [providers.up]\nbase_url = \"http://{}/v1\"\nauth = \"none\"\nask_models = false\n",
        place.address,
        place.folder.join("data"),
        place.provider
    );
    for size in SIZES {
        let narrow = trimmed && size.narrow > 0;
        let window = if narrow { size.narrow } else { ROOMY };
        for mode in MODES {
            // Health stays good, so that every request gets the same edits.
            let _ = write!(
                settings,
                "[models.\"up/{}\"]\ncontext_length = {window}\noptimal_max_tokens = {window}\n\
                 critical_max_tokens = {window}\n",
                model(size, mode)
            );
        }
    }
    let file = place.write("config.toml", &settings)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command
        .arg("--config")
        .arg(file)
        .env("PLIMSOLL_LOG", "off")
        .env("PLIMSOLL_CATALOGUE__URL", "")
        .env_remove("RUST_LOG");
    Ok(Setup {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        speed: Speed::Fast,
        headers: Vec::new(),
        expected: Some(expected),
    })
}
