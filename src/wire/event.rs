//! Server-sent events: bytes in, events out.
//!
//! Understands every line end (LF, CRLF, CR), any cut of the bytes, comments, several `data:`
//! lines, `event:` names and a byte order mark. An event that lies whole in one chunk is a slice
//! of it. No I/O here, and never more than one event is held: one that passes the bound is given
//! up, and reading goes on after it. Nothing here can fail, since an unhappy parser must not end
//! anybody's stream.

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

/// What ended in the last chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Offset in the last pushed chunk behind the last byte of this event, its blank line
    /// included. What lies between two ends belongs to the later event.
    pub end: usize,
    /// `None` for what is no event: a comment before any field, a stray blank line.
    pub message: Option<Message>,
}

/// An event's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The `event:` name, empty if there was none.
    pub name: Bytes,
    /// The `data:` lines, joined by LF.
    pub data: Bytes,
}

/// Takes a stream apart. Push a chunk, then take events until there are none.
#[derive(Debug)]
pub struct Splitter {
    /// Bytes of one event that are held at most.
    limit: usize,
    chunk: Bytes,
    at: usize,
    /// The beginning of a line whose end has not come yet.
    line: BytesMut,
    /// Whether the current line has bytes already, held or given up.
    midline: bool,
    /// Whether the current event has a field line already.
    begun: bool,
    name: Bytes,
    data: Data,
    /// The current event passed the bound.
    given_up: bool,
    /// The last line ended with a CR at the end of its chunk: an LF may belong to it.
    after_cr: bool,
    /// A byte order mark may still come.
    first_line: bool,
}

#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    One(Bytes),
    Many(BytesMut),
}

impl Data {
    fn add(&mut self, line: Bytes) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(line),
            Self::One(first) => {
                let mut all = BytesMut::from(first);
                all.extend_from_slice(b"\n");
                all.extend_from_slice(&line);
                Self::Many(all)
            }
            Self::Many(mut all) => {
                all.extend_from_slice(b"\n");
                all.extend_from_slice(&line);
                Self::Many(all)
            }
        };
    }

    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(line) => line.len(),
            Self::Many(all) => all.len(),
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        match std::mem::take(self) {
            Self::None => None,
            Self::One(line) => Some(line),
            Self::Many(all) => Some(all.freeze()),
        }
    }
}

impl Splitter {
    /// Holds at most about `limit` bytes of one event.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            chunk: Bytes::new(),
            at: 0,
            line: BytesMut::new(),
            midline: false,
            begun: false,
            name: Bytes::new(),
            data: Data::None,
            given_up: false,
            after_cr: false,
            first_line: true,
        }
    }

    /// The next bytes of the stream. All events of the chunk before must have been taken.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(
            self.at == self.chunk.len(),
            "events were left in the chunk before"
        );
        self.chunk = chunk;
        self.at = 0;
    }

    /// The next event that ends in the chunk.
    pub fn next_event(&mut self) -> Option<Event> {
        if self.after_cr && self.at < self.chunk.len() {
            self.after_cr = false;
            if self.chunk[self.at] == b'\n' {
                self.at += 1;
            }
        }
        while self.at < self.chunk.len() {
            let Some(found) = memchr2(b'\n', b'\r', &self.chunk[self.at..]) else {
                self.keep(self.at);
                self.at = self.chunk.len();
                return None;
            };
            let start = self.at;
            let end = start + found;
            self.at = end + 1;
            if self.chunk[end] == b'\r' {
                match self.chunk.get(self.at) {
                    Some(b'\n') => self.at += 1,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            let blank = !self.midline && start == end;
            let line = self.complete(start, end);
            if let Some(event) = self.take_line(line, blank) {
                return Some(event);
            }
        }
        None
    }

    /// Whether the last byte pushed was the CR of a line end whose LF may still come.
    pub fn after_cr(&self) -> bool {
        self.after_cr
    }

    /// What was begun when the stream ended: many servers leave out the last blank line.
    pub fn finish(&mut self) -> Option<Event> {
        self.push(Bytes::new());
        if self.midline {
            let line = self.complete(0, 0);
            self.take_line(line, false);
        }
        let message = self.dispatch()?;
        Some(Event {
            end: 0,
            message: Some(message),
        })
    }

    /// Keeps the rest of the chunk as the beginning of a line.
    fn keep(&mut self, from: usize) {
        self.midline = true;
        let rest = &self.chunk[from..];
        if self.given_up || self.line.len() + self.data.len() + rest.len() > self.limit {
            self.give_up();
        } else {
            self.line.extend_from_slice(rest);
        }
    }

    fn give_up(&mut self) {
        self.given_up = true;
        // A field may have been cut: the event counts as begun, so that its end is found.
        self.begun = true;
        self.line = BytesMut::new();
        self.data = Data::None;
    }

    /// The line that ends at `end`, together with what was kept of it.
    fn complete(&mut self, start: usize, end: usize) -> Bytes {
        self.midline = false;
        let mut line = if self.line.is_empty() {
            self.chunk.slice(start..end)
        } else {
            self.line.extend_from_slice(&self.chunk[start..end]);
            self.line.split().freeze()
        };
        if std::mem::take(&mut self.first_line) && line.starts_with(b"\xef\xbb\xbf") {
            line = line.slice(3..);
        }
        line
    }

    fn take_line(&mut self, line: Bytes, blank: bool) -> Option<Event> {
        let end = self.at;
        if blank || (line.is_empty() && !self.given_up) {
            return Some(Event {
                end,
                message: self.dispatch(),
            });
        }
        if self.given_up {
            return None;
        }
        if line[0] == b':' {
            return (!self.begun).then_some(Event { end, message: None });
        }
        self.begun = true;
        let (field, value) = match memchr::memchr(b':', &line) {
            Some(colon) => {
                let skip = usize::from(line.get(colon + 1) == Some(&b' '));
                (line.slice(..colon), line.slice(colon + 1 + skip..))
            }
            None => (line.clone(), Bytes::new()),
        };
        match &field[..] {
            b"data" if self.data.len() + value.len() > self.limit => self.give_up(),
            b"data" => self.data.add(value),
            b"event" => self.name = value,
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<Message> {
        self.begun = false;
        self.given_up = false;
        let name = std::mem::take(&mut self.name);
        let data = self.data.take()?;
        Some(Message { name, data })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::{Message, Splitter};

    /// All messages of the pieces, and the bytes cut at the ends that were reported.
    fn split<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
        limit: usize,
    ) -> (Vec<Message>, Vec<u8>) {
        let mut splitter = Splitter::new(limit);
        let (mut messages, mut bytes) = (Vec::new(), Vec::new());
        for piece in pieces {
            splitter.push(Bytes::copy_from_slice(piece));
            let mut at = 0;
            while let Some(event) = splitter.next_event() {
                assert!(event.end > at && event.end <= piece.len());
                bytes.extend_from_slice(&piece[at..event.end]);
                at = event.end;
                messages.extend(event.message);
            }
            bytes.extend_from_slice(&piece[at..]);
        }
        messages.extend(splitter.finish().and_then(|event| event.message));
        (messages, bytes)
    }

    fn message(name: &'static str, data: &'static str) -> Message {
        Message {
            name: name.into(),
            data: data.into(),
        }
    }

    #[test]
    fn understands_the_format() {
        let check = |stream: &str, expected: &[Message]| {
            let (messages, _) = split([stream.as_bytes()], 1 << 20);
            assert_eq!(messages, expected, "{stream:?}");
        };
        check(
            "data: a\n\ndata: b\n\n",
            &[message("", "a"), message("", "b")],
        );
        check(
            "data: a\r\n\r\ndata:b\r\rdata:  c\n\n",
            &[message("", "a"), message("", "b"), message("", " c")],
        );
        check("\u{feff}data: a\n\n", &[message("", "a")]);
        check(
            "event: error\ndata: x\ndata: y\n\n",
            &[message("error", "x\ny")],
        );
        check(": hi\n\ndata: a\n: in between\n\n\n\n", &[message("", "a")]);
        check("id: 1\nretry: 5\n\ndata\n\n", &[message("", "")]);
        check("data: [DONE]", &[message("", "[DONE]")]);
        check("data: [DONE]\n", &[message("", "[DONE]")]);
        check("", &[]);
    }

    #[test]
    fn goes_on_after_an_event_beyond_the_bound() {
        let long = format!("data: {}\n\ndata: b\n\n", "x".repeat(1000));
        for size in [1, 7, 5000] {
            let (messages, bytes) = split(long.as_bytes().chunks(size), 100);
            assert_eq!(messages, [message("", "b")], "pieces of {size}");
            assert_eq!(bytes, long.as_bytes());
        }
    }

    #[test]
    fn a_whole_event_is_a_slice_of_its_chunk() {
        let chunk = Bytes::from_static(b"data: abc\n\n");
        let mut splitter = Splitter::new(100);
        splitter.push(chunk.clone());
        let data = splitter.next_event().unwrap().message.unwrap().data;
        assert_eq!(data.as_ptr(), chunk[6..].as_ptr());
    }

    fn stream() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            Just("data: {\"a\":\"é漢😀\"}".to_owned()),
            Just(": comment".to_owned()),
            Just("event: x".to_owned()),
            Just("data".to_owned()),
            Just(String::new()),
            Just(String::new()),
            "[a-z:{} ]{0,12}",
        ];
        let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\r")];
        prop::collection::vec((line, end), 0..12)
            .prop_map(|lines| lines.into_iter().map(|(line, end)| line + end).collect())
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same(stream in stream(), bom: bool, cuts in prop::collection::vec(0usize..400, 0..6)) {
            let stream = if bom { format!("\u{feff}{stream}") } else { stream };
            let stream = stream.as_bytes();
            let (expected, bytes) = split([stream], 1 << 20);
            prop_assert_eq!(&bytes, stream);
            for at in 0..=stream.len() {
                let (messages, bytes) = split([&stream[..at], &stream[at..]], 1 << 20);
                prop_assert_eq!(&messages, &expected, "cut at {}", at);
                prop_assert_eq!(&bytes, stream);
            }
            let mut cuts: Vec<_> = cuts.into_iter().map(|at| at.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
            prop_assert_eq!(split(pieces, 1 << 20).0, expected.clone());
            prop_assert_eq!(split(stream.chunks(1), 1 << 20).0, expected);
        }
    }
}
