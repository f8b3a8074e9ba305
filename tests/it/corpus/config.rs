//! Any bytes as a settings file: either valid settings, or a list of problems.

use std::{fs, path::PathBuf};

use plimsoll::config::{self, Environment, Flags};

pub(super) fn check(data: &[u8]) {
    let file = File::with(data);
    let flags = Flags {
        config: Some(file.0.clone()),
        listen: None,
    };
    match config::load_config(&flags, &Environment::default()) {
        Ok(loaded) => {
            let _ = format!("{:?}", loaded.config);
        }
        Err(problems) => {
            assert!(!problems.0.is_empty(), "refused without a reason");
            for problem in &problems.0 {
                assert!(!problem.message.is_empty());
                assert!(
                    problem.to_string().len() < data.len() * 8 + 4_096,
                    "{problem}"
                );
            }
        }
    }
}

/// A file for this thread only, removed at the end.
struct File(PathBuf);

impl File {
    fn with(data: &[u8]) -> Self {
        let thread = std::thread::current().id();
        let name = format!("plimsoll-{}-{thread:?}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, data).expect("a temporary file");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
