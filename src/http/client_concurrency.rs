//! One of the requests that a client may have running: held until the last byte of its answer.
//!
//! Counted by the client's name, whatever settings a request began under: so that a limit holds also
//! where it, or the client's key, was changed while requests were running.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

use crate::{error::Failure, wire::Body};

/// A running request; it has ended when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Running {
    one: Option<Arc<One>>,
}

/// How many requests of one client run.
#[derive(Debug, Default)]
pub struct Count(AtomicU32);

/// The counts of all clients; of one that is no more, for as long as a request of it runs.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<Mutex<BTreeMap<String, Weak<Count>>>>);

#[derive(Debug)]
struct One(Arc<Count>);

impl Counts {
    /// The count of the client of that name.
    pub fn of(&self, client: &str) -> Arc<Count> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|_, count| count.strong_count() > 0);
        if let Some(count) = counts.get(client).and_then(Weak::upgrade) {
            return count;
        }
        let count = Arc::default();
        counts.insert(client.to_owned(), Arc::downgrade(&count));
        count
    }
}

impl Count {
    /// Begins one more request; `most`: how many may run, `None` for any number.
    ///
    /// # Errors
    /// All of them run.
    pub fn begin(self: &Arc<Self>, most: Option<u32>) -> Result<Running, Failure> {
        let most = most.unwrap_or(u32::MAX);
        let more = |running| (running < most).then(|| running + 1);
        let begun = self.0.fetch_update(Relaxed, Relaxed, more);
        begun.map_err(|_| Failure::TooManyRequests)?;
        Ok(Running {
            one: Some(Arc::new(One(Arc::clone(self)))),
        })
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

impl Running {
    /// One that nobody counts.
    pub const fn uncounted() -> Self {
        Self { one: None }
    }

    /// The answer, which runs until its body is gone.
    pub fn until_end(self, answer: Response<Body>) -> Response<Body> {
        if self.one.is_none() {
            return answer;
        }
        let running = self;
        answer.map(|body| {
            Runs {
                body,
                _running: running,
            }
            .boxed_unsync()
        })
    }
}

struct Runs {
    body: Body,
    _running: Running,
}

impl http_body::Body for Runs {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Counts;
    use crate::error::Failure;

    #[test]
    fn what_runs_is_counted_under_whatever_limit_it_began() {
        let counts = Counts::default();
        let begin = |most| counts.of("alice").begin(most);
        // Nobody but the running request knows of the count.
        let unbounded = begin(None).unwrap();
        assert_eq!(begin(Some(1)).unwrap_err(), Failure::TooManyRequests);
        assert!(counts.of("bob").begin(Some(1)).is_ok());
        let second = begin(Some(2)).unwrap();
        let clone = second.clone();
        drop((unbounded, second));
        assert!(begin(Some(1)).is_err(), "a clone runs");
        drop(clone);
        assert!(begin(Some(1)).is_ok());
    }

    #[test]
    fn counts_of_nobody_go() {
        let counts = Counts::default();
        let held = counts.of("alice");
        for n in 0..100 {
            let _ = counts.of(&n.to_string());
        }
        assert!(Arc::ptr_eq(&held, &counts.of("alice")));
        assert!(counts.0.lock().unwrap().len() <= 2);
    }
}
