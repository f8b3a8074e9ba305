use crate::config::{Change, Config, Environment, loading::setting::*, tests::merge};

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
    let found = config.settings.iter().find(|setting| setting.key == key);
    found.unwrap_or_else(|| panic!("{key}"))
}

#[test]
fn each_setting_names_its_source() {
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
    use SettingSource::{Default, Environment, File, Flag};
    check(
        "server.max_connections",
        7.into(),
        File,
        Some("config.toml"),
    );
    check(
        "server.listen",
        "127.0.0.1:2".into(),
        Flag,
        Some("--listen"),
    );
    let variable = Some("PLIMSOLL_GUARD__LOW_WATER");
    check("guard.low_water", 0.6.into(), Environment, variable);
    check("server.max_header_bytes", 65_536.into(), Default, None);
    check("store.max_sessions", 1_000_000.into(), Default, None);
    check("store.ca_file", Value::Null, Default, None);
}

#[test]
fn no_secret_is_shown() {
    let text = format!(
        "[admin]\nkey_sha256 = \"{HASH}\"\n\
         [clients.alice]\nkey_sha256 = \"{}\"\n\
         [providers.up]\nbase_url = \"https://user:p/ss-oh-no@host.example/v1\"\n\
         api_key_env = \"UP_KEY\"\nheaders = {{ \"x-team\" = \"sk-oh-no\" }}\nquery = \"key=oh-no\"\n\
         [store]\nurl = \"redis://:oh-no@one:6379\"\n\
         [traces]\nendpoint = \"https://traces.example/oh-no/v1/traces?token=oh-no\"\n",
        HASH.replace('2', "3")
    );
    // These settings are not valid, so they are read without the checks.
    let variables = [("UP_KEY", "sk-oh-no")];
    let environment: Environment = variables.into_iter().collect();
    let written = Some(("config.toml".to_owned(), text));
    let settings = crate::config::tests::shown(written, &environment);
    let json = serde_json::to_string(&settings).unwrap();
    assert!(
        !json.contains("oh-no") && !json.contains(&HASH[..8]),
        "{json}"
    );
    for plain in [
        "UP_KEY",
        "https://***@host.example/v1",
        "redis://***@one:6379",
        "\"https://traces.example\"",
    ] {
        assert!(json.contains(plain), "{plain} in {json}");
    }
    let hidden = settings.iter().filter(|setting| setting.hidden);
    let hidden: Vec<_> = hidden.map(|setting| &*setting.key).collect();
    let expected = [
        "admin.key_sha256",
        "clients.alice.key_sha256",
        "providers.up.headers.x-team",
        "providers.up.query",
    ];
    assert_eq!(hidden, expected);
}

#[test]
fn a_password_in_an_address_is_hidden() {
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
fn a_secret_in_the_place_of_its_variables_name_is_hidden() {
    let name: Value = "REDIS_PASSWORD".into();
    assert_eq!(Visibility::Variable.redact_value(name.clone()), Some(name));
    assert_eq!(
        Visibility::Variable.redact_value("hunter2-password".into()),
        None
    );
}

#[test]
fn no_default_is_hidden() {
    let config = Config::default();
    let hidden: Vec<_> = config
        .settings
        .iter()
        .filter(|setting| setting.hidden)
        .collect();
    assert!(hidden.is_empty(), "{hidden:?}");
    assert!(config.settings.len() > 60);
}

#[test]
fn a_setting_that_needs_a_restart_shows_the_value_in_force() {
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
