//! Bytes in flight: one bound over all request and buffered answer bodies.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bound.
#[derive(Clone, Debug)]
pub struct Flight {
    room: Arc<Semaphore>,
}

/// A part of the room, given back on drop.
#[derive(Debug)]
pub struct Hold {
    flight: Flight,
    permit: Option<OwnedSemaphorePermit>,
}

impl Flight {
    pub fn new(max_bytes: usize) -> Self {
        Self {
            room: Arc::new(Semaphore::new(max_bytes.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Nothing yet.
    pub fn hold(&self) -> Hold {
        Hold {
            flight: self.clone(),
            permit: None,
        }
    }
}

impl Hold {
    /// Takes room for more bytes; `false` if there is none. Never waits: bodies that wait for
    /// each other's room would wait for ever.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let Ok(bytes) = u32::try_from(bytes) else {
            return false;
        };
        let Ok(more) = Arc::clone(&self.flight.room).try_acquire_many_owned(bytes) else {
            return false;
        };
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Flight;

    #[test]
    fn room_is_given_back() {
        let flight = Flight::new(10);
        let mut first = flight.hold();
        assert!(first.grow(4) && first.grow(4));
        assert!(!first.grow(4));
        let mut second = flight.hold();
        assert!(!second.grow(3));
        drop(first);
        assert!(second.grow(10));
    }
}
