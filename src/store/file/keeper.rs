//! The thread beside the writer: it carries the log over into the file, so that no save waits for that,
//! and tells the writer the time.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};

use super::{
    open,
    queue::{Asked, What},
    readers::Readers,
    schema,
};
use crate::store::StoreError;

/// Pages of the log from which on the writer carries over what came in while that was done, because
/// else it could begin anew at no time. 64 MiB.
const LONG_LOG: i64 = 16_384;

/// How often a long log is carried over before the writer carries over the rest, and a time in
/// which that rest stays small.
const ROUNDS: usize = 4;
const SHORT_ROUND: Duration = Duration::from_millis(10);

/// How often the writer is told the time, and a log carried over that is not long.
const TICK: Duration = Duration::from_secs(5);

/// Carries over a long log until hardly anything comes in meanwhile: that is left to the writer, and
/// saves wait for it.
fn carry_most(readers: &Readers) -> Result<(rusqlite::Result<i64>, u64), StoreError> {
    for _ in 1..ROUNDS {
        let begun = Instant::now();
        let carried = readers.read_here(schema::carry_log_over)?;
        let long = matches!(carried, (Ok(pages), _) if pages > LONG_LOG);
        if !long || begun.elapsed() < SHORT_ROUND {
            return Ok(carried);
        }
    }
    readers.read_here(schema::carry_log_over)
}

/// Carries the log over beside the writer, so that no save waits for it, and tells the time.
pub(super) fn keep(readers: &Readers, jobs: &mpsc::WeakSender<Asked>, due: &Receiver<()>) {
    loop {
        let woken = due.recv_timeout(TICK);
        if matches!(woken, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
        let carried = carry_most(readers);
        let what = match carried {
            // What came in meanwhile is not counted. Only once that is carried over as well does the
            // log begin anew, with the next write.
            Ok((Ok(pages), _)) if pages > LONG_LOG => What::Carry,
            Ok((Err(error), epoch)) if open::is_damage(&error) => What::Damaged { epoch },
            Ok((Err(error), _)) => {
                tracing::warn!(%error, "the store's log could not be carried over into its file");
                What::Tick
            }
            _ => What::Tick,
        };
        let Some(jobs) = jobs.upgrade() else { return };
        let (answer, answered) = oneshot::channel();
        let answer = Some(answer);
        // Waited for: two cannot carry over at one time, and the writer's part ends the log.
        if jobs.blocking_send(Asked { what, answer }).is_ok() {
            let _ = answered.blocking_recv();
        }
    }
}
