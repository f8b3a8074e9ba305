use super::*;
use crate::config::{Change, Config, Environment, tests::merge};

const HASH: &str = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";

fn read(text: &str, variables: &[(&str, &str)], listen: Option<&str>) -> Config {
    let environment: Environment = variables.iter().copied().collect();
    let text = ("config.toml".to_owned(), text.to_owned());
    match merge(Some(text), &environment, listen) {
        Ok((config, _)) => config,
        Err(problems) => panic!("{problems}"),
    }
}

fn setting<'a>(config: &'a Config, key: &str) -> &'a Setting {
    let mut all = config.settings.iter();
    all.find(|setting| setting.key == key)
        .unwrap_or_else(|| panic!("{key}"))
}

#[test]
fn each_setting_says_where_it_comes_from() {
    let config = read(
        "[server]\nmax_connections = 7\nlisten = \"127.0.0.1:1\"\n[guard]\nlow_water = 0.5",
        &[("PLIMSOLL_GUARD__LOW_WATER", "0.6")],
        Some("127.0.0.1:2"),
    );
    let check = |key: &str, value: Value, from: SettingSource, origin: Option<&str>| {
        let found = setting(&config, key);
        assert_eq!(
            (&found.value, found.from, found.origin.as_deref()),
            (&value, from, origin),
            "{key}"
        );
    };
    check(
        "server.max_connections",
        7.into(),
        SettingSource::File,
        Some("config.toml"),
    );
    check(
        "server.listen",
        "127.0.0.1:2".into(),
        SettingSource::Flag,
        Some("--listen"),
    );
    let variable = Some("PLIMSOLL_GUARD__LOW_WATER");
    check(
        "guard.low_water",
        0.6.into(),
        SettingSource::Environment,
        variable,
    );
    check(
        "server.max_header_bytes",
        65_536.into(),
        SettingSource::Default,
        None,
    );
    check(
        "store.max_sessions",
        1_000_000.into(),
        SettingSource::Default,
        None,
    );
    check("store.ca_file", Value::Null, SettingSource::Default, None);
}

#[test]
fn no_secret_is_shown() {
    let text = format!(
        "[admin]\nkey_sha256 = \"{HASH}\"\n\
         [clients.alice]\nkey_sha256 = \"{}\"\n\
         [providers.up]\nbase_url = \"https://user:p/ss-oh-no@host.example/v1\"\n\
         api_key_env = \"UP_KEY\"\nheaders = {{ \"x-team\" = \"sk-oh-no\" }}\nquery = \"key=oh-no\"\n\
         [store]\nurl = \"redis://:oh-no@one:6379\"\n\
         [traces]\nendpoint = \"https://traces.example/v1/traces?token=oh-no\"\n",
        HASH.replace('2', "3")
    );
    // What does not pass the checks is told nowhere, so the shape alone is read.
    let variables = [("UP_KEY", "sk-oh-no")];
    let environment: Environment = variables.into_iter().collect();
    let written = Some(("config.toml".to_owned(), text));
    let all = crate::config::tests::shown(written, &environment);
    let said = serde_json::to_string(&all).unwrap();
    assert!(
        !said.contains("oh-no") && !said.contains(&HASH[..8]),
        "{said}"
    );
    for plain in [
        "UP_KEY",
        "https://***@host.example/v1",
        "redis://***@one:6379",
        "?***",
    ] {
        assert!(said.contains(plain), "{plain} in {said}");
    }
    let hidden: Vec<_> = all
        .iter()
        .filter(|setting| setting.hidden)
        .map(|setting| &*setting.key)
        .collect();
    let expected = [
        "admin.key_sha256",
        "clients.alice.key_sha256",
        "providers.up.headers.x-team",
        "providers.up.query",
    ];
    assert_eq!(hidden, expected);
}

#[test]
fn nothing_of_a_password_is_left_of_an_address() {
    for (text, expected) in [
        ("file", "file"),
        ("https://host/v1", "https://host/v1"),
        ("redis://u:a,b,d/e@host:1/2", "redis://***@host:1/2"),
        ("redis://u:a?c@host:1/2", "redis://***"),
        (
            "redis-cluster://u:p@one,redis-cluster://u:p@two",
            "redis-cluster://***@two",
        ),
        ("https://host/v1?key=k", "https://host/v1?***"),
        ("https://host/v1?mail=a@b", "https://***"),
        ("user:p@host", "***@host"),
    ] {
        assert_eq!(redact_address(text), expected);
    }
}

#[test]
fn a_secret_in_the_place_of_its_variable_is_hidden() {
    let name: Value = "REDIS_PASSWORD".into();
    assert_eq!(Visibility::Variable.redact_value(name.clone()), Some(name));
    assert_eq!(
        Visibility::Variable.redact_value("hunter2-password".into()),
        None
    );
}

#[test]
fn every_default_is_shown() {
    let config = Config::default();
    let hidden: Vec<_> = config.settings.iter().filter(|it| it.hidden).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
    assert!(config.settings.len() > 60);
}

#[test]
fn what_waits_for_a_restart_is_shown_as_it_is() {
    let running = read("[server]\nmax_connections = 7", &[], None);
    let text = "[server]\nmax_connections = 8\nlisten = \"127.0.0.1:2\"\n[store]\nmax_age_s = 99";
    let mut next = read(text, &[], None);
    Change::diff_and_restore(&running, &mut next);
    assert_eq!(setting(&next, "server.max_connections").value, 8);
    assert_eq!(
        setting(&next, "server.listen"),
        setting(&running, "server.listen")
    );
    assert_eq!(
        setting(&next, "store.max_age_s").from,
        SettingSource::Default
    );
    assert_eq!(next.settings.len(), running.settings.len());
}
