//! Keys in what commands and debug prints say.

use super::*;

#[tokio::test]
async fn commands_and_debug_prints_hold_no_keys() {
    let folder = tempfile::tempdir().unwrap();
    let markers = Markers::new();
    let up = ScriptedProvider::start_answering(answers).await;
    write_config(folder.path(), &markers, &up, (9, 9));
    let run = |command: &str, set: &[(&str, &str)]| {
        let mut child = plimsoll(folder.path(), &markers);
        let done = child
            .arg(command)
            .envs(set.iter().copied())
            .output()
            .unwrap();
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        markers.are_absent(command, &said);
        assert!(!said.is_empty());
        done.status.code()
    };
    assert_eq!(run("check", &[]), Some(0));
    assert_eq!(run("models", &[]), Some(0));
    let key = markers.provider_key.as_str();
    let address = format!("http://user:{key}@127.0.0.1/v1");
    let query = format!("key={key}#");
    let broken = format!("{key}\n{key}");
    for (name, value) in [
        ("UP_KEY", broken.as_str()),
        ("PLIMSOLL_PROVIDERS__UP__BASE_URL", &address),
        ("PLIMSOLL_PROVIDERS__UP__QUERY", &query),
        ("PLIMSOLL_PROVIDERS__UP__API_KEY", key),
        ("PLIMSOLL_PROVIDERS__UP__API_KEY_ENV", key),
        ("PLIMSOLL_CLIENTS__ALICE__KEY_SHA256", key),
        ("PLIMSOLL_ADMIN__KEY_SHA256", key),
        ("PLIMSOLL_ADMIN__KEY", key),
    ] {
        for command in ["check", "serve"] {
            assert_eq!(run(command, &[(name, value)]), Some(2), "{name}");
        }
    }
    let settings = std::fs::read_to_string(folder.path().join("config.toml")).unwrap();
    for line in [
        format!("api_key = \"{key}"),
        format!("api_key = \"{key}\""),
        format!("key_sha256 = {key}"),
        format!("api_key_env = [\"{key}\"]"),
        format!("headers = {{ authorization = \"{key}\" }}"),
    ] {
        let file = folder.path().join("config.toml");
        let broken = settings.replace("[providers.tls]\n", &format!("[providers.tls]\n{line}\n"));
        std::fs::write(&file, broken).unwrap();
        assert_eq!(run("check", &[]), Some(2), "{line}");
        std::fs::write(&file, &settings).unwrap();
    }

    let environment = Environment::from_iter([("UP_KEY", key)]);
    let flags = Flags {
        config: Some(folder.path().join("config.toml")),
        listen: None,
    };
    let loaded = load_config(&flags, &environment).unwrap_or_else(|problems| panic!("{problems}"));
    let shown = format!("{loaded:?} {:?} {environment:?}", loaded.config);
    markers.are_absent("debug", &shown);
    assert!(shown.contains("[hidden]"));
}
