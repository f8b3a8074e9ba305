use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::ConfigWatcher;
use crate::config::{Environment, Flags};

fn watch(file: &Path) -> ConfigWatcher {
    let flags = Flags {
        config: Some(file.into()),
        listen: None,
    };
    ConfigWatcher::new(&flags, &Environment::default())
}

/// A directory, and the path of a file in it.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    (folder, file)
}

const ONE: &str = "[guard]\nreserve_tokens = 1000\n";
const OTHER: &str = "[guard]\nreserve_tokens = 12000\n";

#[test]
fn a_change_counts_once_it_has_settled_and_once() {
    let (_folder, file) = place();
    fs::write(&file, ONE).unwrap();
    let mut watch = watch(&file);
    assert_eq!(
        watch.load_config().unwrap().config.guard.reserve_tokens,
        1_000
    );
    assert!(!watch.has_changed() && !watch.has_changed());
    fs::write(&file, OTHER).unwrap();
    assert!(!watch.has_changed(), "it may still be being written");
    fs::write(&file, "[guard]\nreserve_tokens = 12000 # and more\n").unwrap();
    assert!(!watch.has_changed());
    assert!(
        watch.has_changed() && watch.has_changed(),
        "until it is read"
    );
    assert_eq!(
        watch.load_config().unwrap().config.guard.reserve_tokens,
        12_000
    );
    assert!(!watch.has_changed() && !watch.has_changed());
}

#[test]
fn a_refused_file_is_not_read_again_before_it_changes() {
    let (_folder, file) = place();
    fs::write(&file, "[guard").unwrap();
    let mut watch = watch(&file);
    assert!(watch.load_config().is_err());
    assert!(!watch.has_changed() && !watch.has_changed());
    fs::write(&file, ONE).unwrap();
    assert!(!watch.has_changed() && watch.has_changed());
    assert!(watch.load_config().is_ok());
}

#[test]
fn a_file_that_goes_is_a_problem_and_comes_back() {
    let (_folder, file) = place();
    fs::write(&file, ONE).unwrap();
    let mut watch = watch(&file);
    watch.load_config().unwrap();
    fs::remove_file(&file).unwrap();
    assert!(!watch.has_changed() && watch.has_changed());
    assert!(watch.load_config().is_err());
    assert!(!watch.has_changed() && !watch.has_changed());
    fs::write(&file, ONE).unwrap();
    assert!(!watch.has_changed() && watch.has_changed());
    assert!(watch.load_config().is_ok());
}

#[cfg(unix)]
#[test]
fn another_file_behind_a_link_is_a_change() {
    let (folder, file) = place();
    for (name, text) in [("a", ONE), ("b", OTHER)] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("config.toml"), text).unwrap();
    }
    // As a mounted config map: a link to a file in a directory that is a link, too.
    let data = folder.path().join("data");
    std::os::unix::fs::symlink("a", &data).unwrap();
    std::os::unix::fs::symlink("data/config.toml", &file).unwrap();
    let mut watch = watch(&file);
    assert_eq!(
        watch.load_config().unwrap().config.guard.reserve_tokens,
        1_000
    );
    let new = folder.path().join("new");
    std::os::unix::fs::symlink("b", &new).unwrap();
    fs::rename(&new, &data).unwrap();
    assert!(!watch.has_changed() && watch.has_changed());
    assert_eq!(
        watch.load_config().unwrap().config.guard.reserve_tokens,
        12_000
    );
}

#[test]
fn texts_are_watched_also_while_they_are_refused() {
    let (folder, file) = place();
    fs::write(&file, "").unwrap();
    let mut watch = watch(&file);
    watch.load_config().unwrap();
    let texts = folder.path().join("texts");
    let text = texts.join("en").join("go-on.txt");
    fs::create_dir_all(texts.join("en")).unwrap();
    fs::write(&text, "").unwrap();
    assert!(
        !watch.has_changed() && !watch.has_changed(),
        "nobody named them"
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
fn a_file_that_says_nothing_any_more_is_a_problem() {
    let (_folder, file) = place();
    fs::write(&file, ONE).unwrap();
    let mut watch = watch(&file);
    watch.load_config().unwrap();
    // Cut by whoever is about to write it, or by a disk that is full.
    fs::write(&file, "\n").unwrap();
    let refused = watch.load_config().unwrap_err().to_string();
    assert!(refused.contains("config.toml: is empty now"), "{refused}");
    fs::write(&file, OTHER).unwrap();
    assert!(watch.load_config().is_ok());
}

#[cfg(unix)]
#[test]
fn a_pipe_is_read_once() {
    let (_folder, file) = place();
    let made = std::process::Command::new("mkfifo").arg(&file).status();
    assert!(made.unwrap().success());
    let write = |text: &'static str| {
        let file = file.clone();
        std::thread::spawn(move || fs::write(file, text).unwrap())
    };
    let mut watch = watch(&file);
    let written = write(ONE);
    assert_eq!(
        watch.load_config().unwrap().config.guard.reserve_tokens,
        1_000
    );
    written.join().unwrap();
    assert!(!watch.has_changed() && !watch.has_changed());
    let refused = watch.load_config().unwrap_err().to_string();
    assert!(refused.contains("read again"), "{refused}");
    assert!(!watch.has_changed() && !watch.has_changed());
}
