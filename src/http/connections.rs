//! How many connections are open, and how many may be.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::Notify;

/// The bound, which may change while connections are open: then those above it stay, and no other
/// comes before enough of them have closed.
#[derive(Clone, Debug)]
pub struct Connections {
    count: Arc<Count>,
}

/// One of the connections that may be open at one time: until the last clone is dropped, so that
/// one that leaves HTTP counts on.
#[derive(Clone, Debug)]
pub struct Open {
    _one: Arc<One>,
}

#[derive(Debug)]
struct Count {
    open: AtomicUsize,
    most: AtomicUsize,
    /// Told of whatever may leave room for one more.
    changed: Notify,
}

#[derive(Debug)]
struct One(Arc<Count>);

impl Connections {
    pub fn new(most: usize) -> Self {
        Self {
            count: Arc::new(Count {
                open: AtomicUsize::new(0),
                most: AtomicUsize::new(most),
                changed: Notify::new(),
            }),
        }
    }

    /// Changes how many may be open.
    pub fn allow(&self, most: usize) {
        self.count.most.store(most, Relaxed);
        self.count.changed.notify_one();
    }

    /// Waits until one more may be open. For one caller at a time.
    pub async fn next(&self) -> Open {
        loop {
            let most = self.count.most.load(Relaxed);
            let more = |open| (open < most).then_some(open + 1);
            if self.count.open.fetch_update(Relaxed, Relaxed, more).is_ok() {
                return Open {
                    _one: Arc::new(One(Arc::clone(&self.count))),
                };
            }
            // What changes before this line leaves a note that it finds.
            self.count.changed.notified().await;
        }
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::Connections;

    #[test]
    fn the_bound_holds_and_may_change() {
        let connections = Connections::new(2);
        let next = || connections.next().now_or_never();
        let (first, second) = (next().unwrap(), next().unwrap());
        assert!(next().is_none());
        connections.allow(3);
        let third = next().unwrap();
        connections.allow(1);
        let clone = first.clone();
        drop((first, second));
        assert!(next().is_none(), "a clone is open, and the third");
        drop(third);
        assert!(next().is_none());
        drop(clone);
        assert!(next().is_some());
    }

    #[tokio::test]
    async fn whoever_waits_is_told() {
        let connections = Connections::new(1);
        let first = connections.next().await;
        let mut second = std::pin::pin!(connections.next());
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        second.await;
    }
}
