//! All sources together, the shipped file, and warnings. Single invalid settings are golden pairs in
//! `tests/data/config`.

mod browsers;
mod warnings;

use std::{collections::BTreeMap, fs, path::Path};

use super::{
    AddTools, Auth, Config, Environment, Flags, GuardConfig, Problem, Problems, Setting,
    WhenUnsure, load_config,
};
use crate::{
    config::loading::{load::WrittenSettings, section::Section, setting::SettingSource},
    provider::{self, Registry},
    recovery::{Language, prompt::NoteMethod},
};

impl GuardConfig {
    /// The defaults with three ASCII characters per token, so that a test can say how large its texts are, and with
    /// every budget kept.
    pub(crate) fn counted_by_characters() -> Self {
        Self {
            chars_per_token: Some(3.0),
            when_unsure: Some(WhenUnsure::Cut),
            ..Self::default()
        }
    }
}

const SHIPPED: &str = include_str!("../../config.toml");

/// [`load_config`] without the file system. `text` is the file's name and contents.
pub(super) fn merge(
    text: Option<(String, String)>,
    environment: &Environment,
    listen: Option<&str>,
) -> Result<(Config, Vec<Problem>), Problems> {
    let loaded = WrittenSettings::from_text(text, environment, listen)?.check(environment)?;
    Ok((loaded.config, loaded.warnings))
}

/// The settings of a text as an administrator sees them, read without the checks.
pub(super) fn shown(text: Option<(String, String)>, environment: &Environment) -> Vec<Setting> {
    let written = WrittenSettings::from_text(text, environment, None)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut section = Section::new(&written.layers, environment);
    Config::read(&mut section);
    section.finish_reading().0
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().copied().collect()
}

fn written(text: &str) -> Option<(String, String)> {
    Some(("config.toml".to_owned(), text.to_owned()))
}

/// The configuration of a text alone.
fn accepted(text: &str) -> Config {
    match merge(written(text), &environment(&[("KEY", "sk-1")]), None) {
        Ok((config, _)) => config,
        Err(problems) => panic!("{problems}"),
    }
}

fn refused(text: &str, variables: &[(&str, &str)]) -> String {
    let problems = merge(written(text), &environment(variables), None).unwrap_err();
    problems.to_string()
}

fn warned(text: &str, variables: &[(&str, &str)]) -> String {
    let (config, mut warnings) = merge(written(text), &environment(variables), None).unwrap();
    let registry = Registry::new(&config).unwrap();
    warnings.extend(provider::collect_warnings(&config, &registry));
    warnings.extend(provider::find_unknown_windows(&registry));
    let lines: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn a_secret_in_the_place_of_its_variables_name_is_not_shown() {
    for key in [
        "[server]\nsecret_env",
        "[store]\nencrypt_key_env",
        "[store]\nurl = \"redis://h\"\npassword_env",
    ] {
        let message = refused(&format!("{key} = \"sk-oh-no\""), &[]);
        assert!(
            message.contains("that is not set (the value is not shown"),
            "{message}"
        );
        assert!(!message.contains("oh-no"), "{message}");
    }
}

#[test]
fn the_installation_secret_can_come_from_a_variable() {
    let text = "[server]\nsecret_env = \"SECRET\"";
    let digits = "0f".repeat(32);
    let (config, _) = merge(written(text), &environment(&[("SECRET", &digits)]), None).unwrap();
    assert_eq!(config.server.secret.as_ref().unwrap().reveal(), &[0x0f; 32]);
    assert!(!format!("{config:?}").contains(&digits));
    for (variables, message) in [
        (&[][..], "names an environment variable that is not set"),
        (&[("SECRET", "0f0f")], "64 hexadecimal digits"),
    ] {
        let refused = refused(text, variables);
        assert!(
            refused.contains("server.secret_env") && refused.contains(message),
            "{refused}"
        );
        assert!(!refused.contains("0f0f"), "{refused}");
    }
}

#[test]
fn the_defaults_are_valid() {
    let config = Config::default();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:1876");
    assert_eq!(config.providers.keys().collect::<Vec<_>>(), ["simulated"]);
    assert!(config.clients.is_empty());
    assert!(config.guard.enabled);
    assert_eq!(warned("", &[]), "");
}

#[test]
fn the_shipped_file_is_the_defaults() {
    let values = |settings: &[Setting]| -> Vec<_> {
        let settings = settings.iter().cloned();
        settings
            .map(|setting| (setting.key, setting.value))
            .collect()
    };
    let mut shipped = accepted(SHIPPED);
    // The proxy adds these where the settings have no providers, and the shipped ones have none.
    shipped.providers.retain(|_, provider| !provider.is_known);
    assert_eq!(
        values(&shipped.settings),
        values(&Config::default().settings)
    );
    let settings = Config::default().settings;
    assert_eq!(
        Config {
            settings,
            ..shipped
        },
        Config::default()
    );
}

/// The shipped file with its examples uncommented.
fn with_examples() -> String {
    let uncommented = SHIPPED.lines().map(|line| match line.strip_prefix('#') {
        Some(example) if !example.is_empty() && !example.starts_with([' ', ':']) => example,
        _ => line,
    });
    let text = uncommented.collect::<Vec<_>>().join("\n");
    text.replace("/run/secrets/mistral", "tests/data/provider-key.txt")
}

#[test]
fn the_examples_of_the_shipped_file_are_valid() {
    let key = "0f".repeat(32);
    let variables = [
        ("OPENAI_API_KEY", "sk-1"),
        ("REDIS_PASSWORD", "secret"),
        ("SESSION_STORE_KEY", &key),
        ("PLIMSOLL_SECRET", &key),
        ("OTLP_HEADERS", "authorization=Bearer t"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let text = with_examples().replace("\"prompts\"", &format!("{:?}", folder.path()));
    // A start reads it, and there is none here.
    let text = text.replace("ca_file = \"company-ca.pem\"", "");
    let loaded = merge(written(&text), &environment(&variables), None);
    let (config, warnings) = loaded.unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(warnings, []);
    let registry = Registry::new(&config).unwrap();
    assert_eq!(provider::collect_warnings(&config, &registry), []);
    assert_eq!(config.clients["alice"].models, ["*"]);
    assert_eq!(config.recovery.prompts_dir.as_deref(), Some(folder.path()));
    assert!(matches!(config.providers["openai"].auth, Auth::Key(..)));
    assert_eq!(
        config.models["local/qwen3-coder"].context_length,
        Some(65_536)
    );
}

/// Each key of providers, models and clients is in one of their examples.
#[test]
fn the_shipped_file_shows_every_key() {
    let settings = shown(written(&with_examples()), &environment(&[]));
    let general_key = |setting: &Setting| {
        let (section, rest) = setting.key.split_once('.').unwrap_or(("", &setting.key));
        match section {
            "clients" | "providers" | "models" => {
                let (_, key) = rest.rsplit_once('.').unwrap();
                format!("{section}.NAME.{key}")
            }
            _ => setting.key.clone(),
        }
    };
    let is_written = |setting: &&Setting| setting.from == SettingSource::File;
    let in_file: Vec<String> = settings
        .iter()
        .filter(is_written)
        .map(general_key)
        .collect();
    assert!(in_file.len() > 100, "{in_file:?}");
    for key in settings.iter().map(general_key) {
        assert!(in_file.contains(&key), "{key} is not in config.toml");
    }
}

#[test]
fn every_key_of_the_shipped_file_has_a_comment() {
    let mut commented = false;
    for line in SHIPPED.lines() {
        if line.starts_with("# ") {
            commented = true;
        } else if line.trim().is_empty() {
            commented = false;
        } else if line.contains(" = ") {
            // One comment may explain several lines.
            assert!(commented, "no comment above: {line}");
        }
    }
}

#[test]
fn the_environment_overrides_the_file_and_a_flag_overrides_both() {
    let text = "[server]\nlisten = \"127.0.0.1:1\"\nmax_connections = 7\n[guard]\nenabled = false";
    let variables = environment(&[
        ("PLIMSOLL_SERVER__LISTEN", "127.0.0.1:2"),
        ("PLIMSOLL_GUARD__LOW_WATER", "0.5"),
        (
            "PLIMSOLL_PROVIDERS__MINE__BASE_URL",
            "http://127.0.0.1:9/v1/",
        ),
        ("PLIMSOLL_PROVIDERS__MINE__AUTH", "none"),
        ("PLIMSOLL_PROVIDERS__MINE__MODELS", "[\"a\", \"b*\"]"),
        ("PLIMSOLL_DEFAULT_PROVIDER", "mine"),
        ("PATH", "/bin"),
        ("PLIMSOLL_SERVICE_HOST", "10.0.0.1"),
        ("PLIMSOLL_BIN", "/x"),
    ]);
    let (config, warnings) = merge(written(text), &variables, None).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(config.server.listen.port(), 2);
    assert_eq!(config.server.max_connections, 7);
    assert!(!config.guard.enabled);
    assert_eq!(config.guard.low_water, Some(0.5));
    let mine = &config.providers["mine"];
    assert_eq!(mine.base_url.as_deref(), Some("http://127.0.0.1:9/v1"));
    assert_eq!(mine.models, ["a", "b*"]);
    assert_eq!(config.default_provider.as_deref(), Some("mine"));

    let (config, _) = merge(written(text), &variables, Some("[::1]:3")).unwrap();
    assert_eq!(config.server.listen.to_string(), "[::1]:3");
}

#[test]
fn a_problem_names_the_source_of_the_value_in_force() {
    let text = "[server]\nlisten = \"here\"\nmax_connections = 0";
    let variables = [
        ("PLIMSOLL_SERVER__LISTEN", "there"),
        ("PLIMSOLL_SERVER__LISEN", "x"),
    ];
    let message = refused(text, &variables);
    for line in [
        "PLIMSOLL_SERVER__LISEN: server.lisen: unknown key; did you mean listen?",
        "PLIMSOLL_SERVER__LISTEN: server.listen = \"there\": must be an IP address",
        "config.toml: server.max_connections = 0: must be at least 1;",
    ] {
        assert!(message.contains(line), "no {line:?} in\n{message}");
    }
    let problems = merge(None, &environment(&[]), Some("0.0.0.0:1")).unwrap_err();
    let start = "--listen: server.listen = \"0.0.0.0:1\": can be reached from other machines";
    assert!(problems.to_string().starts_with(start), "{problems}");
}

#[test]
fn a_variable_with_a_single_underscore_is_warned_of() {
    assert_eq!(
        warned("", &[("PLIMSOLL_SERVER_LISTEN", "0.0.0.0:80")]),
        "PLIMSOLL_SERVER_LISTEN: is ignored; write two underscores between section and key: \
         PLIMSOLL_SERVER__LISTEN"
    );
    assert_eq!(
        warned(
            "",
            &[
                ("PLIMSOLL_LISTEN", "0.0.0.0:80"),
                ("PLIMSOLL_PORT", "tcp://10.0.0.1:80")
            ]
        ),
        "PLIMSOLL_LISTEN: is ignored; write two underscores between section and key: \
         PLIMSOLL_SERVER__LISTEN"
    );
}

#[test]
fn the_file_of_the_flag_must_exist_and_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let flags = Flags {
        config: Some(path.clone()),
        listen: None,
    };
    let nothing = environment(&[]);
    let missing = load_config(&flags, &nothing).unwrap_err().to_string();
    assert!(missing.contains("mine.toml: cannot be read: "), "{missing}");
    let remedy = "; write it, or name one that is there (--config, PLIMSOLL_CONFIG)";
    assert!(missing.ends_with(remedy), "{missing}");

    fs::write(&path, "[server]\nmax_connections = 5").unwrap();
    let loaded = load_config(&flags, &nothing).unwrap();
    assert_eq!(loaded.config.server.max_connections, 5);
    assert_eq!(loaded.file, Some(path.clone()));

    fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let large = load_config(&flags, &nothing).unwrap_err().to_string();
    assert!(large.contains("too many for a settings file"), "{large}");
}

#[test]
fn every_invalid_file_is_refused_with_its_message() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/config");
    let files: BTreeMap<_, _> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "toml"))
        .map(|path| (path.with_extension("txt"), path))
        .collect();
    assert!(files.len() >= 10, "{} files", files.len());
    for (expected, path) in files {
        let variables = [
            ("GOOD_KEY", "sk-good"),
            ("EMPTY_KEY", " "),
            ("BAD_KEY", "sk\u{7f}bad"),
        ];
        let found = refused(&fs::read_to_string(&path).unwrap(), &variables) + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&expected, &found).unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap();
        assert_eq!(found, expected, "{}", path.display());
        assert!(!found.contains("sk-"), "a key is shown: {found}");
    }
}

#[test]
fn the_number_of_reported_problems_is_bounded() {
    let text: String = (0..10_000).map(|n| format!("k{n} = 1\n")).collect();
    assert_eq!(refused(&text, &[]).lines().count(), 50);
}

#[test]
fn a_key_is_never_shown_or_serialised() {
    let config =
        accepted("[providers.p]\nbase_url = \"https://api.openai.com/v1\"\napi_key_env = \"KEY\"");
    let Auth::Key(secret, _) = &config.providers["p"].auth else {
        panic!("no key");
    };
    assert_eq!(secret.reveal(), "sk-1");
    assert_eq!(config.providers["p"].profile.name, "openai");
    for shown in [
        format!("{config:?}"),
        format!("{config:#?}"),
        format!("{secret}"),
    ] {
        assert!(!shown.contains("sk-1"), "{shown}");
        assert!(shown.contains("[hidden]"), "{shown}");
    }
}

#[test]
fn texts_of_a_directory_replace_the_built_in_prompts() {
    let folder = tempfile::tempdir().unwrap();
    let text = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    text("zh/go-on.txt", "继续\n");
    text("zh/.go-on.txt.swp", "\u{0}");
    text(".DS_Store", "");
    text("en/critical-text.txt", "{remaining} left, {remaining}!");
    let setting = format!("[recovery]\nprompts_dir = {:?}", folder.path());
    let prompts = accepted(&setting).recovery.prompts;
    assert_eq!(prompts.continue_prompt(Language::Chinese), "继续");
    assert_eq!(
        prompts.critical_prompt(Language::English, NoteMethod::Text, 3, true),
        "3 left, 3!"
    );
    let built_in = Config::default().recovery.prompts;
    for prompts in [&prompts, &built_in] {
        let caution = prompts.caution_prompt(Language::English, NoteMethod::Tools, 9);
        assert!(
            caution.starts_with("[Context notice, caution."),
            "{caution}"
        );
    }
}

#[test]
fn recovery_can_be_set_for_a_model_and_a_client() {
    let digest = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
    let config = accepted(&format!(
        "[recovery]\ncaution_cadence = 7\nlanguage = \"zh\"\ntools = \"always\"\n\
         [models.a]\ncaution_cadence = 3\n[models.b]\nrecovery = false\n\
         [clients.c]\nkey_sha256 = \"{digest}\"\nrecovery = false"
    ));
    let recovery = &config.recovery;
    assert_eq!(recovery.language, Some(Language::Chinese));
    assert_eq!(recovery.tools, AddTools::Always);
    let (a, b, c) = (
        &config.models["a"],
        &config.models["b"],
        &config.clients["c"],
    );
    assert_eq!(recovery.pace_for_model(a).caution_cadence, 3);
    assert_eq!(recovery.pace_for_model(b).caution_cadence, 7);
    assert_eq!(recovery.pace_for_model(b).critical_countdown, 5);
    assert!(recovery.is_enabled_for(a, None));
    assert!(!recovery.is_enabled_for(b, None));
    assert!(!recovery.is_enabled_for(a, Some(c)));
    let off = accepted("[recovery]\nenabled = false").recovery;
    assert!(!off.is_enabled_for(a, None));
}
