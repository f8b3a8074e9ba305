//! Event streams: every cut gives the same events, and the relay sends the same bytes.

use bytes::Bytes;
use plimsoll::wire::sse::{SseMessage, SseSplitter};

use super::{pieces, relay, split};

/// Bytes of one event that are buffered; small, so that inputs reach the limit.
const LIMIT: usize = 64;

/// The first byte says how the stream is cut, the second how it is relayed.
pub(super) fn check(data: &[u8]) {
    let (head, stream) = split(data, 2);
    let whole = read(&[stream], 1 << 20);
    for seed in [head[0], 0] {
        let cut = read(&pieces(stream, seed), 1 << 20);
        assert_eq!(cut, whole, "the cut {seed} changes what is read");
    }
    as_written(stream, &whole);
    // With a limit no event is longer, and every event is one of the stream.
    for message in read(&pieces(stream, head[0]), LIMIT) {
        assert!(message.data.len() <= LIMIT + LIMIT, "{message:?}");
    }
    relay::check(stream, head[0], head[1]);
}

fn read(pieces: &[&[u8]], limit: usize) -> Vec<SseMessage> {
    let mut splitter = SseSplitter::new(limit);
    let (mut messages, mut bytes) = (Vec::new(), Vec::new());
    for piece in pieces {
        splitter.push(Bytes::copy_from_slice(piece));
        while let Some(event) = splitter.next_event() {
            assert!(!event.raw.is_empty());
            bytes.extend_from_slice(&event.raw);
            messages.extend(event.message);
        }
    }
    if let Some(event) = splitter.finish() {
        bytes.extend_from_slice(&event.raw);
        messages.extend(event.message);
    }
    assert!(
        bytes == pieces.concat(),
        "events are all the bytes of the stream"
    );
    messages
}

/// The events of a stream, read by the rules of the SSE standard.
fn as_written(stream: &[u8], read: &[SseMessage]) {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let mut lines = Vec::new();
    let (mut line, mut bytes) = (Vec::new(), stream.iter().peekable());
    while let Some(&byte) = bytes.next() {
        if byte == b'\r' {
            bytes.next_if(|next| **next == b'\n');
        }
        if byte == b'\n' || byte == b'\r' {
            lines.push(std::mem::take(&mut line));
        } else {
            line.push(byte);
        }
    }
    // The rest, with the blank line that servers leave out.
    lines.extend([line, Vec::new()]);
    let (mut expected, mut name, mut data) = (Vec::new(), Vec::new(), None::<Vec<u8>>);
    for line in lines {
        if line.is_empty() {
            let name = std::mem::take(&mut name).into();
            if let Some(data) = data.take() {
                let data = data.into();
                expected.push(SseMessage { name, data });
            }
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match (field, &mut data) {
            (b"data", Some(data)) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            (b"data", None) => data = Some(value.to_vec()),
            (b"event", _) => name = value.to_vec(),
            _ => {}
        }
    }
    assert_eq!(read, expected);
}
