//! Bytes in flight: one bound over all request and buffered answer bodies.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use http_body_util::BodyExt;

use crate::wire::Body;

/// The bound. It may change while bytes are held: where it falls below what is taken, nothing more is
/// given until enough came back.
#[derive(Clone, Debug)]
pub struct Flight {
    room: Arc<Room>,
}

/// A part of the room, given back on drop.
#[derive(Debug)]
pub struct Hold {
    room: Arc<Room>,
    bytes: usize,
}

#[derive(Debug)]
struct Room {
    taken: AtomicUsize,
    most: AtomicUsize,
}

impl Flight {
    pub fn new(max_bytes: usize) -> Self {
        Self {
            room: Arc::new(Room {
                taken: AtomicUsize::new(0),
                most: AtomicUsize::new(max_bytes),
            }),
        }
    }

    /// Changes how many bytes there may be.
    pub fn allow(&self, max_bytes: usize) {
        self.room.most.store(max_bytes, Relaxed);
    }

    /// Bytes that are held now.
    pub fn taken(&self) -> usize {
        self.room.taken.load(Relaxed)
    }

    /// Nothing yet.
    pub fn hold(&self) -> Hold {
        Hold {
            room: Arc::clone(&self.room),
            bytes: 0,
        }
    }
}

impl Hold {
    /// Takes room for more bytes; `false` if there is none. Never waits: bodies that wait for
    /// each other's room would wait for ever.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let most = self.room.most.load(Relaxed);
        let more = |taken: usize| taken.checked_add(bytes).filter(|all| *all <= most);
        let grown = self.room.taken.fetch_update(Relaxed, Relaxed, more).is_ok();
        if grown {
            self.bytes += bytes;
        }
        grown
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

impl Drop for Hold {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Relaxed);
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
    #[test]
    fn the_bound_may_change_while_bytes_are_held() {
        let flight = Flight::new(10);
        let (mut first, mut second) = (flight.hold(), flight.hold());
        assert!(first.grow(6) && second.grow(4));
        flight.allow(5);
        drop(second);
        assert!(!flight.hold().grow(1), "six of five are taken");
        drop(first);
        assert!(flight.hold().grow(5));
        assert!(!flight.hold().grow(6));
        flight.allow(6);
        assert!(flight.hold().grow(6));
    }
}
