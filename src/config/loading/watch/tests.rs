use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::config::{Environment, Flags, loading::watch::ConfigWatcher};

fn watch(file: &Path) -> ConfigWatcher {
    let flags = Flags {
        config: Some(file.into()),
        listen: None,
    };
    ConfigWatcher::new(&flags, &Environment::default())
}

/// A directory, and the path of a settings file in it.
fn settings_file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    (folder, file)
}

fn load_reserve(watch: &mut ConfigWatcher) -> Option<u32> {
    watch.load_config().unwrap().config.guard.reserve_tokens
}

const FIRST: &str = "[guard]\nreserve_tokens = 1000\n";
const SECOND: &str = "[guard]\nreserve_tokens = 12000\n";

#[test]
fn a_change_counts_after_two_equal_polls_until_it_is_read() {
    let (_folder, file) = settings_file();
    fs::write(&file, FIRST).unwrap();
    let mut watch = watch(&file);
    assert_eq!(load_reserve(&mut watch), Some(1_000));
    assert!(!watch.has_changed() && !watch.has_changed());
    fs::write(&file, SECOND).unwrap();
    assert!(!watch.has_changed(), "a write may be going on");
    fs::write(&file, "[guard]\nreserve_tokens = 12000 # and more\n").unwrap();
    assert!(!watch.has_changed());
    assert!(
        watch.has_changed() && watch.has_changed(),
        "until it is read"
    );
    assert_eq!(load_reserve(&mut watch), Some(12_000));
    assert!(!watch.has_changed() && !watch.has_changed());
}

#[test]
fn an_invalid_file_is_read_again_only_after_a_change() {
    let (_folder, file) = settings_file();
    fs::write(&file, "[guard").unwrap();
    let mut watch = watch(&file);
    assert!(watch.load_config().is_err());
    assert!(!watch.has_changed() && !watch.has_changed());
    fs::write(&file, FIRST).unwrap();
    assert!(!watch.has_changed() && watch.has_changed());
    assert!(watch.load_config().is_ok());
}

#[test]
fn a_deleted_file_is_a_problem_until_it_is_restored() {
    let (_folder, file) = settings_file();
    fs::write(&file, FIRST).unwrap();
    let mut watch = watch(&file);
    watch.load_config().unwrap();
    fs::remove_file(&file).unwrap();
    assert!(!watch.has_changed() && watch.has_changed());
    assert!(watch.load_config().is_err());
    assert!(!watch.has_changed() && !watch.has_changed());
    fs::write(&file, FIRST).unwrap();
    assert!(!watch.has_changed() && watch.has_changed());
    assert!(watch.load_config().is_ok());
}

#[cfg(unix)]
#[test]
fn a_link_to_another_file_is_a_change() {
    let (folder, file) = settings_file();
    for (name, text) in [("a", FIRST), ("b", SECOND)] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("config.toml"), text).unwrap();
    }
    // A mounted config map has a link to a file in a directory that is a link too.
    let data = folder.path().join("data");
    std::os::unix::fs::symlink("a", &data).unwrap();
    std::os::unix::fs::symlink("data/config.toml", &file).unwrap();
    let mut watch = watch(&file);
    assert_eq!(load_reserve(&mut watch), Some(1_000));
    let new = folder.path().join("new");
    std::os::unix::fs::symlink("b", &new).unwrap();
    fs::rename(&new, &data).unwrap();
    assert!(!watch.has_changed() && watch.has_changed());
    assert_eq!(load_reserve(&mut watch), Some(12_000));
}

#[test]
fn prompts_are_watched_even_while_they_are_invalid() {
    let (folder, file) = settings_file();
    fs::write(&file, "").unwrap();
    let mut watch = watch(&file);
    watch.load_config().unwrap();
    let texts = folder.path().join("texts");
    let text = texts.join("en").join("go-on.txt");
    fs::create_dir_all(texts.join("en")).unwrap();
    fs::write(&text, "").unwrap();
    assert!(
        !watch.has_changed() && !watch.has_changed(),
        "the settings do not name them"
    );
    fs::write(&file, format!("[recovery]\nprompts_dir = {texts:?}\n")).unwrap();
    assert!(!watch.has_changed() && watch.has_changed());
    assert!(watch.load_config().is_err(), "an empty text");
    fs::write(&text, "Go on.").unwrap();
    assert!(!watch.has_changed() && watch.has_changed());
    watch.load_config().unwrap();
    fs::write(texts.join("en").join("caution-text.txt"), "Careful.").unwrap();
    assert!(!watch.has_changed() && watch.has_changed());
}

#[test]
fn an_emptied_file_is_a_problem() {
    let (_folder, file) = settings_file();
    fs::write(&file, FIRST).unwrap();
    let mut watch = watch(&file);
    watch.load_config().unwrap();
    // A writer or a full disk may have cut it.
    fs::write(&file, "\n").unwrap();
    let refused = watch.load_config().unwrap_err().to_string();
    assert!(refused.contains("config.toml: is empty now"), "{refused}");
    fs::write(&file, SECOND).unwrap();
    assert!(watch.load_config().is_ok());
}

#[cfg(unix)]
#[test]
fn a_pipe_is_read_once() {
    let (_folder, file) = settings_file();
    let made = std::process::Command::new("mkfifo").arg(&file).status();
    assert!(made.unwrap().success());
    let write = |text: &'static str| {
        let file = file.clone();
        std::thread::spawn(move || fs::write(file, text).unwrap())
    };
    let mut watch = watch(&file);
    let written = write(FIRST);
    assert_eq!(load_reserve(&mut watch), Some(1_000));
    written.join().unwrap();
    assert!(!watch.has_changed() && !watch.has_changed());
    let refused = watch.load_config().unwrap_err().to_string();
    assert!(refused.contains("read again"), "{refused}");
    assert!(!watch.has_changed() && !watch.has_changed());
}
