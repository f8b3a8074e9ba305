//! What waits for the writer, and how much of it goes into one transaction.

use tokio::sync::{mpsc, oneshot};

use super::batch::{Batch, When, WriteResult};
use crate::store::StoreError;

/// Jobs of one transaction.
const GROUP: usize = 128;

/// Writes something as a part of a transaction.
pub(super) type Write = Box<dyn Fn(&mut Batch<'_>, When) -> WriteResult + Send>;

/// Something for the writer to do.
pub(super) enum What {
    /// In a transaction, and once more where that failed.
    Write(Write),
    /// Time went by.
    Tick,
    /// The log is too long.
    Carry,
    /// A reader met damage in the file of that epoch.
    Damaged { epoch: u64 },
}

pub(super) struct Asked {
    pub(super) what: What,
    /// Where somebody waits for it.
    pub(super) answer: Option<oneshot::Sender<Result<bool, StoreError>>>,
}

impl Asked {
    pub(super) fn answer(self, done: Result<bool, StoreError>) {
        if let Some(answer) = self.answer {
            // Whoever does not wait any more does not want to know.
            let _ = answer.send(done);
        }
    }
}

/// The next group; waits for its first job, unless the writer has `more` to do: then there may be none.
/// `None` once nobody can ask any more.
pub(super) fn next(jobs: &mut mpsc::Receiver<Asked>, more: bool) -> Option<Vec<Asked>> {
    let mut group = Vec::new();
    if !more {
        group.push(jobs.blocking_recv()?);
    }
    while group.len() < GROUP
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
        let (jobs, mut queue) = mpsc::channel(GROUP * 2);
        for _ in 0..GROUP + 3 {
            let asked = Asked {
                what: What::Tick,
                answer: None,
            };
            jobs.try_send(asked).ok().unwrap();
        }
        drop(jobs);
        assert_eq!(next(&mut queue, false).unwrap().len(), GROUP);
        assert_eq!(next(&mut queue, true).unwrap().len(), 3);
        assert_eq!(next(&mut queue, true).unwrap().len(), 0);
        assert!(next(&mut queue, false).is_none());
    }
}
