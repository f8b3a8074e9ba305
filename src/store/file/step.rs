//! Several statements as one: a view of the file that stays as it is, or a change that lands whole or
//! not at all.

use std::ops::Deref;

use rusqlite::{Connection, Result};

/// Undone when dropped, unless it was committed. The words that begin and end it stay prepared: they are
/// said for every request.
pub(super) struct Step<'f> {
    file: &'f Connection,
}

impl<'f> Step<'f> {
    pub(super) fn begin(file: &'f Connection) -> Result<Self> {
        file.prepare_cached("BEGIN")?.execute([])?;
        Ok(Self { file })
    }

    pub(super) fn commit(self) -> Result<()> {
        self.file.prepare_cached("COMMIT")?.execute([]).map(drop)
    }
}

impl Deref for Step<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.file
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if self.file.is_autocommit() {
            return;
        }
        let undone = self.file.prepare_cached("ROLLBACK");
        if let Err(error) = undone.and_then(|mut undone| undone.execute([])) {
            tracing::warn!(%error, "a step of the store was not undone");
        }
    }
}
