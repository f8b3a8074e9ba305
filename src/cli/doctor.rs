//! `plimsoll doctor`: looks for what keeps a set-up from working, and says for each fault what to do.
//!
//! It asks the providers for their lists of models, and nothing that costs money or loads a model. It changes nothing but
//! the mark of the stored format on a server of `store.url`, which any start writes. What the settings alone tell is that of
//! `plimsoll check`.

mod clients;
mod machine;
mod providers;

use std::{cmp::Reverse, io::Write};

use serde::Serialize;
use serde_json::json;

use super::{CommandError, CommandResult, block_on, check, run::find_running};
use crate::{
    config::{Environment, Flags, LoadedConfig, Problem, load_config},
    provider::Registry,
    store,
};

#[derive(clap::Args, Clone, Copy, Debug)]
pub(super) struct DoctorArgs {
    /// Print JSON: "healthy", and each finding with its level ("ok", "warning", "fault"), cause and remedy
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warning,
    Fault,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    /// What was looked at: a setting, a file, a client.
    subject: String,
    cause: String,
    /// What to do; `None` where nothing is wrong.
    remedy: Option<String>,
}

impl Finding {
    fn ok(subject: &str, cause: impl Into<String>) -> Self {
        Self {
            level: Level::Ok,
            subject: subject.to_owned(),
            cause: cause.into(),
            remedy: None,
        }
    }

    fn warning(subject: &str, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Warning,
            remedy: Some(remedy.into()),
            ..Self::ok(subject, cause)
        }
    }

    fn fault(subject: &str, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Fault,
            ..Self::warning(subject, cause, remedy)
        }
    }

    /// The message of a problem has what is wrong, then what to do.
    fn from_problem(level: Level, problem: Problem) -> Self {
        let message = problem.message.split_once("; ");
        let (cause, remedy) = message.unwrap_or((&problem.message, "correct it where it is set"));
        let origin = problem.origin.map(|origin| format!("{origin}: "));
        let cause = origin.unwrap_or_default() + cause;
        let subject = match &problem.value {
            Some(value) => format!("{} = {value}", problem.key),
            None if problem.key.is_empty() => "settings".to_owned(),
            None => problem.key,
        };
        Self {
            level,
            ..Self::warning(&subject, cause, remedy)
        }
    }
}

pub(super) fn run(
    args: DoctorArgs,
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> CommandResult {
    let mut findings: Vec<Finding> = match load_config(flags, environment) {
        Ok(loaded) => {
            let registry = Registry::new(&loaded.config).map_err(CommandError::Start)?;
            block_on(examine(&loaded, &registry, environment))?
        }
        Err(problems) => {
            let problems = problems.0.into_iter();
            problems
                .map(|it| Finding::from_problem(Level::Fault, it))
                .collect()
        }
    };
    findings.sort_by_key(|finding| Reverse(finding.level));
    let count = |level| findings.iter().filter(|it| it.level == level).count();
    let (faults, warnings) = (count(Level::Fault), count(Level::Warning));
    if args.json {
        writeln!(
            out,
            "{}",
            json!({"healthy": faults == 0, "findings": findings})
        )?;
    } else {
        for Finding {
            level,
            subject,
            cause,
            remedy,
        } in &findings
        {
            let level = format!("{level:?}").to_lowercase();
            writeln!(out, "{level:<8} {subject}: {cause}")?;
            if let Some(remedy) = remedy {
                writeln!(out, "{:8} -> {remedy}", "")?;
            }
        }
        let sound = count(Level::Ok);
        writeln!(
            out,
            "\nfaults: {faults}, warnings: {warnings}, sound: {sound}"
        )?;
    }
    out.flush()?;
    if faults > 0 {
        Err(CommandError::Exit(1, String::new()))
    } else {
        Ok(())
    }
}

async fn examine(
    loaded: &LoadedConfig,
    registry: &Registry,
    environment: &Environment,
) -> Vec<Finding> {
    let config = &loaded.config;
    let listener = machine::find_listener(config.server.listen).await;
    let mut found = vec![machine::check_listener(config, &listener)];
    found.extend(machine::check_settings_file(loaded));
    let other = match config.server.data_dir.path() {
        Some(path) if listener != machine::Listener::Plimsoll => find_running(path).await,
        _ => None,
    };
    found.extend(machine::check_data_dir(config, &listener, other.as_ref()));
    found.extend(machine::check_key_variables(config, environment));
    found.extend(machine::check_environment_proxy(config));
    found.extend(store::find_server_fault(&config.store).await.map(|cause| {
        let remedy = "start the server, or correct store.url, store.password_env and store.ca_file; until then requests go \
                      on without their sessions' states";
        Finding::fault("store.url", cause, remedy)
    }));
    found.extend(providers::check_providers(registry).await);
    // The lists that were asked for tell windows.
    let warnings = check::list_warnings(loaded, registry).into_iter();
    found.extend(warnings.map(|it| Finding::from_problem(Level::Warning, it)));
    found.extend(providers::check_windows(config, registry));
    found.push(providers::check_catalogue(registry));
    found.extend(clients::check_clients(config, environment, &listener).await);
    found
}
