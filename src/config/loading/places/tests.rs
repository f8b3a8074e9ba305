use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::config::{
    Config, Environment, Flags, LoadedConfig,
    loading::places::{SettingsFile, can_write, find_settings_file, list_data_folders},
};

/// A folder with the program of a clone, another folder to work in, and a home.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write("clone/target/release/plimsoll", "");
        machine.write("bin/plimsoll", "");
        fs::create_dir(machine.path("work")).unwrap();
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    /// The environment of a program, started in a folder; the values of variables are paths.
    fn started(&self, folder: &str, program: &str, variables: &[(&str, &str)]) -> Environment {
        let paths = variables.iter().map(|(name, path)| {
            let whole = self.path(path).to_str().unwrap().to_owned();
            (*name, whole)
        });
        let environment: Environment = paths.collect();
        environment.in_folder(&self.path(folder), &self.path(program))
    }

    fn found(&self, environment: &Environment) -> Option<String> {
        let SettingsFile { path, is_named } = find_settings_file(&Flags::default(), environment)?;
        assert!(!is_named);
        let below = path.strip_prefix(self.0.path()).unwrap_or(&path);
        Some(below.to_str().unwrap().to_owned())
    }
}

fn load(environment: &Environment) -> LoadedConfig {
    crate::config::load_config(&Flags::default(), environment).unwrap()
}

const HOME: [(&str, &str); 1] = [("HOME", "home")];
const OURS: &str = "[guard]\nreserve_tokens = 5000\n";

#[test]
fn the_file_of_the_working_directory_is_read_for_a_program_that_was_built_there_only() {
    let machine = Machine::new();
    for folder in ["clone", "work", "clone/target", "clone/target/release"] {
        machine.write(&format!("{folder}/config.toml"), OURS);
    }
    machine.write("home/.config/plimsoll/config.toml", OURS);
    for (folder, program, found) in [
        (
            "clone",
            "clone/target/release/plimsoll",
            "clone/config.toml",
        ),
        (
            "work",
            "clone/target/release/plimsoll",
            "home/.config/plimsoll/config.toml",
        ),
        (
            "clone/target",
            "clone/target/release/plimsoll",
            "home/.config/plimsoll/config.toml",
        ),
        (
            "clone/target/release",
            "clone/target/release/plimsoll",
            "home/.config/plimsoll/config.toml",
        ),
        ("clone", "bin/plimsoll", "home/.config/plimsoll/config.toml"),
        ("clone", "nowhere", "home/.config/plimsoll/config.toml"),
    ] {
        let environment = machine.started(folder, program, &HOME);
        assert_eq!(
            machine.found(&environment).as_deref(),
            Some(found),
            "{program} in {folder}"
        );
    }
}

#[cfg(unix)]
#[test]
fn a_link_called_target_claims_no_program() {
    let machine = Machine::new();
    machine.write("work/config.toml", OURS);
    std::os::unix::fs::symlink(machine.path("bin"), machine.path("work/target")).unwrap();
    let environment = machine.started("work", "bin/plimsoll", &[]);
    assert_eq!(environment.own_folder(), None);
    // The program may be reached by a link, such as one in ~/bin, and so may the folder.
    std::os::unix::fs::symlink(machine.path("clone"), machine.path("linked")).unwrap();
    let program = machine.path("bin/link");
    std::os::unix::fs::symlink(machine.path("clone/target/release/plimsoll"), program).unwrap();
    let environment = machine.started("linked", "bin/link", &[]);
    assert!(environment.own_folder().is_some());
}

#[test]
fn a_named_file_comes_first_and_must_exist() {
    let machine = Machine::new();
    machine.write("clone/config.toml", OURS);
    let program = "clone/target/release/plimsoll";
    let named = |path: &Path| {
        Some(SettingsFile {
            path: path.to_owned(),
            is_named: true,
        })
    };
    let variables = [HOME[0], ("PLIMSOLL_CONFIG", "mine.toml")];
    let environment = machine.started("clone", program, &variables);
    assert_eq!(
        find_settings_file(&Flags::default(), &environment),
        named(&machine.path("mine.toml"))
    );
    let missing = crate::config::load_config(&Flags::default(), &environment).unwrap_err();
    assert!(
        missing.to_string().contains("mine.toml: cannot be read"),
        "{missing}"
    );
    let flags = Flags {
        config: Some("other.toml".into()),
        listen: None,
    };
    assert_eq!(
        find_settings_file(&flags, &environment),
        named(Path::new("other.toml"))
    );
    let empty = Environment::from_iter([("PLIMSOLL_CONFIG", "")]);
    let empty = empty.in_folder(&machine.path("clone"), &machine.path(program));
    assert_eq!(machine.found(&empty).as_deref(), Some("clone/config.toml"));
}

#[test]
fn the_folder_of_a_variable_replaces_the_one_of_the_home_and_a_relative_one_does_not_count() {
    let machine = Machine::new();
    machine.write("home/.config/plimsoll/config.toml", OURS);
    machine.write("xdg/plimsoll/config.toml", OURS);
    let environment = machine.started(
        "work",
        "bin/plimsoll",
        &[HOME[0], ("XDG_CONFIG_HOME", "xdg")],
    );
    assert_eq!(
        machine.found(&environment).as_deref(),
        Some("xdg/plimsoll/config.toml")
    );
    let home = machine.path("home").to_str().unwrap().to_owned();
    let relative = [
        ("HOME", home.as_str()),
        ("XDG_CONFIG_HOME", "."),
        ("XDG_STATE_HOME", "."),
        ("STATE_DIRECTORY", "x"),
    ];
    let environment: Environment = relative.into_iter().collect();
    let environment = environment.in_folder(&machine.path("work"), &machine.path("bin/plimsoll"));
    assert_eq!(
        machine.found(&environment).as_deref(),
        Some("home/.config/plimsoll/config.toml")
    );
    assert_eq!(
        list_data_folders(&environment),
        [machine.path("home/.local/state/plimsoll")]
    );
    let homeless = Environment::from_iter([("HOME", "")]);
    assert!(list_data_folders(&homeless).is_empty());
}

#[test]
fn the_data_lie_in_the_first_folder_that_can_be_written() {
    let machine = Machine::new();
    // No folder can be made below a file, whoever asks.
    machine.write("file", "");
    let all = [
        ("HOME", "home"),
        ("XDG_STATE_HOME", "xdg"),
        ("STATE_DIRECTORY", "state"),
    ];
    let check =
        |folder: &str, program: &str, variables: &[(&str, &str)], expected: Option<&str>| {
            let loaded = load(&machine.started(folder, program, variables));
            let expected = expected.map(|path| machine.path(path));
            assert_eq!(
                loaded.config.server.data_dir.path(),
                expected.as_deref(),
                "{variables:?}"
            );
            loaded
        };
    check(
        "clone",
        "clone/target/release/plimsoll",
        &all,
        Some("clone/data"),
    );
    check("work", "bin/plimsoll", &all, Some("state"));
    check("work", "bin/plimsoll", &all[..2], Some("xdg/plimsoll"));
    check(
        "work",
        "bin/plimsoll",
        &all[..1],
        Some("home/.local/state/plimsoll"),
    );
    let blocked = [all[0], all[1], ("STATE_DIRECTORY", "file/state")];
    check("work", "bin/plimsoll", &blocked, Some("xdg/plimsoll"));
    assert!(!machine.path("xdg").exists(), "to look makes nothing");

    let nowhere = [("HOME", "file"), ("XDG_STATE_HOME", "file/x")];
    let loaded = check("work", "bin/plimsoll", &nowhere, None);
    let warning = loaded.warnings[0].to_string();
    assert!(
        warning.starts_with("server.data_dir: no file can be made in ")
            && warning.contains("file/x/plimsoll, "),
        "{warning}"
    );
    let loaded = check("work", "bin/plimsoll", &[], None);
    assert!(
        loaded.warnings[0]
            .message
            .starts_with("no variable names a folder"),
        "{:?}",
        loaded.warnings
    );
    // A setting is taken at its word: a folder that cannot be used ends the start.
    machine.write(
        "home/.config/plimsoll/config.toml",
        "[server]\ndata_dir = \"file/data\"\n",
    );
    let loaded = load(&machine.started("work", "bin/plimsoll", &HOME));
    assert_eq!(
        loaded.config.server.data_dir.path(),
        Some(Path::new("file/data"))
    );
    assert_eq!(loaded.warnings, []);
}

#[test]
fn what_of_the_working_directory_may_be_meant_is_named() {
    let machine = Machine::new();
    let notes = || {
        let loaded = load(&machine.started("work", "bin/plimsoll", &HOME));
        assert_eq!(
            loaded.config.guard,
            Config::default().guard,
            "nothing of it is obeyed"
        );
        loaded
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(notes(), "");
    // Of a site generator, of another program, no TOML, not text.
    for other in [
        "baseURL = \"/\"\n[params]\na = 1\n",
        "colour = 1",
        "[guard",
        "\0\u{1}",
        "",
    ] {
        machine.write("work/config.toml", other);
        assert_eq!(notes(), "", "{other}");
    }
    fs::write(machine.path("work/config.toml"), [0xff, 0xfe]).unwrap();
    assert_eq!(notes(), "");
    for ours in [
        OURS,
        "server.listen = \"0.0.0.0:1\"",
        "default_provider = \"x\"",
        "[providers.openai]\n",
    ] {
        machine.write("work/config.toml", ours);
        let said = notes();
        assert!(
            said.ends_with("work/config.toml: not read; use --config config.toml"),
            "{said}"
        );
    }
    machine.write("home/.config/plimsoll/config.toml", "");
    assert!(notes().contains("not read"), "another file is read");
    machine.write("work/data/x", "");
    assert!(!notes().contains("work/data"));
    machine.write("work/data/sessions.db", "");
    assert!(
        notes().contains("work/data: sessions and a secret of an earlier start are here"),
        "{}",
        notes()
    );

    let flags = Flags {
        config: Some(machine.path("work/config.toml")),
        listen: None,
    };
    machine.write("work/config.toml", "[server]\ndata_dir = \"elsewhere\"\n");
    let loaded =
        crate::config::load_config(&flags, &machine.started("work", "bin/plimsoll", &HOME));
    assert_eq!(loaded.unwrap().warnings, [], "both were chosen");
}

#[cfg(unix)]
#[test]
fn the_file_that_is_read_is_no_stranger_by_another_name_and_a_pipe_is_not_opened() {
    let machine = Machine::new();
    machine.write("home/.config/plimsoll/config.toml", OURS);
    let folder = "home/.config/plimsoll";
    let loaded = load(&machine.started(folder, "bin/plimsoll", &HOME));
    assert_eq!(loaded.config.guard.reserve_tokens, Some(5_000));
    assert_eq!(loaded.warnings, []);
    let pipe = machine.path("work/config.toml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let loaded = load(&machine.started("work", "bin/plimsoll", &HOME));
    assert_eq!(loaded.warnings, []);
}

#[test]
fn to_look_whether_a_folder_can_be_written_leaves_nothing() {
    let machine = Machine::new();
    let deep = machine.path("work/a/b");
    assert!(can_write(&deep) && can_write(Path::new("")) && can_write(Path::new("a/b")));
    assert_eq!(fs::read_dir(machine.path("work")).unwrap().count(), 0);
    assert!(
        !can_write(&machine.path("bin/plimsoll/a")) && !can_write(&machine.path("bin/plimsoll"))
    );
}
