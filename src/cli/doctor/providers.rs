//! Whether providers can be reached, take the key, and tell the time and the windows that the settings have.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use http::{HeaderMap, Method, StatusCode, header::DATE};
use tokio::time::timeout;

use super::{Finding, Level};
use crate::{
    config::{Auth, Config},
    provider::{
        OutgoingRequest, Payload, Provider, Registry, UpstreamError, WindowSource, headers,
    },
};

const ASK_WITHIN: Duration = Duration::from_secs(10);

/// Clouds refuse requests that are signed five minutes off; half of that shows that nobody sets the clock.
const MAX_CLOCK_ERROR: Duration = Duration::from_secs(150);

/// A table of windows that is older lacks the models of a season.
const OLD_CATALOGUE: Duration = Duration::from_secs(90 * 86_400);

const SILENT: &str = "check that the server runs and that no firewall is between; where a proxy must be asked, set HTTPS_PROXY or \
                      providers.NAME.proxy";

/// Of a provider that is built in, and so has no section in which something could be wrong.
const SILENT_AND_BUILT_IN: &str = "nothing, if its models are not used; else look whether this machine reaches the network, and where a proxy \
                                   must be asked, set HTTPS_PROXY";

/// Asks each provider for its list of models, which costs nothing and loads no model.
pub(super) async fn check_providers(registry: &Registry) -> Vec<Finding> {
    let remote = registry
        .providers()
        .filter(|it| it.config.base_url.is_some());
    let asked = join_all(remote.map(check_provider));
    // The lists are kept for their windows; what fails is found beside.
    let (asked, _) = tokio::join!(asked, registry.ask_for_lists());
    let (mut found, clocks): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    let ollama = registry
        .providers()
        .filter(|it| it.config.profile.ollama_api);
    found.extend(ollama.map(|provider| {
        let told = "is guarded for clients whose base URL ends with /v1; what they send to Ollama's own /api is not";
        Finding::ok(&format!("providers.{}", provider.name), told)
    }));
    let nearest = clocks.into_iter().flatten().min_by_key(|(_, error)| *error);
    found.extend(nearest.map(|(provider, error)| {
        let told = format!("differs by {} s from that of {provider}", error.as_secs());
        if error <= MAX_CLOCK_ERROR {
            return Finding::ok("clock", told);
        }
        let remedy = "set this machine's clock, and have NTP keep it (timedatectl set-ntp true): certificates, stored sessions \
                      and signed requests go by it";
        Finding::fault("clock", told, remedy)
    }));
    found
}

/// What is found, and by how much the provider's clock differs.
async fn check_provider(provider: &Provider) -> (Finding, Option<(&str, Duration)>) {
    let subject = &*format!("providers.{}", provider.name);
    let request = OutgoingRequest {
        method: Method::GET,
        path: "/models".to_owned(),
        headers: headers::write_for_list(&provider.config),
        body: Payload::Empty,
        model: Some("plimsoll-doctor".to_owned()),
    };
    let Ok(asked) = timeout(ASK_WITHIN, provider.send_request(request)).await else {
        let cause = format!("gives no answer within {} s", ASK_WITHIN.as_secs());
        let finding = if provider.config.is_known {
            Finding::warning(subject, cause, SILENT_AND_BUILT_IN)
        } else {
            Finding::fault(subject, cause, SILENT)
        };
        return (finding, None);
    };
    match asked {
        Ok(answer) => {
            let error = find_clock_error(answer.headers());
            let finding = judge_status(subject, provider, answer.status());
            (finding, error.map(|error| (&*provider.name, error)))
        }
        Err(error) => {
            let mut finding = explain_failure(subject, &error, provider.config.is_known);
            // Nobody has said that it is used.
            if provider.config.is_known {
                finding.level = Level::Warning;
            }
            (finding, None)
        }
    }
}

fn judge_status(subject: &str, provider: &Provider, status: StatusCode) -> Finding {
    let base_url = provider.config.base_url.as_deref().unwrap_or_default();
    let (auth, is_of_model) = (&provider.config.auth, base_url.contains("{model}"));
    match (status.as_u16(), auth) {
        (200..=299, Auth::Key(..)) => Finding::ok(subject, "can be reached, and takes the key"),
        (200..=299, _) => Finding::ok(subject, "can be reached"),
        (401 | 403, Auth::Key(key, name)) if !key.reveal().is_empty() => Finding::fault(
            subject,
            format!("refuses the key in {name} (status {status})"),
            "set a key there that this provider knows and that may list models; for one of another project or region correct \
             base_url",
        ),
        (401 | 403, Auth::None) => Finding::fault(
            subject,
            format!("asks for a key (status {status}), and its settings send none"),
            "name the variable with its key in api_key_env, in place of auth = \"none\"",
        ),
        (401 | 403, _) => Finding::ok(subject, "can be reached; no key of the settings was tried"),
        (404 | 405, _) if is_of_model => Finding::ok(
            subject,
            "can be reached; it has no list to try the key with",
        ),
        (404 | 405, _) => Finding::warning(
            subject,
            format!("{base_url}/models is not there (status {status})"),
            "correct the path of base_url: most end with /v1; a provider without a list of models is not asked with \
             ask_models = false",
        ),
        (407, _) => Finding::fault(
            subject,
            "the proxy on the way asks for a password (status 407)",
            "write USER:PASSWORD@ before the host of the proxy, in HTTP_PROXY or providers.NAME.proxy",
        ),
        (300..=399, _) => Finding::warning(
            subject,
            format!("redirects to another address (status {status}), which is not followed"),
            "write that address as base_url",
        ),
        _ => Finding::warning(
            subject,
            format!("can be reached, and answers with status {status}"),
            "look at the provider's page of its state, or at the log of the engine",
        ),
    }
}

fn explain_failure(subject: &str, error: &UpstreamError, is_built_in: bool) -> Finding {
    let cause = match error {
        UpstreamError::Unreachable { cause, .. } => &**cause,
        UpstreamError::Garbage { .. } => "no HTTP",
        _ => "",
    };
    let has = |words: &[&str]| words.iter().any(|it| cause.contains(it));
    let remedy = if has(&["through a proxy"]) {
        "correct the proxy in HTTPS_PROXY, ALL_PROXY or providers.NAME.proxy, or name this host in NO_PROXY"
    } else if has(&["Expired", "NotValidYet", "expired", "not valid yet"]) {
        "set this machine's clock, or have the server's certificate renewed"
    } else if has(&["certificate"]) {
        "name the PEM file of the authority that signed its certificate in server.ca_file"
    } else if is_built_in {
        SILENT_AND_BUILT_IN
    } else if has(&["no HTTP"]) {
        "correct the scheme and the port of base_url: https:// is with TLS, http:// without"
    } else if has(&["lookup", "dns name"]) {
        "correct the host in base_url, or the name resolution of this machine"
    } else if has(&["refused"]) {
        "start the server, or correct the host and the port of base_url"
    } else {
        SILENT
    };
    let cause = cause.split("; if it is signed").next().unwrap_or_default();
    Finding::fault(subject, format!("{error}{cause}"), remedy)
}

fn find_clock_error(headers: &HeaderMap) -> Option<Duration> {
    let date = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    let now = SystemTime::now();
    now.duration_since(date)
        .or_else(|_| date.duration_since(now))
        .ok()
}

/// Windows of the settings that a server does not have, by the lists that were asked for.
pub(super) fn check_windows(config: &Config, registry: &Registry) -> Vec<Finding> {
    let names = config
        .models
        .iter()
        .filter(|(name, _)| !name.ends_with('*'));
    let found = names.filter_map(|(name, model)| {
        let set = model.context_length?;
        let target = registry.resolve_target(name, model.provider.as_deref()).ok()?;
        let (told, provider) = (target.window.tokens, &target.provider.name);
        let is_less = target.window.source == WindowSource::Provider && told < set;
        let remedy = format!(
            "set {told} here, or start the server with {set} (llama.cpp -c, Ollama num_ctx or OLLAMA_CONTEXT_LENGTH, vLLM \
             --max-model-len, LM Studio when it loads the model)"
        );
        let cause = format!("{set} tokens are set, and {provider} reports that it holds {told}: the proxy uses {told}");
        is_less.then(|| Finding::warning(&format!("models.{name:?}.context_length"), cause, remedy))
    });
    found.collect()
}

pub(super) fn check_catalogue(registry: &Registry) -> Finding {
    let (subject, told) = ("table of windows", registry.describe_catalogue());
    if registry.catalogue_age(SystemTime::now()) <= OLD_CATALOGUE {
        return Finding::ok(subject, told);
    }
    let remedy = "fetch it with plimsoll models --ask, see whether catalogue.url can be reached, or install a newer release";
    Finding::warning(subject, told, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_in_provider_has_no_section_to_correct() {
        let unreachable = |cause: &str| UpstreamError::Unreachable {
            provider: "openai".to_owned(),
            cause: format!(": {cause}"),
            connected: false,
        };
        for (cause, remedy) in [
            ("Connection refused", "nothing, if its models are not used"),
            (
                "failed to lookup address",
                "nothing, if its models are not used",
            ),
            (
                "asked through a proxy: refused",
                "correct the proxy in HTTPS_PROXY",
            ),
            ("invalid peer certificate: UnknownIssuer", "server.ca_file"),
        ] {
            let finding = explain_failure("providers.openai", &unreachable(cause), true);
            let told = finding.remedy.unwrap();
            assert!(
                told.contains(remedy) && !told.contains("base_url"),
                "{told}"
            );
        }
        let own = explain_failure("providers.up", &unreachable("Connection refused"), false);
        assert!(own.remedy.unwrap().contains("base_url"));
    }
}
