//! What waits for the writer, and how much of it goes into one transaction.

use tokio::sync::{mpsc, oneshot};

use super::batch::{Batch, WriteResult, WriteTime};
use crate::store::StoreError;

/// Jobs of one transaction.
const MAX_GROUP: usize = 128;

/// Writes something as a part of a transaction.
pub(super) type WriteFn = Box<dyn Fn(&mut Batch<'_>, WriteTime) -> WriteResult + Send>;

/// Something for the writer to do.
pub(super) enum JobKind {
    /// In a transaction, and once more where that failed.
    Write(WriteFn),
    /// Time went by.
    Tick,
    /// The log is too long.
    Checkpoint,
    /// A reader met damage in the file of that epoch.
    Damaged { epoch: u64 },
}

pub(super) struct WriterJob {
    pub(super) kind: JobKind,
    /// Where somebody waits for it.
    pub(super) answer: Option<oneshot::Sender<Result<bool, StoreError>>>,
}

impl WriterJob {
    pub(super) fn send_answer(self, done: Result<bool, StoreError>) {
        if let Some(answer) = self.answer {
            // Whoever does not wait any more does not want to know.
            let _ = answer.send(done);
        }
    }
}

/// The next group; waits for its first job, unless the writer has `more` to do: then there may be none.
/// `None` once nobody can ask any more.
pub(super) fn take_group(
    jobs: &mut mpsc::Receiver<WriterJob>,
    more: bool,
) -> Option<Vec<WriterJob>> {
    let mut group = Vec::new();
    if !more {
        group.push(jobs.blocking_recv()?);
    }
    while group.len() < MAX_GROUP
        && let Ok(asked) = jobs.try_recv()
    {
        group.push(asked);
    }
    Some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_waits_goes_into_one_group() {
        let (jobs, mut queue) = mpsc::channel(MAX_GROUP * 2);
        for _ in 0..MAX_GROUP + 3 {
            let asked = WriterJob {
                kind: JobKind::Tick,
                answer: None,
            };
            jobs.try_send(asked).ok().unwrap();
        }
        drop(jobs);
        assert_eq!(take_group(&mut queue, false).unwrap().len(), MAX_GROUP);
        assert_eq!(take_group(&mut queue, true).unwrap().len(), 3);
        assert_eq!(take_group(&mut queue, true).unwrap().len(), 0);
        assert!(take_group(&mut queue, false).is_none());
    }
}
