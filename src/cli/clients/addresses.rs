//! Where the clients of this user point: the base URLs in their files, and in the variables that they read.

use std::{fs, path::Path, path::PathBuf, sync::LazyLock};

use regex::Regex;
use reqwest::Url;

use super::{Client, find_run, list_clients};
use crate::config::Environment;

/// A settings file of a client's has some kilobytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A key whose value is a base URL, in JSON, TOML and YAML alike.
static BASE_URL: LazyLock<Regex> = LazyLock::new(|| {
    let key =
        r#"(?i)(?:base_?url|api[_-]?base|api_url|_host)["']?\s*[:=]\s*["']?(https?://[^\s"',}]+)"#;
    Regex::new(key).expect("a test looks with it")
});

/// A file of a client's, whether it is there or not.
pub(in crate::cli) struct FoundFile {
    pub(in crate::cli) client: &'static Client,
    pub(in crate::cli) path: PathBuf,
    /// The base URLs in it; none where it is absent, too large or no text.
    pub(in crate::cli) urls: Vec<Url>,
}

/// The files of all clients.
pub(in crate::cli) fn find_files(environment: &Environment) -> Vec<FoundFile> {
    let files =
        list_clients().flat_map(|client| client.files.iter().map(move |file| (client, file)));
    let found = files.filter_map(|(client, file)| {
        let path = file.find(environment)?;
        let urls = read_urls(&path);
        Some(FoundFile { client, path, urls })
    });
    found.collect()
}

/// The variables that clients read and that have base URLs, by their names.
pub(in crate::cli) fn find_variables(environment: &Environment) -> Vec<(&'static str, Url)> {
    let runs = list_clients().filter_map(|client| client.run.as_ref());
    let variables = runs.chain([find_run("")]).flat_map(|run| run.variables);
    let mut names: Vec<&'static str> = variables.map(|variable| variable.name).collect();
    names.sort_unstable();
    names.dedup();
    let values = names.into_iter().filter_map(|name| {
        let value = environment.get_variable(name)?;
        let urls = match parse_url(value) {
            Some(url) => vec![url],
            None => find_urls(value, &BASE_URL),
        };
        Some(urls.into_iter().map(move |url| (name, url)))
    });
    values.flatten().collect()
}

/// Whether both lead to the same host and port. `localhost` is 127.0.0.1.
pub(in crate::cli) fn is_same_place(left: &Url, right: &Url) -> bool {
    let place = |url: &Url| {
        let host = url
            .host_str()
            .map(|host| host.replace("localhost", "127.0.0.1"));
        (host, url.port_or_known_default())
    };
    place(left) == place(right)
}

fn read_urls(path: &Path) -> Vec<Url> {
    find_urls(&read_text(path).unwrap_or_default(), &BASE_URL)
}

/// The text of a client's file. `None`: there is none, or more than such a file has.
pub(in crate::cli) fn read_text(path: &Path) -> Option<String> {
    let is_fit = fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() <= MAX_FILE_BYTES);
    is_fit.then(|| fs::read_to_string(path).ok()).flatten()
}

/// The addresses that stand behind a key in a text, but for those in lines that are comments. `pattern`: its first group is the
/// address.
pub(in crate::cli) fn find_urls(text: &str, pattern: &Regex) -> Vec<Url> {
    let is_comment = |line: &&str| {
        let line = line.trim_start();
        line.starts_with('#') || line.starts_with("//")
    };
    let lines: Vec<&str> = text.lines().filter(|line| !is_comment(line)).collect();
    let text = lines.join("\n");
    let found = pattern.captures_iter(&text);
    found
        .filter_map(|it| parse_url(it.get(1)?.as_str()))
        .collect()
}

fn parse_url(text: &str) -> Option<Url> {
    let url = Url::parse(text.trim()).ok()?;
    matches!(url.scheme(), "http" | "https").then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_found_in_all_formats_and_not_in_comments() {
        let found = |text: &str| {
            let urls = find_urls(text, &BASE_URL);
            urls.iter().map(Url::to_string).collect::<Vec<_>>()
        };
        for text in [
            "{\"env\": {\"ANTHROPIC_BASE_URL\": \"http://127.0.0.1:1876/v1\"}}",
            "base_url = 'http://127.0.0.1:1876/v1' # mine",
            "openai-api-base: http://127.0.0.1:1876/v1\n",
            "# base_url = \"http://127.0.0.1:1\"\napiBase: http://127.0.0.1:1876/v1",
            "// \"api_url\": \"http://127.0.0.1:1\"\n\"api_url\": \"http://127.0.0.1:1876/v1\"",
        ] {
            assert_eq!(found(text), ["http://127.0.0.1:1876/v1"], "{text}");
        }
        assert_eq!(found("see http://127.0.0.1:1876, base_url = 1"), [""; 0]);
    }

    #[test]
    fn a_place_is_host_and_port() {
        let is_same = |left: &str| {
            let right = Url::parse("http://127.0.0.1:1876").unwrap();
            is_same_place(&Url::parse(left).unwrap(), &right)
        };
        assert!(is_same("http://127.0.0.1:1876/v1") && is_same("http://localhost:1876"));
        for other in [
            "http://127.0.0.1:18760/v1",
            "http://127.0.0.1/v1",
            "http://10.0.0.1:1876",
            "http://mylocalhost:1876",
        ] {
            assert!(!is_same(other), "{other}");
        }
    }

    #[test]
    fn a_variable_is_an_address_or_settings_with_one() {
        let environment = Environment::from_iter([
            ("OPENAI_BASE_URL", "http://a.example/v1"),
            ("ANTHROPIC_CUSTOM_HEADERS", "x: http://b.example"),
            (
                "OPENCODE_CONFIG_CONTENT",
                "{\"baseURL\": \"http://c.example/v1\"}",
            ),
        ]);
        let found = find_variables(&environment).into_iter();
        let found: Vec<_> = found.map(|(name, url)| (name, url.to_string())).collect();
        let expected = [
            ("OPENAI_BASE_URL", "http://a.example/v1"),
            ("OPENCODE_CONFIG_CONTENT", "http://c.example/v1"),
        ];
        assert_eq!(found, expected.map(|(name, url)| (name, url.to_owned())));
    }
}
