//! Shared by the tests that read the log.

use std::{
    io,
    sync::{Arc, Mutex, Once},
};

use serde_json::Value;
use tracing::{Level, subscriber::DefaultGuard};

/// What this thread logs, from the beginning of the value to its end.
pub(crate) struct ThreadLog {
    written: Arc<Written>,
    _subscriber: DefaultGuard,
}

#[derive(Default)]
struct Written(Mutex<Vec<u8>>);

impl io::Write for &Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ThreadLog {
    /// Keeps the lines of this level and of graver ones.
    pub(crate) fn begin(level: Level) -> Self {
        want_every_line();
        let written = Arc::<Written>::default();
        let lines = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(level)
            .with_writer(written.clone());
        Self {
            written,
            _subscriber: tracing::subscriber::set_default(lines.finish()),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.written.0.lock().unwrap().clone()).unwrap()
    }

    /// Each line with its fields beside `level` and `message`.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("one object a line")
    }

    /// The lines whose message contains these words.
    pub(crate) fn lines_with(&self, words: &str) -> Vec<Value> {
        let mut lines = self.lines();
        lines.retain(|line| line["message"].as_str().unwrap().contains(words));
        lines
    }
}

/// `tracing` remembers for the whole process whether any subscriber wants a line. Without a
/// subscriber that wants all lines, a line that another test emits first on a thread without one is
/// never seen again.
fn want_every_line() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let wants_all = tracing_subscriber::registry();
        // Another test may have set one already, which serves as well.
        let _ = tracing::subscriber::set_global_default(wants_all);
    });
}
