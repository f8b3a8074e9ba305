//! The thread beside the writer: it carries the log over into the file, so that no save waits for that,
//! and tells the writer the time.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};

use super::{
    open,
    readers::Readers,
    schema,
    write_queue::{JobKind, WriterJob},
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
fn checkpoint_long_log(readers: &Readers) -> Result<(rusqlite::Result<i64>, u64), StoreError> {
    for _ in 1..ROUNDS {
        let begun = Instant::now();
        let carried = readers.read_here(schema::checkpoint_log)?;
        let long = matches!(carried, (Ok(pages), _) if pages > LONG_LOG);
        if !long || begun.elapsed() < SHORT_ROUND {
            return Ok(carried);
        }
    }
    readers.read_here(schema::checkpoint_log)
}

/// Carries the log over beside the writer, so that no save waits for it, and tells the time.
pub(super) fn run_checkpointer(
    readers: &Readers,
    jobs: &mpsc::WeakSender<WriterJob>,
    due: &Receiver<()>,
) {
    loop {
        let woken = due.recv_timeout(TICK);
        if matches!(woken, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
        let carried = checkpoint_long_log(readers);
        let what = match carried {
            // What came in meanwhile is not counted. Only once that is carried over as well does the
            // log begin anew, with the next write.
            Ok((Ok(pages), _)) if pages > LONG_LOG => JobKind::Checkpoint,
            Ok((Err(error), epoch)) if open::is_damage(&error) => JobKind::Damaged { epoch },
            Ok((Err(error), _)) => {
                tracing::warn!(%error, "the store's log could not be carried over into its file");
                JobKind::Tick
            }
            _ => JobKind::Tick,
        };
        let Some(jobs) = jobs.upgrade() else { return };
        let (answer, answered) = oneshot::channel();
        let answer = Some(answer);
        // Waited for: two cannot carry over at one time, and the writer's part ends the log.
        if jobs.blocking_send(WriterJob { kind: what, answer }).is_ok() {
            let _ = answered.blocking_recv();
        }
    }
}
