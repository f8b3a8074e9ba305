//! The writer's queue, and the groups of jobs for one transaction.

use tokio::sync::{mpsc, oneshot};

use super::batch::{Batch, WriteResult, WriteTime};
use crate::store::StoreError;

/// Most jobs of one transaction.
const MAX_GROUP: usize = 128;

pub(super) type WriteFn = Box<dyn Fn(&mut Batch<'_>, WriteTime) -> WriteResult + Send>;

pub(super) enum JobKind {
    /// Runs in a transaction, and once more alone if that fails.
    Write(WriteFn),
    /// Lets the writer check the limits.
    Tick,
    /// Copies the rest of a long log.
    Checkpoint,
    /// A reader found damage in the file of this epoch.
    Damaged { epoch: u64 },
}

pub(super) struct WriterJob {
    pub(super) kind: JobKind,
    /// `None` if the sender does not wait.
    pub(super) answer: Option<oneshot::Sender<Result<bool, StoreError>>>,
}

impl WriterJob {
    pub(super) fn send_answer(self, result: Result<bool, StoreError>) {
        if let Some(answer) = self.answer {
            // An error means that the sender has gone.
            let _ = answer.send(result);
        }
    }
}

/// The next group. It waits for a first job, unless the writer has `more` to do: then the group may be empty. `None`
/// once the queue is closed.
pub(super) fn take_group(
    jobs: &mut mpsc::Receiver<WriterJob>,
    more: bool,
) -> Option<Vec<WriterJob>> {
    let mut group = Vec::new();
    if !more {
        group.push(jobs.blocking_recv()?);
    }
    while group.len() < MAX_GROUP
        && let Ok(job) = jobs.try_recv()
    {
        group.push(job);
    }
    Some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_jobs_go_into_one_group_up_to_its_limit() {
        let (jobs, mut queue) = mpsc::channel(MAX_GROUP * 2);
        for _ in 0..MAX_GROUP + 3 {
            let (kind, answer) = (JobKind::Tick, None);
            jobs.try_send(WriterJob { kind, answer }).ok().unwrap();
        }
        drop(jobs);
        assert_eq!(take_group(&mut queue, false).unwrap().len(), MAX_GROUP);
        assert_eq!(take_group(&mut queue, true).unwrap().len(), 3);
        assert_eq!(take_group(&mut queue, true).unwrap().len(), 0);
        assert!(take_group(&mut queue, false).is_none());
    }
}
