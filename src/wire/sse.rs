//! Server-sent events: bytes in, events out.
//!
//! The splitter accepts every line end (LF, CRLF, CR), any cut of the bytes, comments, several `data:` lines,
//! `event:` names and a byte order mark. An event within one chunk is a slice of it. At most one event is buffered:
//! one over the limit is emitted unparsed, and parsing continues after it. Nothing fails, since a parse error must
//! not end a client's stream.

use bytes::Bytes;
use memchr::{memchr, memchr2, memchr2_iter};
use smallvec::SmallVec;

use super::gather::BytesGatherer;

const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// All bytes with the blank line; a part of them if the event is over the limit.
    pub raw: Bytes,
    /// `None` for a comment before any field, a stray blank line, and an event over the limit.
    pub message: Option<SseMessage>,
}

/// The content of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseMessage {
    /// The `event:` name; empty if there is none.
    pub name: Bytes,
    /// The `data:` lines, joined by LF.
    pub data: Bytes,
}

/// Splits a stream. Push a chunk, then take events until there are none.
#[derive(Debug, Default)]
pub struct SseSplitter {
    /// Most bytes of one event that are buffered.
    limit: usize,
    chunk: Bytes,
    /// Where the current event begins in the chunk, and where reading continues.
    begin: usize,
    at: usize,
    /// The current event's bytes of earlier chunks, and of this one once all of it is read.
    unfinished: BytesGatherer,
    line: SseLine,
    /// The current event has a field line.
    has_field: bool,
    /// The current event is over the limit.
    too_long: bool,
    /// The last byte was a CR; an LF behind it belongs to the same line end.
    after_cr: bool,
    /// The first event of the stream was taken.
    has_begun: bool,
}

/// The kind of the current line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SseLine {
    #[default]
    Blank,
    Comment,
    Field,
}

impl SseSplitter {
    /// `limit`: most bytes of one event that are buffered.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Adds the next bytes of the stream. All events of the last chunk must have been taken.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.at == self.chunk.len(), "the last chunk has events");
        self.chunk = chunk;
        self.begin = 0;
        self.at = 0;
    }

    /// The next event that ends in the chunk. An event that ends with a CR waits for the next byte, which may be
    /// its LF.
    pub fn next_event(&mut self) -> Option<SseEvent> {
        while let Some(&byte) = self.chunk.get(self.at) {
            if self.after_cr {
                self.after_cr = false;
                self.at += usize::from(byte == b'\n');
            } else {
                if self.line == SseLine::Blank {
                    self.line = match byte {
                        b'\r' | b'\n' => SseLine::Blank,
                        b':' => SseLine::Comment,
                        _ => SseLine::Field,
                    };
                }
                let Some(found) = memchr2(b'\n', b'\r', &self.chunk[self.at..]) else {
                    break;
                };
                self.at += found + 1;
                if self.chunk[self.at - 1] == b'\r' {
                    self.after_cr = true;
                    continue;
                }
            }
            if self.ends_event() {
                return Some(self.take_event());
            }
        }
        self.at = self.chunk.len();
        self.keep_rest()
    }

    /// Whether the line that ends here ends the event. A line before any field is an event without a message.
    fn ends_event(&mut self) -> bool {
        let line = std::mem::take(&mut self.line);
        self.has_field |= line == SseLine::Field;
        line == SseLine::Blank || !self.has_field
    }

    fn take_event(&mut self) -> SseEvent {
        let last = self.chunk.slice(self.begin..self.at);
        self.begin = self.at;
        self.has_field = false;
        self.unfinished.push(last);
        let raw = std::mem::take(&mut self.unfinished).finish();
        let too_long = std::mem::take(&mut self.too_long) || raw.len() > self.limit;
        let first = !std::mem::replace(&mut self.has_begun, true);
        let message = (!too_long).then(|| parse_message(&raw, first)).flatten();
        SseEvent { raw, message }
    }

    /// Keeps the rest of the chunk as the beginning of an event; emits it if it is over the limit.
    fn keep_rest(&mut self) -> Option<SseEvent> {
        if self.begin < self.at {
            self.unfinished.push(self.chunk.slice(self.begin..));
            self.begin = self.at;
        }
        self.too_long |= self.unfinished.len() > self.limit;
        (self.too_long && !self.unfinished.is_empty()).then(|| SseEvent {
            raw: std::mem::take(&mut self.unfinished).finish(),
            message: None,
        })
    }

    /// The bytes of an event without an end, once all events of the chunk are taken.
    pub fn unfinished_bytes(&self) -> &[u8] {
        self.unfinished.as_bytes()
    }

    /// The event at the end of the stream: many servers omit its blank line.
    pub fn finish(&mut self) -> Option<SseEvent> {
        self.push(Bytes::new());
        self.after_cr = false;
        let event = self.take_event();
        (!event.raw.is_empty()).then_some(event)
    }
}

/// Reads all lines of an event; `None` if it has no data.
fn parse_message(raw: &Bytes, first: bool) -> Option<SseMessage> {
    let mut name = Bytes::new();
    let mut data = SmallVec::<[&[u8]; 1]>::new();
    let mut begin = BOM.len() * usize::from(first && raw.starts_with(BOM));
    for end in memchr2_iter(b'\n', b'\r', raw).chain([raw.len()]) {
        let line = &raw[begin..end];
        begin = end + 1;
        let colon = memchr(b':', line).unwrap_or(line.len());
        let (field, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => data.push(value),
            b"event" => name = raw.slice_ref(value),
            _ => {}
        }
    }
    let data = match data[..] {
        [] => return None,
        [only] => raw.slice_ref(only),
        _ => data.join(&b'\n').into(),
    };
    Some(SseMessage { name, data })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::{SseMessage, SseSplitter};

    /// All messages of the pieces, and the bytes of all events.
    fn split<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
        limit: usize,
    ) -> (Vec<SseMessage>, Vec<u8>) {
        let mut splitter = SseSplitter::new(limit);
        let (mut messages, mut bytes) = (Vec::new(), Vec::new());
        for piece in pieces {
            splitter.push(Bytes::copy_from_slice(piece));
            while let Some(event) = splitter.next_event() {
                assert!(!event.raw.is_empty());
                bytes.extend_from_slice(&event.raw);
                messages.extend(event.message);
            }
            assert!(splitter.unfinished_bytes().len() <= limit);
        }
        if let Some(event) = splitter.finish() {
            bytes.extend_from_slice(&event.raw);
            messages.extend(event.message);
        }
        (messages, bytes)
    }

    fn message(name: &'static str, data: &'static str) -> SseMessage {
        SseMessage {
            name: name.into(),
            data: data.into(),
        }
    }

    #[test]
    fn events_are_parsed_with_every_line_end_and_field() {
        let check = |stream: &str, expected: &[SseMessage]| {
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
    fn parsing_continues_after_an_event_over_the_limit() {
        let long = format!("data: {}\n\ndata: b\n\n", "x".repeat(1000));
        for size in [1, 7, 5000] {
            let (messages, bytes) = split(long.as_bytes().chunks(size), 100);
            assert_eq!(messages, [message("", "b")], "pieces of {size}");
            assert_eq!(bytes, long.as_bytes());
        }
    }

    #[test]
    fn an_event_within_one_chunk_is_not_copied() {
        let chunk = Bytes::from_static(b"data: abc\n\n");
        let mut splitter = SseSplitter::new(100);
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
        fn any_cut_gives_the_same_events(stream in stream(), bom: bool, cuts in prop::collection::vec(0usize..400, 0..6)) {
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
