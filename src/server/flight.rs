//! Bytes in flight: one bound over all request and buffered answer bodies.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::wire::Body;

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

    /// Bytes that keep their room until the last of them is gone: a client that reads slowly
    /// leaves an answer in the server's write queue, long after its body was taken.
    pub fn keep(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Kept { bytes, _hold: self })
    }

    /// A body that keeps the room until it is gone.
    pub fn keep_for(self, body: Body) -> Body {
        let keep = move |frame| {
            let _ = &self;
            frame
        };
        body.map_frame(keep).boxed_unsync()
    }
}

struct Kept {
    bytes: Bytes,
    _hold: Hold,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Flight;

    #[test]
    fn bytes_keep_their_room_while_any_of_them_is_left() {
        let flight = Flight::new(10);
        let mut hold = flight.hold();
        assert!(hold.grow(10));
        let bytes = hold.keep("0123456789".into());
        let rest = bytes.slice(8..);
        drop(bytes);
        assert!(!flight.hold().grow(1));
        assert_eq!(rest, "89");
        drop(rest);
        assert!(flight.hold().grow(10));
    }

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
