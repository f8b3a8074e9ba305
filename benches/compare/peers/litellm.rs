//! LiteLLM's proxy: one worker, one provider for every model, no telemetry, no log.

use std::{io, process::Command};

use super::{PeerFolder, Setup, Speed, installed, python_version};

/// It does not start without a key that looks strong.
const KEY: &str = "sk-5d0f3a86b1c94e27a8e61f7c20d9b34e5d0f3a86b1c94e27";

pub(super) fn setup(place: &PeerFolder) -> io::Result<Setup> {
    let litellm = installed("litellm/bin/litellm")?;
    let settings = format!(
        "model_list:
  - model_name: \"*\"
    litellm_params:
      model: \"openai/*\"
      api_base: \"http://{}/v1\"
      api_key: \"none\"
litellm_settings:
  telemetry: false
  num_retries: 0
general_settings:
  master_key: \"{KEY}\"
",
        place.provider
    );
    let file = place.write("litellm.yaml", &settings)?;
    let mut command = Command::new(litellm);
    command
        .arg("--config")
        .arg(file)
        .args([
            "--host",
            "127.0.0.1",
            "--num_workers",
            "1",
            "--telemetry",
            "False",
        ])
        .args(["--port", &place.address.port().to_string()])
        // Its price table is in the package, and need not be fetched.
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .env("LITELLM_LOG", "ERROR")
        .env_remove("DATABASE_URL");
    Ok(Setup {
        version: python_version("litellm", "litellm"),
        command,
        speed: Speed::Slow,
        headers: vec![("authorization", format!("Bearer {KEY}"))],
        expected: None,
    })
}
