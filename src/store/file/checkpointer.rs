//! The checkpointer thread: it copies the write-ahead log into the file, so that no save waits for that, and sends
//! the writer a regular tick.

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

/// Pages of a log (64 MiB) whose last part the writer copies, since otherwise a busy log never starts over.
const LONG_LOG: i64 = 16_384;

/// Most checkpoints of a long log in a row, and the duration after which little is left to copy.
const ROUNDS: usize = 4;
const SHORT_ROUND: Duration = Duration::from_millis(10);

/// The interval of ticks, and of checkpoints of a short log.
const TICK: Duration = Duration::from_secs(5);

/// Checkpoints a long log until little is added meanwhile. The writer copies that rest, and saves wait for it.
fn checkpoint_long_log(readers: &Readers) -> Result<(rusqlite::Result<i64>, u64), StoreError> {
    for _ in 1..ROUNDS {
        let begun = Instant::now();
        let copied = readers.read_here(schema::checkpoint_log)?;
        let is_long = matches!(copied, (Ok(pages), _) if pages > LONG_LOG);
        if !is_long || begun.elapsed() < SHORT_ROUND {
            return Ok(copied);
        }
    }
    readers.read_here(schema::checkpoint_log)
}

/// Ends once the sender of `due` or the writer's queue is closed.
pub(super) fn run_checkpointer(
    readers: &Readers,
    jobs: &mpsc::WeakSender<WriterJob>,
    due: &Receiver<()>,
) {
    loop {
        if due.recv_timeout(TICK) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        let kind = match checkpoint_long_log(readers) {
            // The log starts over with the next write once the pages added meanwhile are copied too.
            Ok((Ok(pages), _)) if pages > LONG_LOG => JobKind::Checkpoint,
            Ok((Err(error), epoch)) if open::is_damage(&error) => JobKind::Damaged { epoch },
            Ok((Err(error), _)) => {
                tracing::warn!(%error, "cannot copy the store's write-ahead log into its file");
                JobKind::Tick
            }
            _ => JobKind::Tick,
        };
        let Some(jobs) = jobs.upgrade() else { return };
        let (answer, answered) = oneshot::channel();
        let answer = Some(answer);
        // Waits for the writer, since two checkpoints cannot run at once.
        if jobs.blocking_send(WriterJob { kind, answer }).is_ok() {
            let _ = answered.blocking_recv();
        }
    }
}
